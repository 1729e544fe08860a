"""Every code of the catalogue is explained by a program that gets it and one that does not, and `explain` shows both."""

from __future__ import annotations

import re

import pytest

from bartack.language import CATALOGUE, Diagnostic, check, compile_program, find_entry
from bartack.language._examples import examples
from bartack.language.checking.modules import NotLoaded

ENTRY = {"PW170", "PW171", "PW172"}
_PLACEHOLDER = re.compile(r"«(?:byte ([0-9A-F]{2})|(\d+) times (.))»")


def program_bytes(text: str) -> bytes:
    """A program as it is in its file."""
    pieces: list[bytes] = []
    at = 0
    for found in _PLACEHOLDER.finditer(text):
        byte, count, character = found.groups()
        pieces += [
            text[at : found.start()].encode(),
            bytes.fromhex(byte) if byte else character.encode() * int(count),
        ]
        at = found.end()
    return b"".join((*pieces, text[at:].encode()))


def _codes(text: str, *, entry: bool) -> list[str]:
    data = program_bytes(text)
    checked = check(lambda path: data if path == "main.pw" else NotLoaded("missing"), "main.pw")
    found = list(checked.diagnostics)
    if entry and isinstance(start := find_entry(checked.program, []), Diagnostic):
        found.append(start)
    if not any(one.severity == "error" for one in found):
        found += compile_program(checked.program).diagnostics
    return [one.code for one in found]


def test_every_code_has_programs() -> None:
    assert list(examples()) == list(CATALOGUE)


@pytest.mark.parametrize("code", sorted(set(CATALOGUE) - {"PW190"}))
def test_the_wrong_program_gets_exactly_its_code(code: str) -> None:
    assert set(_codes(examples()[code].wrong, entry=code in ENTRY)) == {code}


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_the_right_program_gets_nothing(code: str) -> None:
    assert _codes(examples()[code].right, entry=code in ENTRY) == []


def test_only_a_compiler_that_gives_up_gets_the_code_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RecursionError

    assert _codes(examples()["PW190"].wrong, entry=True) == []
    monkeypatch.setattr("builtins.compile", refuse)
    assert _codes(examples()["PW190"].wrong, entry=True) == ["PW190"]
