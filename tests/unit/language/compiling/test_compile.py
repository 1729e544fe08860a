"""What Patchwork becomes: Python at the places of the source, flat where Python cannot nest."""

from __future__ import annotations

import ast
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.language import Checked, Compiled, check, compile_program, has_errors
from bartack.language.checking.modules import NotLoaded
from bartack.language.compiling.tree import tree_json

ROOT = Path(__file__).parents[4]
NO_CODE = "the compiler does not support this"

POLL = """\
worker poll(host) {
    for i in 1...3 {
        if ($ ping -c1 $host) {
            return i
        }
    }
    throw "no " + host
}
"""
POLL_PYTHON = """\
def pw_poll(rt, pw_host):
    # net.pw:2
    for pw_i in rt.iterate(rt.range(1, 3)):
        # net.pw:3
        if rt.truth(rt.shell([["ping", "-c1", rt.word(pw_host)]], form="result", at=(3, 12))):
            # net.pw:4
            return pw_i
    # net.pw:7
    rt.throw(rt.add("no ", pw_host), at=(7, 5))
worker = rt_worker("poll", pw_poll, params=["host"])
"""


def checked_text(text: str, name: str = "net.pw") -> Checked:
    checked = check(lambda _: text, name)
    assert not has_errors(checked.diagnostics), checked.diagnostics
    return checked


def compiled_text(text: str, name: str = "net.pw") -> Compiled:
    return compile_program(checked_text(text, name).program)


def python_of(text: str) -> str:
    return compiled_text(text).modules[0].text


def test_a_worker_becomes_a_plain_function_that_calls_the_runtime() -> None:
    assert python_of(POLL) == POLL_PYTHON


def test_the_text_is_python_that_compiles() -> None:
    text = python_of(
        'fun f(a, b: int = 2): string { try { return "$a" } catch e { throw e } }\n'
        "var o = {x: [1, ...[2]], ...{}}\no.x[0] += f(1) || 2 && !o\nif o { print(1) } else { print(2) }\n"
        "print(think { hi do { o.x = 1 } })"
    )

    compile(text, "x.py", "exec")


def test_the_text_is_the_same_each_time() -> None:
    assert python_of(POLL) == python_of(POLL)


def positions(python: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(python):
        if isinstance(node, ast.expr | ast.stmt):
            yield node.lineno, node.col_offset


def test_every_node_is_at_a_place_of_the_source() -> None:
    lines = POLL.splitlines()

    found = list(positions(compiled_text(POLL).modules[0].python))

    assert found
    assert all(line <= len(lines) and column <= len(lines[line - 1]) for line, column in found)


def test_columns_are_bytes_so_that_tracebacks_point_at_the_right_character() -> None:
    text = 'print("é🙂", x_of(1))\nfun x_of(n) { return n }\n'
    module = compiled_text(text).modules[0]

    calls = [
        node
        for node in ast.walk(module.python)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call"
    ]

    assert [call.col_offset for call in calls] == [len('print("é🙂", '.encode())]


def test_names_of_the_program_never_meet_names_of_python_or_of_the_runtime() -> None:
    text = python_of("fun class(rt, def, lambda) { var print_ = rt; return print_ }\nprint(class(1, 2, 3))")

    assert "def pw_class(rt, pw_rt, pw_def, pw_lambda):" in text


def sum_of(terms: int) -> str:
    return f"print({' + '.join(['1'] * terms)})"


def else_ifs(count: int) -> str:
    branches = "".join(f" else if x == {number} {{ print({number}) }}" for number in range(1, count))
    return f"var x = 3\nif x == 0 {{ print(0) }}{branches}"


def nested(opener: str, inner: str, closer: str, depth: int) -> str:
    return f"var n = 0\n{opener * depth}{inner}{closer * depth}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(sum_of(10_000), id="sum"),
        pytest.param(sum_of(3_000).replace("+", "||"), id="or"),
        pytest.param(else_ifs(5_000), id="else-if"),
        pytest.param(nested("for i in [1] { ", "n++", " }", 150), id="for"),
        pytest.param(nested("while n < 1 { ", "n++", " }", 150), id="while"),
        pytest.param(nested("try { ", "n++", " } catch { n-- }", 150), id="try"),
        pytest.param(nested("if n == 0 { ", "n++", " }", 150), id="if"),
        pytest.param(nested("print(", "n", ")", 150), id="calls"),
    ],
)
def test_what_python_cannot_nest_is_made_flat(text: str) -> None:
    compiled = compiled_text(text)

    assert compiled.diagnostics == ()
    assert list(compiled.codes) == ["net"]


def test_a_program_that_python_refuses_is_a_diagnostic_and_not_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("builtins.compile", refuse)

    compiled = compiled_text("print(1)")

    assert [(found.code, found.severity) for found in compiled.diagnostics] == [("PW190", "error")]


def test_declared_types_are_defined_in_their_module_also_when_they_are_recursive() -> None:
    text = python_of(
        '# A tree.\ntype Tree = {left?: Tree, tags: [string | "x"]}\nfun f(t: Tree) { return t }'
    )

    assert 'rt_define("net:Tree", type_' in text
    assert 'description="A tree."' in text
    assert 'rt_named("net:Tree")' in text


def test_annotations_reach_the_runtime() -> None:
    text = python_of("@agent reviewer\n@timeout 1500\n@once\nworker w(n) { $ make $n }")

    assert 'params=["n"], agent="reviewer", timeout_ms=1500, once=True)' in text


def test_the_methods_of_a_trait_have_functions_of_their_own() -> None:
    text = python_of("trait T: Agent { fun a(n) { return self.b(n) }\nfun b(n) { return n } }")

    assert "return rt.call(pw1_T_b, pw_n)" in text
    assert 'method = rt_method("T.a", pw1_T_a, params=["n"])' in text


def test_equal_types_are_made_once_and_declared_ones_keep_their_names() -> None:
    text = python_of("type Part = {n: int}\nfun f(a: [Part], b: [Part], c: Part): [Part] { return a }")

    assert text.startswith('type_Part = rt_named("net:Part")\ntype_2 = rt_array(type_Part)\n')
    assert text.count("rt_array(") == text.count("rt_named(") == 1


def test_do_blocks_are_functions_that_change_the_variables_around_them() -> None:
    text = python_of("var n = 0\nprint(think { Count\n  do { n = n + 1 }\n})")

    assert "    def do_1():\n        nonlocal pw_n\n" in text
    assert 'tools=[("do_1", "Count", do_1)]' in text


def test_modules_find_functions_of_each_other_when_they_are_called() -> None:
    texts = {"main.pw": "import ./lib\nprint(lib.f(1))", "lib.pw": "export fun f(n) { return n }"}

    compiled = compile_program(check(lambda path: texts[path], "main.pw").program)

    assert [module.id for module in compiled.modules] == ["main", "lib"]
    assert 'rt.call(rt.find("lib", "pw_f"), 1)' in compiled.modules[0].text


def test_the_tree_as_json_has_kinds_spans_and_a_version() -> None:
    shown = json.loads(tree_json(checked_text("print(1)").program))

    assert shown["version"] == 1
    (module,) = shown["modules"]
    assert module["file"] == "net.pw"
    (statement,) = module["tree"]["units"]
    assert (statement["kind"], statement["span"]) == ("ExpressionStatement", [0, 8])


CORPUS = sorted(path for folder in ("tests", "examples") for path in (ROOT / folder).rglob("*.pw"))


@pytest.mark.parametrize("text", ["fun f() { }\nf()(1)", "var o = {}\no.a[0](1)", "nope", "self", "1++"])
def test_the_compiler_refuses_an_expression_that_it_has_no_code_for(text: str) -> None:
    compiled = compile_program(check(lambda _: text, "t.pw").program)

    assert NO_CODE in [one.message for one in compiled.diagnostics]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_in_a_program_without_errors_is_without_code(path: Path) -> None:
    def read(name: str) -> str | NotLoaded:
        file = Path(name)
        return (
            file.read_text(encoding="utf-8", errors="replace").replace("\0", "")
            if file.is_file()
            else NotLoaded("missing")
        )

    found = check(read, str(path))
    compiled = None if has_errors(found.diagnostics) else compile_program(found.program)

    assert compiled is None or NO_CODE not in [one.message for one in compiled.diagnostics]


def test_nothing_in_random_programs_without_errors_is_without_code() -> None:
    seed = random.SystemRandom().randrange(1_000_000_000) if "SOAK" in os.environ else 20_261_116
    chance = random.Random(seed)
    accepted = 0
    for _ in range(2_000):
        text = f"{DECLARED}    {random_expression(chance, 4)}\n}}\n"
        found = check({"t.pw": text}.__getitem__, "t.pw")
        if not has_errors(found.diagnostics):
            accepted += 1
            compiled = compile_program(found.program)
            assert compiled.diagnostics == (), f"seed {seed}: {text}"
    assert accepted > 400


DECLARED = """\
fun f(x) { return x }
worker w(x) { return x }
worker main(a, b: { k?: string }, xs: [int]) {
    var v = 1
"""
ATOMS = (
    "1",
    "0.5",
    '"s"',
    '"$v"',
    "true",
    "null",
    "v",
    "a",
    "b",
    "xs",
    "args",
    "$?",
    "[1, 2]",
    "{ k: v }",
    "$(echo 1)",
)
BINARY = ("+", "-", "*", "/", "==", "<", "&&", "||", "|", "...")


def random_expression(chance: random.Random, depth: int) -> str:
    """The text of an expression; about a third of them are correct."""

    def inner() -> str:
        return random_expression(chance, depth - 1)

    if depth == 0 or chance.random() < 0.15:
        return chance.choice(ATOMS)
    forms = (
        lambda: f"{inner()} {chance.choice(BINARY)} {inner()}",
        lambda: f"({inner()})",
        lambda: f"{chance.choice('!-')}{inner()}",
        lambda: f"f({inner()})",
        lambda: f"w({inner()})",
        lambda: f"({inner()})({inner()})",
        lambda: f"{inner()}[{inner()}]",
        lambda: f"{inner()}({inner()})",
        lambda: f"{chance.choice(('v', 'b.k', 'xs[0]', 'a', 'f'))} {chance.choice(('=', '+='))} {inner()}",
        lambda: f"{chance.choice(('v', 'b.k', 'xs[0]'))}{chance.choice(('++', '--'))}",
        lambda: (
            f"{inner()}.{chance.choice(('length', 'trim()', 'map(f)', 'filter(f)', 'k', 'k(1)', 'await'))}"
        ),
        lambda: (
            f"xs.{chance.choice(('map', 'filter', 'find'))}({chance.choice(('f', 'w', 'v', 'a', inner()))})"
        ),
        lambda: f"[...{inner()}, {inner()}]",
        lambda: f"{{ ...{inner()}, k: {inner()} }}",
        lambda: f"self.delegate([w({inner()})])",
        lambda: f"self.session.{chance.choice(('id', 'dir', 'mailbox.m.receive()', 'mailbox.m.send(v)'))}",
        lambda: f"think {{ hello ${{{inner()}}} }}",
        lambda: f"print({inner()})",
        lambda: "self",
    )
    return chance.choice(forms)()
