"""Tools: plain functions that a model may call.

``@tool`` reads a function's signature and Google docstring once and makes of them what a model is told: a name, a
description and a JSON schema. A call's arguments are validated against the same signature before anything runs.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from turnkeep.agent.docstrings import parse_docstring
from turnkeep.agent.provider import ToolSpec
from turnkeep.agent.results import plain_json
from turnkeep.decisions import assert_component

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import TurnInfo

InDoubt = Literal["ask", "run_again"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AUDIENCE = re.compile(r"owner|role:[A-Za-z0-9._-]+")
_RESERVED_ASK_KEYS = frozenset({"toolCallId", "toolName", "checkIn", "ask", "question", "component"})


@dataclass(frozen=True)
class ToolCall:
    """A call as the model made it.

    Attributes:
        id: the model's name for it; another run of the same turn may name it otherwise.
        name: the tool.
        args: its arguments, a JSON object.
    """

    id: str
    name: str
    args: dict[str, Any]


class ToolArgumentsError(Exception):
    """A call's arguments do not fit the tool; the text says which and why, for the model to read."""


class AskRaised(BaseException):
    """A tool asks a person and the run pauses. Not an ``Exception``, so that no tool swallows it by accident.

    Attributes:
        payload: the tool's own keys of the ask: ``question``, ``component`` where there is one, and the tool's data.
        audience: ``owner`` or ``role:NAME``.
        expires_in_s: seconds that the ask stays open; None takes the stack's.
    """

    def __init__(self, payload: dict[str, Any], *, audience: str, expires_in_s: int | None) -> None:
        self.payload, self.audience, self.expires_in_s = payload, audience, expires_in_s
        super().__init__("A tool asks a person; the run pauses here.")


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know of the turn that it runs in. A parameter annotated with it receives it.

    Attributes:
        info: whose turn it is.
        idempotency_key: the same for the same call of the same turn, however often it has to run: a hash of stable
            content, never of the model's call id. Hand it to the service that the tool calls.
        decision: the decision that let this call run, where a person approved it.
    """

    info: TurnInfo
    idempotency_key: str
    decision: dict[str, Any] | None = None
    _time_left_ms: Callable[[], int] = field(default=lambda: 60_000, repr=False)
    _may_ask: bool = field(default=True, repr=False)

    @property
    def conversation_id(self) -> str:
        """The thread's id."""
        return self.info.conversation_id

    @property
    def turn(self) -> int:
        """The turn's number, from 1."""
        return self.info.turn

    @property
    def principal(self) -> str | None:
        """Who sent the turn's message; None when anonymous."""
        return self.info.principal

    @property
    def tenant(self) -> str | None:
        """The principal's tenant, if any."""
        return self.info.tenant

    @property
    def time_left_ms(self) -> int:
        """Milliseconds until the run has to have ended."""
        return self._time_left_ms()

    def ask(
        self,
        question: str,
        *,
        audience: str = "owner",
        component: dict[str, Any] | None = None,
        expires_in_s: int | None = None,
        **data: Any,
    ) -> NoReturn:
        """Ends the run here with a question to a person; the answer, whatever it is, becomes this call's result.

        The tool does not run again: what it did before it asked, it did once. Everything after this line never runs.

        Args:
            question: what the person reads.
            audience: ``owner`` or ``role:NAME``.
            component: how to show it (CONTRACT.md 5.5).
            expires_in_s: seconds that the ask stays open; None takes the stack's.
            data: what else the ask shows, JSON.

        Raises:
            ValueError: the audience, the expiry or a name in ``data`` is not possible.
            UnstorableValueError: ``data`` holds a value that JSON cannot keep.
        """
        if not self._may_ask:
            raise ValueError("a tool declared parallel cannot ask; declare it without parallel, or give it a check_in")
        checked_audience(audience, expires_in_s)
        if taken := _RESERVED_ASK_KEYS & data.keys():
            raise ValueError(f"an ask's data cannot be named {', '.join(sorted(taken))}")
        payload: dict[str, Any] = {"question": plain_json(question, at="question"), **plain_json(data, at="data")}
        if component is not None:
            payload["component"] = checked_component(component, "ask")
        raise AskRaised(payload, audience=audience, expires_in_s=expires_in_s)


@dataclass(frozen=True)
class CheckIn:
    """Declares that a person decides before a tool runs (CONTRACT.md 5.4).

    Attributes:
        audience: who decides: ``owner`` or ``role:NAME``.
        when: given the call's validated arguments by name, whether this call needs the decision; None for always.
            A rule that raises keeps the tool from running: the model is told so.
        component: how to show it (CONTRACT.md 5.5).
        expires_in_s: seconds that the ask stays open; None takes the stack's.
    """

    audience: str = "owner"
    when: Callable[[dict[str, Any]], bool] | None = None
    component: dict[str, Any] | None = None
    expires_in_s: int | None = None

    def __post_init__(self) -> None:
        checked_audience(self.audience, self.expires_in_s)
        if self.component is not None:
            checked_component(self.component, "check-in")


@dataclass(frozen=True)
class Tool:
    """A function that a model may call, made by ``@tool``. Calling it calls the function, as in a test of its own.

    Attributes:
        name: what the model calls it by.
        description: what it does; an approver reads it, too.
        schema: JSON schema of its arguments.
        function: the function itself.
        once: it acts once: a re-run of the same call returns the remembered result.
        in_doubt: what happens where an attempt died inside a ``once`` call, and nobody can know what it did: ``ask``
            puts it before a person (approve: it runs again), ``run_again`` runs it again.
        parallel: it may run beside its neighbours in the same assistant turn.
        check_in: whether a person decides first.
    """

    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    once: bool = False
    in_doubt: InDoubt = "ask"
    parallel: bool = False
    check_in: CheckIn | None = None
    _signature: _Signature = field(kw_only=True, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return ToolSpec(self.name, self.description, self.schema)

    def validate(self, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them, by parameter name; defaults filled in.

        Raises:
            ToolArgumentsError: they do not fit; the text names each one and why, without repeating its value.
        """
        try:
            valid = self._signature.arguments.model_validate(args)
        except ValidationError as error:
            faults = [
                f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_input=False, include_context=False)
            ]
            raise ToolArgumentsError("; ".join(faults)) from None
        return {name: getattr(valid, f"p{index}") for index, name in enumerate(self._signature.parameters)}

    def invoke(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Runs the function with validated arguments."""
        name = self._signature.context_parameter
        extra = {} if name is None else {name: context}
        return self.function(**arguments, **extra)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    once: bool = False,
    in_doubt: InDoubt = "ask",
    parallel: bool = False,
    check_in: CheckIn | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    once: bool = False,
    in_doubt: InDoubt = "ask",
    parallel: bool = False,
    check_in: CheckIn | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a plain function a tool: ``@tool`` or ``@tool(once=True, ...)``.

    Every parameter needs a type; its description is read from the docstring's ``Args:``. A parameter annotated
    ``ToolContext`` is filled by turnkeep and hidden from the model.

    Args:
        function: the function, where the decorator has no options.
        name: another name than the function's.
        description: another description than the docstring's.
        once: see ``Tool``.
        in_doubt: see ``Tool``.
        parallel: see ``Tool``.
        check_in: see ``CheckIn``.

    Raises:
        TypeError: the function cannot be a tool; the text says what to change.
        ValueError: the name is not possible.
    """

    def make(plain: Callable[..., Any]) -> Tool:
        signature = _read_signature(plain, name or plain.__name__)
        return Tool(
            name=name or plain.__name__,
            description=description or signature.description or plain.__name__,
            schema=_without_titles(signature.arguments.model_json_schema(by_alias=True)),
            function=plain,
            once=once,
            in_doubt=in_doubt,
            parallel=parallel,
            check_in=check_in,
            _signature=signature,
        )

    return make if function is None else make(function)


@dataclass(frozen=True)
class _Signature:
    """What a function's signature and docstring say: its arguments as a model with the fields p0, p1, and so on."""

    description: str
    arguments: type[BaseModel]
    parameters: tuple[str, ...]
    context_parameter: str | None


def _read_signature(function: Callable[..., Any], name: str) -> _Signature:
    if not _NAME.fullmatch(name):
        raise ValueError(f"A tool's name consists of 1 to 64 letters, digits, _ and -; {name!r} does not.")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"Tool {name}: a tool is a plain function; run asynchronous code inside it with asyncio.run.")
    documented = parse_docstring(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"Tool {name}: the annotation {error.name} is not known at run time; import it outside of TYPE_CHECKING."
        ) from None
    context_parameter: str | None = None
    parameters: list[str] = []
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if hints.get(parameter.name) is ToolContext:
            context_parameter = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"Tool {name}: the parameter {parameter.name} must be one that is passed by its name.")
        if parameter.name not in hints:
            raise TypeError(f"Tool {name}: the parameter {parameter.name} needs a type.")
        default = ... if parameter.default is parameter.empty else parameter.default
        # Named by number inside the model: a parameter may be called anything, "schema" or "copy" included.
        about = Field(default, alias=parameter.name, description=documented.arguments.get(parameter.name))
        fields[f"p{len(parameters)}"] = (hints[parameter.name], about)
        parameters.append(parameter.name)
    strict = ConfigDict(extra="forbid", allow_inf_nan=False)
    arguments: type[BaseModel] = create_model(name, __config__=strict, **fields)
    return _Signature(documented.description, arguments, tuple(parameters), context_parameter)


def _without_titles(schema: Any) -> Any:
    """A schema without the titles that pydantic makes up: they tell a model nothing. A property may be named title."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    slim = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            slim[key] = {name: _without_titles(item) for name, item in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            slim[key] = value
        elif key != "title":
            slim[key] = _without_titles(value)
    return slim


def checked_audience(audience: str, expires_in_s: int | None = None) -> str:
    """The audience, if it is one.

    Raises:
        ValueError: it is neither ``owner`` nor ``role:NAME``, or the expiry is no positive number of seconds.
    """
    if not isinstance(audience, str) or not _AUDIENCE.fullmatch(audience):
        raise ValueError("an ask's audience is 'owner' or 'role:NAME'; NAME consists of letters, digits, . _ and -")
    if expires_in_s is not None and (isinstance(expires_in_s, bool) or expires_in_s < 1):
        raise ValueError("an ask stays open for at least 1 second")
    return audience


def checked_component(component: dict[str, Any], door: str) -> dict[str, Any]:
    """A copy of the component, if it is one (CONTRACT.md 5.5) and JSON.

    Raises:
        InvalidAskComponentError: its shape is wrong.
        UnstorableValueError: a value in it is no JSON.
    """
    assert_component(component, door)
    return cast(dict[str, Any], plain_json(component, at="component"))
