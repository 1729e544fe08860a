"""The checker: what it finds out for the compiler, how it reports, and that no text makes it raise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.language import Checked, Diagnostic, check, find_entry, tree
from bartack.language.checking._types import describe
from bartack.language.checking.modules import NotLoaded
from bartack.language.checking.program import Builtin, Declared, EntryPoint, Local
from bartack.language.syntax._near import nearest

CORPUS = Path(__file__).parents[3] / "language" / "diagnostics"


def checked(text: str, **files: str) -> Checked:
    texts = {"main.pw": text, **{f"{name}.pw": other for name, other in files.items()}}
    return check(lambda path: texts.get(path, NotLoaded("missing")), "main.pw")


def codes(text: str) -> list[str]:
    return [one.code for one in checked(text).diagnostics]


def prompt_types(text: str) -> list[str]:
    return [describe(kind) for kind in checked(text).program.entry.prompts.values()]


# What the compiler gets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print(think { A })", "string"),
        ("var x: int = think { A }\nprint(x)", "int"),
        ("var x: int = (think { A }) || ask { B }\nprint(x)", "int"),
        ("var x: int = think { A }.await\nprint(x)", "int"),
        ("var {a, b: bool} = think { A }\nprint(a, b)", "{a: any, b: bool}"),
        ('var {type: "x"} = think { A }', '{type: "x"}'),
        ("var [a, b] = ask { A }\nprint(a, b)", "array"),
        ("fun f(): [string] { return think { A } }\nprint(f())", "[string]"),
        ("fun f() { return think { A } }\nprint(f())", "string"),
        ("fun f(x: bool) { return x }\nprint(f(think { A }))", "bool"),
        ("worker w(x: bool) { return x }\nprint(self.delegate([w(think { A })]))", "bool"),
        ('var x: "a" | "b" = "a"\nx = think { A }\nprint(x)', '"a" | "b"'),
        ("fun f(x: int = think { A }) { return x }\nprint(f())", "int"),
        ("var x: int = 1 && think { A }\nprint(x)", "string"),
    ],
)
def test_a_prompt_is_expected_to_answer_what_its_place_wants(text: str, expected: str) -> None:
    assert set(prompt_types(text)) == {expected}


def declining(text: str) -> list[str]:
    module = checked(text).program.entry
    prompts = sorted(module.prompts, key=lambda prompt: prompt.start)
    return [module.source[prompt.span] for prompt in prompts if prompt in module.may_decline]


def test_prompts_before_the_last_operand_may_be_declined() -> None:
    assert declining("print(think { A } || ask { B })") == ["think { A }"]
    assert declining("print(think { A } || think { B } || 1)") == ["think { A }", "think { B }"]
    assert declining("print((think { A } || think { B }) || 1)") == ["think { A }", "think { B }"]
    assert declining("print(1 || think { A })") == []
    assert declining("print(think { A } && 1)") == []


def failing(text: str) -> list[str]:
    module = checked(text).program.entry
    return [module.source[node.span] for node in sorted(module.may_fail, key=lambda node: node.start)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ a\n$ b", []),
        ("$ a\nprint($?)", ["$ a"]),
        ("$ a\nif $? == 1 { print(1) }", ["$ a"]),
        ("$ a\nif 1 < 2 { print($?) }", []),
        ("$ a\nif 1 > 2 { print(1) } else if $? == 1 { print(2) }", ["$ a"]),
        ("$ a\nwhile $? == 1 { print(1) }", ["$ a"]),
        ("$ a\nfor x in [$?] { print(x) }", ["$ a"]),
        ("$ a\nprint(think {\n    A\n    do { print($?) }\n})", []),
        ("$ a\nprint(1)\nprint($?)", []),
        ("if $(a) { print(1) }", ["$(a)"]),
        ("if ($(a)) { print(1) }", ["$(a)"]),
        ("print(!$(a))", ["$(a)"]),
        ('print($(a) || "d", 1 && $(b))', ["$(a)"]),
        ("print($(a))", []),
        ('if $(a) == "x" { print(1) }', []),
    ],
)
def test_commands_whose_failure_is_looked_at_may_fail(text: str, expected: list[str]) -> None:
    assert failing(text) == expected


def test_variables_of_one_name_are_distinguished() -> None:
    text = "fun f(x) {\n    if x { var x = 2; print(x) }\n    for x in [1] { print(x) }\n    return x\n}\nprint(f(1))"
    module = checked(text).program.entry
    uses = [node for node in tree.find(module.syntax, tree.Name) if node.name == "x"]
    found = [module.names[node] for node in uses]

    assert all(isinstance(local, Local) for local in found)
    assert [local.number for local in found if isinstance(local, Local)] == [0, 1, 2, 0]


def test_variables_that_a_do_block_uses_are_shared() -> None:
    text = "fun f(a, b) {\n    print(think {\n        A\n        do { var c = 1; b = a + c }\n    })\n    return b\n}"
    module = checked(text).program.entry
    shared = {symbol.name: symbol.shared for symbol in module.names.values() if isinstance(symbol, Local)}

    assert shared == {"a": True, "b": True, "c": False}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("w(1)", ("w", "start")),
        ("f(1)", ("f", "call")),
        ("s(1)", ("s", "call")),
        ("len([1])", ("len", "call")),
        ("self.delegate([w(1)])", ("w", "spec")),
        ("self.delegate([1].map(w))", ("w", "spec")),
        ("spec(w(1))", ("w", "spec")),
        ("[1].map(w)", ("w", "start")),
        ("[1].map(f)", ("f", "call")),
        ("[1] | f", ("f", "call")),
        ("[1].map(string)", ("string", "call")),
    ],
)
def test_calls_are_distinguished_by_how_they_run(call: str, expected: tuple[str, str]) -> None:
    declared = "worker w(x) { return x }\nfun f(x) { return x }\nskill s(x) { return x }\n"
    found = checked(f"{declared}print({call})")
    module = found.program.entry
    known = [(one.callee.name, one.how) for one in (*module.calls.values(), *module.functions.values())]

    assert [one.code for one in found.diagnostics] == []
    assert expected in known


def test_arguments_of_a_spec_are_computed_as_usual() -> None:
    text = "worker a(x) { return x }\nworker b() { return 1 }\nprint(self.delegate([a(b())]))"
    module = checked(text).program.entry
    known = {one.callee.name: one.how for one in module.calls.values()}

    assert (known["a"], known["b"]) == ("spec", "start")


def test_a_method_is_found_through_self() -> None:
    text = "trait T: Agent {\n    fun a() { return self.b(1) }\n    fun b(x) { return x }\n}"
    module = checked(text).program.entry
    symbol = next(iter(module.members.values()))

    assert isinstance(symbol, Declared)
    assert symbol.trait is not None
    assert symbol.name == "b"


def test_a_reader_that_is_declared_compares() -> None:
    module = checked('fun f(cat) { return cat < "a" }\nprint(f("b"), read < "x")').program.entry
    names = [module.names[node.reader] for node in tree.find(module.syntax, tree.ReadFile)]

    assert [isinstance(name, Builtin) for name in names] == [False, True]
    assert len(module.comparisons) == 1


# Reporting


def test_diagnostics_come_by_module_and_place() -> None:
    found = checked("import ./a\nprint(x1)\nprint(a.f(), x2)", a="export fun f() { return x3 }")

    assert [(one.file, one.span.start) for one in found.diagnostics] == [
        ("main.pw", 17),
        ("main.pw", 34),
        ("a.pw", 24),
    ]


def test_an_undefined_name_counts_its_further_uses() -> None:
    found = checked("fun f() {\n    print(nme)\n    print(nme)\n    return nme\n}\nprint(f())")

    assert [one.notes for one in found.diagnostics] == [("used 2 times more below",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("var x = 1  # pw: ignore[PW201]", []),
        ("# pw: ignore[PW201]\nvar x = 1", []),
        ("# pw: ignore[PW202, PW201]\nvar x = 1", []),
        ("# pw: ignore[PW202]\nvar x = 1", ["PW201"]),
        ("# pw: ignore[PW201]\n\nvar x = 1", ["PW201"]),
        ("print(nme)  # pw: ignore[PW120]", ["PW120"]),
        ("task main() { print(1) }  # pw: ignore[PW290]", []),
    ],
)
def test_a_comment_silences_warnings_but_no_errors(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_five_unrelated_errors_are_five_diagnostics() -> None:
    text = (
        'import ./gone\nfun f(a) { return a }\nprint(f(1, 2))\nprint(nme)\nvar n: int = "x"\n'
        "print(n, gone.x)\nbreak\nworker w() { return self.pth }"
    )

    assert codes(text) == ["PW125", "PW140", "PW120", "PW141", "PW131", "PW124"]


@pytest.mark.parametrize(
    "text",
    [
        "print(1 +)\nvar x = 1",
        "fun f() {\n    var x = )\n    var y = 1\n}\nprint(f())",
        "var x: = 1\nprint(x)",
        "fun (a) { return a }",
        "fun f( { return 1 }\nprint(f())",
        "worker w() { self. }",
        "print(lib.)",
        "import ./\nprint(1)",
    ],
)
def test_a_syntax_error_is_not_followed_by_others_about_the_same(text: str) -> None:
    found = checked(text).diagnostics

    assert found
    assert {one.code for one in found} <= {"PW104", "PW105", "PW112", "PW114", "PW120"}


def test_spans_always_lie_in_the_text() -> None:
    for path in sorted(CORPUS.glob("*.pw")):
        text = path.read_text(encoding="utf-8")
        for one in checked(text).diagnostics:
            assert 0 <= one.span.start <= one.span.end <= len(text)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("brnach", "branch"),
        ("branc", "branch"),
        ("brranchh", "branch"),
        ("branch_name", None),
        ("x", None),
        ("ab", "abc"),
        ("xyz", "xy"),
        ("branch", None),
    ],
)
def test_the_nearest_name_is_within_two_letters(name: str, near: str | None) -> None:
    assert nearest(name, ["branch", "abc", "xy"]) == near


# Programs as people write them


OLDER = """\
worker asker() {
    self.session.mailbox.tasks.send({ action: "count", target: "notes.txt" })
    var answer = self.session.mailbox.results.receive(5000).await
    return answer.lines
}
worker reader() {
    var task = self.session.mailbox.tasks.receive(10000).await
    var text = $(cat ${task.target})
    self.session.mailbox.results.send({ file: task.target, lines: text.lines().length })
}
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        OLDER,
        'var s =\n 1 +\n 2\n if s == 3 {\n print("y") }\n else { print("n") }',
        "worker poll(host) {\n    for i in 1...3 {\n        if ($ ping -c1 $host) { return i }\n    }\n"
        '    throw "no " + host\n}',
        "var [a, {b}] = [1, {b: 2}]\nprint(a, b)",
        'var {kind: "offer", n} = {kind: "note"}\nprint(n)',
        "var n = 0\nwhile n < 3 { n++ }",
        'var x = null || throw "x" + "y"\nprint(x)',
        'print({ type: 1, in: 2 }.type, "é🙂x".length)',
        "fun fact(n) { return n < 2 && 1 || n * fact(n - 1) }\nprint(fact(5))",
        "try { $ make } catch e {\n    print(e.kind, e.status)\n    $ rm -rf out\n    throw e\n}",
        "var d = self.inbox.delivery(5)\nd.reply(1)\nd.ack()\nprint(d.value, d.attempt)",
    ],
)
def test_a_good_program_is_not_criticised(text: str) -> None:
    assert codes(text) == []


# Entry


@pytest.mark.parametrize(
    ("text", "chosen", "expected"),
    [
        ("print(1)", [], "script"),
        ("{ print(1) }", [], "script"),
        ("fun f() { return 1 }\nprint(f())", ["f"], "f"),
        ("worker a() { return 1 }\nexport default fun b() { return 2 }\nworker main() { return 3 }", [], "b"),
        ("worker a() { return 1 }\nfun main() { return 3 }", [], "main"),
        ("worker a() { return 1 }\nfun __main__() { return 3 }\nworker b() { return 1 }", [], "__main__"),
        ("skill a() { return 1 }\nfun f() { return 3 }", [], "a"),
        ("export default trait T: Agent {\n    fun x() { return 1 }\n}", [], "x"),
        ("worker a() { return 1 }\nworker b() { return 1 }", ["b", "a"], "b a"),
        ("worker a() { return 1 }\nworker b() { return 1 }", [], "PW171"),
        ("fun a() { return 1 }", [], "PW170"),
        ("", [], "PW170"),
        ("worker a() { return 1 }", ["b"], "PW170"),
    ],
)
def test_the_entry_point_is_the_first_that_applies(text: str, chosen: list[str], expected: str) -> None:
    found = find_entry(checked(text).program, chosen)

    if isinstance(found, Diagnostic):
        assert found.code == expected
    else:
        assert isinstance(found, EntryPoint)
        assert ("script" if found.script else " ".join(one.name for one in found.declared)) == expected


# Any text whatever

WORDS = [
    *sorted(tree.KEYWORDS),
    *(
        "null",
        "continue",
        "try",
        "catch",
        "do",
        "task",
        "fail",
        "spawn",
        "std",
        "session",
        "mailbox",
        "delegate",
    ),
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        "=",
        "==",
        "+",
        "-",
        "*",
        "|",
        "||",
        "&&",
        "!",
        "...",
        ".",
        ",",
    ),
    *(":", ";", '"', "'", "$", "$(", "($", "${", "$@{", "@", "#", "\\", "\n", "?"),
    *("x", "f", "1", "2.5", "map", "./a", "../b", "json", "cat", "string", "int", "Agent"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words_can_be_checked(words: list[str]) -> None:
    text = " ".join(words)

    find_entry(checked(text, a=text).program)


@given(st.text(max_size=80))
def test_any_text_can_be_checked(text: str) -> None:
    find_entry(checked(text).program)


def test_mutated_programs_can_be_checked() -> None:
    dice = random.Random(7)
    texts = [path.read_text(encoding="utf-8") for path in sorted(CORPUS.glob("*.pw"))]
    for _ in range(1_500):
        one, other = dice.choice(texts), dice.choice(texts)
        start, end = sorted(dice.randrange(len(one) + 1) for _ in range(2))
        at = dice.randrange(len(other) + 1)
        words = " ".join(dice.choices(WORDS, k=dice.randrange(4)))

        checked(one[start : start + 200] + words + other[at : at + 100] + one[end : end + 100])


@pytest.mark.parametrize(
    "text",
    [
        "print(" + " + ".join(["1"] * 5_000) + ")",
        "print(" + " || ".join(["think { A }"] * 500) + ")",
        "if 1 < 2 { print(1) }" + " else if 2 < 3 { print(2) }" * 2_000,
        "if 1 < 2 { " * 190 + "print(1)" + " }" * 190,
        "print(" + "[" * 190 + "]" * 190 + ")",
        "\n".join(f"type T{i} = T{i + 1} | [T{i}]" for i in range(2_000)) + "\ntype T2000 = int",
        "var x = 1\n" + "print(x)\n" * 5_000,
    ],
)
def test_long_and_deep_programs_can_be_checked(text: str) -> None:
    assert [one.code for one in checked(text).diagnostics if one.severity == "error"] == []
