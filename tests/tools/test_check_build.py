"""The look at a build: byte code that Lambda's Python takes as it is, and no other."""

from __future__ import annotations

import py_compile
from typing import TYPE_CHECKING

import pytest

from tools.check_build import useless

if TYPE_CHECKING:
    from pathlib import Path

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


def compiled(folder: Path, name: str, mode: py_compile.PycInvalidationMode, tag: str = "cpython-313") -> Path:
    source = folder / f"{name}.py"
    source.write_text("ANSWER = 42\n", encoding="utf-8")
    made = folder / "__pycache__" / f"{name}.{tag}.pyc"
    py_compile.compile(str(source), cfile=str(made), invalidation_mode=mode)
    return made


def test_byte_code_of_lambdas_python_is_what_a_layer_holds(tmp_path: Path) -> None:
    compiled(tmp_path, "good", UNCHECKED)
    assert useless(tmp_path) == []


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.CHECKED_HASH]
)
def test_byte_code_that_is_held_against_its_source_at_every_start_is_told(
    tmp_path: Path, mode: py_compile.PycInvalidationMode
) -> None:
    assert useless(tmp_path) == []
    bad = compiled(tmp_path, "dated", mode)
    assert useless(tmp_path) == [bad]


def test_byte_code_of_another_python_or_of_no_source_is_told(tmp_path: Path) -> None:
    other = compiled(tmp_path, "other", UNCHECKED, tag="cpython-311")
    orphan = compiled(tmp_path, "gone", UNCHECKED)
    (tmp_path / "gone.py").unlink()
    assert sorted(useless(tmp_path)) == sorted([other, orphan])
