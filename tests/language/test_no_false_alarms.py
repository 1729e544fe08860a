"""The programs of the project, which all work, get no report of what can never fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.language import check
from bartack.language.checking.modules import NotLoaded

ROOT = Path(__file__).parents[2]
CAREFUL = {"PW141", "PW146", "PW212", "PW227"}
BLOCK = re.compile(r"```patchwork[^\n]*\n(.*?)```", re.DOTALL)
FILES = [
    path
    for folder in ("examples", "tests/language/run", "docs", "bench")
    for path in sorted((ROOT / folder).rglob("*.pw"))
]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def _careful(load: Callable[[str], bytes | str | NotLoaded], entry: str) -> list[str]:
    found = check(load, entry).diagnostics
    return [f"{one.code} {one.message}" for one in found if one.code in CAREFUL]


def _beside(path: Path) -> Callable[[str], bytes | NotLoaded]:
    def load(name: str) -> bytes | NotLoaded:
        place = path.parent / name
        return place.read_bytes() if place.is_file() else NotLoaded("missing")

    return load


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_gets_no_false_alarm(path: Path) -> None:
    assert _careful(_beside(path), path.name) == []


def _alone(text: str) -> Callable[[str], str | NotLoaded]:
    return lambda name: text if name == "main.pw" else NotLoaded("missing")


def test_programs_in_the_docs_get_no_false_alarm() -> None:
    blocks = [block for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]

    found = {block: told for block in blocks if (told := _careful(_alone(block), "main.pw"))}

    assert len(blocks) > 5
    assert found == {}
