"""The doorbell on an SQS FIFO queue: it says which conversation has a queued turn, and nothing of the turn."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from turnkeep.adapters.aws_faults import AWS_ERRORS, not_now
from turnkeep.ledger.keys import ConversationKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_sqs import SQSClient


class SqsDoorbell:
    """Rings on one FIFO queue.

    Args:
        client: makes, or returns, the client; asked only when a call is due.
        url: the queue's URL.
    """

    def __init__(self, client: Callable[[], SQSClient], url: str) -> None:
        self._client = client
        self._url = url

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        """Sends the message: in order within a conversation, in parallel across conversations.

        Within five minutes the queue takes the same ring once. ``again`` makes another ring of it: pass what tells
        two queued turns of one number apart (an epoch), or two rings for one turn.

        Raises:
            StoreUnavailableError: it could not be sent now.
        """
        try:
            self._client().send_message(
                QueueUrl=self._url,
                MessageBody=doorbell_message(key, turn),
                MessageGroupId=hashlib.sha256(key.pk.encode()).hexdigest(),
                MessageDeduplicationId=hashlib.sha256(json.dumps([key.pk, turn, again]).encode()).hexdigest(),
            )
        except AWS_ERRORS as error:
            raise not_now(error) from error


def doorbell_message(key: ConversationKey, turn: int) -> str:
    """The message's body: ``{"conversationId", "tenant"?, "turn"}``."""
    body: dict[str, Any] = {"conversationId": key.conversation_id, "turn": turn}
    if key.tenant is not None:
        body["tenant"] = key.tenant
    return json.dumps(body)


def read_doorbell(text: str) -> tuple[ConversationKey, int]:
    """The conversation and the turn that a message rings for.

    Raises:
        ValueError: the message is none of ours.
    """
    body = json.loads(text)
    conversation_id, turn = (body.get("conversationId"), body.get("turn")) if isinstance(body, dict) else (None, None)
    tenant = body.get("tenant") if isinstance(body, dict) else None
    if not isinstance(conversation_id, str) or not conversation_id or type(turn) is not int:
        raise ValueError("not a doorbell's message")
    return ConversationKey(conversation_id, tenant if isinstance(tenant, str) else None), turn
