"""Says what `sam deploy --guided` will ask: every parameter of the template, with its default and what it means.

sam shows a parameter's name and default, and CloudFormation's console its description; this shows all three first.
"""

from __future__ import annotations

import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 110


def explain(template: dict[str, Any]) -> str:
    """The template's parameters in words, in the order of its console groups."""
    parts = []
    for group in template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]:
        parts.append(f"{group['Label']['default']}\n")
        for name in group["Parameters"]:
            parameter = template["Parameters"][name]
            parts.append(f"  {name} [{parameter['Default']}]")
            parts += [_indented(part) for part in (parameter["Description"], _choices(parameter)) if part]
            parts.append("")
    return "\n".join(parts).rstrip()


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="      ", subsequent_indent="      ", break_on_hyphens=False)


def _choices(parameter: dict[str, Any]) -> str:
    """What it may be, where that is not for everybody to see: a list, or bounds."""
    if "AllowedValues" in parameter:
        return "One of " + ", ".join(str(value) for value in parameter["AllowedValues"]) + "."
    if "MinValue" in parameter:
        return f"From {parameter['MinValue']} to {parameter['MaxValue']}."
    return ""


def main() -> None:
    """Prints them."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager may end before all is said
    sys.path.insert(0, str(ROOT))
    from local.template import load_yaml

    print(explain(load_yaml((ROOT / "template.yaml").read_text(encoding="utf-8"))))
    print("\nJwtIssuer and JwtAudience have to be said, or AllowAnonymous: the stack refuses to be made otherwise.")


if __name__ == "__main__":
    main()
