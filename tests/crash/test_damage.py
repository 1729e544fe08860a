"""A journal file that was cut, changed, shuffled or never was one: it is recovered, or refused and left as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

import pytest

from bartack.errors import BartackError, JournalCorruptError, JournalError, JournalFormatError
from bartack.journal import Draft, Entry, Journal, open_journal, open_reader, verify_journal
from bartack.testing import FaultyDisk, VirtualClock

RUN = "/run"
JOURNAL = f"{RUN}/journal.ndjson"

Record = Callable[[str, object], None]


class History(NamedTuple):
    content: bytes
    entries: list[Entry]
    lines: list[bytes]
    last_commit: int
    """Where the last commit begins: what stands before it was certainly acknowledged."""

    def line_at(self, offset: int) -> int:
        """Where the line begins that holds this byte."""
        return self.content.rfind(b"\n", 0, offset) + 1

    def entries_in(self, size: int) -> int:
        """How many entries the first ``size`` bytes hold whole."""
        whole = self.content[:size].rfind(b"\n") + 1
        return len(list(open_reader(JOURNAL, disk=disk_with(self.content[:whole])).read())) if whole else 0


def write_history() -> History:
    disk, clock = FaultyDisk(), VirtualClock()
    with open_journal(RUN, disk=disk, clock=clock) as journal:
        journal.append("order.taken", {"table": 4, "text": "zażółć"}, b'{"dish":["soup","bread"]}')
        journal.stage(Draft("cook.started", {"n": 1}), Draft("cook.started", {"n": 2}))
        journal.stage(Draft("cook.paused", {}, b"null"))
        journal.commit()
        journal.append("dish.served", {"table": 4})
    with open_journal(RUN, disk=disk, clock=clock) as journal:
        journal.append("bill.paid", {"table": 4, "sum": 12.5})
        journal.stage(Draft("table.cleared", {"table": 4}))
        journal.stage(Draft("shift.ended"), Draft("doors.closed", {}, b'"good night"'))
        last = journal.commit()
        entries = list(journal.read())
    content = disk.tree()[JOURNAL]
    lines = content.splitlines(keepends=True)
    commit = next(entry.commit for entry in entries if entry.seq == last)
    last_commit = content.index(b'{"seq":%d,' % commit)
    return History(content, entries, lines, last_commit)


def disk_with(content: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.put(JOURNAL, content)
    return disk


HISTORY = write_history()


def open_damaged(content: bytes) -> JournalError | int:
    """How a damaged journal is opened: the error, or how many entries are left; both checked for their promises."""
    disk = disk_with(content)
    verdict = verify(disk, content)
    try:
        with open_journal(RUN, disk=disk, clock=VirtualClock()) as journal:
            recovery = journal.recovery
            *entries, opened = journal.read()
            journal.append("going.on")
    except JournalError as error:
        assert disk.tree() == {JOURNAL: content, f"{RUN}/lock": disk.tree()[f"{RUN}/lock"]}
        check_error(error, content)
        check_verdict(verdict, error)
        return error
    assert opened.kind == "journal.opened"
    assert entries == HISTORY.entries[: len(entries)]
    assert verdict is None
    if recovery is not None:
        torn = content[recovery.offset : len(content.rstrip(b"\n")) + 1]
        assert disk.tree()[recovery.kept_as] == torn
        assert recovery.size_bytes == len(torn) > 0
        assert recovery.seq == opened.seq
    with open_journal(RUN, disk=disk.after_power_cut()) as journal:
        assert journal.recovery is None
        assert [entry.kind for entry in journal.read(opened.seq + 1)] == ["going.on", "journal.opened"]
    return len(entries)


def verify(disk: FaultyDisk, content: bytes) -> int | JournalError | None:
    """The offset of corruption that verifying finds, or its error; nothing for what opening would recover."""
    try:
        damage = verify_journal(RUN, disk=disk).damage
    except JournalError as error:
        return error
    finally:
        assert disk.tree() == {JOURNAL: content}
    return None if damage is None or damage.torn else damage.offset


def check_error(error: JournalError, content: bytes) -> None:
    if isinstance(error, JournalFormatError):
        assert error.found > error.known
    else:
        assert isinstance(error, JournalCorruptError)
        assert 0 <= error.offset <= len(content)
        assert f"byte {error.offset}" in error.message


def check_verdict(verdict: int | JournalError | None, error: JournalError) -> None:
    if isinstance(verdict, JournalError):
        assert (type(verdict), verdict.message) == (type(error), error.message)
    else:
        assert isinstance(error, JournalCorruptError)
        assert verdict == error.offset


def corrupt_at(outcome: JournalError | int) -> int:
    assert isinstance(outcome, JournalCorruptError)
    return outcome.offset


# Cut.


@pytest.mark.requirement("torn-line-is-kept-aside")
def test_a_journal_cut_at_any_byte_keeps_every_whole_line(record_property: Record) -> None:
    first = len(HISTORY.lines[0])
    for size in range(len(HISTORY.content)):
        outcome = open_damaged(HISTORY.content[:size])

        if size < first:
            assert corrupt_at(outcome) == 0
        else:
            assert outcome == HISTORY.entries_in(size)
    record_property("damaged_journals", len(HISTORY.content))


@pytest.mark.requirement("acknowledged-place-is-checked")
def test_a_journal_cut_before_a_place_known_to_be_acknowledged_is_refused() -> None:
    last = len(HISTORY.entries)
    for size in range(len(HISTORY.lines[0]), len(HISTORY.content)):
        disk = disk_with(HISTORY.content[:size])
        with pytest.raises(JournalCorruptError, match=f"entry {last} was acknowledged") as caught:
            open_journal(RUN, disk=disk, at_least=last)

        assert caught.value.offset == HISTORY.line_at(size)
        assert disk.tree()[JOURNAL] == HISTORY.content[:size]
        assert disk.names(RUN) == ["journal.ndjson", "lock"]
    with open_journal(RUN, disk=disk_with(HISTORY.content), at_least=last) as journal:
        assert journal.synced_seq == last + 1


def test_no_journal_where_a_place_is_known_to_be_acknowledged_is_refused_and_none_is_made() -> None:
    disk = FaultyDisk()
    with pytest.raises(JournalCorruptError, match="entry 1 was acknowledged"):
        open_journal(RUN, disk=disk, at_least=1)

    assert disk.names(RUN) == ["lock"]


# Changed.

CHANGES: dict[str, Callable[[int], int]] = {
    "lowest bit": lambda byte: byte ^ 0x01,
    "letter case": lambda byte: byte ^ 0x20,
    "highest bit": lambda byte: byte ^ 0x80,
    "all bits": lambda byte: byte ^ 0xFF,
    "zero": lambda _: 0,
    "line break": lambda _: 0x0A,
    "digit": lambda byte: 0x30 + (byte + 1) % 10,
}


@pytest.mark.requirement("changed-byte-is-found")
@pytest.mark.parametrize("change", CHANGES)
def test_any_changed_byte_that_was_acknowledged_is_found_and_named(
    change: str, record_property: Record
) -> None:
    changed = 0
    for place, byte in enumerate(HISTORY.content):
        damaged = bytearray(HISTORY.content)
        damaged[place] = CHANGES[change](byte)
        if damaged == HISTORY.content:
            continue
        changed += 1
        outcome = open_damaged(bytes(damaged))

        if place >= HISTORY.last_commit:
            assert outcome == HISTORY.entries_in(place)
        elif not isinstance(outcome, JournalFormatError):
            assert corrupt_at(outcome) == HISTORY.line_at(place)
        else:
            assert place < len(HISTORY.lines[0])
    record_property("damaged_journals", changed)
    assert changed > len(HISTORY.content) * 0.9


@pytest.mark.parametrize("inserted", [b"", b"x", b"\n", b"\0" * 7, b'{"seq":9,"c":9,"at":1,"kind":"'])
@pytest.mark.requirement("changed-byte-is-found")
def test_any_byte_lost_or_put_in_between_is_found(inserted: bytes, record_property: Record) -> None:
    for place in range(len(HISTORY.content)):
        behind = place if inserted else place + 1
        damaged = HISTORY.content[:place] + inserted + HISTORY.content[behind:]
        outcome = open_damaged(damaged)

        first_wrong = place + 1 if inserted == HISTORY.content[place : behind + 1] else place
        if first_wrong < HISTORY.last_commit:
            assert isinstance(outcome, JournalError)
            assert place < len(HISTORY.lines[0]) or corrupt_at(outcome) == HISTORY.line_at(first_wrong)
        else:
            assert outcome == HISTORY.entries_in(first_wrong)
    record_property("damaged_journals", len(HISTORY.content))


def test_a_part_that_was_overwritten_is_found() -> None:
    for fill in (b"\0", b"\n", b" ", b"9"):
        for place in range(0, HISTORY.last_commit - 64, 16):
            outcome = open_damaged(HISTORY.content[:place] + fill * 64 + HISTORY.content[place + 64 :])

            assert isinstance(outcome, JournalError)


def test_damage_is_found_wherever_it_stands_in_a_long_journal(record_property: Record) -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        for number in range(40):
            journal.append("long", {"n": number}, b'"' + b"x" * 60_000 + b'"')
        journal.append("last")
    content = disk.tree()[JOURNAL]
    ends_of_chunks = (1 << 20, 2 << 20)
    heads_of_lines = (content.index(b'"n":%d}' % number) - 40 for number in (5, 30))
    places = [
        near for place in (*ends_of_chunks, *heads_of_lines) for near in range(place - 40, place + 40, 5)
    ]

    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises(JournalCorruptError) as caught:
            open_journal(RUN, disk=disk_with(bytes(damaged)))
        assert caught.value.offset == content.rfind(b"\n", 0, place) + 1
    record_property("damaged_journals", len(places))


def test_fetching_reads_only_the_parts_of_the_file_that_the_entries_are_in() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        for number in range(200):
            journal.append("long", {"n": number}, b'"' + b"x" * 10_000 + b'"')
    with open_journal(RUN, disk=disk) as journal:
        log = len(disk.log)
        fetched = list(journal.fetch([20, 21, 100, 180]))
        read = sum(operation.size for operation in disk.log[log:] if operation.name == "read")

        assert [entry.data["n"] for entry in fetched] == [18, 19, 98, 178]
        assert read < journal.size_bytes / 5


def test_an_owner_whose_file_was_cut_or_changed_under_it_is_told_when_it_reads() -> None:
    calls: list[Callable[[Journal], object]] = [
        lambda journal: list(journal.read()),
        lambda journal: list(journal.fetch([3, 5])),
    ]
    for call in calls:
        disk = disk_with(HISTORY.content)
        with open_journal(RUN, disk=disk) as journal:
            fd = disk.open(JOURNAL, write=True)
            disk.write(fd, b"X", len(HISTORY.lines[0]) + 30)
            with pytest.raises(JournalCorruptError) as changed:
                call(journal)
            disk.truncate(fd, len(HISTORY.lines[0]) + 30)
            with pytest.raises(JournalCorruptError, match="ends before") as cut:
                call(journal)

            assert changed.value.offset == cut.value.offset == len(HISTORY.lines[0])


# Shuffled.


def shuffled() -> Iterable[tuple[str, int, list[bytes]]]:
    """Ways to move whole lines: what was done, to which line, and the lines that result."""
    lines = HISTORY.lines
    for place, line in enumerate(lines):
        yield "missing", place, lines[:place] + lines[place + 1 :]
        yield "doubled", place, [*lines[: place + 1], line, *lines[place + 1 :]]
        yield "doubled at the end", place, [*lines, line]
        for other in range(place):
            swapped = list(lines)
            swapped[place], swapped[other] = lines[other], line
            yield "swapped", other, swapped


@pytest.mark.requirement("lines-cannot-move")
def test_a_line_that_is_missing_doubled_or_moved_is_never_part_of_the_history(
    record_property: Record,
) -> None:
    refused = total = 0
    for done, place, lines in shuffled():
        outcome = open_damaged(b"".join(lines))
        total += 1
        refused += isinstance(outcome, JournalError)

        if done == "doubled at the end":
            assert outcome == len(HISTORY.entries)
        elif place < len(HISTORY.lines) - 4:
            assert corrupt_at(outcome) == sum(map(len, HISTORY.lines[: place + (done == "doubled")]))
    assert total // 3 < refused < total
    record_property("damaged_journals", total)


@pytest.mark.requirement("lines-cannot-move")
def test_lines_of_another_journal_do_not_continue_this_one() -> None:
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        for _ in range(len(HISTORY.entries)):
            journal.append("foreign")
    foreign = disk.tree()[JOURNAL].splitlines(keepends=True)

    for count in range(1, len(HISTORY.lines)):
        outcome = open_damaged(b"".join(HISTORY.lines[:count] + foreign[count:]))
        assert corrupt_at(outcome) == sum(map(len, HISTORY.lines[:count]))


@pytest.mark.parametrize("place", [b'"seq":%d,"c":%d', b'"seq":%d,"c":1%d'])
def test_a_line_that_says_the_wrong_place_is_refused_even_with_a_right_checksum(place: bytes) -> None:
    last = len(HISTORY.entries)
    wrong = last + 3 if place.endswith(b":%d") else last + 1
    seed = int(HISTORY.lines[-1][-11:-3], 16)
    text = b'{%b,"at":1,"kind":"forged","data":{}' % (place % (wrong, wrong))
    line = b'%b,"crc":"%08x"}\n' % (text, crc32(text, seed))

    assert corrupt_at(open_damaged(HISTORY.content + line)) == len(HISTORY.content)


@pytest.mark.parametrize(
    "body",
    [
        b'"kind":"forged","data":{{',
        b'"kind":"forged\xff","data":{}',
        b'"kind":"forged","data":' + b"[" * 50_000 + b"]" * 50_000,
        b'"kind":"journal.opened","data":{}',
    ],
)
def test_a_line_that_is_no_entry_is_refused_even_with_a_right_checksum(body: bytes) -> None:
    seed = int(HISTORY.lines[-1][-11:-3], 16)
    text = b'{"seq":%d,"c":%d,"at":1,%b' % (len(HISTORY.entries) + 1, len(HISTORY.entries) + 1, body)
    disk = disk_with(HISTORY.content + b'%b,"crc":"%08x"}\n' % (text, crc32(text, seed)))

    with pytest.raises(JournalCorruptError, match="cannot be read") as caught:
        verify_journal(RUN, disk=disk)
    assert caught.value.offset == len(HISTORY.content)
    with pytest.raises(JournalCorruptError), open_journal(RUN, disk=disk) as journal:
        list(journal.read())


@pytest.mark.parametrize("changed", [b"\0", b",", b"x"])
def test_a_changed_newline_is_found_behind_an_entry_that_quotes_journals(changed: bytes) -> None:
    quoted = b"[" + HISTORY.content.strip().replace(b"\n", b",") + b"]"
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk) as journal:
        journal.append("quoting", {}, quoted)
        journal.append("last", {}, quoted)
    first, second, last = disk.tree()[JOURNAL].splitlines()
    damaged = disk_with(first + b"\n" + second + changed + last + b"\n")

    with pytest.raises(JournalCorruptError) as caught:
        open_journal(RUN, disk=damaged)
    assert caught.value.offset == len(first) + 1


@pytest.mark.parametrize("before", [b"", HISTORY.content])
def test_a_line_longer_than_any_is_judged_without_copying_it_again_and_again(before: bytes) -> None:
    disk = disk_with(before + bytes(40 << 20))

    if before:
        damage = verify_journal(RUN, disk=disk).damage
        assert damage is not None
        assert damage.torn
    else:
        with pytest.raises(JournalCorruptError, match="not a journal"):
            verify_journal(RUN, disk=disk)


@pytest.mark.requirement("blank-end-is-legal")
@pytest.mark.parametrize("blank", [b"\n", b"\n" * 5000])
def test_blank_lines_at_the_end_mean_nothing(blank: bytes) -> None:
    disk = disk_with(HISTORY.content + blank)

    with open_reader(RUN, disk=disk) as reader:
        assert list(reader.read()) == HISTORY.entries
    with open_journal(RUN, disk=disk) as journal:
        assert journal.recovery is None
        assert list(journal.read())[:-1] == HISTORY.entries


@pytest.mark.requirement("torn-line-is-kept-aside")
def test_whatever_else_stands_at_the_end_is_cut_and_kept() -> None:
    for tail in (
        b"\0" * 4096,
        b"x",
        b"{}\n",
        b"\n\nx",
        b"\xff" * 100 + b"\n",
        HISTORY.lines[-1][:-1],
        b" \n",
    ):
        assert open_damaged(HISTORY.content + tail) == len(HISTORY.entries)


def test_the_same_place_can_be_torn_again_and_again() -> None:
    disk = disk_with(HISTORY.content)
    kept: list[str] = []
    for tail in (b"first", b"second", b"third"):
        # As if each owner had died before its first commit, which would have moved the high-water mark.
        disk.put(JOURNAL, HISTORY.content + tail)
        disk.put(f"{RUN}/lock", b"")
        with open_journal(RUN, disk=disk) as journal:
            assert journal.recovery is not None
            kept.append(journal.recovery.kept_as)
            assert disk.tree()[kept[-1]] == tail

    assert len(set(kept)) == 3


# Never a journal.

FOREIGN = {
    "an empty file": b"",
    "a line break": b"\n",
    "zeros": bytes(4096),
    "text": b"Dear diary,\nnothing happened today.\n",
    "JSON": b'{"name":"bartack"}\n',
    "lines of JSON": b'{"seq":1}\n{"seq":2}\n',
    "a journal entry without a checksum": b'{"seq":1,"c":1,"at":1,"kind":"journal.opened","data":{}}\n',
    "a program": b"\x7fELF" + bytes(range(256)) * 8,
    "a database": b"SQLite format 3\0" + bytes(4000),
    "UTF-16": "a text\n".encode("utf-16"),
    "one endless line": b"x" * 3_000_000,
    "the second half of a journal": b"".join(HISTORY.lines[3:]),
    "deep nesting": b'{"seq":1,"c":1,"at":1,"kind":"journal.opened","data":' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_a_journal_is_refused_and_left_alone(name: str) -> None:
    outcome = open_damaged(FOREIGN[name])

    assert corrupt_at(outcome) == 0
    with pytest.raises(BartackError), open_reader(RUN, disk=disk_with(FOREIGN[name])) as reader:
        list(reader.read())


@pytest.mark.requirement("newer-format-is-refused")
def test_a_journal_of_a_newer_format_is_refused_and_left_alone() -> None:
    newer = HISTORY.content.replace(b'"format":1,', b'"format":2,', 1)
    renamed = (
        b'{"seq":1,"kind":"journal.opened","data":{"format":7,"fence":1,"pid":1,"by":"x"},"at":1,"c":1}\n'
    )

    for content, found in ((newer, 2), (renamed, 7)):
        outcome = open_damaged(content)
        assert isinstance(outcome, JournalFormatError)
        assert (outcome.found, outcome.known) == (found, 1)


# Readers.


def read_damaged(content: bytes) -> tuple[list[Entry], JournalError | None]:
    """What a reader shows, and the error it ends with, if any."""
    shown: list[Entry] = []
    try:
        with open_reader(RUN, disk=disk_with(content)) as reader:
            shown.extend(reader.read())
    except JournalError as error:
        return shown, error
    return shown, None


def test_a_reader_shows_what_stands_before_the_damage_and_nothing_behind_it(record_property: Record) -> None:
    for place in range(len(HISTORY.content)):
        damaged = bytearray(HISTORY.content)
        damaged[place] ^= 0x04
        shown, error = read_damaged(bytes(damaged))

        assert shown == HISTORY.entries[: HISTORY.entries_in(place)]
        assert (error is None) == (place >= HISTORY.last_commit)
        if isinstance(error, JournalCorruptError):
            assert error.offset == HISTORY.line_at(place)
    record_property("damaged_journals", len(HISTORY.content))
