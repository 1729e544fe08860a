"""How diagnostics look, to the column, and as JSON."""

from __future__ import annotations

import json
from typing import TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.language import Diagnostic, Source, Span, parse, render_all
from bartack.language.syntax._diagnostics import Fix, Secondary, diagnose
from bartack.language.syntax.render import WIDEST, _width, render, summary, to_json


class More(TypedDict, total=False):
    """What a diagnostic may have besides its place."""

    label: str
    helps: tuple[str, ...]
    notes: tuple[str, ...]
    secondary: tuple[Secondary, ...]


def shown(text: str, marked: str, **more: Unpack[More]) -> str:
    """An undefined name shown where `marked` first stands in the text."""
    start = text.index(marked)
    return show(text, start, start + len(marked), **more)


def show(text: str, start: int, end: int, **more: Unpack[More]) -> str:
    found = diagnose("PW120", "`brnach` is not defined", "flows/release.pw", Span(start, end), **more)
    return render(found, {"flows/release.pw": Source(text, "flows/release.pw")})


def test_a_diagnostic_shows_its_line_with_carets_below_and_help() -> None:
    picture = shown(
        "\n" * 13 + "    $ git push origin $brnach\n",
        "$brnach",
        label="did you mean `branch`?",
        helps=('to read an environment variable write `env("brnach")`',),
    )

    assert (
        picture
        == """\
error[PW120]: `brnach` is not defined
  --> flows/release.pw:14:23
   |
14 |     $ git push origin $brnach
   |                       ^^^^^^^ did you mean `branch`?
   |
   = help: to read an environment variable write `env("brnach")`"""
    )


def test_tabs_are_four_wide_and_wide_characters_two() -> None:
    assert (
        shown('\tvar s = "界é🙂e\u0301" +\tbrnach\r\n', "brnach", notes=("that is all",))
        == """\
error[PW120]: `brnach` is not defined
 --> flows/release.pw:1:20
  |
1 |     var s = "界é🙂e\u0301" +    brnach
  |                           ^^^^^^
  |
  = note: that is all"""
    )


def test_carets_below_wide_characters_are_wide() -> None:
    assert shown("x = 界界 + y", "界界").splitlines()[-1] == "  |     ^^^^"


def test_a_span_over_lines_shows_its_first_and_its_last() -> None:
    assert (
        shown("a\n  think {\n    b\n    c\n  }\nd\n", "think {\n    b\n    c\n  }", label="all of this")
        == """\
error[PW120]: `brnach` is not defined
 --> flows/release.pw:2:3
  |
2 |   think {
  |   ^^^^^^^
...
5 |   }
  |   ^ all of this"""
    )


def test_a_span_over_two_lines_leaves_nothing_out() -> None:
    assert "..." not in shown("f(a,\n  b)\n", "(a,\n  b)")


def test_an_empty_span_has_one_caret() -> None:
    assert show("f(1", 3, 3).splitlines()[-2:] == ["1 | f(1", "  |    ^"]
    assert show("a\n", 2, 2).splitlines()[-2:] == ["2 |", "  | ^"]


def test_a_span_that_ends_with_its_line_stays_on_it() -> None:
    assert show("ab\ncd\n", 1, 3).splitlines()[-2:] == ["1 | ab", "  |  ^"]


def test_secondary_spans_are_drawn_with_dashes() -> None:
    other = Secondary(Span(4, 5), "opened here")

    assert shown("x = [1, 2)", ")", secondary=(other,)).splitlines()[3:] == [
        "1 | x = [1, 2)",
        "  |          ^",
        "  |     - opened here",
    ]
    assert shown("[\n\n\n)", ")", secondary=(Secondary(Span(0, 1), "opened here"),)).splitlines()[2:] == [
        "  |",
        "1 | [",
        "  | - opened here",
        "...",
        "4 | )",
        "  | ^",
    ]


def test_a_span_in_another_file_is_shown_with_its_place() -> None:
    sources = {"a.pw": Source("skill x() { }", "a.pw"), "b.pw": Source("\nskill x() { }", "b.pw")}
    found = diagnose(
        "PW129",
        "skill `x` is declared twice",
        "b.pw",
        Span(7, 8),
        secondary=(Secondary(Span(6, 7), "first declared here", "a.pw"),),
    )

    assert (
        render(found, sources)
        == """\
error[PW129]: skill `x` is declared twice
 --> b.pw:2:7
  |
2 | skill x() { }
  |       ^
 ::: a.pw:1:7
  |
1 | skill x() { }
  |       - first declared here"""
    )


def test_a_file_without_its_source_is_named() -> None:
    found = diagnose("PW125", "module `x` not found", "gone.pw", Span(3, 4), helps=("look again",))

    assert render(found, {}) == "error[PW125]: module `x` not found\n --> gone.pw\n  = help: look again"


LONG = f"x = {'aa + ' * 100}brnach{' + cc' * 100}"


@pytest.mark.parametrize("marked", ["x", "brnach", "cc + cc + cc", LONG[-2:], LONG])
def test_a_long_line_is_cut_around_the_span(marked: str) -> None:
    line, carets = shown(LONG, marked).splitlines()[-2:]
    line, carets = line[4:], carets[4:]

    assert len(line) <= WIDEST
    assert "…" in line
    under = line[len(carets) - len(carets.lstrip()) : len(carets)]
    assert under
    assert marked.startswith(under.rstrip("…"))


def test_a_very_long_line_of_wide_characters_is_cut_too() -> None:
    text = "界" * 100_000 + "x" + "界" * 100_000
    line, carets = shown(text, "x").splitlines()[-2:]

    assert sum(_width(character) for character in line[4:]) <= WIDEST
    assert sum(_width(character) for character in line[4 : line.index("x")]) == carets.index("^") - 4


def test_control_characters_cannot_reach_the_terminal() -> None:
    picture = shown("x = '\x1b[31m' + brnach", "brnach", label="\x1b[2J", helps=("a\nb\x07",))

    assert "\x1b" not in picture
    assert "\x07" not in picture
    assert picture.splitlines()[4].index("^") == picture.splitlines()[3].index("brnach")


CHARACTERS = st.text(alphabet="ab \té界🙂\u0301\r", max_size=12)


@given(
    before=CHARACTERS,
    marked=st.text(alphabet="xyz界", min_size=1, max_size=5),
    after=CHARACTERS,
    lines=st.integers(0, 9),
)
def test_place_caret_and_span_agree(before: str, marked: str, after: str, lines: int) -> None:
    text = "\n" * lines + before + marked + after
    start = lines + len(before)
    rows = show(text, start, start + len(marked)).splitlines()
    place, line, carets = rows[1], rows[-2].partition("| ")[2], rows[-1].partition("| ")[2]

    assert place.strip() == f"--> flows/release.pw:{lines + 1}:{len(before) + 1}"
    assert _from_column(line, carets.index("^"), carets.count("^")) == marked


def _from_column(line: str, column: int, width: int) -> str:
    """The characters of a shown line that stand at these columns; those without width go with what is before."""
    at, found = 0, ""
    for character in line:
        if column <= at < column + width and _width(character):
            found += character
        at += _width(character)
    return found


def test_colours_only_when_asked_for() -> None:
    parsed = parse("x ?", "t.pw")
    sources = {"t.pw": parsed.source}

    assert "\x1b[1;31m" in render(parsed.diagnostics[0], sources, colour=str)
    assert "\x1b" not in render(parsed.diagnostics[0], sources)


def test_the_last_line_counts() -> None:
    def some(code: str) -> Diagnostic:
        return diagnose(code, "m", "t.pw", Span(0, 0))

    assert summary([some("PW120"), some("PW120"), some("PW201")], files=3) == "2 errors, 1 warning in 3 files"
    assert summary([some("PW290")], files=1) == "1 note in 1 file"
    assert summary([], files=2) == "no errors in 2 files"


def test_at_most_a_hundred_of_a_file_are_shown() -> None:
    parsed = parse("x ?\n" * 130, "t.pw")
    shown_all = render_all(parsed.diagnostics, {"t.pw": parsed.source}, files=1)

    assert shown_all.count("error[PW111]") == 100
    assert shown_all.endswith("and 30 more in t.pw\n\n130 errors in 1 file")


def test_json_has_places_and_the_fix() -> None:
    parsed = parse("\nif é = 1 { }", "t.pw")
    assert parsed.diagnostics[0].code == "PW101"
    parsed = parse('\nif "é" = 1 { }', "t.pw")

    assert json.loads(to_json(parsed.diagnostics[0], {"t.pw": parsed.source})) == {
        "code": "PW200",
        "severity": "warning",
        "message": "`=` in a condition compares; write `==`",
        "file": "t.pw",
        "start": {"offset": 8, "line": 2, "column": 8},
        "end": {"offset": 9, "line": 2, "column": 9},
        "label": None,
        "help": None,
        "fix": {
            "start": {"offset": 8, "line": 2, "column": 8},
            "end": {"offset": 9, "line": 2, "column": 9},
            "text": "==",
        },
    }


def test_json_has_label_and_help_and_stays_on_one_line() -> None:
    found = Diagnostic(
        "PW120",
        "error",
        "m\nn",
        "t.pw",
        Span(0, 1),
        "label",
        ("one", "two"),
        ("three",),
        (),
        Fix(0, 1, "y\n"),
    )
    line = to_json(found, {})

    assert "\n" not in line
    assert json.loads(line)["help"] == "one\ntwo\nthree"
    assert json.loads(line)["label"] == "label"
