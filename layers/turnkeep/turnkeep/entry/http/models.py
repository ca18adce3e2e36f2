"""The bodies of requests, as models. Imported by the first request that has a body: pydantic is a third of a start.

Strict: a boolean is no number and a number no text. Fields that are not named here are ignored (a ``userId`` in a body
names nobody), so that a client of a later release can talk to this one.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from turnkeep.errors import InvalidRequestError, MessageTooLargeError
from turnkeep.json_values import ABSENT, Absent


def _whole(value: Any) -> Any:
    """``3.0`` is the integer 3 in JSON; a boolean is not 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _says_something(value: str) -> str:
    """Models refuse a text of nothing but white space, and a conversation that holds one could not go on."""
    if not value.strip():
        raise PydanticCustomError("blank", "blank")
    return value


Message = Annotated[StrictStr, AfterValidator(_says_something), Field(json_schema_extra={"pattern": r"\S"})]
HostTurn = Annotated[StrictInt, BeforeValidator(_whole, json_schema_input_type=int)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TurnRequest(_Body):
    """A message to a conversation."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "Where is order A-100?"}]})

    message: Message = Field(
        description="What the user says: not only white space, and at most MaxMessageBytes of UTF-8."
    )
    turn: HostTurn = Field(
        default=0,
        description="The host's own turn counter, a floor: the turn's number is the larger of it and the next one. "
        "At most 1,000,000 over the last turn. A counter that starts anew is harmless.",
    )


class ConversationRequest(_Body):
    """A new conversation, with its first message or without."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"message": "Where is order A-100?"}]})

    message: Message = Field(default="", description="The first message; left out, the conversation starts empty.")
    turn: HostTurn = Field(default=0, description="As in a turn.")


class AnswerRequest(_Body):
    """A decision on one ask."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"askId": "ask-1-k2Jx0c9LrQpZ7vTd", "decision": {"approved": True, "by": "sue", "note": "a regular"}},
                {"askId": "ask-1-k2Jx0c9LrQpZ7vTd", "decision": "the blue one"},
            ]
        }
    )

    ask_id: StrictStr = Field(alias="askId", description="The ask that this answers.")
    decision: Any = Field(
        description='Any JSON; null is a decision. A check-in wants {"approved": bool, "by": str, "note"?, "value"?}.'
    )


ModelT = TypeVar("ModelT", bound=_Body)

_RULES = {
    "missing": "is required",
    "string_type": "has to be text",
    "int_type": "has to be a whole number",
    "int_from_float": "has to be a whole number",
    "blank": "has to say something",
}


def read_turn(body: dict[str, Any], *, max_message_bytes: int) -> tuple[str, int | None]:
    """A turn's message and host counter (None: not said).

    Raises:
        MessageTooLargeError: before anything else is said about the message.
        InvalidRequestError: names the fields at fault.
    """
    refuse_large(body.get("message"), limit_bytes=max_message_bytes)
    turn = _validated(TurnRequest, body)
    return turn.message, turn.turn if "turn" in turn.model_fields_set else None


def read_conversation(body: dict[str, Any], *, max_message_bytes: int) -> tuple[str | None, int | None]:
    """A new conversation's first message (None: it starts empty) and host counter.

    Raises:
        MessageTooLargeError, InvalidRequestError: as ``read_turn``.
    """
    refuse_large(body.get("message"), limit_bytes=max_message_bytes)
    conversation = _validated(ConversationRequest, body)
    said = conversation.model_fields_set
    return conversation.message if "message" in said else None, conversation.turn if "turn" in said else None


def read_answer(body: dict[str, Any], *, max_decision_bytes: int) -> tuple[str, Any | Absent]:
    """An answer's ask and decision; ``ABSENT`` where it has none.

    That is the use case's to refuse: who may not see the conversation hears of that first.

    Raises:
        MessageTooLargeError: the decision is over the limit.
        InvalidRequestError: names the fields at fault.
    """
    refuse_large(body.get("decision"), limit_bytes=max_decision_bytes)
    answer = _validated(AnswerRequest, {"decision": ABSENT, **body})
    return answer.ask_id, answer.decision


def refuse_large(value: Any, *, limit_bytes: int) -> None:
    """Refuses a text, or the JSON of another value, that is over a limit of bytes.

    Raises:
        MessageTooLargeError: with the limit and the size.
    """
    if value is None:
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > limit_bytes:
        raise MessageTooLargeError(limit_bytes=limit_bytes, size_bytes=size_bytes)


def _validated(model: type[ModelT], body: dict[str, Any]) -> ModelT:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        rules = {str(fault["loc"][0]): _RULES.get(fault["type"], "is not what it may be") for fault in faults}
        sentence = "; ".join(f"{name} {rule}" for name, rule in rules.items())
        raise InvalidRequestError(f"In the body: {sentence}.", fields=list(rules)) from None
