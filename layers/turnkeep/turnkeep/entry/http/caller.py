"""Who is calling: what the gateway's JWT authorizer verified, and nothing else.

Never a header, a body's field, an id, or the claims of another kind of authorizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from turnkeep.errors import IdentityNotVerifiedError
from turnkeep.usecases.deps import Caller

ROLE: Final = re.compile(r"[A-Za-z0-9._-]+")
MAX_NAME_BYTES: Final = 512
"""Of a principal or a tenant. Both stand in keys, which DynamoDB bounds at 2,048 bytes (1,024 for a sort key)."""


def caller_of(
    authorizer: Mapping[str, Any], *, tenant_claim: str = "", roles_claim: str = "", allow_anonymous: bool = False
) -> Caller:
    """The verified caller, or an anonymous one where that is allowed.

    Args:
        authorizer: ``requestContext.authorizer`` of the event.
        tenant_claim: the claim that names the tenant; empty: this stack has no tenants.
        roles_claim: the claim that lists roles; empty: nobody has one.
        allow_anonymous: whether a request without claims comes in.

    Raises:
        IdentityNotVerifiedError: no claims where they are required, or claims that name nobody.
    """
    jwt = authorizer.get("jwt")
    claims = jwt.get("claims") if isinstance(jwt, Mapping) else None
    if not isinstance(claims, Mapping) or not claims:
        if allow_anonymous:
            return Caller()
        raise IdentityNotVerifiedError(failure="no-token")
    principal = _name(claims.get("sub"))
    if principal is None:
        raise IdentityNotVerifiedError(failure="unverifiable")
    tenant = _name(claims[tenant_claim]) if tenant_claim and claims.get(tenant_claim) else None
    return Caller(principal=principal, tenant=tenant, roles=_roles(claims.get(roles_claim) if roles_claim else None))


def _name(claim: Any) -> str | None:
    """A claim that names somebody; None for an empty one.

    Raises:
        IdentityNotVerifiedError: no text, or text that no key could hold.
    """
    if claim is None or claim == "":
        return None
    if not isinstance(claim, str):
        raise IdentityNotVerifiedError(failure="unverifiable")
    try:
        size_bytes = len(claim.encode())
    except UnicodeEncodeError as error:
        raise IdentityNotVerifiedError(failure="unverifiable") from error
    if size_bytes > MAX_NAME_BYTES:
        raise IdentityNotVerifiedError(failure="unverifiable")
    return claim


def _roles(claim: Any) -> frozenset[str]:
    """Roles of a claim. The gateway hands a list over as text, ``[a b]``; a plain text may hold several as well.

    What is not made of a role's characters is left out: it could not be an ask's audience.
    """
    if isinstance(claim, str):
        inner = claim[1:-1] if claim.startswith("[") and claim.endswith("]") else claim
        words = inner.split()
    elif isinstance(claim, list):
        words = [word for word in claim if isinstance(word, str)]
    else:
        words = []
    return frozenset(word for word in words if ROLE.fullmatch(word))
