"""A power cut at every operation of a history, with every kind of remainder on the disk: nothing acknowledged is ever lost.

The history has single entries, atomic groups, large values, five owners one after the other, a sync that fails and a disk
that is full. Its file is filled with blank lines in small steps, so that it often grows. It is run once for each of its
operations, with the power cut right after it. For each such run the disks that may be found afterwards are built, and each
of them is opened, checked, appended to and opened again. Some are cut a second time, at every operation of their recovery.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from bartack.errors import JournalFullError, JournalSyncError
from bartack.journal import Draft, FileJournal, Journal, open_journal
from bartack.testing import FaultyDisk, PowerCut, VirtualClock
from bartack.testing.platter import keep_everything

PARTS = 5
SOAK = "SOAK" in os.environ
SAMPLES = 420 if SOAK else 48
"""How many disks are drawn at each place where the power may go: most of those that differ come early."""
LEAST_STATES = 700 if SOAK else 300
LEAST_STATES_OF_RECOVERY = 350 if SOAK else 150
"""The fewest states of each part: together well over 2,000, and over 5,000 in make soak."""
FILLING = 4096
RUN = "/runs/run"
JOURNAL = f"{RUN}/journal.ndjson"

LIMIT = 8192
"""Longer values are files of their own. They are as many and as often cut as longer ones would be, and sooner read."""
LARGE = b'"' + b"a long story " * (LIMIT // 12) + b'"'
LARGER = b'"' + b"a longer one " * (LIMIT // 11) + b'"'

Item = tuple[int, bytes | None]
"""An entry of the history: a number that no other has, and its value."""

Record = Callable[[str, object], None]


class Ledger:
    """Keeps beside the disk what was staged and what of it has to be found."""

    def __init__(self) -> None:
        self.groups: list[list[Item]] = []
        self.kept = 0
        self.last_seq = 0
        self._numbers = 0

    def copy(self) -> Ledger:
        other = Ledger()
        other.groups = list(self.groups)
        other.kept = self.kept
        other.last_seq = self.last_seq
        other._numbers = self._numbers
        return other

    def write(self, journal: Journal, *groups: list[bytes | None]) -> None:
        """Stage groups of values and commit them together."""
        for values in groups:
            items = [(self._number(), value) for value in values]
            journal.stage(*(Draft("item", {"number": number}, value) for number, value in items))
            self.groups.append(items)
        self.last_seq = journal.commit()
        self.kept = len(self.groups)

    def check(self, journal: Journal) -> None:
        """Everything acknowledged is there, in order and unchanged; nothing else but whole groups in their order.

        What an owner was shown counts as acknowledged from then on.
        """
        entries = list(journal.read())
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        found = [
            (entry.data["number"], journal.load_value(entry)) for entry in entries if entry.kind == "item"
        ]
        expected: list[Item] = [item for group in self.groups[: self.kept] for item in group]
        while len(expected) < len(found) and self.kept < len(self.groups):
            expected += self.groups[self.kept]
            self.kept += 1
        assert found == expected
        del self.groups[self.kept :]
        self.last_seq = journal.synced_seq

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


@pytest.fixture(autouse=True)
def go_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.journal._line_file.FILLING", FILLING)
    monkeypatch.setattr("bartack.journal._stage.INLINE_LIMIT", LIMIT)


def opened(disk: FaultyDisk, ledger: Ledger) -> FileJournal:
    journal = open_journal(RUN, disk=disk, clock=VirtualClock(), at_least=ledger.last_seq)
    ledger.check(journal)
    return journal


def new_disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.mkdir("/runs")
    disk.sync_dir("/")
    return disk


def text(size: int) -> bytes:
    return b'"' + b"x" * size + b'"'


def live_through_history(disk: FaultyDisk, ledger: Ledger) -> None:
    with opened(disk, ledger) as journal:
        ledger.write(journal, [None])
        ledger.write(journal, [None, text(700), None])
        ledger.write(journal, [text(300)], [None, None], [text(1500)])
        ledger.write(journal, [LARGE])
        for size in range(1000, 4000, 500):
            ledger.write(journal, [text(size), text(1800)], [None])
    with opened(disk, ledger) as journal:
        ledger.write(journal, [LARGE, LARGER, text(40)])
        ledger.write(journal, [text(2600)])
        disk.shorten_writes(1000)
        ledger.write(journal, [text(900)], [text(900)], [text(900), None], [text(2000)])
        disk.shorten_writes(None)
        for size in range(1300, 3500, 400):
            ledger.write(journal, [None], [text(size), text(1000)], [text(size)])
        journal.stage(Draft("dropped"))
    with opened(disk, ledger) as journal:
        ledger.write(journal, [None])
        disk.fail_sync(path=JOURNAL)
        with pytest.raises(JournalSyncError):
            ledger.write(journal, [text(1200)], [None, text(1200)], [text(2200)])
    with opened(disk, ledger) as journal:
        ledger.write(journal, [text(4000), None])
        disk.fail_write(errno.ENOSPC, after_bytes=1500)
        with pytest.raises(JournalFullError):
            ledger.write(journal, [text(300)], [text(FILLING), None])
    disk.mend()
    with opened(disk, ledger) as journal:
        ledger.write(journal, [None, None])
        for size in range(2500, 5000, 500):
            ledger.write(journal, [text(size)], [text(1600), None])


def go_on(disk: FaultyDisk, ledger: Ledger) -> None:
    """What the next owner does after a crash, once there is room again."""
    disk.mend()
    with opened(disk, ledger) as journal:
        ledger.write(journal, [text(600), None])


def outgrow(disk: FaultyDisk, ledger: Ledger) -> None:
    """What two owners do whose files are filled with 128 KiB at a time."""
    for _ in range(2):
        with opened(disk, ledger) as journal:
            ledger.write(journal, [text(600), None])
            ledger.write(journal, [text(50_000), None], [text(50_000), text(50_000)])


def cut(disk: FaultyDisk, work: Callable[[FaultyDisk, Ledger], None], ledger: Ledger, mutations: int) -> bool:
    """Work until the power goes; ``False`` if the work was done before."""
    disk.crash_after(mutations)
    try:
        work(disk, ledger)
    except PowerCut:
        return True
    return False


def distinct(disks: Iterator[FaultyDisk]) -> Iterator[FaultyDisk]:
    """Leaves out disks that differ only where nobody looks: in the reserved space and the name of the last owner.

    Ends when all the others have been seen, as far as a good number of samples can tell.
    """
    seen: set[int] = set()
    known = 0
    for disk in disks:
        files = disk.tree()
        files.pop(f"{RUN}/reserve", None)
        files.pop(f"{RUN}/lock", None)
        state = hash(frozenset(files.items()))
        known = known + 1 if state in seen else 0
        if known > 40:
            return
        if state not in seen:
            seen.add(state)
            yield disk


def check_recovery(disk: FaultyDisk, ledger: Ledger) -> None:
    """The next owner finds what it must, its own work is kept, and what had to be cut off is kept aside."""
    disk.mend()
    before = disk.tree().get(JOURNAL, b"")
    with opened(disk, ledger) as journal:
        recovery = journal.recovery
        ledger.write(journal, [None, text(600)])
    after = disk.tree()
    if recovery is not None:
        torn = before[recovery.offset : len(before.rstrip(b"\n")) + 1]
        assert after[recovery.kept_as] == torn
        assert recovery.size_bytes == len(torn) > 0
    settled = disk.after_power_cut()
    with opened(settled, ledger) as journal:
        assert journal.recovery is None


def operations_of(work: Callable[[FaultyDisk, Ledger], None], disk: FaultyDisk, ledger: Ledger) -> int:
    before = disk.mutations
    work(disk, ledger)
    return disk.mutations - before


def copy_of(disk: FaultyDisk) -> FaultyDisk:
    return disk.after_power_cut(keep_everything)


def test_the_history_without_a_power_cut_is_kept() -> None:
    disk, ledger = new_disk(), Ledger()
    live_through_history(disk, ledger)

    assert ledger.kept == len(ledger.groups) > 15
    check_recovery(disk.after_power_cut(), ledger)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.requirement("power-cut-loses-nothing", "group-is-whole")
def test_nothing_acknowledged_is_lost_at_any_power_cut(part: int, record_property: Record) -> None:
    total = operations_of(live_through_history, new_disk(), Ledger())
    states = 0
    for mutations in range(part, total, PARTS):
        disk, ledger = new_disk(), Ledger()
        assert cut(disk, live_through_history, ledger, mutations)
        for state in distinct(disk.survivors(samples=SAMPLES, seed=mutations)):
            states += 1
            check_recovery(state, ledger.copy())

    record_property("power_cut_states", states)
    assert states >= LEAST_STATES


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.requirement("power-cut-loses-nothing", "torn-line-is-kept-aside")
def test_nothing_acknowledged_is_lost_at_a_power_cut_during_recovery(
    part: int, record_property: Record
) -> None:
    total = operations_of(live_through_history, new_disk(), Ledger())
    states = 0
    every = 1 if SOAK else 4
    for mutations in range(every * part, total, every * PARTS):
        disk, ledger = new_disk(), Ledger()
        assert cut(disk, live_through_history, ledger, mutations)
        for found in list(distinct(disk.survivors(samples=3, seed=-mutations)))[-1:]:
            states += cut_recovery_everywhere(found, ledger)

    record_property("power_cut_states", states)
    assert states >= LEAST_STATES_OF_RECOVERY


@pytest.mark.requirement("power-cut-loses-nothing")
def test_nothing_acknowledged_is_lost_when_the_power_goes_while_a_file_is_filled_far_ahead(
    monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    monkeypatch.undo()
    total = operations_of(outgrow, new_disk(), Ledger())
    states = 0
    for mutations in range(total):
        disk, ledger = new_disk(), Ledger()
        assert cut(disk, outgrow, ledger, mutations)
        for state in distinct(disk.survivors(samples=30, seed=mutations)):
            states += 1
            check_recovery(state, ledger.copy())

    record_property("power_cut_states", states)
    assert states >= 3 * total


@pytest.mark.requirement("power-cut-loses-nothing", "kill-loses-nothing")
def test_nothing_acknowledged_is_lost_when_the_power_goes_after_a_kill(record_property: Record) -> None:
    total = operations_of(live_through_history, new_disk(), Ledger())
    states = 0
    for mutations in range(total):
        disk, ledger = new_disk(), Ledger()
        assert cut(disk, live_through_history, ledger, mutations)
        disk.kill_users()
        go_on(disk, ledger)
        for state in distinct(disk.survivors(samples=10, seed=mutations)):
            states += 1
            check_recovery(state, ledger.copy())

    record_property("power_cut_states", states)
    assert states >= total


def cut_recovery_everywhere(found: FaultyDisk, ledger: Ledger) -> int:
    states = 0
    for mutations in range(operations_of(go_on, copy_of(found), ledger.copy())):
        disk, after = copy_of(found), ledger.copy()
        assert cut(disk, go_on, after, mutations)
        for state in distinct(disk.survivors(samples=4, seed=mutations)):
            states += 1
            check_recovery(state, after.copy())
    return states
