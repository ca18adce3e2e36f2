"""Lambda's side of an SQS queue: takes messages in their groups' order, hands them over, deletes what was done."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local.deploy import QueueSource, internal_client
from local.lambdas import Lambdas, TooManyInvocations
from local.settings import REGION


class QueuePoller:
    """Polls one queue for one function. A batch that fails comes back after the queue's visibility time-out."""

    def __init__(self, source: QueueSource, lambdas: Lambdas, endpoint: str) -> None:
        self._source = source
        self._lambdas = lambdas
        self._client = internal_client("sqs", endpoint)
        self._closed = threading.Event()
        self._slots = threading.Semaphore(source.max_concurrency)

    def start(self) -> None:
        """Begins to poll."""
        threading.Thread(target=self._poll, name="queue", daemon=True).start()

    def close(self) -> None:
        """Takes no more messages."""
        self._closed.set()

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._slots.acquire()
            try:
                received = self._client.receive_message(
                    QueueUrl=self._source.queue_url,
                    MaxNumberOfMessages=min(10, self._source.batch_size),
                    WaitTimeSeconds=1,
                    AttributeNames=["All"],
                    MessageAttributeNames=["All"],
                )
            except (BotoCoreError, ClientError) as error:
                self._slots.release()
                if not self._closed.wait(1.0):
                    print(f"local stack: the queue cannot be read: {error}", file=sys.stderr)
                continue
            messages = received.get("Messages", [])
            if messages:
                threading.Thread(target=self._handle, args=(messages,), name="queue-batch", daemon=True).start()
            else:
                self._slots.release()

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        try:
            function = self._lambdas.find(self._source.function)
            if function is None:
                return
            event = {"Records": [self._record(message) for message in messages]}
            outcome = self._lambdas.invoke(function, json.dumps(event).encode())
            if outcome.error:
                return
            for message in self._done(messages, outcome.value):
                self._client.delete_message(QueueUrl=self._source.queue_url, ReceiptHandle=message["ReceiptHandle"])
        except TooManyInvocations:
            return  # the messages come back, as they do from a throttled function
        except (BotoCoreError, ClientError) as error:
            if not self._closed.is_set():
                print(f"local stack: a message could not be deleted: {error}", file=sys.stderr)
        finally:
            self._slots.release()

    def _done(self, messages: list[dict[str, Any]], answer: Any) -> list[dict[str, Any]]:
        """The messages that are finished; a report that Lambda would not understand fails the whole batch."""
        if not self._source.report_item_failures or not isinstance(answer, dict):
            return messages
        failures = answer.get("batchItemFailures") or []
        try:
            failed = {str(failure["itemIdentifier"]) for failure in failures}
        except (KeyError, TypeError):
            return []
        if not failed <= {message["MessageId"] for message in messages}:
            return []
        return [message for message in messages if message["MessageId"] not in failed]

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        attributes = {
            name: {
                "stringValue": value.get("StringValue"),
                "binaryValue": None,
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": value["DataType"],
            }
            for name, value in message.get("MessageAttributes", {}).items()
        }
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": attributes,
            "md5OfBody": hashlib.md5(message["Body"].encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
            "eventSourceARN": self._source.queue_arn,
            "awsRegion": REGION,
        }
