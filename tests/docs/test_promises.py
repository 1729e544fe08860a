"""What the pages promise of a journal's directory, its durability and a full disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bartack.errors import JournalFullError, JournalSyncError
from bartack.journal import INLINE_LIMIT, Durability, FileJournal, open_journal
from bartack.telemetry import Telemetry
from bartack.testing import FaultyDisk, VirtualClock

RUN = "/run"
LARGE = b'"' + b"x" * INLINE_LIMIT + b'"'


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def opened(disk: FaultyDisk, durability: Durability = "power") -> FileJournal:
    return open_journal(RUN, disk=disk, clock=VirtualClock(), durability=durability)


def kinds(journal: FileJournal) -> list[str]:
    return [entry.kind for entry in journal.read()]


def fill(journal: FileJournal) -> None:
    for _ in range(100):
        journal.append("filling", {"x": "x" * 3_000})


@pytest.mark.usefixtures("no_umask")
@pytest.mark.requirement("files-are-private")
def test_a_journal_keeps_its_files_to_its_owner(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with open_journal(run) as journal:
        journal.append("large", {}, LARGE)
    with (run / "journal.ndjson").open("ab") as file:
        file.write(b"torn")
    with open_journal(run):
        pass

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [run, *run.rglob("*")]}
    assert {"run", "journal.ndjson", "lock", "reserve", "blobs", "journal.torn-3"} <= set(modes)
    assert {name for name, mode in modes.items() if mode not in {0o600, 0o700}} == set()


@pytest.mark.requirement("directory-is-complete")
def test_a_journal_works_where_its_directory_was_moved_to(tmp_path: Path) -> None:
    with open_journal(tmp_path / "here") as journal:
        seq = journal.append("large", {}, LARGE)
    (tmp_path / "here").rename(tmp_path / "there")

    with open_journal(tmp_path / "there") as journal:
        assert journal.load_value(next(journal.read(seq))) == LARGE
        assert journal.fence == 2


@pytest.mark.parametrize(("durability", "syncs"), [("power", 3), ("process", 0)])
@pytest.mark.requirement("process-durability-does-not-sync")
def test_only_durability_against_a_power_cut_waits_for_the_disk(durability: Durability, syncs: int) -> None:
    disk = FaultyDisk()
    with opened(disk, durability) as journal:
        before = len(disk.log)
        for _ in range(3):
            journal.append("step.finished")

    assert [operation.name for operation in disk.log[before:]].count("sync") == syncs


@pytest.mark.requirement("full-disk-stops")
def test_a_full_disk_stops_the_journal_and_opening_it_again_goes_on() -> None:
    disk = FaultyDisk(capacity=100_000)
    with opened(disk) as journal:
        journal.append("safe")
        journal.append("filling", {"x": "x" * 30_000})
        with pytest.raises(JournalFullError):
            journal.append("too.much", {"x": "x" * 90_000})
        with pytest.raises(JournalFullError):
            journal.append("small")

    disk.mend()
    with opened(disk) as journal:
        journal.append("later")
        assert [kind for kind in kinds(journal) if not kind.startswith("journal.")] == [
            "safe",
            "filling",
            "later",
        ]


@pytest.mark.requirement("last-words-fit")
def test_the_reserve_makes_room_for_the_reason_and_is_filled_again() -> None:
    disk = FaultyDisk(capacity=100_000)
    with opened(disk) as journal:
        reserved = len(disk.tree()[f"{RUN}/reserve"])
        with pytest.raises(JournalFullError):
            fill(journal)
    without = disk.tree()

    disk.mend()
    with opened(disk) as journal:
        assert kinds(journal)[-2:] == ["journal.interrupted", "journal.opened"]
    assert f"{RUN}/reserve" not in without
    assert len(disk.tree()[f"{RUN}/reserve"]) == reserved


@pytest.mark.requirement("last-commit-is-written-again")
def test_what_an_owner_could_not_sync_is_durable_before_the_next_one_shows_it() -> None:
    disk = FaultyDisk()
    with opened(disk) as journal:
        disk.fail_sync(path=f"{RUN}/journal.ndjson")
        with pytest.raises(JournalSyncError):
            journal.append(
                "doubtful", {"x": "x" * 5_000}
            )  # over several sectors, so that its neighbours do not save it
    disk.mend()
    with opened(disk) as journal:
        shown = kinds(journal)
    with opened(disk.after_power_cut()) as journal:
        kept = kinds(journal)

    assert shown == ["journal.opened", "doubtful", "journal.opened"]
    assert kept[:3] == shown


@pytest.mark.requirement("journal-tells-what-happens")
def test_a_journal_tells_of_opening_committing_recovering_and_poison() -> None:
    disk, telemetry = FaultyDisk(), Telemetry()
    heard: list[tuple[str, dict[str, int], dict[str, object]]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((name, dict(measurements), dict(metadata)))

    with opened(disk) as journal:
        journal.append("step.finished")
    whole = disk.tree()[f"{RUN}/journal.ndjson"]
    disk.put(f"{RUN}/journal.ndjson", whole + b"torn")
    telemetry.attach("test", "journal.*", note)
    with open_journal(RUN, disk=disk, clock=VirtualClock(), telemetry=telemetry) as journal:
        size = journal.size_bytes
        disk.fail_sync()
        with pytest.raises(JournalSyncError):
            journal.append("doubtful")

    assert heard == [
        ("journal.recovered", {"size_bytes": 4}, {"seq": 3, "kept_as": f"{RUN}/journal.torn-3"}),
        ("journal.committed", {"entries": 1, "size_bytes": size - len(whole), "duration_ns": 0}, {}),
        ("journal.opened", {"entries": 3, "size_bytes": size, "duration_ns": 0}, {"path": RUN, "fence": 2}),
        ("journal.poisoned", {}, {"reason": os.strerror(errno.EIO)}),
    ]
