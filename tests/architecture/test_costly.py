"""The list of tests with costly cases names tests that are there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.conftest import COSTLY

ROOT = Path(__file__).parents[2]


def test_every_name_on_the_list_is_that_of_a_test_with_cases() -> None:
    names = [line for line in COSTLY.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]

    assert names == sorted(set(names))
    assert [name for name in names if name not in with_cases(name.partition("::")[0])] == []


@cache
def with_cases(file: str) -> set[str]:
    """The tests of a file that are decorated, which those with cases are."""
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
    return {
        f"{file}::{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    }
