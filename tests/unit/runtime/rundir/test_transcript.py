from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.transcripts import fact_transcript

from bartack.journal import FileJournal, open_journal
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.pipeline_transcript import FactTranscript
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.rundir.transcript import Transcript, count_outputs, read_texts, read_transcript
from bartack.runtime.state import entries as e


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    with open_journal(tmp_path) as opened:
        yield opened


def write(journal: FileJournal, *texts: str, p: str = "main", channel: str = "print") -> None:
    for text in texts:
        journal.append("output", {"p": p, "n": 1, "channel": channel}, f'"{text}"'.encode())


def full(room: int) -> Callable[[int, bytes], int]:
    """Writes on a disk that has room for so many bytes only."""
    real = os.write

    def put(fd: int, content: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, content[:room])

    return put


def open_transcript(place: Path) -> Transcript:
    return Transcript(
        RunDir(place), place / "transcript.txt", lambda: "10:00:00.000 bartack [run] of: nothing\n"
    )


def said(place: Path) -> list[str]:
    """The lines without their times."""
    return [line[13:] for line in (place / "transcript.txt").read_text().splitlines()]


def test_each_text_is_there_once_though_the_hub_was_killed_before_it_wrote_the_last(
    tmp_path: Path, journal: FileJournal
) -> None:
    write(journal, "tick", "tick", "tick")
    first = open_transcript(tmp_path)
    first.add(Shown("print", "main", "tick"))
    first.add(Shown("note", "main", "tick"))
    first.add(Shown("out", "main", "main: tick"))
    first.close()

    for _ in range(2):
        again = open_transcript(tmp_path)
        again.repair(3)
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
        torn.repair(2)
        torn.close()

    assert said(tmp_path) == ["main: one", "main: two"]
    assert count_outputs(tmp_path / "transcript.txt") == 2


def test_texts_of_branches_and_tools_are_those_of_their_worker(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "a", p="main/1.4.2")
    write(journal, "b", p="main/do:5.1", channel="log")

    assert [line[13:] for line in read_texts(RunDir(tmp_path)).lost(tmp_path / "none")] == [
        "main/1: a\n",
        "main: [log] b\n",
    ]
    assert worker_path("main/2/do:5.1.3.1") == "main/2"


def test_a_text_that_looks_like_a_line_is_not_counted_as_one(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "x")
    transcript = open_transcript(tmp_path)

    transcript.add(Shown("print", "main", "x\n10:00:00.000 main: y"))
    transcript.close()

    assert count_outputs(tmp_path / "transcript.txt") == 1


def test_a_line_lost_in_the_middle_comes_back_in_its_place(tmp_path: Path, journal: FileJournal) -> None:
    write(journal, "one", "two", "three", "two")
    transcript = open_transcript(tmp_path)
    transcript.add(Shown("print", "main", "one"))
    transcript.add(Shown("note", "main", "aside"))
    transcript.add(Shown("print", "main", "three"))
    transcript.close()

    assert [line[13:] for line in read_texts(RunDir(tmp_path)).lost(tmp_path / "transcript.txt")] == [
        "main: two\n",
        "main: two\n",
    ]
    for _ in range(2):
        again = open_transcript(tmp_path)
        again.repair(4)
        again.close()

        assert said(tmp_path)[1:] == [
            "main: one",
            "main [note] aside",
            "main: two",
            "main: three",
            "main: two",
        ]


@pytest.mark.parametrize("room", [0, 20])
def test_what_a_full_disk_refused_is_there_when_there_is_room_again(
    tmp_path: Path, journal: FileJournal, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(journal, "one", "two", "three")
    transcript = open_transcript(tmp_path)
    transcript.add(Shown("print", "main", "one"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full(room))
        transcript.add(Shown("print", "main", "two"))
    transcript.add(Shown("print", "main", "three"))

    assert said(tmp_path)[1:] == ["main: one", "main: three"]
    transcript.close()

    assert said(tmp_path)[1:] == ["main: one", "main: two", "main: three"]


# Programs that come with Bartack.


def begin(journal: FileJournal) -> None:
    made = e.RunCreated(
        run="run-20260101-000000-aaaa0001",
        worker="bartack.pipeline._main:main",
        name="main",
        program="p.py",
        workspace="/w/weeks",
        root="/w",
        seed=1,
    )
    journal.append(made.kind, made)


def tell(journal: FileJournal, data: e.EntryData, value: object = None) -> None:
    journal.append(data.kind, data, None if value is None else msgspec.json.encode(value))


def told(place: Path) -> list[str]:
    """The lines of the facts without their times."""
    lines = fact_transcript(RunDir(place)).decode().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  ", line) for line in lines)
    return [line[22:] for line in lines]


@pytest.mark.requirement("transcript-of-a-pipeline")
def test_each_fact_is_a_line_of_who_and_what(tmp_path: Path, journal: FileJournal) -> None:
    begin(journal)
    tell(journal, e.HubStarted(hub=1))
    write(journal, "→ builder  implement T-7 round 1 (start) ik:f7da6c9a", channel="log")
    write(journal, "builder  builder.completed T-7", "tests T-7 fail, exit 1", channel="log")
    tell(
        journal,
        e.StepStarted(p="main", n=4, step="ask", fp="f", question="q1"),
        {"question": "go on?\nreally"},
    )
    tell(journal, e.HubStopped(reason="waiting"))
    tell(journal, e.HubStarted(hub=2))
    tell(journal, e.StepFinished(p="main", n=4, step="ask", fp="f", by="maria"), "yes")
    asked = e.QuestionAsked(
        p="main", n=5, id="q2", ask="permission", agent="builder", tool="Bash", about="may it?"
    )
    tell(journal, asked, {"text": "may it?"})
    tell(journal, e.QuestionSettled(id="q2", answer="allow", by="maria"))
    tell(
        journal, e.QuestionAsked(p="main", n=5, id="q3", agent="builder", about="which?"), {"text": "which?"}
    )
    tell(journal, e.QuestionSettled(id="q3", how="superseded"))
    error = ErrorData(type="bartack.errors:TestsGateError", message="the tests fail\nmore")
    tell(journal, e.WorkerEnded(path="main/3:task", error=error, final=True))
    tell(journal, e.WorkerCrashed(path="main", incarnation=1, reason="killed"))
    tell(journal, e.FailureRecorded(worker="main", error=error))
    tell(journal, e.FailureRecorded(worker="other", error=error, suppressed=True))
    tell(journal, e.RunEnded(status="failed"))

    assert told(tmp_path) == [
        "bartack            run run-20260101-000000-aaaa0001 of weeks",
        "bartack → builder  implement T-7 round 1 (start) ik:f7da6c9a",
        "builder            builder.completed T-7",
        "bartack            tests T-7 fail, exit 1",
        "bartack            question q1: go on?\\nreally",
        "bartack            the run was stopped: waiting",
        "bartack            run resumed",
        'bartack            q1 answered by maria: "yes"',
        "bartack            question q2: agent builder asks: may it? [Bash]",
        "bartack            q2 answered by maria: allow",
        "bartack            question q3: agent builder asks: which?",
        "bartack            q3 superseded",
        "bartack            main/3:task failed: TestsGateError: the tests fail",
        "bartack            main crashed: killed",
        "bartack            main failed: TestsGateError: the tests fail",
        "bartack            run failed",
    ]


def test_a_line_of_facts_is_never_long_and_steers_no_terminal(tmp_path: Path, journal: FileJournal) -> None:
    begin(journal)
    tell(journal, e.OutputWritten(p="main", n=1, channel="log"), "x" * 1000)
    tell(journal, e.OutputWritten(p="main", n=2, channel="log"), "\x1b[2J\nand \u202e")

    _, long, steering = fact_transcript(RunDir(tmp_path)).decode().splitlines()

    assert (len(long), long[-1]) == (400, "…")
    assert steering.endswith("  \\x1b[2J\\nand \\u202e")


@pytest.mark.requirement("transcript-of-a-pipeline")
@pytest.mark.parametrize("room", [0, 20])
def test_a_transcript_of_facts_is_the_same_bytes_whatever_becomes_of_the_file(
    tmp_path: Path, journal: FileJournal, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(journal)
    file = tmp_path / "transcript.txt"
    transcript = FactTranscript(RunDir(tmp_path), file)
    hurts: list[Callable[[], object]] = [
        file.unlink,
        lambda: os.truncate(file, file.stat().st_size // 2),
        lambda: file.write_bytes(b"foreign\n" + file.read_bytes()),
        lambda: file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[::2])),
    ]

    for number, hurt in enumerate(hurts):
        write(journal, f"fact {number}", channel="log")
        transcript.add(Shown("log", "main", "whatever"))
        assert file.read_bytes() == fact_transcript(RunDir(tmp_path))
        hurt()
        transcript.look()
        assert file.read_bytes() == fact_transcript(RunDir(tmp_path))
    write(journal, "lost", channel="log")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full(room))
        transcript.add(Shown("note", "main", "whatever"))
        assert file.read_bytes() != fact_transcript(RunDir(tmp_path))
    write(journal, "behind it", channel="log")
    transcript.close()

    assert file.read_bytes() == fact_transcript(RunDir(tmp_path))
    assert len(told(tmp_path)) == len(hurts) + 3


def test_a_resumed_run_finds_a_line_that_was_changed_without_changing_the_size(
    tmp_path: Path, journal: FileJournal
) -> None:
    begin(journal)
    write(journal, "one", channel="log")
    file = tmp_path / "transcript.txt"
    FactTranscript(RunDir(tmp_path), file).repair(1)
    file.write_bytes(file.read_bytes().replace(b"one", b"two"))

    again = FactTranscript(RunDir(tmp_path), file)
    again.repair(1)
    again.close()

    assert file.read_bytes() == fact_transcript(RunDir(tmp_path))
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_a_transcript_of_facts_lacks_is_read_from_the_journal(
    tmp_path: Path, journal: FileJournal
) -> None:
    begin(journal)
    write(journal, "one", "two", channel="log")
    file = tmp_path / "transcript.txt"
    whole = fact_transcript(RunDir(tmp_path)).decode().splitlines(keepends=True)

    assert read_texts(RunDir(tmp_path)).lost(file) == whole
    file.write_text(whole[0] + whole[1][:30])
    assert read_texts(RunDir(tmp_path)).lost(file) == whole[1:]
    assert read_transcript(RunDir(tmp_path), file) == fact_transcript(RunDir(tmp_path))
