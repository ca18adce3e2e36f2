"""What a person does on the page: over the HTTP API, as whoever they chose to be."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from local.console.source import StackGone
from local.token import make_token

if TYPE_CHECKING:
    from pathlib import Path

    from local.console.costs import Costs
    from local.console.reading import Reading
    from local.console.source import Source

SUBMITS = 10
MEET_S = 15.0


class CannotDo(Exception):
    """What was asked for is not possible now; the text says why."""


@dataclass(frozen=True)
class Person:
    """Who a request comes from; without a name nobody that the gateway knows."""

    name: str | None
    tenant: str | None
    roles: tuple[str, ...]

    @classmethod
    def from_json(cls, value: Any) -> Person:
        """Reads `{"name", "tenant"?, "roles"?}`; null is an anonymous caller."""
        if not value or not value.get("name"):
            return cls(None, None, ())
        roles = tuple(str(role) for role in value.get("roles") or ())
        for role in roles:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", role):
                raise CannotDo(f"A role consists of letters, digits and . _ -, not {role!r}.")
        return cls(str(value["name"]), value.get("tenant") or None, roles)


class Acts:
    """Everything that changes something. Methods take and give plain JSON values."""

    def __init__(self, source: Source, reading: Reading, costs: Costs, state_dir: Path) -> None:
        self._source, self._reading, self._costs, self._state_dir = source, reading, costs, state_dir

    def send(self, said: dict[str, Any]) -> dict[str, Any]:
        """One message: `conversationId` (null starts one), `message`, `as`, `key` (an Idempotency-Key)."""
        person = Person.from_json(said.get("as"))
        reply = self._post_turn(said, person, key=said.get("key"))
        return self._placed(said, person, reply)

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        """An answer: `conversationId`, `askId`, `decision` (any JSON), `as`."""
        person = Person.from_json(said.get("as"))
        body = {"askId": said["askId"], "decision": said["decision"]}
        path = f"/conversations/{self._path(said['conversationId'])}/answers"
        return self._request("POST", path, person, body)

    def withdraw(self, said: dict[str, Any]) -> dict[str, Any]:
        """Withdraws an open ask or cancels a queued turn: `conversationId`, `turn`, `as`."""
        person = Person.from_json(said.get("as"))
        path = f"/conversations/{self._path(said['conversationId'])}/turns/{int(said['turn'])}"
        return self._request("DELETE", path, person)

    def contest(self, said: dict[str, Any]) -> dict[str, Any]:
        """The same turn ten times at once. The winner is held at its commit until the nine others have their answer."""
        person = Person.from_json(said.get("as"))
        conversation = self._settled(said)
        pk = self._reading.pk_of(conversation, person.tenant)
        fault = self._hold("hold", "UpdateItem", pk, r'"(complete|awaiting)"')
        try:
            with ThreadPoolExecutor(SUBMITS) as pool:
                wanted = {**said, "conversationId": conversation}
                sent = [pool.submit(self._post_turn, wanted, person) for _ in range(SUBMITS)]
                until = time.monotonic() + MEET_S
                while sum(one.done() for one in sent) < SUBMITS - 1 and time.monotonic() < until:
                    time.sleep(0.05)
                self._source.control("POST", f"faults/{fault}/release", {})
                replies = [one.result() for one in sent]
        finally:
            self._source.control("DELETE", f"faults/{fault}")
        return {"conversationId": conversation, "pk": pk, "replies": replies}

    def kill(self, said: dict[str, Any]) -> dict[str, Any]:
        """A turn whose process is killed (SIGKILL) once its claim stands in the ledger.

        Returns:
            `victim` is None where the turn never came so far; `reply` then says why. `key` is the request's
            Idempotency-Key: the same request with it takes the turn over once the lease has run out.
        """
        person = Person.from_json(said.get("as"))
        conversation = self._settled(said)
        pk = self._reading.pk_of(conversation, person.tenant)
        key = f"console-{secrets.token_hex(8)}"
        fault = self._hold("hold_answer", "PutItem", pk, r'"TURN#\d{16}"')
        replies: list[dict[str, Any]] = []
        wanted = {**said, "conversationId": conversation}
        sender = threading.Thread(target=lambda: replies.append(self._post_turn(wanted, person, key=key)), daemon=True)
        try:
            sender.start()
            victim = self._wait_for_victim(fault, sender)
            if victim is not None:
                victim["turn"] = self._running_turn(pk)
                signalled = self._source.control(
                    "POST", f"invocations/{victim['request_id']}/signal", {"signal": "KILL"}
                )
                victim["killed"] = bool(signalled["sent"])
                victim["at"] = int(time.time() * 1000)
                sender.join(MEET_S)
        finally:
            self._source.control("DELETE", f"faults/{fault}")
        sender.join(MEET_S)
        reply = replies[0] if replies else None
        return {"conversationId": conversation, "pk": pk, "key": key, "victim": victim, "reply": reply}

    def let_lease_run_out(self, said: dict[str, Any]) -> dict[str, Any]:
        """Sets a dead attempt's lease into the past, as if that time had gone by: `pk`, `turn`, `runId`."""
        from botocore.exceptions import ClientError

        names = {"#status": "status", "#run": "runId", "#lease": "leaseUntil"}
        try:
            self._source.client("dynamodb").update_item(
                TableName=self._source.table,
                Key={"pk": {"S": said["pk"]}, "sk": {"S": f"TURN#{int(said['turn']):016d}"}},
                ConditionExpression="#run = :run AND #status = :running",
                UpdateExpression="SET #lease = :past",
                ExpressionAttributeNames=names,
                ExpressionAttributeValues={
                    ":run": {"S": said["runId"]},
                    ":running": {"S": "running"},
                    ":past": {"N": str(int(time.time() * 1000) - 1)},
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            raise CannotDo("That attempt is over: somebody else has the turn by now.") from error
        return {"done": True}

    def _wait_for_victim(self, fault: int, sender: threading.Thread) -> dict[str, Any] | None:
        until = time.monotonic() + MEET_S
        while sender.is_alive() and time.monotonic() < until:
            faults = self._source.control("GET", "faults")["faults"]
            met_by: list[str] = next((each["met_by"] for each in faults if each["id"] == fault), [])
            if met_by:
                running = self._source.control("GET", "invocations")["invocations"]
                return next((each for each in running if each["request_id"] == met_by[0]), None)
            time.sleep(0.03)
        return None

    def _running_turn(self, pk: str) -> int | None:
        found = self._reading.conversation(pk)["turns"]
        return next((turn["turn"] for turn in reversed(found) if turn["status"] == "running"), None)

    def _hold(self, kind: str, operation: str, pk: str, matches: str) -> int:
        fault = {
            "kind": kind,
            "service": "dynamodb",
            "operation": operation,
            "function": "TurnFunction",
            "contains": [json.dumps(pk)],
            "matches": matches,
        }
        return int(self._source.control("POST", "faults", fault)["id"])

    def _settled(self, said: dict[str, Any]) -> str:
        return str(said.get("conversationId") or f"console-{secrets.token_hex(4)}")

    def _placed(self, said: dict[str, Any], person: Person, reply: dict[str, Any]) -> dict[str, Any]:
        body = reply["body"]
        conversation = body.get("conversationId") or said.get("conversationId")
        if conversation:
            reply["pk"] = self._reading.pk_of(str(conversation), person.tenant)
            reply["conversationId"] = conversation
        return reply

    def _post_turn(self, said: dict[str, Any], person: Person, key: str | None = None) -> dict[str, Any]:
        conversation = said.get("conversationId")
        path = f"/conversations/{self._path(conversation)}/turns" if conversation else "/conversations"
        return self._request("POST", path, person, {"message": said["message"]}, key)

    def _path(self, conversation_id: str) -> str:
        _ = self._source.deps  # puts the library on the path
        from turnkeep.ids import path_form

        return quote(path_form(conversation_id), safe="~")

    def _request(
        self, method: str, path: str, person: Person, body: Any = None, key: str | None = None
    ) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        if person.name:
            token = make_token(person.name, person.tenant, list(person.roles), state_dir=self._state_dir)
            headers["authorization"] = f"Bearer {token}"
        if key:
            headers["idempotency-key"] = key
        began = time.monotonic()
        where = urlsplit(self._source.api_url)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, HTTPException) as error:
            raise StackGone(f"the API does not answer at {self._source.api_url} ({error})") from error
        finally:
            connection.close()
        return {
            "request": f"{method} {path}",
            "status": status,
            "body": _read_json(text),
            "durationMs": round((time.monotonic() - began) * 1000),
        }


def _read_json(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text or b"{}")
    except ValueError:
        value = {"message": text.decode("utf-8", "replace")}
    return value if isinstance(value, dict) else {"value": value}
