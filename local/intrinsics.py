"""CloudFormation's functions, for the parts of a template that moto does not deploy (routes, CORS, schedules)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from local.settings import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_VALUE = object()


class Resolver:
    """Resolves `Ref`, `Fn::GetAtt`, `Fn::Sub`, `Fn::If` and their like against a deployed stack."""

    def __init__(
        self, plain: dict[str, Any], parameters: dict[str, str], physical: dict[str, str], known: dict[str, str]
    ) -> None:
        self.plain = plain
        self.physical = physical
        self._known: dict[str, Any] = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::NoValue": _NO_VALUE,
            **physical,
            **known,
        }
        declared = plain.get("Parameters", {})
        for name, value in parameters.items():
            is_list = str(declared.get(name, {}).get("Type", "")).endswith(("List", "List<Number>"))
            self._known[name] = value.split(",") if is_list else value
        self._functions: dict[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::If": self._if,
            "Fn::Join": lambda argument: str(argument[0]).join(str(part) for part in self.value(argument[1])),
            "Fn::Split": lambda argument: str(self.value(argument[1])).split(argument[0]),
            "Fn::Select": lambda argument: self.value(argument[1])[int(self.value(argument[0]))],
            "Fn::FindInMap": self._find_in_map,
            "Fn::Equals": lambda argument: self._text(argument[0]) == self._text(argument[1]),
            "Fn::Not": lambda argument: not self._condition(argument[0]),
            "Fn::And": lambda argument: all(self._condition(part) for part in argument),
            "Fn::Or": lambda argument: any(self._condition(part) for part in argument),
        }

    def value(self, template: Any) -> Any:
        """The value of a piece of template; what is `AWS::NoValue` is left out of its surroundings."""
        found = self._value(template)
        return None if found is _NO_VALUE else found

    def holds(self, condition: str | None) -> bool:
        """Is a named condition true? No name is always true."""
        return condition is None or bool(self._value(self.plain.get("Conditions", {})[condition]))

    def _value(self, template: Any) -> Any:
        if isinstance(template, list):
            parts = [self._value(part) for part in template]
            return [part for part in parts if part is not _NO_VALUE]
        if not isinstance(template, dict):
            return template
        if len(template) == 1:
            ((name, argument),) = template.items()
            if name in self._functions:
                return self._functions[name](argument)
            if name == "Condition" and isinstance(argument, str):
                return self.holds(argument)
        members = {name: self._value(part) for name, part in template.items()}
        return {name: part for name, part in members.items() if part is not _NO_VALUE}

    def _ref(self, name: str) -> Any:
        return self._known.get(name, name)

    def _get_att(self, argument: Any) -> Any:
        logical_id, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        resource = self.plain["Resources"].get(logical_id, {})
        physical = self._known.get(logical_id, logical_id)
        service = {
            "AWS::Lambda::Function": f"lambda:{REGION}:{ACCOUNT}:function:",
            "AWS::SQS::Queue": f"sqs:{REGION}:{ACCOUNT}:",
            "AWS::DynamoDB::Table": f"dynamodb:{REGION}:{ACCOUNT}:table/",
            "AWS::Events::EventBus": f"events:{REGION}:{ACCOUNT}:event-bus/",
            "AWS::IAM::Role": f"iam::{ACCOUNT}:role/",
            "AWS::Logs::LogGroup": f"logs:{REGION}:{ACCOUNT}:log-group:",
        }.get(resource.get("Type", ""))
        if attribute in ("Arn", "QueueArn") and service and not str(physical).startswith("arn:"):
            return f"arn:aws:{service}{str(physical).rpartition('/')[2]}"
        if attribute in ("Name", "QueueName"):
            return str(physical).rpartition("/")[2].rpartition(":")[2]
        return physical

    def _sub(self, argument: Any) -> str:
        text, local = (argument, {}) if isinstance(argument, str) else argument

        def replace(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("!"):
                return "${" + name[1:] + "}"
            if name in local:
                return str(self.value(local[name]))
            return str(self._get_att(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace, text)

    def _if(self, argument: list[Any]) -> Any:
        condition, when_true, when_false = argument
        return self._value(when_true if self.holds(condition) else when_false)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, first, second = (self.value(part) for part in argument)
        return self.plain["Mappings"][name][first][second]

    def _condition(self, argument: Any) -> bool:
        return bool(self.value(argument))

    def _text(self, argument: Any) -> str:
        return str(self.value(argument))
