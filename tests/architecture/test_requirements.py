"""Every promise of the docs has a test, and no test keeps a promise that nobody made.

A promise is kept by the tests that are marked with its id. The tests of ``JournalContract`` ship without pytest and carry no
marks; a promise that they keep lists them instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[2]
CONTRACTS = [
    *(ROOT / f"src/bartack/testing/_{name}_contract.py" for name in ("journal", "agent")),
    ROOT / "src/bartack/testing/fleet/_contract.py",
]


class Promise(NamedTuple):
    """One promise of a page, and the contract tests that keep it."""

    page: str
    text: str
    contract: list[str]


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """How a promise that contract tests keep is written."""

    promise: str
    contract: list[str]


def promises() -> list[tuple[str, Promise]]:
    """Every promise with its id, in the order of the file."""
    text = (ROOT / "tests/requirements.toml").read_bytes()
    pages = msgspec.toml.decode(text, type=dict[str, dict[str, str | Kept]])
    return [
        (
            name,
            Promise(page, found, [])
            if isinstance(found, str)
            else Promise(page, found.promise, found.contract),
        )
        for page, group in pages.items()
        for name, found in group.items()
    ]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def marks(tree: ast.AST) -> Iterator[str]:
    """The ids in ``pytest.mark.requirement(…)``, wherever in a file it stands."""
    for node in ast.walk(tree):
        # Taken apart before it is written out: that is slow, and nearly all calls are others.
        named = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "requirement"
        )
        if isinstance(node, ast.Call) and named and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"an id must be written out: {ast.unparse(node)}"
                yield str(argument.value)


@cache
def marked_ids() -> set[str]:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    # What has no such word has no such mark, and need not be parsed.
    return {mark for text in texts if "mark.requirement" in text for mark in marks(ast.parse(text))}


def contract_tests() -> set[str]:
    nodes = [node for path in CONTRACTS for node in ast.walk(parsed(path))]
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    return {name for name in functions if name.startswith("test_")}


def test_every_promise_has_a_test() -> None:
    marked = marked_ids()

    assert [name for name, made in promises() if name not in marked and not made.contract] == []


def test_no_test_keeps_a_promise_that_nobody_made() -> None:
    assert sorted(marked_ids() - {name for name, _ in promises()}) == []


def test_the_contract_tests_that_keep_a_promise_exist() -> None:
    assert sorted({test for _, made in promises() for test in made.contract} - contract_tests()) == []


def test_an_id_is_promised_once() -> None:
    ids = [name for name, _ in promises()]

    assert sorted({name for name in ids if ids.count(name) > 1}) == []


def test_promises_are_sentences_on_pages_that_exist() -> None:
    assert len(promises()) > 0
    assert [name for name, made in promises() if not made.text.endswith(".")] == []
    assert [made.page for _, made in promises() if not (ROOT / made.page).is_file()] == []


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
