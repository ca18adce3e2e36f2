"""House rules for functions: a log group of one's own, and one runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnlint.rules import CloudFormationLintRule, RuleMatch

if TYPE_CHECKING:
    from cfnlint.template.template import Template

FUNCTION = "AWS::Lambda::Function"
LAYER = "AWS::Lambda::LayerVersion"
LAYER_BUILDS = ("layers/turnkeep/Makefile", "layers/agent/Makefile")


class FunctionsHaveTheirLogGroup(CloudFormationLintRule):
    """A log group that Lambda makes by itself is never deleted and keeps for ever what is in it."""

    id = "E9001"
    shortdesc = "Every function has its log group, with a retention"
    description = (
        "LoggingConfig.LogGroup names a log group of this template, no other function's, with RetentionInDays."
    )
    source_url = "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-loggroups.html"
    tags = ["turnkeep", "logs"]

    def match(self, cfn: Template) -> list[RuleMatch]:
        """See ``CloudFormationLintRule``."""
        groups = cfn.get_resources(["AWS::Logs::LogGroup"])
        users: dict[str, str] = {}
        matches = []
        for name, function in cfn.get_resources([FUNCTION]).items():
            path = ["Resources", name, "Properties"]
            group = _ref(function["Properties"].get("LoggingConfig", {}).get("LogGroup"))
            if group not in groups:
                matches.append(RuleMatch(path, f"{name} names no log group of this template in LoggingConfig.LogGroup"))
            elif "RetentionInDays" not in groups[group].get("Properties", {}):
                matches.append(RuleMatch(["Resources", group, "Properties"], f"{group} has no RetentionInDays"))
            elif group in users:
                matches.append(RuleMatch(path, f"{name} shares {group} with {users[group]}"))
            users.setdefault(group, name)
        return matches


class OneRuntime(CloudFormationLintRule):
    """Functions, layers and the wheels in the layers are for the same Python, or imports fail after a deploy."""

    id = "E9002"
    shortdesc = "One runtime for all functions and layers"
    description = "Runtime, CompatibleRuntimes and PYTHON_VERSION in the layers' Makefiles say the same."
    source_url = "https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html"
    tags = ["turnkeep", "runtime"]

    def match(self, cfn: Template) -> list[RuleMatch]:
        """See ``CloudFormationLintRule``."""
        said: list[tuple[list[Any], str]] = []
        for name, function in cfn.get_resources([FUNCTION]).items():
            said.append((["Resources", name, "Properties", "Runtime"], str(function["Properties"].get("Runtime"))))
        for name, layer in cfn.get_resources([LAYER]).items():
            path = ["Resources", name, "Properties", "CompatibleRuntimes"]
            said += [(path, str(runtime)) for runtime in layer["Properties"].get("CompatibleRuntimes", ["none"])]
        folder = Path(str(cfn.filename)).resolve().parent
        for build in LAYER_BUILDS:
            found = re.search(r"^PYTHON_VERSION := (.*)$", _read(folder / build), re.MULTILINE)
            if found:
                said.append((["Resources"], f"python{found[1]}"))
        runtime = said[0][1] if said else ""
        return [RuleMatch(path, f"{other} beside {runtime}: one runtime") for path, other in said if other != runtime]


def _ref(value: Any) -> str:
    return str(value.get("Ref", "")) if isinstance(value, dict) else ""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
