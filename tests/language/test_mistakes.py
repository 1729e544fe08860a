"""What people write by mistake or by the habit of another language, and what they are told: one thing for each mistake.

A case of ``mistakes.pw`` begins with ``#### case:``. Behind its program stands each message: ``#### CODE line:column message``,
below it its label, helps and notes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.language import Diagnostic, Source, check
from bartack.language.checking.modules import NotLoaded

CASES = Path(__file__).with_name("mistakes.pw").read_text(encoding="utf-8").split("#### case: ")[1:]


def told(text: str) -> list[str]:
    """What is said about a program."""
    checked = check(lambda path: text if path == "main.pw" else NotLoaded("missing"), "main.pw")
    source = Source(text, "main.pw")
    return [line for one in checked.diagnostics for line in shown(source, one)]


def shown(source: Source, one: Diagnostic) -> list[str]:
    """A message and what stands below it."""
    place = source.place(one.span.start)
    below = [*([one.label] if one.label else []), *one.helps, *one.notes]
    return [
        f"#### {one.code} {place.line}:{place.column} {one.message}",
        *(f"####     {line}" for line in below),
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition("\n")[0])
def test_a_mistake_is_answered_once_and_with_advice(case: str) -> None:
    lines = case.splitlines(keepends=True)[1:]
    program = "".join(line for line in lines if not line.startswith("####"))

    assert told(program) == [line.rstrip("\n") for line in lines if line.startswith("####")]
