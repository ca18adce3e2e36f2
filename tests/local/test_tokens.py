"""The local issuer: a key that only its user can read, and a command that prints a token and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from local.authorizer import Authorizer, Refused, as_text
from local.keys import KEY_FILE, load_or_create_key, public_keys
from local.settings import AUDIENCE, ISSUER, ROOT
from local.token import make_token

if TYPE_CHECKING:
    from pathlib import Path


def test_the_key_is_made_once_and_readable_by_its_user_alone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: load_or_create_key(state).as_pem(private=True), range(4)))
    assert len(set(keys)) == 1
    assert stat.S_IMODE((state / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == [KEY_FILE]


def test_the_published_keys_hold_nothing_private(tmp_path: Path) -> None:
    (key,) = public_keys(load_or_create_key(tmp_path))["keys"]  # type: ignore[misc]
    assert set(key) == {"kty", "n", "e", "kid", "use", "alg"}


@pytest.mark.process
def test_the_command_prints_a_token_and_nothing_else(tmp_path: Path) -> None:
    environment = {**os.environ, "USER": "alice", "TENANT": "acme", "ROLES": "supervisor,clerk"}
    printed = subprocess.run(
        [sys.executable, "-m", "local.token", "--state-dir", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert printed.stderr == ""
    assert printed.stdout.count("\n") == 1
    claims = Authorizer(load_or_create_key(tmp_path), ISSUER, AUDIENCE).claims(f"Bearer {printed.stdout.strip()}")
    assert (claims["sub"], claims["tenant"], claims["roles"]) == ("alice", "acme", "[supervisor clerk]")


def test_a_symmetric_signature_is_refused(tmp_path: Path) -> None:
    """The public key as an HMAC secret is the oldest trick there is."""
    from joserfc import jwt
    from joserfc.jwk import OctKey

    key = load_or_create_key(tmp_path)
    forged = jwt.encode({"alg": "HS256"}, {"iss": ISSUER, "aud": AUDIENCE, "sub": "a"}, OctKey.import_key("s" * 32))
    with pytest.raises(Refused):
        Authorizer(key, ISSUER, AUDIENCE).claims(f"Bearer {forged}")
    assert Authorizer(key, ISSUER, AUDIENCE).claims(make_token("a", state_dir=tmp_path))["sub"] == "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (["a", "b"], "[a b]"),
        ([], "[]"),
        (True, "true"),
        (3, "3"),
        (None, "<nil>"),
        ({"b": 1, "a": ["x"]}, "map[a:[x] b:1]"),
    ],
)
def test_claims_become_text_as_the_gateway_writes_them(value: object, text: str) -> None:
    assert as_text(value) == text
