"""The local issuer's signing key: made once a checkout, kept where only its user can read it."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

from joserfc.jwk import RSAKey

if TYPE_CHECKING:
    from pathlib import Path

KEY_FILE = "issuer-key.pem"
KEY_ID = "turnkeep-local"


def load_or_create_key(state_dir: Path) -> RSAKey:
    """The key in `state_dir`, made there where there is none. Any number of processes may ask at once."""
    path = state_dir / KEY_FILE
    if not path.is_file():
        state_dir.mkdir(parents=True, exist_ok=True)
        made = RSAKey.generate_key(2048, private=True)
        part = state_dir / f"{KEY_FILE}.{secrets.token_hex(8)}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.as_pem(private=True))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)  # the first one stays
        part.unlink()
    return RSAKey.import_key(path.read_bytes(), {"kid": KEY_ID})


def public_keys(key: RSAKey) -> dict[str, object]:
    """The key set that the issuer publishes."""
    return {"keys": [{**key.as_dict(private=False), "use": "sig", "alg": "RS256"}]}
