"""Whatever values meet whatever operation: the program gets a value or an error of the language, never one of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.errors import InternalError
from bartack.language.checking._library import _ARRAY, _STRING, FUNCTIONS, Signature
from bartack.runtime import ShellResult
from bartack.runtime.patchwork._places import own_error
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import run_worker

VALUES = r"""
fun nested() {
    var deep = []
    for _ in 1...3000 {
        deep = [deep]
    }
    return deep
}
fun thrown() {
    try { throw { a: [1] } } catch e { return e }
}
fun odd_values(kept) {
    var own = []
    own.push(own)
    var ring = {}
    ring.ring = ring
    return [
        null, true, 0, -1, 1.5, 1e308, "", "x", "a\nb", "\0", "é🙂", [], [1, "b", null], ["x"], {}, { a: 1 },
        own, ring, self.session, self.inbox, self.session.mailbox, ...kept,
    ]
}
worker child(n) {
    return n
}
"""
# What waits, and what leaves the worker for ever, has tests of its own.
LEFT_OUT = {"sleep", "spec", "monitor", "unsafe_shell", "random", "print", "log", "restart", "version"}
OPERATORS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "...")
FORMS_OF_ONE = (
    "-a",
    "!a",
    "a.length",
    "a.name",
    "a[0]",
    "a++",
    '"${a}"',
    '"$@{a}"',
    "[...a]",
    "{ ...a }",
    "$(echo ${a})",
    "$(echo $@{a})",
    "throw a",
)
FORMS_OF_TWO = ("a[b]", "a[b] = b", "a.name = b", "a.map(b)", "a.filter(b)", "a.find(b)", "a.name(b)")
TYPES = ("Tree", "string", "[int]", "{ a: int }", "object<[string]>", '"x" | 1 | null', "Either")
PATTERNS = ("{ a }", "{ a: int }", "[a]", "[_, { b }]", '{ a: "x" }', "{ a: Tree }")


def _calls() -> tuple[list[str], list[str]]:
    one: list[str] = list(FORMS_OF_ONE)
    two = [f"a {operator} b" for operator in OPERATORS] + list(FORMS_OF_TWO)
    for name, signature in FUNCTIONS.items():
        if name in LEFT_OUT:
            continue
        for count, into in ((1, one), (2, two)):
            if signature.accepts_count(count):
                into.append(f"{name}({', '.join('ab'[:count])})")
    methods = {**_STRING, **_ARRAY, "send": None, "subscribe": None, "unsubscribe": None}
    for name, known in methods.items():
        if known is None or isinstance(known, Signature):
            one.append(f"a.{name}()")
            two += [f"a.{name}(b)", f"a.{name}(b, b)"]
    return one, two


def _program() -> str:
    one, two = _calls()
    functions = [f"fun one{at}(a) {{ {call} }}" for at, call in enumerate(one)]
    functions += [f"fun two{at}(a, b) {{ {call} }}" for at, call in enumerate(two)]
    functions += [f"fun typed{at}(a: {kind}) {{ return a }}" for at, kind in enumerate(TYPES)]
    functions += [f"fun taken{at}(v) {{ var {pattern} = v }}" for at, pattern in enumerate(PATTERNS)]
    singles = [f"one{at}" for at in range(len(one))]
    singles += [f"typed{at}" for at in range(len(TYPES))] + [f"taken{at}" for at in range(len(PATTERNS))]
    calls = "\n".join(f"        try {{ {name}(v) }} catch e {{ note(e) }}" for name in singles)
    pairs = "\n".join(
        f"            try {{ two{at}(odd_values(kept)[i], odd_values(kept)[j]) }} catch e {{ note(e) }}"
        for at in range(len(two))
    )
    return f"""
type Tree = [Tree]
type Either = {{ ring: Either }} | [Either] | int | result_like
type result_like = {{ status: int }}
{VALUES}
fun note(e) {{
    if !e.kind.ends_with("Error") || e.code.slice(0, 2) != "BT" {{ throw "odd: ${{e.kind}}" }}
}}
{chr(10).join(functions)}
worker main() {{
    var kept = [nested(), thrown(), spec(child(1)), ($ true)]
    var last = odd_values(kept).length - 1
    for i in 0...last {{
        var v = odd_values(kept)[i]
{calls}
        for j in [0, 3, 7, 12, 15, 16] {{
{pairs}
        }}
    }}
    return "done"
}}
"""


def _run(words: list[str]) -> ShellResult:
    return ShellResult(words, 0, "out\n", "")


def test_no_operation_throws_an_error_of_python_at_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.pw").write_text(_program())
    worker = load_worker(
        probe(ProbeRequest(str(tmp_path / "odd.pw"), str(tmp_path)), tmp_path).worker, str(tmp_path)
    )

    run = run_worker(worker(), shell=_run)

    assert run.error is None, f"{run.error.kind}: {run.error.message}\n{run.error.stack[-600:]}"
    assert run.result == "done"


def test_what_is_no_error_of_the_language_is_reported_as_a_defect() -> None:
    error = own_error(AssertionError("odd"))

    assert isinstance(error, InternalError)
    assert "AssertionError: odd" in str(error)
