"""Characters that reverse the direction of text are errors wherever they stand, and never reach a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bartack.language import parse

CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
PLACES = {
    "a comment": "# a@b\nprint(1)\n",
    "a string": 'print("a@b")\n',
    "a raw string": "print('a@b')\n",
    "a prompt": "print(think { a@b })\n",
    "a command": "$ echo a@b\n",
    "code": "print(@1)\n",
    "a name": "var a@b = 1\nprint(1)\n",
    "the end": "print(1)\n@",
}


@pytest.mark.parametrize("character", CONTROLS, ids=lambda character: f"U+{ord(character):04X}")
@pytest.mark.parametrize("text", PLACES.values(), ids=PLACES)
def test_a_control_character_of_direction_is_an_error(text: str, character: str) -> None:
    program = text.replace("@", character)

    found = [one for one in parse(program, "main.pw").diagnostics if one.code == "PW101"]

    assert [one.span.start for one in found] == [program.index(character)]
    assert f"U+{ord(character):04X}" in found[0].message


def test_text_from_right_to_left_is_fine_without_them() -> None:
    assert parse('print("שלום")  # עולם\n', "main.pw").diagnostics == ()


def test_the_report_does_not_reorder_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "main.pw").write_text('print("\u202etxt.exe")\n', encoding="utf-8")

    shown = subprocess.run(
        [sys.executable, "-m", "bartack", "check", "main.pw"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert shown.returncode == 1
    assert "U+202E` (right-to-left override)" in shown.stdout + shown.stderr
    assert "\\u{202E}" in shown.stdout + shown.stderr
    assert not set(CONTROLS) & set(shown.stdout + shown.stderr)
