"""An empty conversation: made once for a key, whatever became of it since, and never out of what cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.stores import Died, Dying, Losing
from tests.usecases.workshop import ALICE, BOB, KEY, NOBODY, Workshop, key_of, saying
from turnkeep.errors import (
    IdempotencyMismatchError,
    IdentityNotVerifiedError,
    SessionNotFoundError,
    StoreUnavailableError,
    UnreadableError,
)
from turnkeep.ledger.keys import CONVERSATION
from turnkeep.ledger.store import Update
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.read import read_conversation

if TYPE_CHECKING:
    from turnkeep.ledger.records import ConversationRecord


def create(shop: Workshop, caller: Caller = ALICE, *, store: Any = None, key: Any = None) -> ConversationRecord:
    deadline = FixedDeadline.after(shop.clock, 20_000)
    return create_conversation(
        shop.deps(store=store), caller, conversation_id="c-1", idempotency=key, deadline=deadline
    )


def test_it_is_empty_owned_and_there() -> None:
    shop = Workshop(saying("Hello."))
    made = create(shop)
    view = read_conversation(shop.deps(), ALICE, KEY)
    assert view.record == made
    assert (made.owner, made.turn, made.message_count, view.open_turn) == ("alice", 0, 0, None)
    with pytest.raises(SessionNotFoundError):
        read_conversation(shop.deps(), BOB, KEY)
    assert shop.take("one").turn == 1
    assert read_conversation(shop.deps(), ALICE, KEY).record.created_at_ms == made.created_at_ms


def test_the_same_request_gets_the_same_conversation_whatever_became_of_it() -> None:
    shop = Workshop(saying("Hello."))
    made = create(shop, key=key_of("k"))
    assert create(shop, key=key_of("k")) == made
    for _ in range(4):
        shop.take("one")
    again = create(shop, key=key_of("k"))
    assert (again.epoch, again.created_at_ms, again.turn) == (made.epoch, made.created_at_ms, 4)


@pytest.mark.parametrize("turns_since", [0, 3])
def test_a_key_that_created_is_no_key_of_a_message_and_the_other_way_round(turns_since: int) -> None:
    created = Workshop(saying("Hello."))
    create(created, key=key_of("k"))
    for _ in range(turns_since):
        created.take("one")
    with pytest.raises(IdempotencyMismatchError):
        created.take("hello", idempotency=key_of("k", "a message"))
    said = Workshop(saying("Hello."))
    said.take("hello", idempotency=key_of("k", "a message"))
    for _ in range(turns_since):
        said.take("one")
    with pytest.raises(IdempotencyMismatchError):
        create(said, key=key_of("k"))


def test_a_key_lives_a_day() -> None:
    shop = Workshop(saying("Hello."))
    create(shop, key=key_of("k"))
    shop.pass_ms(86_400_000)
    assert shop.take("hello", idempotency=key_of("k", "a message")).turn == 1


def test_somebody_elses_and_an_unverified_caller() -> None:
    shop = Workshop()
    create(shop)
    with pytest.raises(SessionNotFoundError):
        create(shop, BOB)
    with pytest.raises(IdentityNotVerifiedError):
        create(shop, NOBODY)
    anonymous = Workshop().with_settings(allow_anonymous=True)
    assert create(anonymous, NOBODY).owner is None


def test_it_is_not_made_over_what_cannot_be_read() -> None:
    shop = Workshop()
    create(shop)
    shop.memory.write([Update((KEY.pk, CONVERSATION), set={"format": "conversation-v9"})])
    before = shop.items()
    with pytest.raises(UnreadableError):
        create(shop)
    assert shop.items() == before


@pytest.mark.parametrize("landed", [False, True])
def test_a_process_that_dies_or_loses_the_store_over_it_may_ask_again(landed: bool) -> None:
    for store_type, failure in ((Dying, Died), (Losing, StoreUnavailableError)):
        for nth in (1, 2):
            shop = Workshop()
            with pytest.raises(failure):
                create(shop, store=store_type(shop.memory, nth, landed=landed), key=key_of("k"))
            made = create(shop, key=key_of("k"))
            assert create(shop, key=key_of("k")) == made
            assert made.owner == "alice"


def test_it_expires_like_a_turn() -> None:
    shop = Workshop().with_settings(retention_days=1)
    create(shop)
    shop.pass_ms(86_400_000)
    assert create(shop, BOB).owner == "bob"
