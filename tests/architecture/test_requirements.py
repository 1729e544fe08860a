"""Every promise of the docs has a test, and no test keeps a promise that nobody made."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEARCHED = ("tests", "src/bartack/testing")


def promises() -> dict[str, dict[str, str]]:
    """The promises of each page, by their ids."""
    return tomllib.loads((ROOT / "tests/requirements.toml").read_text(encoding="utf-8"))


def promised_ids() -> list[str]:
    return [promise for page in promises().values() for promise in page]


def marks(tree: ast.AST) -> Iterator[str]:
    """The ids in ``pytest.mark.requirement(…)``, wherever in a file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"an id must be written out: {ast.unparse(node)}"
                yield str(argument.value)


def kept_ids() -> set[str]:
    paths = [path for folder in SEARCHED for path in (ROOT / folder).rglob("*.py")]
    return {mark for path in paths for mark in marks(ast.parse(path.read_text(encoding="utf-8")))}


def test_every_promise_has_a_test() -> None:
    assert sorted(set(promised_ids()) - kept_ids()) == []


def test_no_test_keeps_a_promise_that_nobody_made() -> None:
    assert sorted(kept_ids() - set(promised_ids())) == []


def test_an_id_is_promised_once() -> None:
    ids = promised_ids()

    assert sorted({promise for promise in ids if ids.count(promise) > 1}) == []


def test_promises_are_sentences_on_pages_that_exist() -> None:
    assert [page for page in promises() if not (ROOT / page).is_file()] == []
    assert [text for page in promises().values() for text in page.values() if not text.endswith(".")] == []


def test_marks_are_found_on_functions_classes_parameters_and_modules() -> None:
    source = """
pytestmark = pytest.mark.requirement("module")
@pytest.mark.requirement("one", "two")
def test_a(): ...
@pytest.mark.requirement("class")
class TestB: ...
PARAMETERS = [pytest.param(1, marks=pytest.mark.requirement("parameter"))]
"""

    assert sorted(marks(ast.parse(source))) == ["class", "module", "one", "parameter", "two"]
