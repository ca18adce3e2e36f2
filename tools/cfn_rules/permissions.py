"""House rule for permissions: no star but the argued ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cfnlint.template.template import Template

# Sid of the statement -> why it cannot name its resources. docs/security.md says the same.
ARGUED_STARS = {
    "DeliverLogs": "CloudWatch's log delivery takes no resource",
    "SendTraces": "X-Ray takes no resource",
    "CallTheModelsBehindTheProfile": "an inference profile calls in regions of its own choice; a condition names it",
}
# An ARN whose region or account is anything, or whose resource has no name: `table/*`, `*`.
_ANYTHING = re.compile(r"arn:[^:]*:[^:]*:(\*:|[^:]*:\*:|[^:]*:[^:]*:([a-zA-Z-]+[:/])?\*$)")


class NoStarResources(CloudFormationLintRule):
    """A statement on everything is a permission that nobody chose."""

    id = "E9003"
    shortdesc = "Statements name what they are for, actions of one service, and resources by ARN"
    description = (
        "Every statement has a Sid, names actions of one service, and its resources by ARN, but for the argued ones. "
        "Roles carry no AWS-managed policies, which are written on *."
    )
    source_url = "https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html#grant-least-privilege"
    tags = ["turnkeep", "iam"]

    def match(self, cfn: Template) -> list[RuleMatch]:
        """See ``CloudFormationLintRule``."""
        managed = [
            RuleMatch(["Resources", name, "Properties"], f"{name} carries AWS-managed policies: write its statements")
            for name, role in cfn.get_resources(["AWS::IAM::Role"]).items()
            if role["Properties"].get("ManagedPolicyArns")
        ]
        return managed + [
            RuleMatch(path, complaint)
            for path, statement in statements(cfn)
            if statement.get("Effect") == "Allow"
            for complaint in _complaints(statement)
        ]


def statements(cfn: Template) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Every statement of a permission policy (not of a trust policy), with its place."""
    for name, role in cfn.get_resources(["AWS::IAM::Role"]).items():
        for index, policy in enumerate(role["Properties"].get("Policies", [])):
            path = ["Resources", name, "Properties", "Policies", index, "PolicyDocument", "Statement"]
            yield from _of_document(policy["PolicyDocument"], path)
    for name, policy in cfn.get_resources(["AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"]).items():
        path = ["Resources", name, "Properties", "PolicyDocument", "Statement"]
        yield from _of_document(policy["Properties"]["PolicyDocument"], path)


def _of_document(document: dict[str, Any], path: list[Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for index, statement in enumerate(_as_list(document.get("Statement"))):
        yield [*path, index], statement


def _complaints(statement: dict[str, Any]) -> Iterator[str]:
    sid = statement.get("Sid")
    if not sid:
        yield "a statement without a Sid: say what it is for"
    for action in _as_list(statement.get("Action")):
        if action == "*" or str(action).endswith(":*"):
            yield f"{sid}: {action} is every action there is"
    services = {str(action).partition(":")[0] for action in _as_list(statement.get("Action"))}
    if len(services) > 1:
        yield f"{sid}: actions of {' and '.join(sorted(services))}: one statement each"
    if any(names_everything(resource) for resource in _as_list(statement.get("Resource"))) and sid not in ARGUED_STARS:
        yield f"{sid}: Resource * without an argument in tools/cfn_rules/permissions.py"


def names_everything(resource: Any) -> bool:
    """Is this resource a star, or an ARN that leaves region, account or name open?"""
    text = str(resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource)
    return text == "*" or _ANYTHING.match(re.sub(r"\$\{[^}]*\}", "x", text)) is not None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
