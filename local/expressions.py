"""JSONata in Step Functions: moto has no evaluator, so its interpreter gets one, with what AWS adds to the language."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import uuid
from typing import TYPE_CHECKING, Any

from local.replacing import put, replace_everywhere

if TYPE_CHECKING:
    from collections.abc import Callable


def install() -> None:
    """Changes moto in place."""
    import moto.stepfunctions.parser.asl.jsonata.jsonata as moto_jsonata
    import moto.stepfunctions.parser.models  # noqa: F401 - loads whatever keeps a name of what is replaced
    from jsonata import Jsonata

    def evaluate(expression: str) -> Any:
        try:
            parsed = Jsonata(expression)
            for name, function in _ADDED_FUNCTIONS.items():
                parsed.register_lambda(name, function)
            return plain(parsed.evaluate(None))
        except Exception as error:
            raise moto_jsonata.JSONataException(type(error).__name__, str(error)) from error

    moto_jsonata._eval_jsonata = evaluate
    # moto quotes a text without escaping what is in it, and writes the added functions in JSONata, as far as that goes.
    replace_everywhere("encode_jsonata_variable_declarations", declare)
    replace_everywhere("get_intrinsic_functions_declarations", lambda variable_references: "")
    _fail_as_a_query()


def _fail_as_a_query() -> None:
    """What cannot be evaluated is a `States.QueryEvaluationError`; moto makes a `States.Runtime` of it."""
    from moto.stepfunctions.parser.api import EvaluationFailedEventDetails, HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJSONata
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.jsonata.jsonata import JSONataException

    evaluate = StringJSONata._eval_body

    def evaluate_or_fail(expression: StringJSONata, env: Any) -> None:
        try:
            evaluate(expression, env)
        except JSONataException as error:
            name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
            cause = f"The JSONata expression '{expression.expression}' threw an error: {error.details}"
            details = EvaluationFailedEventDetails(cause=cause, error=name.error_name)
            event = FailureEvent(
                env=env,
                error_name=name,
                event_type=HistoryEventType.EvaluationFailed,
                event_details=EventDetails(evaluationFailedEventDetails=details),  # type: ignore[typeddict-item]
            )
            raise FailureEventException(failure_event=event) from error

    put(StringJSONata, "_eval_body", evaluate_or_fail)


def declare(bindings: dict[str, Any]) -> str:
    """JSONata that binds names to values.

    Text stays as it is: an escaped character outside the basic plane would come back as two halves.
    """
    return "".join(f"{name}:={json.dumps(plain(value), ensure_ascii=False)};" for name, value in bindings.items())


def plain(value: Any) -> Any:
    """A value as JSON has it: one kind of number, times as text."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _partition(items: list[Any], size: float) -> list[list[Any]]:
    return [items[at : at + int(size)] for at in range(0, len(items), int(size))]


def _range(first: float, last: float, step: float) -> list[float]:
    count = int((last - first) / step) + 1 if step else 0
    return [first + number * step for number in range(max(0, count))]


def _hash(text: Any, algorithm: str) -> str:
    name = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}[algorithm]
    content = text if isinstance(text, str) else json.dumps(plain(text), separators=(",", ":"))
    return hashlib.new(name, content.encode(), usedforsecurity=False).hexdigest()


def _random(seed: Any = None) -> float:
    return random.random() if seed is None else random.Random(seed).random()


_ADDED_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "partition": _partition,
    "range": _range,
    "hash": _hash,
    "random": _random,
    "uuid": lambda: str(uuid.uuid4()),
    "parse": json.loads,
}
