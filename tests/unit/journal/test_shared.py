"""A journal that is kept elsewhere: how much of it leaves at a time, and what is left when its owner dies in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bartack.errors import JournalPoisonedError
from bartack.journal import BlobRef, Draft
from bartack.journal.mirror import End, FetchedBlobs
from bartack.journal.shared import (
    COMMIT_BYTES,
    Commit,
    SharedJournal,
    first_commit,
    lock_directory,
    open_shared,
)

KIB = 1024


class Said(msgspec.Struct):
    """The data of an entry."""

    text: str


class Place:
    """Where the journal is kept: ``Source`` and ``Carrier``.

    Attributes:
        kept: The commits that are there.
        dies_after: It takes no more than this many, and answers no more.
    """

    name = "elsewhere"
    fence = 2

    def __init__(self, folder: Path) -> None:
        self.kept = [first_commit((), FetchedBlobs(str(folder), self))]
        self.dies_after = 1_000
        self._is_answered = True
        self._asked = 1
        self._ready, self._signal = os.pipe()

    # Carrier.

    def send(self, commit: Commit) -> None:
        assert commit.seq == self.kept[-1].last + 1
        assert self._is_answered, "one commit is under way at a time"
        self._is_answered = False
        if len(self.kept) < self.dies_after:
            self.kept.append(commit)
        os.write(self._signal, b"x")

    def fileno(self) -> int:
        return self._ready

    def take(self) -> bool:
        os.read(self._ready, 1)
        self._is_answered = True
        self._asked += 1
        if self._asked > self.dies_after:
            raise JournalPoisonedError(self.name, "its owner dies here")
        return True

    def close(self) -> None:
        self._is_answered = True

    # Source.

    def end(self) -> End:
        return End(self.kept[-1].last, self.kept[-1].crc)

    def has(self, end: End) -> bool:
        return True

    def rows(self, after: int) -> Iterator[bytes]:
        return iter([commit.lines for commit in self.kept if commit.seq > after])

    def check_size(self, size: int) -> None:
        """Any."""

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        raise AssertionError(ref)

    def release(self) -> None:
        os.close(self._ready)
        os.close(self._signal)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.release()


def own(directory: Path, place: Place) -> SharedJournal:
    return open_shared(directory, lock_directory(directory), place, place)


def stage(journal: SharedJournal, size: int) -> None:
    """Stage a group whose line takes a little less than this."""
    texts = [min(60 * KIB, left) for left in range(size - 512, 0, -60 * KIB)]
    journal.stage(*(Draft("note.made", Said("x" * max(length - 256, 0))) for length in texts))


@pytest.mark.requirement("database-commit-size")
def test_a_commit_leaves_in_parts_of_whole_groups_and_is_acknowledged_as_one(
    tmp_path: Path, place: Place
) -> None:
    with own(tmp_path / "run", place) as journal:
        before = len(place.kept)
        for _ in range(5):
            stage(journal, 3 << 20)
        stage(journal, 10 << 20)
        stage(journal, 1 << 20)
        synced = journal.commit()
        parts = place.kept[before:]

        assert synced == journal.last_seq == parts[-1].last
        assert [part.lines.count(b"\n") for part in parts] == [2, 2, 1, 1, 1]
        assert all(len(part.lines) <= COMMIT_BYTES or part.lines.count(b"\n") == 1 for part in parts)
        assert [entry.seq for entry in journal.read()] == list(range(1, synced + 1))
        assert {entry.commit for entry in journal.read()} == {1, 2, *(part.seq for part in parts)}


def test_a_commit_up_to_the_limit_leaves_as_one(tmp_path: Path, place: Place) -> None:
    with own(tmp_path / "run", place) as journal:
        before = len(place.kept)
        for _ in range(8):
            stage(journal, 1 << 20)
        journal.commit()

        (part,) = place.kept[before:]
        assert COMMIT_BYTES * 0.9 < len(part.lines) <= COMMIT_BYTES
        assert part.lines.count(b"\n") == 8


@pytest.mark.requirement("database-commit-size")
def test_a_crash_between_two_parts_leaves_a_beginning_that_the_next_owner_continues(
    tmp_path: Path, place: Place
) -> None:
    journal = own(tmp_path / "run", place)
    for _ in range(4):
        stage(journal, 3 << 20)
    place.dies_after = len(place.kept) + 1
    with pytest.raises(JournalPoisonedError):
        journal.commit()
    journal.close()

    place.dies_after = 1_000
    with own(tmp_path / "other", place) as after:
        groups = [line for commit in place.kept for line in commit.lines.splitlines()]
        after.append("note.made", Said("continued"))
        entries = list(after.read())

    assert len(groups) == 5, "three openings, and the two groups of the first part"
    assert journal.synced_seq == place.kept[2].last
    assert entries[-1].data == {"text": "continued"}
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
