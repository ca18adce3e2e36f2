"""House rule for parameters: `sam deploy --guided` has to explain itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfnlint.rules import CloudFormationLintRule, RuleMatch

if TYPE_CHECKING:
    from cfnlint.template.template import Template

CONSTRAINTS = frozenset({"AllowedValues", "AllowedPattern", "MinValue", "MaxValue"})
SHORTEST_DESCRIPTION = 30


class ParametersExplainThemselves(CloudFormationLintRule):
    """A parameter is read by somebody who has not read the template."""

    id = "E9004"
    shortdesc = "Every parameter is described, bounded and has a default"
    description = "A parameter has a Description, a Default, and (but for lists) allowed values, a pattern or bounds."
    source_url = "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/parameters-section-structure.html"
    tags = ["turnkeep", "parameters"]

    def match(self, cfn: Template) -> list[RuleMatch]:
        """See ``CloudFormationLintRule``."""
        matches = []
        for name, parameter in cfn.template.get("Parameters", {}).items():
            path = ["Parameters", name]
            if len(str(parameter.get("Description", ""))) < SHORTEST_DESCRIPTION:
                matches.append(RuleMatch(path, f"{name} has no Description that explains it"))
            if "Default" not in parameter:
                matches.append(RuleMatch(path, f"{name} has no Default"))
            if parameter["Type"] in ("String", "Number") and not CONSTRAINTS & set(parameter):
                matches.append(RuleMatch(path, f"{name} has no AllowedValues, AllowedPattern, MinValue or MaxValue"))
        return matches
