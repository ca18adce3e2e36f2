"""Prints a token that the local stack takes: ``python -m local.token alice --tenant acme --roles supervisor``."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from joserfc import jwt

from local.keys import KEY_ID, load_or_create_key
from local.settings import AUDIENCE, ISSUER, Settings

TENANT_CLAIM = "tenant"
ROLES_CLAIM = "roles"
LIFE_S = 12 * 3600


def make_token(
    user: str,
    tenant: str | None = None,
    roles: list[str] | None = None,
    *,
    state_dir: Path,
    life_s: int = LIFE_S,
    claims: dict[str, Any] | None = None,
) -> str:
    """A signed token for a user.

    Args:
        user: Its `sub`.
        tenant: The tenant's name, or None.
        roles: The roles' names.
        state_dir: Where the stack keeps its key.
        life_s: Seconds until it expires; a negative number makes one that has expired.
        claims: Laid over the claims, for tests of tokens that are refused.
    """
    now_s = int(time.time())
    wanted: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + life_s}
    if tenant:
        wanted[TENANT_CLAIM] = tenant
    if roles:
        wanted[ROLES_CLAIM] = roles
    return jwt.encode({"alg": "RS256", "kid": KEY_ID}, wanted | (claims or {}), load_or_create_key(state_dir))


def main(arguments: list[str] | None = None) -> int:
    """Reads the command line and prints the token, and nothing else."""
    parser = argparse.ArgumentParser(prog="python -m local.token", description=__doc__)
    environment = os.environ  # `make token USER=alice` hands its variables over here
    parser.add_argument("user", nargs="?", default=environment.get("USER"), help="who the token is for: its `sub`")
    parser.add_argument("--tenant", default=environment.get("TENANT"), help="the tenant claim")
    parser.add_argument("--roles", default=environment.get("ROLES", ""), help="role names, separated by commas")
    parser.add_argument("--state-dir", default=Settings().state_dir, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.user:
        parser.error("say who the token is for")
    roles = [role for role in options.roles.split(",") if role]
    for role in roles:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", role):
            parser.error(f"a role consists of letters, digits and . _ -, not {role!r}")
    print(make_token(options.user, options.tenant, roles, state_dir=Path(options.state_dir)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
