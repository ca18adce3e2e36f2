"""``Prefer`` (RFC 7240) and ``Idempotency-Key``: what a caller wishes about how a request is handled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from turnkeep.errors import InvalidRequestError

MAX_WAIT_S: Final = 25
"""API Gateway gives up after 30 s; a longer wait would end as its error."""

_PREFERENCE: Final = re.compile(
    r"""\s*(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*
        (?:=\s*(?P<value>"(?:[^"\\]|\\.)*"|[!#$%&'*+.^_`|~0-9A-Za-z-]*)\s*)?
        (?:;(?:[^",]|"(?:[^"\\]|\\.)*")*)?(?:,|\Z)""",
    re.VERBOSE,
)
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
MAX_KEY_CHARACTERS: Final = 255


@dataclass(frozen=True)
class Preferences:
    """What a request prefers.

    Attributes:
        wait_s: wait so long for the turn to end, at most ``MAX_WAIT_S``; None where nothing was said.
        respond_async: answer as soon as the turn is queued.
    """

    wait_s: int | None = None
    respond_async: bool = False

    @property
    def wait_ms(self) -> int | None:
        """``wait_s`` in milliseconds."""
        return None if self.wait_s is None else self.wait_s * 1000


def parse_prefer(header: str | None) -> Preferences:
    """Reads a ``Prefer`` header. Of a preference that is there twice the first counts.

    A preference that is unknown, or whose value makes no sense, is ignored, as RFC 7240 demands: it never fails a
    request. A wait over ``MAX_WAIT_S`` is cut to it.
    """
    found: dict[str, str] = {}
    rest = header or ""
    position = 0
    while position < len(rest):
        match = _PREFERENCE.match(rest, position)
        if match is None or match.end() == position:
            comma = rest.find(",", position)
            if comma < 0:
                break
            position = comma + 1
            continue
        value = match.group("value") or ""
        found.setdefault(match.group("name").lower(), value.strip('"'))
        position = match.end()
    wait = found.get("wait", "")
    return Preferences(
        wait_s=min(int(wait), MAX_WAIT_S) if _DIGITS.fullmatch(wait) else None,
        respond_async=found.get("respond-async") == "",
    )


def parse_idempotency_key(header: str | None) -> str | None:
    """An ``Idempotency-Key`` header's key; None where the request has none.

    Raises:
        InvalidRequestError: not 1 to 255 printable characters.
    """
    if header is None:
        return None
    if not 0 < len(header) <= MAX_KEY_CHARACTERS or not header.isprintable():
        raise InvalidRequestError(
            "An Idempotency-Key is 1 to 255 printable characters.", fields=["header.idempotency-key"]
        )
    return header
