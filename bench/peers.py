"""Other libraries under the same meter; run by their own environment's Python (``.venv-bench``).

Prints one line of JSON: a list of ``{"name", "versions", "rows", "died"?}``. Every turn is taken by objects made anew,
as by a fresh process: load what is stored, one message in, one answer out, save.
"""

from __future__ import annotations

import json
import sys
import uuid
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import boto3
from moto import mock_aws

from bench.meter import Meter
from bench.texts import text
from local import tables as limits

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE: Final = "peers"
REGION: Final = "eu-central-1"
MARKS: Final = (1, 2, 100, 200)


def main() -> None:
    """Measures the libraries that the argument names."""
    measure = {"langgraph": langgraph, "strands": strands}[sys.argv[1]]
    with mock_aws():
        limits.install()
        boto3.client("dynamodb", region_name=REGION).create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
        )
        with Meter() as meter:
            found = measure(meter)
    sys.stdout.write(json.dumps(found) + "\n")


def langgraph(meter: Meter) -> list[dict[str, Any]]:
    """LangGraph with AWS's saver on DynamoDB."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph_checkpoint_aws import DynamoDBSaver

    def measured(named: str, **mode: Any) -> dict[str, Any]:
        thread = str(uuid.uuid4())

        def turn(number: int) -> None:
            builder = StateGraph(MessagesState)
            builder.add_node("model", lambda state: {"messages": [AIMessage(text("words", f"answer {number}"))]})
            builder.add_edge(START, "model")
            graph = builder.compile(checkpointer=DynamoDBSaver(table_name=TABLE, region_name=REGION))
            said = HumanMessage(text("words", f"message {number}"))
            graph.invoke({"messages": [said]}, {"configurable": {"thread_id": thread}}, **mode)

        return _measured(meter, named, ["langgraph", "langgraph-checkpoint-aws"], turn)

    return [measured("LangGraph, DynamoDBSaver"), measured("the same, durability exit", durability="exit")]


def strands(meter: Meter) -> list[dict[str, Any]]:
    """Strands with the session manager on DynamoDB."""
    from strands import Agent
    from strands.agent.conversation_manager import NullConversationManager
    from strands.models import Model
    from strands_session_dynamodb import DynamoDBSessionManager

    class Scripted(Model):
        """Says what it is made with."""

        def __init__(self, says: str) -> None:
            self.says = says

        def update_config(self, **model_config: Any) -> None:
            """Has none."""

        def get_config(self) -> Any:
            """Has none."""
            return {}

        def structured_output(self, *arguments: Any, **more: Any) -> Any:
            """Is never asked for."""
            raise NotImplementedError

        async def stream(self, *arguments: Any, **more: Any) -> Any:
            """One answer."""
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": self.says}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    session = str(uuid.uuid4())

    def turn(number: int) -> None:
        agent = Agent(
            agent_id="desk",
            model=Scripted(text("words", f"answer {number}")),
            session_manager=DynamoDBSessionManager(session_id=session, table_name=TABLE, region_name=REGION),
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        agent(text("words", f"message {number}"))

    named = "Strands, strands-session-dynamodb"
    return [_measured(meter, named, ["strands-agents", "strands-session-dynamodb"], turn)]


def _measured(meter: Meter, name: str, packages: list[str], turn: Callable[[int], None]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    found: dict[str, Any] = {"name": name, "versions": versions, "rows": rows}
    for number in range(1, MARKS[-1] + 1):
        with meter.measure() as tally:
            try:
                turn(number)
            except Exception as error:
                found["died"] = {"turn": number, "error": f"{type(error).__name__}: {str(error)[:120]}"}
                return found
        if number in MARKS:
            rows.append(
                {
                    "turn": number,
                    "calls": tally.call_count,
                    "write_units": tally.write_units,
                    "read_units": tally.read_units,
                    "request_bytes": tally.request_bytes,
                }
            )
    return found


if __name__ == "__main__":
    main()
