"""The ledger's table as the template describes it, made anew for whoever asks."""

from __future__ import annotations

import threading
import uuid
from functools import cache
from typing import Any

from local.settings import ROOT
from local.template import load_yaml


@cache
def _properties() -> dict[str, Any]:
    template = load_yaml((ROOT / "template.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = template["Resources"]["LedgerTable"]["Properties"]
    return found


def new_table(client: Any, name: str = "") -> str:
    """Makes an empty ledger table, its indexes included, and returns its name."""
    name = name or f"Ledger-{uuid.uuid4().hex[:12]}"
    properties = _properties()
    same = ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
    client.create_table(TableName=name, **{each: properties[each] for each in same})
    return name


class OneAtATime:
    """A client whose calls are atomic, as DynamoDB's are; moto in the process reads and writes an item in two steps."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        def atomic(**arguments: Any) -> Any:
            with self._lock:
                return call(**arguments)

        return atomic
