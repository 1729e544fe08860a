"""The wiring of the kernel can be followed by reading: constructors show who knows whom, one table who handles what.

Each rule is a function over the syntax tree of a module, so that a test can also show that it finds what it is for.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

SRC: Final = Path(__file__).parents[2] / "src" / "bartack" / "runtime"
KERNEL: Final = SRC / "kernel"
TREES: Final = {
    str(path.relative_to(SRC)): ast.parse(path.read_text(encoding="utf-8"))
    for room in (KERNEL, SRC / "state")
    for path in sorted(room.rglob("*.py"))
}
IN_KERNEL: Final = {name: tree for name, tree in TREES.items() if name.startswith("kernel/")}

DATA: Final = frozenset({"state", "_state", "settings"})
"""Attributes of desks that are plain data: what they hold may be read at any depth."""

STATE_OBJECTS: Final = frozenset(
    {"state", "worker", "opened", "known", "child", "above", "scope", "message", "mailbox", "post", "cast", "letter", "trial"}
)  # fmt: skip
"""How objects of the state are called in the kernel."""

CHANGES: Final = frozenset(
    {
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "update",
    }
)
"""Methods by which a collection is changed."""

MAILBOX_CHANGES: Final = frozenset(
    {
        "close",
        "declare",
        "drop",
        "give_back",
        "hold",
        "put",
        "register",
        "release",
        "reserve",
        "take",
        "withdraw",
    }
)
"""Methods by which a mailbox is changed."""

KIND_CHECKS: Final = {
    "kernel/bodies.py": 2,  # a block with a deadline begins and ends by the same frames as a body
    "kernel/mail_events.py": 3,  # the entry of a message is also the outcome of a supervised send that was accepted at once
}
"""Where the kernel compares the kind of a step with a text, and how often; everything else is up to the handler of the kind."""

ONE_PLACE: Final = {
    "StepFinished": "kernel/outcome.py",
    "StepFailed": "kernel/outcome.py",
    "MessageSent": "kernel/mail/enqueue.py",
    "RequestTaken": "kernel/requests.py",
}
"""Entries that only one module of the kernel makes."""


def chain(node: ast.expr) -> list[str]:
    """The names of an attribute, from its root; without a name as its root nothing."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What is assigned, and the value if it is known; tuples are taken apart."""
    for node in ast.walk(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.Delete):
            targets = node.targets
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Tuple):
                values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
                yield from zip(target.elts, values, strict=False)
            else:
                yield target, value


def functions_in(tree: ast.AST) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def callables_put_into_others(tree: ast.AST) -> list[str]:
    """Attributes of other objects that are assigned a function, a method or a lambda, or that wait for one with a lambda."""
    functions = functions_in(tree)

    def is_callable(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Lambda):
            return True
        return isinstance(value, ast.Attribute | ast.Name) and (chain(value) or [""])[-1] in functions

    return [
        ast.unparse(target)
        for target, value in assignments(tree)
        if isinstance(target, ast.Attribute)
        and (isinstance(value, ast.Lambda) or (is_callable(value) and chain(target)[:-1] != ["self"]))
    ]


def long_chains(tree: ast.AST) -> list[str]:
    """``self.a.b.c``, unless ``a`` is data: a desk uses what it was given, not what others were given."""
    found = [chain(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [
        ".".join(names) for names in found if len(names) > 3 and names[0] == "self" and names[1] not in DATA
    ]


def looks_at_environment(tree: ast.AST) -> list[str]:
    imports = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [name for name in [*imports, *modules] if name in {"os", "environ", "getenv"}]


def made(tree: ast.AST) -> set[str]:
    """The names of the classes of which a module makes objects."""
    return {
        (chain(node.func) or [""])[-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    }


def changes_of_state(tree: ast.AST) -> list[str]:
    """Fields of objects of the state that are assigned, and collections in them that are changed."""

    def is_state(names: list[str]) -> bool:
        owners = names[:-1]
        return bool(owners) and (owners[0] in STATE_OBJECTS or owners[:2] == ["self", "state"])

    found = [
        ast.unparse(target)
        for target, _ in assignments(tree)
        if is_state(chain(target.value if isinstance(target, ast.Subscript) else target))
    ]
    calls = [chain(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    changed = [names for names in calls if len(names) > 2 and names[-1] in CHANGES and is_state(names[:-1])]
    changed += [names for names in calls if names[-2:-1] == ["mailbox"] and names[-1] in MAILBOX_CHANGES]
    return found + [".".join(names) for names in changed]


def kind_checks(tree: ast.AST) -> int:
    """How often the kind of a step decides: it is compared with a text, or matched."""
    compared = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any((chain(side) or [""])[-1] == "step" for side in (node.left, *node.comparators))
        and any(
            isinstance(part, ast.Constant) and isinstance(part.value, str)
            for side in (node.left, *node.comparators)
            for part in ast.walk(side)
        )
    ]
    matched = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Match) and (chain(node.subject) or [""])[-1] in {"step", "kind"}
    ]
    return len(compared) + len(matched)


NOTHING: Final[dict[str, list[str]]] = {}


@pytest.mark.parametrize(
    "rule", [callables_put_into_others, long_chains, looks_at_environment, changes_of_state]
)
def test_the_kernel_breaks_no_rule_of_its_wiring(rule: Callable[[ast.AST], list[str]]) -> None:
    found = {name: rule(tree) for name, tree in IN_KERNEL.items()}

    assert {name: places for name, places in found.items() if places} == NOTHING


@pytest.mark.parametrize("room", ["hub", "client", "memory", "program", "rundir"])
def test_no_room_around_the_kernel_changes_the_state(room: str) -> None:
    """They read it, and have the kernel record what they want changed; only ``state/apply.py`` changes it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (SRC / room).rglob("*.py")}
    found = {path.name: changes_of_state(tree) for path, tree in trees.items()}

    assert trees
    assert {name: places for name, places in found.items() if places} == NOTHING


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (
            callables_put_into_others,
            "class A:\n def __init__(self, b):\n  b.done = self.run\n def run(self): ...",
        ),
        (callables_put_into_others, "class A:\n def f(self):\n  self.b.done, self.c = self.f, 1"),
        (callables_put_into_others, "def f(core):\n core.done = lambda: None"),
        (callables_put_into_others, "class A:\n def __init__(self):\n  self.done: X = lambda: None"),
        (long_chains, "self.core.mail.send(1)"),
        (looks_at_environment, "import os"),
        (looks_at_environment, "from os import environ"),
        (changes_of_state, "worker.status = 'running'"),
        (changes_of_state, "self.state.hub += 1"),
        (changes_of_state, "worker.open[key] = 1"),
        (changes_of_state, "del self.state.workers[path]"),
        (changes_of_state, "worker.open.pop(key)"),
        (changes_of_state, "mailbox.put(message)"),
    ],
)
def test_a_rule_finds_what_it_is_for(rule: Callable[[ast.AST], list[str]], code: str) -> None:
    assert rule(ast.parse(code))


def test_an_outcome_and_a_message_are_made_in_one_place() -> None:
    places = {name: {file for file, tree in IN_KERNEL.items() if name in made(tree)} for name in ONE_PLACE}

    assert places == {name: {file} for name, file in ONE_PLACE.items()}


def test_the_kind_of_a_step_decides_only_in_the_table() -> None:
    found = {name: kind_checks(tree) for name, tree in IN_KERNEL.items()}

    assert {name: count for name, count in found.items() if count} == KIND_CHECKS
    assert kind_checks(ast.parse("if step.step in {'send', 'call'}: ...")) == 1
    assert kind_checks(ast.parse("match opened.step:\n case 'send': ...")) == 1
