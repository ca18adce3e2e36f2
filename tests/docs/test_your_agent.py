"""docs/your-agent.md: its Python is one module that does what the page says; its commands and its YAML exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from local.template import load_yaml
from tests.usecases.workshop import ALICE, KEY, Workshop
from turnkeep.agent.window import last_turns_of
from turnkeep.decisions import question_of
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.read import read_evidence
from turnkeep.usecases.resume_turn import resume_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your-agent.md").read_text("utf-8")
BAKER = Caller("sam", None, frozenset({"baker"}))
YES = {"approved": True, "by": "sam"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def module_of(snippets: list[str]) -> ModuleType:
    """The snippets as one module, as a reader who types them in has it."""
    module = ModuleType("bakery")
    sys.modules["bakery"] = module
    for snippet in snippets:
        exec(compile(snippet, "docs/your-agent.md", "exec"), module.__dict__)
    return module


@pytest.fixture
def bakery() -> Iterator[Any]:
    yield module_of(blocks("python"))
    del sys.modules["bakery"]


@pytest.fixture
def shop(bakery: Any) -> Workshop:
    return Workshop(bakery.build)


def decide(shop: Workshop, paused: TurnRecord, decision: Any, caller: Caller = BAKER) -> TurnRecord:
    assert paused.ask is not None
    deadline = FixedDeadline.after(shop.clock, 29_000)
    answer_ask(shop.deps(), caller, KEY, ask_id=paused.ask.ask_id, decision=decision, deadline=deadline)
    record = resume_turn(shop.deps(), KEY, paused.turn, paused.ask.ask_id, deadline=deadline).record
    assert record is not None
    return record


def test_the_first_snippet_is_an_agent() -> None:
    first = module_of(blocks("python")[:1])
    del sys.modules["bakery"]
    shop = Workshop(first.build)
    assert shop.take("Good morning").output == "You said: Good morning"
    assert shop.turn(1).agent_id == "bakery"


def test_its_tools_are_called(shop: Workshop) -> None:
    assert shop.take("stock rye").output == "4"
    assert shop.take("bake 3 rye").output == "3 rye will be ready at noon."
    refused = shop.take("stock oats")
    assert "the arguments do not fit the tool: bread" in refused.output


def test_a_tool_that_acts_once_gets_its_key(shop: Workshop, bakery: Any) -> None:
    shop.take("bake 3 rye")
    shop.take("bake 3 rye")
    assert len(bakery.BAKED) == 2, "the same order in two turns is two orders"


def test_a_plain_ask_takes_any_answer(shop: Workshop) -> None:
    paused = shop.take("cake")
    assert paused.status is Status.AWAITING
    assert paused.ask is not None
    assert paused.ask.pause_data["cakes"] == ["plum", "cheese"]
    assert decide(shop, paused, "plum", ALICE).output == "plum"


def test_a_check_in_asks_only_for_what_is_large(shop: Workshop) -> None:
    assert shop.take("bake 8 rye").status is Status.COMPLETE
    paused = shop.take("bake 30 rye")
    assert paused.ask is not None
    assert paused.ask.audience == "role:baker"
    assert question_of(paused.ask.pause_data) == "Bakes a large order. — with bread=rye, loaves=30"
    assert decide(shop, paused, YES).output == "30 rye will be ready tomorrow."


def test_a_rule_asks(shop: Workshop, bakery: Any) -> None:
    paused = shop.take("bake 2 wheat")
    assert paused.ask is not None
    assert question_of(paused.ask.pause_data) == "We are out of wheat. Bake all the same?"
    no = {"approved": False, "by": "sam", "note": "no flour"}
    assert decide(shop, paused, no).output == "declined by human: no flour"
    assert bakery.BAKED == {}


def test_the_model_is_the_one_that_the_stack_names(bakery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="TURNKEEP_BEDROCK_MODEL_ID"):
        bakery.build_with_a_model(bakery.WHOSE)
    monkeypatch.setenv("TURNKEEP_BEDROCK_MODEL_ID", "eu.amazon.nova-lite-v1:0")
    for name in re.findall(r"`([A-Z_]+)`", PAGE.split("`TURNKEEP_BEDROCK_`:")[1].split("Throttling")[0]):
        text = {"CACHE": "true", "STOP_SEQUENCES": "[]", "MODEL_FIELDS": "{}"}.get(name, "1")
        monkeypatch.setenv(f"TURNKEEP_BEDROCK_{name}", text)
    settings = bakery.build_with_a_model(bakery.WHOSE)._provider._settings
    assert (settings.model_id, settings.max_tokens, settings.cache) == ("eu.amazon.nova-lite-v1:0", 1, True)
    assert (settings.guardrail_id, settings.top_p, settings.temperature) == ("1", 1.0, 1.0)


def test_memory_is_written_and_shown(bakery: Any) -> None:
    assert last_turns_of(bakery.build_with_memory) == 20
    shop = Workshop(bakery.build_with_memory, last_turns=lambda: last_turns_of(bakery.build_with_memory))
    shop.take("Good morning")
    shop.take("stock rye")
    assert len(shop.items("BEAT#")) == 5
    assert len(shop.items("SNAP#")) == 2
    window = read_evidence(shop.deps(), ALICE, KEY, 2)["evidence"]["window"]
    assert window["entries"] == ["beat-1-0", "beat-1-1"]


def test_a_factory_says_how_durable_its_conversations_are(bakery: Any) -> None:
    assert bakery.build_careful(bakery.WHOSE).durability == "sync"
    shop = Workshop(bakery.build_careful)
    assert shop.take("stock rye").status is Status.COMPLETE
    assert shop.items("SEG#"), "the tool's result was durable before the answer"


def test_a_secret_is_read_from_parameter_store(bakery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        boto3.client("ssm").put_parameter(Name="/bakery/oven-key", Value="s3cret", Type="SecureString")
        assert bakery.oven_key() == "s3cret"


def test_the_policy_fits_the_template() -> None:
    (text,) = blocks("yaml")
    source = (ROOT / "template.yaml").read_text("utf-8")
    whole = load_yaml(source.replace("\nResources:\n", f"\nResources:\n{text}", 1))
    policy = whole["Resources"]["BakerySecrets"]["Properties"]
    # The roles are those that SAM makes of the functions.
    functions = [role["Ref"].removesuffix("Role") for role in policy["Roles"]]
    assert functions == ["TurnFunction", "ResumeFunction", "WorkerFunction"]
    assert all(whole["Resources"][name]["Type"] == "AWS::Serverless::Function" for name in functions)
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "ssm:GetParameter"


def test_the_agents_test_tests_it(bakery: Any) -> None:
    assert bakery.said_to("stock rye") == "4"
    assert bakery.said_to("cake") == "asks a person"


def test_the_commands_exist() -> None:
    said = "\n".join(blocks("sh"))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", said):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    parameters = load_yaml((ROOT / "template.yaml").read_text("utf-8"))["Parameters"]
    named = set(re.findall(r"\b([A-Z][A-Za-z]+)=\S", said))
    assert named == {"AgentFactory", "BedrockModelId"}
    assert named <= set(parameters)
    factory = re.findall(r"AgentFactory=(\S+)", said)
    assert all(re.fullmatch(parameters["AgentFactory"]["AllowedPattern"], one) for one in factory)


def test_what_it_says_of_metrics_and_errors_exists() -> None:
    from turnkeep import errors
    from turnkeep.entry.observability import COUNTED

    assert "MemoryWritesFailed" in COUNTED.values()
    assert hasattr(errors, "FactoryReusedAgentError")
    assert f"`{errors.ConversationMismatchError.code}`" in PAGE
