"""Strings and prompts: what is text, what is inserted, and how a prompt is dedented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.language.sketch import codes, expression, module, said, sketch

from bartack.language import parse, tree
from bartack.language.parsing._text import dedent


def string(text: str) -> str:
    return sketch(expression(text))


def prompt(text: str) -> str:
    """The prompt's text, with each inserted value shown in angle brackets."""
    found = expression(f"think {{{text}}}")
    assert isinstance(found, tree.Prompt)
    return "".join(part.value if isinstance(part, tree.Text) else f"<{sketch(part)}>" for part in found.parts)


# Strings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\\"', "a\\"),
        (r'"\n\t\r\"\'\$\0"', "\n\t\r\"'$\0"),
        (r'"\u{1F642}\u{e9}"', "🙂é"),
        (r"'\$x \n \' \\'", r"\$x \n ' \\"[:-1]),
        ('"a # b"', "a # b"),
        ('"two\nlines"', "two\nlines"),
        ('"two\r\nlines\r"', "two\nlines\r"),
        ('"$5 US$ $ $. 100%"', "$5 US$ $ $. 100%"),
        ("'$x ${y}'", "$x ${y}"),
        ('"{a} }"', "{a} }"),
    ],
)
def test_a_string_has_the_value_it_is_written_for(text: str, value: str) -> None:
    found = expression(text)

    assert isinstance(found, tree.String)
    assert found.literal == value


def test_a_string_inserts_variables_values_lists_and_output() -> None:
    assert string('"a $b.c ${d.e} $@{f} $(g h) i"') == (
        "String([Text('a ') Variable('b') Text('.c ') Interpolation(Chain(d [Member(e)])) Text(' ') "
        "Splice(f) Text(' ') Capture(ShellList([Pipeline([Command([Word([Bare('g')]) Word([Bare('h')])])])])) "
        "Text(' i')])"
    )
    assert string('"${"in ${"deep"}"}"') == (
        "String([Interpolation(String([Text('in ') Interpolation(String([Text('deep')]))]))])"
    )
    assert string('"${ {a: {b: 1}}\n}"').startswith("String([Interpolation(Object(")


def test_an_unknown_escape_stays_and_is_warned_of_except_in_commands() -> None:
    found = expression(r'"\q"')

    assert isinstance(found, tree.String)
    assert found.literal == r"\q"
    assert said(r'x = "a\q"') == [("PW204", r"\q")]
    assert codes(r'$ grep "\.py"') == []


@pytest.mark.parametrize(
    "escape", [r"\u{110000}", r"\u{D800}", r"\u{}", r"\u{12", r"\u{xyz}", r"\u{1234567}"]
)
def test_an_escape_that_names_no_character_is_an_error(escape: str) -> None:
    assert codes(f'x = "{escape}"') == ["PW108"]


def test_an_unclosed_string_is_reported_where_it_starts_and_hides_nothing_after_its_line() -> None:
    assert said('fun f() {\n    print("abc)\n    var = 1\n}\nfun g( { }\n') == [
        ("PW102", '"abc)'),
        ("PW105", "="),
        ("PW105", "{"),
    ]
    assert said("var x = 'abc\nvar y = 'ok'\n") == [("PW102", "'abc")]


def test_spans_of_parts_lie_in_the_source() -> None:
    parsed = parse('x = "é${y}z"', "t.pw")
    found = {type(node).__name__: parsed.source[node.span] for node in tree.walk(parsed.tree)}

    assert found["String"] == '"é${y}z"'
    assert found["Interpolation"] == "${y}"
    assert found["Text"] == "z"


def test_an_error_inside_of_an_inserted_value_is_an_error() -> None:
    assert said('x = "a ${b c} d"\ny = 1 +\n') == [("PW105", "c"), ("PW105", "\n")]
    assert said("think { a ${b +} c }") == [("PW105", "}")]
    assert said("think { a $(b ;) c }") == [("PW155", ";")]
    assert codes('x = "${}"') == ["PW105"]


@pytest.mark.parametrize("form", ["${x:-y}", "${x:=y}", "${#x}", "${x%%y}", "${x//a/b}"])
def test_the_shells_ways_with_variables_are_refused(form: str) -> None:
    assert said(f"$ echo {form} b") == [("PW158", form)]


# Prompts


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (" one line ", "one line"),
        ("\n    a\n      - b\n\n    c  \n", "a\n  - b\n\nc  "),
        ("\n\ta\n\t\tb\n", "a\n\tb"),
        ("\n\ta\n    b\n", "\ta\n    b"),
        ("  first\n    second\n      third\n  ", "first\nsecond\n  third"),
        ('\n    ```json\n    {"a": {}}\n    ```\n', '```json\n{"a": {}}\n```'),
        ("\n  a\n   \n  b\n", "a\n\nb"),
        ("", ""),
        ("\n", ""),
        ("\n\n", ""),
        ("\n  a\n\n", "a\n"),
        ("\r\n    a\r\n    b\r\n", "a\nb"),
    ],
)
def test_a_prompt_is_dedented_and_otherwise_left_as_it_is(text: str, meaning: str) -> None:
    assert prompt(text) == meaning


def test_values_in_prompts_get_no_blanks_and_count_as_text() -> None:
    assert prompt("Say ${a}${b}.") == "Say <Interpolation(a)><Interpolation(b)>."
    assert prompt("\n    ${a}\n      b\n") == "<Interpolation(a)>\n  b"
    assert prompt("\n  a\n    $b\n  ") == "a\n  <Variable('b')>"


def test_dollars_and_braces_in_prompts_are_text_unless_they_say_more() -> None:
    assert prompt("$5 US$ {a} {{}} # no comment") == "$5 US$ {a} {{}} # no comment"
    assert prompt("$'{' $'}' $'$' $'''") == "<Escape('{')> <Escape('}')> <Escape('$')> <Escape(\"'\")>"
    assert prompt("do $'{' redo {x} undo { }") == "do <Escape('{')> redo {x} undo { }"


def test_do_blocks_are_code_numbered_in_their_prompt() -> None:
    found = expression("think {\n  do { a }\n  do\n  {\n think { do { b } } } }")

    assert isinstance(found, tree.Prompt)
    assert [block.number for block in tree.find(found, tree.DoBlock)] == [1, 2, 1]
    assert sketch(found.parts[0]) == "DoBlock(1 Block([ExpressionStatement(a)]))"


def test_a_do_block_should_start_its_line() -> None:
    assert codes("think { do { } }") == []
    assert codes("think {\n  do { }\n}") == []
    assert said("think { a do { } }") == [("PW224", "do")]
    assert codes("think {\n  do { } do { }\n}") == ["PW224"]


def test_a_prompt_may_stand_below_its_word() -> None:
    assert isinstance(expression("ask\n\n{ a }"), tree.Prompt)
    assert codes("think a") == ["PW105"]


@pytest.mark.parametrize("brace", ["opening { brace", "two { braces {x}"])
def test_an_unclosed_prompt_is_reported_at_its_brace_and_hides_no_other_declaration(brace: str) -> None:
    text = f"fun f() {{\n    think {{\n        {brace}\n    }}\n}}\nfun g( {{ }}\nfun h() {{ x ? }}\n"
    parsed = parse(text, "t.pw")

    assert [(found.code, parsed.source.place(found.span.start)[1:]) for found in parsed.diagnostics] == [
        ("PW103", (2, 11)),
        ("PW105", (6, 8)),
        ("PW111", (7, 13)),
    ]


def test_a_prompt_without_any_end_is_reported_at_its_brace() -> None:
    parsed = parse("fun f() { think { a {\n\nfun g( { }\n", "t.pw")

    assert [(found.code, found.span.start) for found in parsed.diagnostics] == [("PW103", 16), ("PW105", 30)]
    assert parsed.diagnostics[0].secondary[0].span == (20, 21)


BLANK = st.text(alphabet=" \t", max_size=3)
LINE = st.tuples(BLANK, st.text(alphabet="ab*- ", max_size=4)).map("".join)


@given(st.lists(LINE, min_size=1, max_size=5), st.text(alphabet=" ", max_size=8))
def test_moving_a_prompt_to_another_depth_does_not_change_its_text(lines: list[str], margin: str) -> None:
    text = "\n".join(["", *lines, ""])
    moved = "\n".join(["", *(f"{margin}{line}" for line in lines), margin])

    assert dedent(moved) == dedent(text)


@given(st.lists(LINE, min_size=1, max_size=5))
def test_dedenting_keeps_every_line_and_its_words(lines: list[str]) -> None:
    done = dedent("\n".join(["", *lines, ""])).split("\n")

    assert [line.strip(" \t") for line in done] == [line.strip(" \t") for line in lines]


def test_a_prompt_keeps_its_words_when_nested_in_a_block() -> None:
    found = next(tree.find(module("worker a() {\n    think {\n        x\n    }\n}\n"), tree.Prompt))

    assert sketch(found.parts) == "[Text('x')]"
