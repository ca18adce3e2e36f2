"""The gateway's JWT authorizer: what it checks, and the text into which it turns claims."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from joserfc import jwt
from joserfc.errors import JoseError

if TYPE_CHECKING:
    from joserfc.jwk import RSAKey


class Refused(Exception):
    """The token is none that the gateway takes."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.challenge = f'Bearer scope="" error="invalid_token" error_description="{reason}"'


@dataclass(frozen=True)
class Authorizer:
    """Checks tokens of one issuer for one audience."""

    key: RSAKey
    issuer: str
    audience: str

    def claims(self, header: str) -> dict[str, str]:
        """The verified claims of an `Authorization` header, as the gateway hands them over: every one a text.

        Raises:
            Refused: Not a token, a foreign or unsigned one, or one out of its time.
        """
        word, _, rest = header.strip().partition(" ")
        token = rest.strip() if word.lower() == "bearer" else header.strip()
        try:
            claims = jwt.decode(token, self.key, algorithms=["RS256"]).claims
        except (JoseError, ValueError, TypeError) as error:
            raise Refused("the token is malformed or its signature is wrong") from error
        now_s = time.time()
        audiences = claims.get("aud", claims.get("client_id"))
        if claims.get("iss") != self.issuer:
            raise Refused("invalid issuer")
        if self.audience not in (audiences if isinstance(audiences, list) else [audiences]):
            raise Refused("invalid audience")
        if not _is_number(claims.get("exp")) or claims["exp"] <= now_s:
            raise Refused("the token has expired")
        for name in ("nbf", "iat"):
            if name in claims and (not _is_number(claims[name]) or claims[name] > now_s + 1):
                raise Refused("the token is not valid yet")
        return {name: as_text(value) for name, value in claims.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_text(value: Any) -> str:
    """A claim as text: `[a b]` for a list, `map[a:1]` for an object, `true`, `1700000000`."""
    match value:
        case str():
            return value
        case list():
            return f"[{' '.join(as_text(part) for part in value)}]"
        case dict():
            return f"map[{' '.join(f'{name}:{as_text(part)}' for name, part in sorted(value.items()))}]"
        case None:
            return "<nil>"
        case _:
            return json.dumps(value)
