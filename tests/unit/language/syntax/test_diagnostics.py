"""The catalogue, the order of diagnostics, and comments that silence them."""

from __future__ import annotations

import re

from tests.unit.language.sketch import codes

from bartack.language import CATALOGUE, Diagnostic, Span, has_errors, parse
from bartack.language.syntax._diagnostics import diagnose, settle


def test_a_code_says_by_its_number_how_severe_it_is() -> None:
    ranges = {"error": r"PW1\d\d", "warning": r"PW2[0-8]\d", "note": r"PW29\d"}

    assert [code for code, entry in CATALOGUE.items() if not re.fullmatch(ranges[entry.severity], code)] == []
    assert len(CATALOGUE) == len(set(CATALOGUE))
    assert all(entry.title for entry in CATALOGUE.values())


def test_diagnostics_come_in_the_order_of_their_places() -> None:
    found = parse("if a = 1 { x ? }\nb < c < d\n", "t.pw").diagnostics

    assert [diagnostic.code for diagnostic in found] == ["PW200", "PW111", "PW214"]
    assert sorted(found, key=lambda diagnostic: diagnostic.span.start) == list(found)


def test_a_comment_after_code_silences_warnings_of_its_line() -> None:
    assert codes("a < b < c\n") == ["PW214"]
    assert codes("a < b < c  # pw: ignore[PW214]\n") == []
    assert codes("a < b < c  # pw: ignore[PW200, PW214]\n") == []
    assert codes("a < b < c  # pw: ignore[PW200]\n") == ["PW214"]
    assert codes("a < b < c  # pw: ignore[PW214]\na < b < c\n") == ["PW214"]


def test_a_comment_alone_on_its_line_silences_the_line_below() -> None:
    assert codes("# pw: ignore[PW214]\na < b < c\n") == []
    assert codes("# pw: ignore[PW214]\n\na < b < c\n") == ["PW214"]
    assert codes("f() # pw: ignore[PW214]\na < b < c\n") == ["PW214"]


def test_notes_can_be_silenced_and_errors_cannot() -> None:
    assert codes("fail # pw: ignore[PW291]\n") == []
    assert codes("x ? # pw: ignore[PW111]\n") == ["PW111"]


def test_only_errors_are_errors() -> None:
    parsed = parse("a < b < c", "t.pw")
    error = diagnose("PW120", "`x` is not defined", "t.pw", Span(0, 1))

    assert not has_errors(parsed.diagnostics)
    assert has_errors([*parsed.diagnostics, error])


def test_settling_sorts_what_several_passes_found() -> None:
    parsed = parse("x\ny\n", "t.pw")
    later = Diagnostic("PW201", "warning", "m", "t.pw", Span(2, 3))
    earlier = Diagnostic("PW120", "error", "m", "t.pw", Span(0, 1))

    assert settle([later, earlier], parsed.source, parsed.tree) == (earlier, later)
