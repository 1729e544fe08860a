"""Errors: each is found, none hides another, and none is said twice."""

from __future__ import annotations

import pytest
from tests.unit.language.sketch import codes, said

from bartack.language import parse, tree


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("x = “a”", "PW101", "“"),
        ("x = a ^ b", "PW101", "^"),
        ("é = 1", "PW101", "é"),
        ("x = \x07", "PW101", "\x07"),
        ("f(1, 2", "PW104", "("),
        ("x = [1, 2", "PW104", "["),
        ("fun f() { x", "PW104", "{"),
        ("a = 1)", "PW104", ")"),
        ("}", "PW104", "}"),
        ("x = [1, 2)", "PW104", ")"),
        ("fun f() { g(1 }", "PW104", "("),
        ("x = {a: [1, 2}", "PW104", "["),
        ("var = 1", "PW105", "="),
        ("f(1 2)", "PW105", "2"),
        ("x = {a: 1 b: 2}", "PW105", "b"),
        ("for x xs { }", "PW105", "xs"),
        ("if a", "PW105", ""),
        ("try { }\nx = 1", "PW105", "x"),
        ("trait T { x }", "PW105", "x"),
        ("x = a.", "PW105", ""),
        ("x = 1..3", "PW105", ".."),
        ("x = 1...2...3", "PW105", "1...2"),
        ("x = $y", "PW105", "$"),
        ("x >> y", "PW105", ">>"),
        ("x = !throw y", "PW105", "throw"),
        ("x = 1 + throw y + z", "PW105", "throw"),
        ("fun f() { fun g() { } }", "PW105", "fun"),
        ("else { }", "PW106", "else"),
        ("catch e { }", "PW106", "catch"),
        ("x = a ? b : c", "PW111", "?"),
        ("x = a & b", "PW111", "&"),
        ("fun f() -> int { }", "PW111", "->"),
    ],
)
def test_a_mistake_is_one_error_at_its_place(text: str, code: str, place: str) -> None:
    assert said(text) == [(code, place)]


def test_an_error_points_to_the_bracket_it_is_about() -> None:
    found = parse("x = [1, 2)", "t.pw").diagnostics[0]

    assert found.message == "`)` does not match `[`"
    assert found.secondary == ((found.secondary[0].span, "opened here", ""),)
    assert found.secondary[0].span == (4, 5)


def test_unrelated_errors_are_all_reported() -> None:
    text = (
        "fun a() {\n    var = 1\n    f(1 2)\n}\n"
        "worker b( {\n}\n"
        "fun c() {\n    think { ${x +} }\n    $ a; b\n}\n"
        "type T = ?\n"
        "fun d() {\n    g(1,\n}\n"
    )
    assert codes(text) == ["PW105", "PW105", "PW105", "PW105", "PW155", "PW111", "PW104"]


def test_an_unclosed_block_does_not_hide_the_next_declaration() -> None:
    parsed = parse("fun a() {\n    if x {\n        y\nfun b() { z }\n", "t.pw")
    names = [unit.name.name for unit in parsed.tree.units if isinstance(unit, tree.Declaration)]

    assert [(found.code, found.span.start) for found in parsed.diagnostics] == [("PW104", 19)]
    assert names == ["a", "b"]


def test_two_declarations_on_a_line_are_one_error_and_two_declarations() -> None:
    parsed = parse("fun a() { } fun b() { y ? }\n", "t.pw")

    assert [found.code for found in parsed.diagnostics] == ["PW105", "PW111"]
    assert [type(unit).__name__ for unit in parsed.tree.units] == ["Declaration", "Declaration"]


def test_what_is_around_an_error_is_still_in_the_tree() -> None:
    parsed = parse("var a = 1\nf(1 +, b)\nvar c = 2\n", "t.pw")
    names = {node.name for node in tree.find(parsed.tree, tree.Name)}
    kinds = [type(unit).__name__ for unit in parsed.tree.units]

    assert kinds == ["Var", "ExpressionStatement", "Var"]
    assert names == {"f", "b"}


def test_a_statement_in_garbage_is_found_again() -> None:
    assert codes("x y ( z\nvar a = ?\n] ]\nvar b = ?\n") == ["PW105", "PW111", "PW104", "PW111"]


def test_more_than_a_hundred_parameters_are_too_many() -> None:
    names = ", ".join(f"p{number}" for number in range(100))

    assert codes(f"fun f({names}) {{ }}") == []
    assert codes(f"fun f({names}, q) {{ }}") == ["PW109"]


# Depth


OPENERS = {
    "parentheses": ("(", "1", ")"),
    "arrays": ("[", "1", "]"),
    "objects": ("{a: ", "1", "}"),
    "calls": ("f(", "1", ")"),
    "indexes": ("a[", "1", "]"),
    "prefixes": ("!", "a", ""),
    "minus": ("- ", "a", ""),
    "throws": ("throw ", "a", ""),
    "assignments": ("a = ", "1", ""),
    "strings": ('"${', "1", '}"'),
    "lists": ('"$@{', "1", '}"'),
    "captures": ("$(a ", "b", ")"),
    "results": ("($ a ${", "b", "})"),
    "quoted captures": ('$(a "', "b", '")'),
}


@pytest.mark.parametrize("kind", OPENERS)
def test_two_hundred_levels_are_read_and_one_more_is_too_deep(kind: str) -> None:
    opener, inside, closer = OPENERS[kind]
    weight = 2 if kind == "results" else 1
    most = 200 // weight

    assert codes(f"x || {opener * most}{inside}{closer * most}\n") == []
    assert codes(f"x || {opener * (most + 1)}{inside}{closer * (most + 1)}\n") == ["PW109"]


@pytest.mark.parametrize(
    ("opener", "inside", "closer", "most"),
    [
        ("if a { ", "b", " }", 200),
        ("think { do { ", "b", " } }", 100),
        ("$ (", "b", ")", None),
        ("var x: ", "int", "", None),
    ],
)
def test_blocks_prompts_and_groups_count_too(opener: str, inside: str, closer: str, most: int | None) -> None:
    if most is None:
        assert codes(f"$ {'(' * 200}a{')' * 200}\nvar x: {'[' * 200}int{']' * 200}\n") == []
        assert codes(f"$ {'(' * 201}a{')' * 201}\n") == ["PW109"]
        assert codes(f"var x: {'[' * 201}int{']' * 201}\n") == ["PW109"]
    else:
        assert codes(f"{opener * most}{inside}{closer * most}\n") == []
        assert codes(f"{opener * (most + 1)}{inside}{closer * (most + 1)}\n") == ["PW109"]


def test_what_is_too_deep_does_not_hide_the_next_declaration() -> None:
    parsed = parse(f"fun a() {{\n    x = {'(' * 300}\n}}\n\nfun b() {{ y ? }}\n", "t.pw")

    assert [found.code for found in parsed.diagnostics] == ["PW109", "PW111"]
    assert isinstance(parsed.tree.units[-1], tree.Declaration)


def test_long_chains_are_not_deep() -> None:
    many = 3_000
    lines = [
        f"x = {'1 + ' * many}1",
        f"y = a{'.b' * many}{'(1)' * many}",
        f"if a {{ }}{' else if b { }' * many}",
        f"z = a{' || b' * many}",
        f"$ a{' && b' * many}",
        f"type T = A{' | B' * many}",
    ]
    assert codes("\n".join(lines)) == []


def test_old_awaits_nest_no_deeper_than_anything_else() -> None:
    assert set(codes(f"x = {'await ' * 150}a")) == {"PW294"}
    assert "PW109" in codes(f"x = {'await ' * 250}a")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("let z = 3", "`let` is not a Patchwork keyword; write `var`"),
        ("def f(x) { }", "`def` is not a Patchwork keyword; write `fun`"),
        ("if a and b { }", "`and` is not a Patchwork keyword; write `&&`"),
        ("while a or b { }", "`or` is not a Patchwork keyword; write `||`"),
        ('print "x"', "a call has parentheses: `print(…)`"),
        ("touch x", "to run a program write `$ touch x`"),
        ("if a { b() } return c", "begin a new line for each statement, or write `;` between them"),
        ("if a { b() } c()", "begin a new line for each statement, or write `;` between them"),
        ("x = y => 1", "there are no anonymous functions; declare a `fun` and pass its name"),
        ("x(a === b)", "write `==`; it never converts"),
        ("x(a !== b)", "write `!=`; it never converts"),
        ("for (x in xs) { }", "a loop is written `for x in xs { … }` or `for i in 1...3 { … }`"),
    ],
)
def test_what_other_languages_write_is_answered_with_what_is_written_here(text: str, reported: str) -> None:
    found = [diagnostic for diagnostic in parse(text, "a.pw").diagnostics if diagnostic.code == "PW105"]

    assert found[0].helps == (reported,)
