"""Routes of the read function: everything that only looks, and the health check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from turnkeep import __version__
from turnkeep.entry.http import positions
from turnkeep.entry.http.bodies import (
    MAX_PAGE_BYTES,
    Reply,
    conversation_body,
    listed_ask,
    listed_conversation,
    to_json,
    turn_body,
)
from turnkeep.entry.http.cursors import make_cursor, read_cursor
from turnkeep.entry.http.door import Incoming, Route
from turnkeep.entry.http.paths import parse_path_turn
from turnkeep.entry.http.posts import key_of
from turnkeep.ledger.records import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import ConversationRecord, TurnRecord
    from turnkeep.ledger.store import Item
    from turnkeep.usecases.deps import Caller, Deps


class View(Protocol):
    """What ``read_conversation`` returns."""

    @property
    def record(self) -> ConversationRecord:
        """The conversation."""
        ...

    @property
    def open_turn(self) -> TurnRecord | None:
        """Its turn that has not ended, where there is one."""
        ...


class ReadTurns(Protocol):
    """The use case ``read_turns``."""

    def __call__(
        self, deps: Deps, caller: Caller, key: ConversationKey, *, after: int | None, limit: int
    ) -> tuple[list[TurnRecord], int | None]:
        """One page of turns, and the turn behind which the next page starts."""
        ...


class ReadTranscript(Protocol):
    """The use case ``read_transcript``."""

    def __call__(
        self,
        deps: Deps,
        caller: Caller,
        key: ConversationKey,
        *,
        after: tuple[int, int] | None,
        limit: int,
        max_bytes: int,
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
        """One page of messages, and the (turn, index) behind which the next page starts."""
        ...


class ListConversations(Protocol):
    """The use case ``list_conversations``."""

    def __call__(
        self, deps: Deps, caller: Caller, *, after: Item | None, limit: int
    ) -> tuple[list[ConversationRecord], Item | None]:
        """One page, and the position behind which the next one starts."""
        ...


class ListAsks(Protocol):
    """The use case ``list_asks``."""

    def __call__(
        self, deps: Deps, caller: Caller, *, after: Item | None, limit: int, max_bytes: int
    ) -> tuple[list[TurnRecord], Item | None]:
        """One page, and the position behind which the next one starts."""
        ...


def health_route() -> Route:
    """``GET /health``: this release answers. It reads nothing and asks nobody who they are."""
    return Route(
        "GET", "/health", lambda incoming: Reply(200, {"status": "ok", "version": __version__}), is_public=True
    )


def read_routes(
    *,
    read_conversation: Callable[[Deps, Caller, ConversationKey], View],
    read_turn: Callable[[Deps, Caller, ConversationKey, int], TurnRecord],
    read_turns: ReadTurns,
    read_transcript: ReadTranscript,
    read_evidence: Callable[[Deps, Caller, ConversationKey, int], dict[str, Any]],
    list_conversations: ListConversations,
    list_asks: ListAsks,
) -> list[Route]:
    """The routes, serving the given use cases."""

    def get_conversation(incoming: Incoming) -> Reply:
        view = read_conversation(incoming.deps, incoming.caller, key_of(incoming))
        now_ms = incoming.deps.clock.now_ms()
        return Reply(200, conversation_body(view.record, view.open_turn, incoming.caller, now_ms=now_ms))

    def get_turn(incoming: Incoming) -> Reply:
        key, turn = key_of(incoming), _turn(incoming)
        record = read_turn(incoming.deps, incoming.caller, key, turn)
        return Reply(200, turn_body(record, incoming.caller, now_ms=incoming.deps.clock.now_ms()))

    def get_evidence(incoming: Incoming) -> Reply:
        key, turn = key_of(incoming), _turn(incoming)
        return Reply(200, read_evidence(incoming.deps, incoming.caller, key, turn))

    def get_turns(incoming: Incoming) -> Reply:
        key = key_of(incoming)
        scope = _scope(incoming, key)
        after = positions.turn(_position(incoming, scope))
        records, following = read_turns(
            incoming.deps, incoming.caller, key, after=after, limit=incoming.request.limit()
        )
        shown: list[dict[str, Any]] = []
        size_bytes = 0
        for record in records:
            if record.status is Status.SKIPPED:
                continue
            body = turn_body(record, incoming.caller, now_ms=incoming.deps.clock.now_ms())
            size_bytes += len(to_json(body).encode())
            if shown and size_bytes > MAX_PAGE_BYTES:
                # The page ends by its size before it ends by its number.
                following = int(shown[-1]["turn"])
                break
            shown.append(body)
        return Reply(200, _page({"conversationId": key.conversation_id, "turns": shown}, scope, following))

    def get_transcript(incoming: Incoming) -> Reply:
        key = key_of(incoming)
        scope = _scope(incoming, key)
        messages, following = read_transcript(
            incoming.deps,
            incoming.caller,
            key,
            after=positions.message(_position(incoming, scope)),
            limit=incoming.request.limit(),
            max_bytes=MAX_PAGE_BYTES,
        )
        body = {"conversationId": key.conversation_id, "messages": messages}
        return Reply(200, _page(body, scope, following))

    def get_conversations(incoming: Incoming) -> Reply:
        scope = _scope(incoming)
        after = positions.conversation(_position(incoming, scope), incoming.caller)
        records, following = list_conversations(
            incoming.deps, incoming.caller, after=after, limit=incoming.request.limit()
        )
        body = {"conversations": [listed_conversation(record) for record in records]}
        return Reply(200, _page(body, scope, positions.of_conversation(following)))

    def get_asks(incoming: Incoming) -> Reply:
        scope = _scope(incoming)
        after = positions.ask(_position(incoming, scope), incoming.caller)
        records, following = list_asks(
            incoming.deps, incoming.caller, after=after, limit=incoming.request.limit(), max_bytes=MAX_PAGE_BYTES
        )
        return Reply(
            200, _page({"asks": [listed_ask(record) for record in records]}, scope, positions.of_ask(following))
        )

    return [
        Route("GET", "/conversations", get_conversations),
        Route("GET", "/conversations/{id}", get_conversation),
        Route("GET", "/conversations/{id}/turns", get_turns),
        Route("GET", "/conversations/{id}/turns/{n}", get_turn),
        Route("GET", "/conversations/{id}/turns/{n}/evidence", get_evidence),
        Route("GET", "/conversations/{id}/transcript", get_transcript),
        Route("GET", "/asks", get_asks),
        health_route(),
    ]


Scope = tuple[str | None, ...]


def _turn(incoming: Incoming) -> int:
    return parse_path_turn(incoming.request.path_parameters.get("n", ""))


def _scope(incoming: Incoming, key: ConversationKey | None = None) -> Scope:
    """Whom and what a cursor is for."""
    caller = incoming.caller
    return (incoming.request.route, caller.tenant, caller.principal, None if key is None else key.conversation_id)


def _position(incoming: Incoming, scope: Scope) -> Any:
    cursor = incoming.request.query.get("cursor")
    return None if cursor is None else read_cursor(scope, cursor)


def _page(body: dict[str, Any], scope: Scope, following: Any) -> dict[str, Any]:
    return body if following is None else body | {"cursor": make_cursor(scope, following)}
