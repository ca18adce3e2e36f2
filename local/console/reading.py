"""What the page shows of conversations: read from the ledger, as the library reads it and as it lies there."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from local.decoded import decoded, size_bytes

if TYPE_CHECKING:
    from local.console.costs import Costs
    from local.console.source import Source

LISTED = 200
_LISTING = ("pk", "sk", "status", "owner", "principal", "savedAt", "startedAt", "turn", "messageCount", "format")


class Reading:
    """Reads for the page; every method gives plain JSON values."""

    def __init__(self, source: Source, costs: Costs) -> None:
        self._source, self._costs = source, costs

    def conversations(self) -> list[dict[str, Any]]:
        """Every conversation in the ledger, whoever owns it, the newest first."""
        names = {f"#{index}": name for index, name in enumerate(_LISTING)}
        pages = (
            self._source.client("dynamodb")
            .get_paginator("scan")
            .paginate(
                TableName=self._source.table,
                FilterExpression="#1 = :one OR begins_with(#1, :turn)",
                ProjectionExpression=",".join(names),
                ExpressionAttributeNames=names,
                ExpressionAttributeValues={":one": {"S": "CONVERSATION"}, ":turn": {"S": "TURN#"}},
            )
        )
        found: dict[str, dict[str, Any]] = {}
        for item in (item for page in pages for item in page["Items"]):
            plain = {name: next(iter(value.values())) for name, value in item.items()}
            row = found.setdefault(plain["pk"], {"pk": plain["pk"], "turn": 0, "at": 0, "owner": None, "status": ""})
            row["at"] = max(row["at"], int(plain.get("savedAt") or plain.get("startedAt") or 0))
            if plain["sk"] == "CONVERSATION":
                row["owner"] = plain.get("owner")
                row["turn"] = max(row["turn"], int(plain.get("turn") or 0))
                row["status"] = row["status"] or plain.get("status", "")
            else:
                turn = int(plain["sk"].removeprefix("TURN#"))
                if turn >= row["turn"]:
                    row |= {"turn": turn, "status": plain.get("status", "")}
                row["owner"] = row["owner"] or plain.get("principal")
        rows = sorted(found.values(), key=lambda row: row["at"], reverse=True)[:LISTED]
        return [row | self._named(row["pk"]) for row in rows]

    def conversation(self, pk: str) -> dict[str, Any]:
        """One conversation: its turns with messages, asks and costs."""
        from turnkeep.errors import UnreadableError
        from turnkeep.ledger.parsing import turn_record
        from turnkeep.ledger.records import Status

        deps = self._source.deps
        key = self._key(pk)
        found = deps.ledger.hydrate(key)
        costs = self._costs.of(pk)
        turns = []
        for number, item in found.turn_items.items():
            try:
                record = turn_record(item, key)
                if record.status is Status.SKIPPED:
                    continue
                turns.append(self._turn(record) | {"cost": costs.get(number)})
            except UnreadableError as error:
                refused = {"code": error.code, "message": str(error)}
                turns.append({"turn": number, "status": "unreadable", "error": refused, "messages": []})
        return {
            "pk": pk,
            "exists": found.exists,
            "erasing": found.erasing,
            "owner": found.owner,
            "turns": turns,
            **self._named(pk),
        }

    def _turn(self, record: Any) -> dict[str, Any]:
        from turnkeep.usecases.asks import with_whole_ask

        deps = self._source.deps
        record = with_whole_ask(deps, record)
        messages = deps.ledger.messages_of([record])[record.turn]
        now_ms = deps.clock.now_ms()
        return {
            "turn": record.turn,
            "status": record.status.value,
            "attempt": record.attempt,
            "runId": record.run_id,
            "principal": record.principal,
            "startedAt": record.started_at_ms,
            "savedAt": record.saved_at_ms,
            "durationMs": record.saved_at_ms - record.started_at_ms if record.saved_at_ms else None,
            "leaseUntil": record.lease_until_ms if record.status.value == "running" else None,
            "stalled": record.is_dead(now_ms),
            "usage": record.usage,
            "error": record.error,
            "messages": [{"id": f"msg-{record.turn}-{index}", **message} for index, message in enumerate(messages)],
            "ask": _ask(record.ask) if record.ask is not None else None,
            "decision": _decision(record.decision) if record.decision is not None else None,
        }

    def items(self, pk: str) -> dict[str, Any]:
        """The conversation's items in the table's order, raw and decoded, with their sizes; and what turns cost."""
        pages = (
            self._source.client("dynamodb")
            .get_paginator("query")
            .paginate(
                TableName=self._source.table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": pk}},
                ConsistentRead=True,
            )
        )
        items = [item for page in pages for item in page["Items"]]
        costs = self._costs.of(pk)
        return {
            **self._named(pk),
            "pk": pk,
            "items": [{"raw": _plain(item), "decoded": decoded(item), "bytes": size_bytes(item)} for item in items],
            "costs": [
                {"turn": turn, "read": cost["read"], "write": cost["write"], "store": cost["store"]}
                for turn, cost in sorted(costs.items())
            ],
        }

    def envelope(self, pk: str) -> dict[str, Any] | None:
        """The conversation as a reader assembles it; None where nothing is stored.

        Raises:
            UnreadableError: something stored cannot be read, by name.
        """
        from turnkeep.usecases.as_envelope import envelope_of

        deps = self._source.deps
        return envelope_of(deps.ledger, deps.ledger.hydrate(self._key(pk)))

    def evidence(self, pk: str, turn: int) -> dict[str, Any]:
        """What led to a turn's answer, and the messages that it refers to, by id."""
        from turnkeep.ledger.parsing import turn_record
        from turnkeep.usecases.evidence import evidence_of

        deps = self._source.deps
        key = self._key(pk)
        item = deps.ledger.hydrate(key).turn_items.get(turn)
        if item is None:
            raise KeyError(f"turn {turn}")
        record = turn_record(item, key)
        return self._turn(record) | {"evidence": evidence_of(deps, record), "pk": pk, **self._named(pk)}

    def _named(self, pk: str) -> dict[str, Any]:
        key = self._key(pk)
        return {"conversationId": key.conversation_id, "tenant": key.tenant}

    def _key(self, pk: str) -> Any:
        _ = self._source.deps  # puts the library on the path
        from turnkeep.ledger.keys import ConversationKey

        return ConversationKey.from_pk(pk)

    def pk_of(self, conversation_id: str, tenant: str | None) -> str:
        """The partition of a conversation."""
        _ = self._source.deps
        from turnkeep.ledger.keys import ConversationKey

        return ConversationKey(conversation_id, tenant).pk


def _ask(ask: Any) -> dict[str, Any]:
    pending = ask.pending
    gate = "checkIn" in pending or "ask" in pending
    check_in = pending.get("checkIn")
    question = (
        pending.get("question")
        or (pending.get("ask") or {}).get("question")
        or ((check_in or {}).get("evidence") or {}).get("willDo")
    )
    return {
        "askId": ask.ask_id,
        "audience": ask.audience,
        "askedAt": ask.asked_at_ms,
        "expiresAt": ask.expires_at_ms,
        "question": question,
        "gate": gate,
        "pending": pending,
    }


def _decision(decision: Any) -> dict[str, Any]:
    return {
        "askId": decision.ask_id,
        "value": decision.value,
        "answeredBy": decision.answered_by,
        "answeredAt": decision.answered_at_ms,
    }


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """An item as DynamoDB's JSON, bytes in base64 as on the wire."""
    text = json.dumps(item, default=lambda value: base64.b64encode(bytes(value)).decode())
    plain: dict[str, Any] = json.loads(text)
    return plain
