from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.journal import FileJournal, open_journal
from bartack.runtime._ledger import Show
from bartack.runtime._places import worker_path
from bartack.runtime._transcript import Transcript, count_outputs, lost_lines


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    with open_journal(tmp_path) as opened:
        yield opened


def write(journal: FileJournal, *texts: str, p: str = "main", channel: str = "print") -> None:
    for text in texts:
        journal.append("output", {"p": p, "n": 1, "channel": channel}, f'"{text}"'.encode())


def open_transcript(place: Path) -> Transcript:
    return Transcript(place, place / "transcript.txt", lambda: "bartack [run] of: nothing")


def said(place: Path) -> list[str]:
    """The lines without their times."""
    return [line[13:] for line in (place / "transcript.txt").read_text().splitlines()]


def test_each_text_is_there_once_though_the_hub_was_killed_before_it_wrote_the_last(
    tmp_path: Path, journal: FileJournal
) -> None:
    write(journal, "tick", "tick", "tick")
    first = open_transcript(tmp_path)
    first.add(Show("print", "main", "tick"))
    first.add(Show("note", "main", "tick"))
    first.add(Show("out", "main", "main: tick"))
    first.close()

    for _ in range(2):
        again = open_transcript(tmp_path)
        again.mend(3)
        again.close()

    assert said(tmp_path) == [
        "bartack [run] of: nothing",
        "main: tick",
        "main [note] tick",
        "main [out] main: tick",
        "main: tick",
        "main: tick",
    ]


def test_a_line_that_a_power_cut_has_torn_is_written_anew(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "one", "two")
    (tmp_path / "transcript.txt").write_text("10:00:00.000 main: one\n10:00:00.000 main: t")

    for _ in range(2):
        torn = open_transcript(tmp_path)
        torn.mend(2)
        torn.close()

    assert said(tmp_path) == ["main: one", "main: two"]
    assert count_outputs(tmp_path / "transcript.txt") == 2


def test_texts_of_branches_and_tools_are_those_of_their_worker(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "a", p="main/1.4.2")
    write(journal, "b", p="main/do:5.1", channel="log")

    assert [line[13:] for line in lost_lines(tmp_path, tmp_path / "none")] == [
        "main/1: a\n",
        "main: [log] b\n",
    ]
    assert worker_path("main/2/do:5.1.3.1") == "main/2"


def test_a_text_that_looks_like_a_line_is_not_counted_as_one(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "x")
    transcript = open_transcript(tmp_path)

    transcript.add(Show("print", "main", "x\n10:00:00.000 main: y"))
    transcript.close()

    assert count_outputs(tmp_path / "transcript.txt") == 1
