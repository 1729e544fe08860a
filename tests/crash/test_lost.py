"""The end of a journal is cut off, overwritten, swapped or taken away: that is noticed, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from bartack.errors import JournalCorruptError, JournalError, JournalLostError
from bartack.journal import Draft, open_journal, open_reader, verify_journal
from bartack.journal.file import check_kept
from bartack.testing import FaultyDisk, PowerCut, VirtualClock

RUN = "/run"
JOURNAL = f"{RUN}/journal.ndjson"
LOCK = f"{RUN}/lock"

Record = Callable[[str, object], None]


class Left(NamedTuple):
    """What a killed owner left: the journal, with and without blank lines at its end, and the lock file."""

    content: bytes
    filled: bytes
    lock: bytes
    last: int


def write_and_die() -> Left:
    disk = FaultyDisk()
    journal = open_journal(RUN, disk=disk, clock=VirtualClock())
    journal.append("order.taken", {"table": 4}, b'{"dish":["soup","bread"]}')
    journal.stage(Draft("cook.started", {"n": 1}), Draft("cook.started", {"n": 2}))
    journal.stage(Draft("cook.paused", {}, b"null"))
    journal.commit()
    for number in range(5):
        journal.append("dish.served", {"table": number})
    disk.kill_users()
    filled = disk.tree()[JOURNAL]
    return Left(filled.rstrip(b"\n") + b"\n", filled, disk.tree()[LOCK], journal.synced_seq)


LEFT = write_and_die()
LINES = LEFT.content.splitlines(keepends=True)


def disk_with(content: bytes | None, lock: bytes = LEFT.lock) -> FaultyDisk:
    disk = FaultyDisk()
    disk.put(LOCK, lock)
    if content is not None:
        disk.put(JOURNAL, content)
    return disk


def check_refused(content: bytes | None) -> JournalCorruptError:
    """Opening, looking and checking all refuse, and leave everything but the owner's number as it was."""
    disk = disk_with(content)
    before = disk.tree()
    if content is not None:
        with pytest.raises(JournalError):
            check_kept_and_whole(disk)
        assert disk.tree() == before
    with pytest.raises(JournalCorruptError) as caught:
        open_journal(RUN, disk=disk, clock=VirtualClock())

    assert {**disk.tree(), LOCK: b""} == {**before, LOCK: b""}
    assert disk.tree()[LOCK][64:] == LEFT.lock[64:]
    return caught.value


def check_kept_and_whole(disk: FaultyDisk) -> None:
    check_kept(RUN, disk=disk)
    damage = verify_journal(RUN, disk=disk).damage
    if damage is not None:
        assert not damage.torn
        raise JournalCorruptError(JOURNAL, damage.offset, damage.problem)


def ends() -> Iterator[int]:
    """Every place at which something acknowledged would be missing."""
    yield from range(len(LEFT.content))


@pytest.mark.requirement("lost-entries-are-missed")
def test_a_journal_cut_at_any_byte_is_refused_and_left_as_it_is(record_property: Record) -> None:
    for size in ends():
        error = check_refused(LEFT.content[:size])

        if size >= len(LINES[0]):
            assert isinstance(error, JournalLostError)
            assert error.acknowledged == LEFT.last > error.held
    record_property("damaged_journals", len(LEFT.content))


@pytest.mark.requirement("lost-entries-are-missed")
@pytest.mark.parametrize(
    "fill",
    [
        pytest.param(b"\0", id="zeros"),
        pytest.param(b"\n", id="line breaks"),
        # In ``make soak``: other damage of the same kind.
        pytest.param(b" ", id="spaces", marks=pytest.mark.soak),
        pytest.param(b"x", id="letters", marks=pytest.mark.soak),
    ],
)
def test_a_journal_overwritten_from_any_byte_to_its_end_is_refused(
    fill: bytes, record_property: Record
) -> None:
    overwritten = [LEFT.content[:size] + fill * (len(LEFT.filled) - size) for size in ends()]
    changed = [content for content in overwritten if content != LEFT.filled]
    for content in changed:
        check_refused(content)
    record_property("damaged_journals", len(changed))


@pytest.mark.requirement("lost-entries-are-missed")
def test_lines_missing_doubled_or_swapped_at_the_end_are_noticed() -> None:
    *before, last_but_one, last = LINES

    check_refused(b"".join([*before, last]))
    check_refused(b"".join([*before, last_but_one]))
    check_refused(b"".join([*before, last, last_but_one]))
    check_refused(b"".join([*before, last_but_one, last_but_one]))
    check_refused(b"".join([*before, last_but_one, last.replace(b":4}", b":5}")]))


@pytest.mark.requirement("lost-entries-are-missed")
def test_a_journal_that_was_removed_is_not_made_anew() -> None:
    error = check_refused(None)

    assert isinstance(error, JournalLostError)
    assert (error.held, error.acknowledged) == (0, LEFT.last)


def test_a_journal_with_another_history_of_the_same_length_is_refused() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk, clock=VirtualClock()) as journal:
        while journal.synced_seq < LEFT.last:
            journal.append("another.history")
        same = disk.tree()[JOURNAL]
        journal.append("and.more")
    longer = disk.tree()[JOURNAL]

    for content in (same, longer):
        error = check_refused(content)
        assert isinstance(error, JournalLostError)
        assert "is not the one that was acknowledged" in error.message


def test_what_follows_the_mark_is_no_loss_and_a_torn_end_of_it_is_cut() -> None:
    """As a power cut leaves it, which takes back the newest mark and not the journal; or a kill between the two writes."""
    for behind in range(1, len(LINES)):
        disk = FaultyDisk()
        journal = open_journal(RUN, disk=disk, clock=VirtualClock())
        for _ in range(behind):
            journal.append("early")
        lock = disk.tree()[LOCK]
        for _ in range(3):
            journal.append("late")
        disk.kill_users()
        content = disk.tree()[JOURNAL].rstrip(b"\n")

        with open_journal(RUN, disk=disk_with(content[:-5], lock)) as reopened:
            assert reopened.recovery is not None
            assert reopened.loss is None
            assert [entry.kind for entry in reopened.read(behind + 2)] == ["late", "late", "journal.opened"]


@pytest.mark.parametrize("slot", [1, 2])
def test_a_half_written_mark_is_passed_over_for_the_one_before(slot: int) -> None:
    for length in range(64):
        torn = LEFT.lock[: slot * 64 + length] + b"9" * (64 - length) + LEFT.lock[slot * 64 + 64 :]
        if torn == LEFT.lock:
            continue
        with pytest.raises(JournalLostError) as caught:
            open_journal(RUN, disk=disk_with(LINES[0], torn))

        assert caught.value.acknowledged in {LEFT.last, LEFT.last - 1}


@pytest.mark.parametrize(
    "lock",
    [b"", b"12345\n", b"12345\n" + b"\0" * 200, b"12345".ljust(63) + b"\n"],
    ids=["empty", "old", "zeros", "no mark"],
)
def test_a_directory_without_a_mark_is_opened_as_it_always_was(lock: bytes) -> None:
    with open_journal(RUN, disk=disk_with(LEFT.content[:-5], lock)) as journal:
        assert journal.recovery is not None
        assert journal.loss is None


@pytest.mark.requirement("lost-entries-can-be-accepted")
def test_a_loss_that_is_accepted_keeps_the_journal_as_it_was_found() -> None:
    for size in range(len(LINES[0]), len(LEFT.content), 7):
        disk = disk_with(LEFT.content[:size])
        with open_journal(RUN, disk=disk, accept_loss=True) as journal:
            loss = journal.loss
            assert loss is not None
            assert disk.tree()[loss.kept_as] == LEFT.content[:size]
            assert (loss.acknowledged, journal.synced_seq) == (LEFT.last, loss.held + 1)
            journal.append("going.on")

        survivor = disk.after_power_cut()
        with open_journal(RUN, disk=survivor) as journal:
            assert [entry.kind for entry in journal.read(loss.held + 1)] == [
                "journal.opened",
                "going.on",
                "journal.opened",
            ]
            assert survivor.tree()[loss.kept_as] == LEFT.content[:size]


def test_accepting_a_loss_where_there_is_none_changes_nothing() -> None:
    with open_journal(RUN, disk=disk_with(LEFT.filled), accept_loss=True) as journal:
        assert journal.loss is None
        assert journal.recovery is None


@pytest.mark.requirement("lost-entries-are-missed")
def test_no_power_cut_leaves_a_mark_that_knows_more_than_the_journal(record_property: Record) -> None:
    survivors = 0
    for point in range(1, 60):
        disk = FaultyDisk()
        disk.crash_after(point)
        try:
            with open_journal(RUN, disk=disk) as journal:
                for number in range(4):
                    journal.append("counted", {"n": number})
        except PowerCut:
            pass
        for survivor in disk.survivors(samples=4, seed=point):
            with open_journal(RUN, disk=survivor) as journal:
                assert journal.loss is None
            survivors += 1
    record_property("power_cuts", survivors)


def test_a_reader_shows_what_is_left() -> None:
    with open_reader(RUN, disk=disk_with(b"".join(LINES[:3]))) as reader:
        assert len(list(reader.read())) == 4
