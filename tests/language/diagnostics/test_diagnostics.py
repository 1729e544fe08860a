"""Every code of the catalogue: programs that get it, and their near misses that do not.

A file holds the cases of one code. Lines that start with `####` are not part of a program:

- `#### case: name` begins a case; the lines below are its `main.pw`,
- `#### file: path` begins another file of the same case,
- `#### expect: CODE line:column text` is one diagnostic, where it is and what it marks (its first line),
- `#### entry: names` looks for the entry point too, given these names.

Without `expect` nothing may be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bartack.language import CATALOGUE, Checked, Diagnostic, check, find_entry
from bartack.language.checking.modules import NotLoaded

HERE = Path(__file__).parent
MADE_BY_CODE = {"PW100", "PW109", "PW110", "PW190"}
"""Codes whose programs are too large or no text: they have tests of their own."""


class Case(NamedTuple):
    code: str
    name: str
    files: dict[str, str]
    expected: list[str]
    entry: list[str] | None


def _cases(path: Path) -> Iterator[Case]:
    for part in path.read_text(encoding="utf-8").split("#### case: ")[1:]:
        name, _, text = part.partition("\n")
        yield _case(path.stem, name, text)


def _case(code: str, name: str, text: str) -> Case:
    files = {"main.pw": ""}
    expected: list[str] = []
    entry: list[str] | None = None
    current = "main.pw"
    for line in text.splitlines(keepends=True):
        word, _, rest = line.removeprefix("#### ").partition(":")
        if not line.startswith("#### "):
            files[current] += line
        elif word == "expect":
            expected.append(rest.strip())
        elif word == "entry":
            entry = rest.split()
        elif word == "file":
            current = rest.strip()
            files[current] = ""
        else:
            pytest.fail(f"{code}: {line}")
    return Case(code, name, files, expected, entry)


CASES = [case for path in sorted(HERE.glob("*.pw")) for case in _cases(path)]


def _found(case: Case) -> list[str]:
    checked = check(lambda path: case.files.get(path, NotLoaded("missing")), "main.pw")
    diagnostics = list(checked.diagnostics)
    if case.entry is not None:
        entry = find_entry(checked.program, case.entry)
        if isinstance(entry, Diagnostic):
            diagnostics.append(entry)
    return [_shown(checked, one) for one in diagnostics]


def _shown(checked: Checked, one: Diagnostic) -> str:
    source = next(module.source for module in checked.program.modules if module.path == one.file)
    place = source.place(one.span.start)
    file = "" if one.file == "main.pw" else f"{one.file}:"
    text = source[one.span].partition("\n")[0]
    return f"{one.code} {file}{place.line}:{place.column} {text}".strip()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.name}")
def test_a_program_gets_exactly_what_is_expected(case: Case) -> None:
    assert _found(case) == case.expected


@pytest.mark.parametrize("code", sorted(set(CATALOGUE) - MADE_BY_CODE))
def test_every_code_has_programs_that_get_it_and_near_misses(code: str) -> None:
    cases = [case for case in CASES if case.code == code]
    hits = [case for case in cases if any(one.startswith(code) for one in case.expected)]
    misses = [case for case in cases if not case.expected]

    assert hits
    assert misses
    assert len(hits) + len(misses) == len(cases)
