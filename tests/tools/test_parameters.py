"""What is said of the parameters before `sam deploy --guided` asks for them by name only."""

from __future__ import annotations

import subprocess
import sys

from local.settings import ROOT
from local.template import load_yaml


def test_every_parameter_is_explained_with_its_default_and_its_choices() -> None:
    said = subprocess.run(
        [sys.executable, "tools/parameters.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    words = " ".join(said.split())
    template = load_yaml((ROOT / "template.yaml").read_text(encoding="utf-8"))
    for name, parameter in template["Parameters"].items():
        assert f"  {name} [{parameter['Default']}]" in said
        assert " ".join(parameter["Description"].split()) in words
        for value in parameter.get("AllowedValues", []):
            assert str(value) in words
    assert "From 1 to 15552000." in words
    assert max(len(line) for line in said.splitlines()) <= 110
