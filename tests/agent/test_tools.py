"""Tools: schema from signature and docstring, arguments validated, faults told where a tool is made."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnkeep.agent import CheckIn, ToolContext, tool
from turnkeep.agent.docstrings import parse_docstring
from turnkeep.agent.tools import ToolArgumentsError
from turnkeep.errors import InvalidAskComponentError

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """Where somebody lives."""

    title: str = Field(description="how to address them")
    street: str


@tool
def deliver(
    to: Address,
    schema: Annotated[int, Field(ge=1, le=9)],
    copy: Literal["fast", "slow"] = "slow",
    colour: Colour | None = None,
    tags: list[str] | None = None,
    *,
    context: ToolContext,
) -> str:
    """Delivers a parcel
    to an address.

    It takes a day.

    Args:
        to: where to,
            house number included.
        schema (int): how many parcels.
        copy: how fast.
        context: of the call.

    Returns:
        a receipt.
    """
    return f"{to.street} {schema} {copy} {colour} {tags} {context.turn}"


def test_the_schema_is_the_signature_and_the_docstring() -> None:
    assert deliver.name == "deliver"
    assert deliver.description == "Delivers a parcel to an address.\n\nIt takes a day."
    schema = deliver.schema
    assert schema["type"] == "object"
    assert list(schema["properties"]) == ["to", "schema", "copy", "colour", "tags"]
    assert schema["required"] == ["to", "schema"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["to"]["description"] == "where to, house number included."
    assert schema["properties"]["schema"] == {
        "type": "integer", "minimum": 1, "maximum": 9, "description": "how many parcels.",
    }  # fmt: skip
    assert schema["properties"]["copy"]["enum"] == ["fast", "slow"]
    assert schema["properties"]["copy"]["default"] == "slow"
    # A property may be called title; pydantic's own titles are gone.
    assert schema["$defs"]["Address"]["properties"]["title"] == {"type": "string", "description": "how to address them"}
    assert "title" not in schema
    assert "title" not in schema["$defs"]["Colour"]


def test_arguments_become_what_the_function_wants() -> None:
    valid = deliver.validate({"to": {"title": "Dr", "street": "Elm"}, "schema": 2, "colour": "red", "tags": ["a"]})
    assert valid == {
        "to": Address(title="Dr", street="Elm"), "schema": 2, "copy": "slow", "colour": Colour.RED, "tags": ["a"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, ["to: Field required", "schema: Field required"]),
        ({"to": {"title": "x", "street": "secret-street"}, "schema": 10}, ["schema: Input should be less than"]),
        ({"to": {"title": 3, "street": "secret-street"}, "schema": 1}, ["to.title: Input should be a valid string"]),
        ({"to": {"title": "x", "street": "s"}, "schema": 1, "context": {}}, ["context: Extra inputs"]),
        ({"to": {"title": "x", "street": "s"}, "schema": 1, "p0": 1}, ["p0: Extra inputs"]),
    ],
)
def test_arguments_that_do_not_fit_are_named_without_their_values(args: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ToolArgumentsError) as refused:
        deliver.validate(args)
    for words in said:
        assert words in str(refused.value)
    assert "secret-street" not in str(refused.value)


def test_numbers_that_json_does_not_have_are_refused() -> None:
    @tool
    def weigh(grams: float) -> str:
        return str(grams)

    with pytest.raises(ToolArgumentsError):
        weigh.validate({"grams": float("nan")})


def test_a_tool_is_still_the_function() -> None:
    @tool(name="adds", description="Adds.")
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2, b=3) == 5
    assert (add.name, add.spec.description) == ("adds", "Adds.")
    assert (add.once, add.parallel, add.check_in, add.in_doubt) == (False, False, None, "ask")


def test_a_tool_without_arguments_and_words_has_both() -> None:
    @tool
    def noop() -> None: ...

    assert noop.description == "noop"
    assert noop.schema == {"type": "object", "properties": {}, "additionalProperties": False}


async def later(a: int) -> int:
    return a


def untyped(a) -> str:  # type: ignore[no-untyped-def]
    return str(a)


def many(*a: int) -> str:
    return str(a)


def keywords(**a: int) -> str:
    return str(a)


def only_positional(a: int, /) -> str:
    return str(a)


def unknown(a: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(a)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (later, "plain function"),
        (untyped, "a needs a type"),
        (many, "passed by its name"),
        (keywords, "passed by its name"),
        (only_positional, "passed by its name"),
        (unknown, "Missing is not known at run time"),
    ],
)
def test_what_cannot_be_a_tool_says_so_where_it_is_made(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        tool(function)


@pytest.mark.parametrize("name", ["a b", "", "é", "x" * 65])
def test_names_that_no_provider_takes_are_refused(name: str) -> None:
    def plain() -> str:
        return "x"

    plain.__name__ = name
    with pytest.raises(ValueError, match="1 to 64 letters"):
        tool(plain)


def test_a_check_in_for_nobody_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="audience"):
        CheckIn(audience="supervisor")
    with pytest.raises(ValueError, match="at least 1 second"):
        CheckIn(expires_in_s=0)
    with pytest.raises(InvalidAskComponentError):
        CheckIn(component={"componentId": ""})


def test_docstrings_of_odd_shapes() -> None:
    assert parse_docstring("").description == ""
    only_args = parse_docstring(
        "Args:\n    a: one\n\n    *b (list[int], optional): two: three\n    c:\n        late\nRaises:\n    d: no"
    )
    assert only_args.description == ""
    assert only_args.arguments == {"a": "one", "b": "two: three", "c": "late"}
