"""Keeps a measurement to itself."""

from __future__ import annotations

import os

from bench.turnkeep_turn import REGION


def stand_alone() -> None:
    """Nothing of the caller's own AWS settings takes part from here on: neither credentials nor an endpoint."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
