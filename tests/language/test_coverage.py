"""The programs of this directory cover the language: every code, every part of the grammar, everything built in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.language.diagnostics.test_diagnostics import CASES as REPORTED
from tests.language.diagnostics.test_diagnostics import MADE_BY_CODE
from tests.language.features.test_features import CASES as FEATURES

from bartack.language import CATALOGUE, has_errors, parse, tree
from bartack.language.checking import _library as library
from bartack.language.checking._types import ARRAY, DELIVERY, MAILBOX, RESULT, SESSION, STRING

HERE = Path(__file__).parent
RUN = sorted((HERE / "run").rglob("*.pw"))
KINDS = {
    kind.__name__
    for kind in vars(tree).values()
    if isinstance(kind, type) and issubclass(kind, tree.Node) and kind not in {tree.Node, tree.Error}
}
OPERATORS = {"|", "||", "&&", "==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", ">>"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%="}
REDIRECTS = {">", ">>", "<", "1>", "2>", "1>>", "2>>", "2>&1", "1>&2", ">&2"}
ANNOTATIONS = {"skill", "command", "agent", "timeout", "once"}
TYPES = {"string", "number", "float", "int", "bool", "boolean", "void", "any", "object", "array"}
OLD = {"task", "agent", "fail", "await task", "await task()", "spawn", "("}
MOST_OF_A_CASE = 700


def accepted() -> list[tree.Module]:
    """The trees of all programs without errors."""
    texts = [
        *(text for case in FEATURES for text in case.files.values()),
        *(text for case in REPORTED for text in case.files.values()),
        *(path.read_text(encoding="utf-8") for path in RUN),
    ]
    found = [parse(text, "t.pw") for text in texts]
    return [parsed.tree for parsed in found if not has_errors(parsed.diagnostics)]


NODES = [node for module in accepted() for node in tree.walk(module)]


def test_there_are_hundreds_of_programs_and_most_of_them_are_tiny() -> None:
    programs = [*(case.files for case in FEATURES), *(case.files for case in REPORTED)]
    sizes = [len("".join(files.values())) for files in programs]

    assert len(sizes) + len(RUN) >= 300
    assert max(sizes) <= MOST_OF_A_CASE
    assert sum(not case.expected for case in REPORTED) + len(FEATURES) >= 150
    assert sum(bool(case.expected) for case in REPORTED) >= 150


@pytest.mark.requirement("language-is-covered")
def test_every_code_is_expected_by_a_program() -> None:
    expected = {line.split()[0] for case in REPORTED for line in case.expected}

    assert set(CATALOGUE) - MADE_BY_CODE - expected == set()


@pytest.mark.requirement("language-is-covered")
def test_every_kind_of_node_is_in_an_accepted_program() -> None:
    found = {type(node).__name__ for node in NODES} | {"Comment"}

    assert KINDS - found == set()


def test_every_sign_and_word_is_in_an_accepted_program() -> None:
    signs = {node.symbol for node in NODES if isinstance(node, tree.Operator)}
    redirects: set[str] = {node.operator for node in NODES if isinstance(node, tree.Redirect)}
    annotations = {node.name.name for node in NODES if isinstance(node, tree.Annotation)}
    types = {node.names[0].name for node in NODES if isinstance(node, tree.NamedType)}
    old = {str(getattr(node, "spelled", "")) for node in NODES}

    assert (OPERATORS | ASSIGNMENTS) - signs == set()
    assert REDIRECTS - redirects == set()
    assert ANNOTATIONS - annotations == set()
    assert TYPES - types == set()
    assert OLD - old == set()


def test_every_choice_of_the_grammar_is_in_an_accepted_program() -> None:
    choices = {
        "script": any(isinstance(node, tree.Module) and node.script for node in NODES),
        "path upwards": any(isinstance(node, tree.FilePath) and node.up for node in NODES),
        "path with folders": any(isinstance(node, tree.FilePath) and node.folders for node in NODES),
        "path in braces": any(isinstance(node, tree.FilePath) and node.braced for node in NODES),
        "export": any(getattr(node, "export", False) for node in NODES),
        "default export": any(isinstance(node, tree.Declaration) and node.default for node in NODES),
        "result type": any(isinstance(node, tree.Declaration) and node.result for node in NODES),
        "doc comment": any(isinstance(node, tree.Declaration) and node.doc for node in NODES),
        "parameter with default": any(isinstance(node, tree.Parameter) and node.default for node in NODES),
        "bases in brackets": any(isinstance(node, tree.Trait) and node.bracketed for node in NODES),
        "annotation in parentheses": any(
            isinstance(node, tree.Annotation) and node.parenthesised for node in NODES
        ),
        "else if": any(isinstance(node, tree.If) and len(node.branches) > 1 for node in NODES),
        "for var": any(isinstance(node, tree.For) and node.var for node in NODES),
        "catch without name": any(isinstance(node, tree.Try) and not node.name for node in NODES),
        "var without value": any(isinstance(node, tree.Var) and not node.value for node in NODES),
        "return without value": any(isinstance(node, tree.Return) and not node.value for node in NODES),
        "optional field": any(isinstance(node, tree.TypeField) and node.optional for node in NODES),
        "leading bar": any(isinstance(node, tree.UnionType) and node.leading for node in NODES),
        "type with argument": any(isinstance(node, tree.NamedType) and node.argument for node in NODES),
        "type of a module": any(isinstance(node, tree.NamedType) and len(node.names) > 1 for node in NODES),
        "quoted key": any(isinstance(node, tree.Key) and node.quoted for node in NODES),
        "short field": any(isinstance(node, tree.ObjectField) and node.short for node in NODES),
        "think": any(isinstance(node, tree.Prompt) and node.word == "think" for node in NODES),
        "ask": any(isinstance(node, tree.Prompt) and node.word == "ask" for node in NODES),
        "raw string": any(isinstance(node, tree.String) and node.raw for node in NODES),
        "pipe": any(isinstance(node, tree.Pipeline) and len(node.commands) > 1 for node in NODES),
        "shell list": any(isinstance(node, tree.ShellList) and node.operators for node in NODES),
        "increment": any(isinstance(node, tree.Increment) and node.symbol == "++" for node in NODES),
        "decrement": any(isinstance(node, tree.Increment) and node.symbol == "--" for node in NODES),
    }

    assert [name for name, found in choices.items() if not found] == []


@pytest.mark.requirement("language-is-covered")
def test_everything_built_in_is_used_by_a_program() -> None:
    names = {node.name for node in NODES if isinstance(node, tree.Name)}
    members = {node.name.name for node in NODES if isinstance(node, tree.Member)}
    found = [library.members(kind) for kind in (STRING, ARRAY, RESULT, MAILBOX, DELIVERY, SESSION)]
    known = {member for of_kind in found if of_kind for member in of_kind[1]}

    assert len(known) > 30
    assert {*library.FUNCTIONS, *library.VALUES} - names == set()
    assert {*known, *library.SELF_MEMBERS} - members == set()


def test_every_option_of_a_delegate_and_of_a_send_is_used_by_a_program() -> None:
    keys = {node.name for node in NODES if isinstance(node, tree.Key)}

    assert {*library.DELEGATE_OPTIONS, *library.SEND_OPTIONS} - keys == set()
