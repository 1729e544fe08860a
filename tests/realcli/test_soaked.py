"""The list of what is left to ``make soak`` names tests that are there."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.realcli.conftest import SOAKED

HERE = Path(__file__).parent


def test_every_name_on_the_list_is_that_of_a_test() -> None:
    tests = known()
    unknown = [name for name in SOAKED if not any(test.startswith(name.partition("[")[0]) for test in tests)]

    assert unknown == []


def known() -> list[str]:
    """All tests of this directory, as ``file::function``."""
    return [
        f"{path.name}::{node.name}"
        for path in sorted(HERE.glob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
