"""The base of the tree, and its three kinds: the caller's fault, a conflict, and what may be sent again."""

from __future__ import annotations

from typing import Any, ClassVar


class TurnkeepError(Exception):
    """Base of all errors of turnkeep.

    Attributes:
        code: the stable name in a reply's ``error.code``; None where the reference has none.
        status: the HTTP status of API.md.
        fact_names: attributes that a reply may show, by their name in JSON.
    """

    code: ClassVar[str | None] = None
    status: ClassVar[int] = 500
    fact_names: ClassVar[dict[str, str]] = {}

    def facts(self) -> dict[str, Any]:
        """The error's facts for a reply: JSON name to value, absent ones left out."""
        found = {name: getattr(self, attribute, None) for attribute, name in self.fact_names.items()}
        return {name: value for name, value in found.items() if value is not None}


class CallerError(TurnkeepError):
    """The request cannot succeed as it is; sending it again changes nothing."""

    status = 400


class ConflictError(TurnkeepError):
    """The conversation's state does not allow this request now."""

    status = 409


class RetryableError(TurnkeepError):
    """Nothing was lost and nothing is wrong with the request: the same request may be sent again."""

    status = 503
    fact_names: ClassVar[dict[str, str]] = {}
    retry_after_s: int = 1
