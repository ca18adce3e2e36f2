"""Changing a library in place: the two ways in which this stack changes moto."""

from __future__ import annotations

import sys
from typing import Any


def put(owner: type, name: str, value: Any) -> None:
    """Replaces a method or an attribute of a class."""
    setattr(owner, name, value)


def replace_everywhere(name: str, value: Any) -> None:
    """Replaces a function in every loaded module of moto's interpreter that keeps its own name of it."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("moto.stepfunctions") and name in vars(module):
            setattr(module, name, value)
