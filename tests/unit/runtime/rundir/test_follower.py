"""A run that is followed: in slices, through what another process writes, and through what becomes of its journal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from bartack.errors import JournalCorruptError, JournalFormatError, JournalNotFoundError
from bartack.journal import Draft, FileJournal, open_journal
from bartack.runtime.rundir.follower import LOOKED, RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import draft
from bartack.runtime.state.spans.spans import Spans

LARGE = b'"' + b"large " * 20_000 + b'"'


def drafts(count: int) -> Iterator[Draft]:
    """The beginning of a run, then steps with values."""
    yield draft(
        e.RunCreated(run="r", worker="t:main", name="main", program="", workspace="", root="", seed=0)
    )
    yield draft(e.HubStarted(hub=1))
    yield draft(e.WorkerSpawned(path="main", worker="t:main"))
    for n in range(1, count):
        value = LARGE if n == 5 else msgspec.json.encode(f"value {n}")
        yield draft(e.StepFinished(p="main", n=n, step="body", fp="f"), value)


def write(directory: Path, count: int) -> FileJournal:
    """An owned journal with a run of this many steps."""
    journal = open_journal(directory, durability="process")
    for place, one in enumerate(drafts(count)):
        journal.stage(one)
        if not place % 10:
            journal.commit()
    journal.commit()
    return journal


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run-1"


@pytest.fixture
def follower(place: Path) -> Iterator[RunFollower]:
    with RunFollower(RunDir(place)) as follower:
        yield follower


def test_a_journal_is_read_in_slices_and_followed(place: Path) -> None:
    ticks = count()
    with (
        write(place, 1000) as journal,
        RunFollower(RunDir(place), clock=lambda: float(next(ticks))) as follower,
    ):
        assert (follower.state, follower.built, follower.spans.last_seq) == ("building", 0.0, 0)
        assert follower.read(1.0)
        assert (follower.state, follower.spans.last_seq) == ("building", LOOKED)
        assert 0 < follower.built < 1
        slices = 1
        while follower.read(1.0):
            slices += 1
        assert slices == journal.synced_seq // LOOKED
        assert (follower.state, follower.built, follower.spans.last_seq) == (
            "current",
            1.0,
            journal.synced_seq,
        )
        follower.wait(0)

        journal.append(*more(1000))
        assert follower.wait(60)
        assert not follower.read(5.0)
        assert follower.spans.last_seq == journal.synced_seq
        assert not follower.read(5.0)
        assert follower.generation == 0


def more(n: int) -> tuple[str, e.StepFinished]:
    return e.StepFinished.kind, e.StepFinished(p="main", n=n, step="body", fp="f")


def test_values_are_read_from_the_bookmark_before_them(place: Path, follower: RunFollower) -> None:
    with write(place, 5000) as journal:
        follower.read_all()
        entries = list(journal.read())

        for seq in (1, 2, 5, 1023, 1024, 1025, 3000, len(entries)):
            assert follower.entry(seq) == entries[seq - 1]
        assert follower.value(9) == LARGE
        assert follower.value(4004) == b'"value 4000"'
        assert follower.value(2) is None
        assert follower.entries(4998, 10) == entries[4997:]
        assert follower.entries(0, 3) == entries[:2]
        assert follower.entry(len(entries) + 1) is None
        assert follower.tail(7) == entries[-7:]
        assert follower.spans.bookmark(4004).seq > 4004 - 2000


def test_the_end_of_a_journal_is_shown_while_the_rest_is_being_read(place: Path) -> None:
    ticks = count()
    with (
        write(place, 1000) as journal,
        RunFollower(RunDir(place), clock=lambda: float(next(ticks))) as follower,
    ):
        follower.read(1.0)

        assert follower.state == "building"
        assert [entry.seq for entry in follower.tail(3)] == [
            *range(journal.synced_seq - 2, journal.synced_seq + 1)
        ]


def test_entries_after_the_last_one_that_was_read_are_not_returned(
    place: Path, follower: RunFollower
) -> None:
    with write(place, 10) as journal:
        follower.read_all()
        before = journal.synced_seq
        journal.append(*more(10))

        assert follower.entries(before, 5)[-1].seq == before


@pytest.mark.requirement("follower-starts-anew")
def test_a_follower_starts_anew_when_entries_that_it_has_read_were_taken_back(
    place: Path, follower: RunFollower
) -> None:
    write(place, 100).close()
    follower.read_all()
    seen = follower.spans
    lines = (place / "journal.ndjson").read_bytes().splitlines(keepends=True)
    (place / "journal.ndjson").write_bytes(b"".join(lines[:50]))

    assert follower.wait(60)
    follower.read_all()
    assert (follower.generation, follower.state, follower.problem) == (1, "current", None)
    assert follower.spans is not seen
    assert follower.spans.last_seq == 50
    follower.read_all()
    assert follower.generation == 1


def test_a_follower_starts_anew_when_another_history_is_in_the_place_of_the_one_that_it_has_read(
    place: Path, tmp_path: Path, follower: RunFollower
) -> None:
    write(place, 100).close()
    write(tmp_path / "other", 300).close()
    follower.read_all()
    (tmp_path / "other/journal.ndjson").replace(place / "journal.ndjson")

    follower.read_all()
    assert (follower.generation, follower.state, follower.spans.last_seq) == (1, "current", 303)


@pytest.mark.requirement("follower-starts-anew")
def test_damage_is_a_state_and_the_entries_before_it_are_there(place: Path, follower: RunFollower) -> None:
    write(place, 100).close()
    content = bytearray((place / "journal.ndjson").read_bytes())
    damaged = len(content) // 2
    content[damaged] ^= 1
    (place / "journal.ndjson").write_bytes(content)

    follower.read_all()
    assert follower.state == "damaged"
    assert isinstance(follower.problem, JournalCorruptError)
    assert 0 < follower.problem.offset <= damaged
    assert 40 < follower.spans.last_seq < 60
    assert [entry.seq for entry in follower.entries(3, 2)] == [3, 4]
    follower.read_all()
    assert follower.state == "damaged"

    content[damaged] ^= 1
    (place / "journal.ndjson").write_bytes(content)
    follower.read_all()
    assert (follower.spans.last_seq, follower.built, f"{follower.state}: {follower.problem}") == (
        103,
        1.0,
        "current: None",
    )


@pytest.mark.parametrize(
    "odd",
    [
        e.WorkerEnded(path="never there"),
        e.RunMoved(workspace="/elsewhere"),
        e.LetterMoved(message="m-1", to="nonsense"),
    ],
)
def test_an_entry_that_no_hub_can_have_written_is_damage(
    place: Path, follower: RunFollower, odd: e.EntryData
) -> None:
    journal = open_journal(place, durability="process")
    with journal:
        if not isinstance(odd, e.RunMoved):
            for one in drafts(5):
                journal.stage(one)
            journal.stage(draft(e.LetterAdded(message="m-1", mailbox="box", reason="expired")))
        seq = journal.append(odd.kind, odd)
        journal.append(*more(5))

        follower.read_all()
        assert follower.state == "damaged"
        assert f"entry {seq} " in str(follower.problem)
        journal.append(*more(6))
        follower.read_all()
        assert f"entry {seq} " in str(follower.problem)
    write(place.parent / "other", 20).close()
    (place.parent / "other/journal.ndjson").replace(place / "journal.ndjson")
    follower.read_all()
    assert (follower.spans.last_seq, follower.generation) == (23, 1)


def test_a_newer_format_is_a_state(place: Path, follower: RunFollower) -> None:
    write(place, 3).close()
    file = place / "journal.ndjson"
    newer = file.read_bytes().replace(b'"format":1', b'"format":9', 1)
    first, rest = newer.split(b"\n", 1)
    text = first[: first.rindex(b',"crc"')]
    file.write_bytes(text + b',"crc":"%08x"}\n' % crc32(text) + rest)

    follower.read_all()
    assert follower.state == "newer"
    follower.read_all()
    assert follower.state == "newer"
    assert isinstance(follower.problem, JournalFormatError)


def test_a_run_that_is_deleted_keeps_what_was_read_until_another_one_is_there(
    place: Path, follower: RunFollower
) -> None:
    write(place, 20).close()
    follower.read_all()
    last = follower.spans.last_seq
    shutil.rmtree(place)

    assert follower.wait(60)
    follower.read_all()
    assert (follower.state, follower.spans.last_seq, follower.generation) == ("deleted", last, 0)
    assert isinstance(follower.problem, JournalNotFoundError)
    assert [follower.wait(60) for _ in range(3)][-1] is False
    assert follower.entry(1) is None
    assert follower.fileno() is None

    write(place, 5).close()
    follower.read_all()
    assert (follower.state, follower.generation) == ("current", 1)
    assert follower.spans.last_seq == 8


def test_a_run_that_is_not_there_is_deleted(follower: RunFollower) -> None:
    follower.read_all()

    assert follower.state == "deleted"
    assert follower.tail() == []


def test_a_follower_has_the_spans_of_the_whole_journal(place: Path, follower: RunFollower) -> None:
    with write(place, 300) as journal:
        follower.read_all()

        assert list(follower.spans.steps()) == list(Spans.of(journal.read()).steps())
