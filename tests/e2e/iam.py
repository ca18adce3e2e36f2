"""Roles as IAM holds them, and what it would say to a call: statements, actions, resources and conditions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.stack import LocalStack

MACHINE = "PausedRun"


@dataclass(frozen=True)
class Asked:
    """What IAM would be asked of one call.

    Attributes:
        permission: ``action resource``.
        conditions: the condition keys that it would see, each with its values.
    """

    permission: str
    conditions: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @classmethod
    def of(cls, call: dict[str, Any]) -> set[Asked]:
        seen = tuple((name, tuple(values)) for name, values in sorted(call["conditions"].items()))
        return {cls(each, seen) for each in call["permissions"]}


def statements_of(stack: LocalStack, caller: str) -> list[dict[str, Any]]:
    """The statements of a function's or the machine's role, as IAM holds them. No role carries anything else."""
    deployed = stack.deployment()
    if caller == MACHINE:
        steps = stack.client("stepfunctions")
        role = steps.describe_state_machine(stateMachineArn=deployed["outputs"]["PausedRunArn"])["roleArn"]
    else:
        function = stack.client("lambda").get_function(FunctionName=deployed["functions"][caller]["name"])
        role = function["Configuration"]["Role"]
    name = role.rpartition("/")[2]
    iam = stack.client("iam")
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
    found: list[dict[str, Any]] = []
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
        # moto hands a policy that CloudFormation made back as Python would print it.
        found += (ast.literal_eval(document) if isinstance(document, str) else document)["Statement"]
    return found


def faults_of(caller: str, statements: list[dict[str, Any]], needed: Iterable[Asked]) -> list[str]:
    """What is not allowed by exactly one statement. A second one would hide that the first is missing."""
    faults = []
    for asked in sorted(needed, key=lambda one: one.permission):
        by = [statement["Sid"] for statement in statements if allows(statement, asked)]
        if not by:
            faults.append(f"{caller} may not {asked.permission}")
        elif len(by) > 1:
            faults.append(f"{caller} may {asked.permission} by {len(by)} statements: {', '.join(by)}")
    return faults


def idle_in(statements: list[dict[str, Any]], needed: Iterable[Asked]) -> set[str]:
    """The Sids of statements with an action, or a resource, that nothing asked for."""
    asked = list(needed)
    return {
        statement["Sid"]
        for statement in statements
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
        if not any(allows({**statement, "Action": action, "Resource": resource}, one) for one in asked)
    }


def without(statements: list[dict[str, Any]], sid: str, action: str) -> list[dict[str, Any]]:
    """The statements, and the one of this Sid without this action."""
    return [
        {**each, "Action": [one for one in as_list(each["Action"]) if one != action]} if each["Sid"] == sid else each
        for each in statements
    ]


def allows(statement: dict[str, Any], asked: Asked) -> bool:
    """Whether a statement allows a call, its conditions included."""
    action, resource = asked.permission.split(" ", 1)
    # SendTaskSuccess is asked with a token only; a policy's ARN for it is AWS's documentation's word.
    return (
        action in as_list(statement["Action"])
        and (resource == "*" or any(fnmatchcase(resource, pattern) for pattern in as_list(statement["Resource"])))
        and all(
            holds(operator, as_list(wanted), dict(asked.conditions).get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def holds(operator: str, wanted: list[str], seen: tuple[str, ...] | None) -> bool:
    """One condition, as IAM reads it: all of no values hold, and ``IfExists`` asks nothing of what is not there."""
    match operator:
        case "ForAllValues:StringEquals":
            return set(seen or ()) <= set(wanted)
        case "StringEqualsIfExists":
            return seen is None or set(seen) <= set(wanted)
    raise AssertionError(f"{operator} is not read here")


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
