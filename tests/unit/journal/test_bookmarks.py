"""Bookmarks and the last entries of journal files: what is read from them is part of the history, or it is not returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.errors import JournalClosedError, JournalCorruptError, JournalOwnershipLostError
from bartack.journal import Draft, Entry, open_journal, open_reader


def write(place: Path, count: int, *, size: int = 10) -> list[Entry]:
    """A journal with this many entries, three in a line, and blank lines after them."""
    journal = open_journal(place)
    with journal:
        for number in range(count // 3):
            journal.stage(*(Draft("entry", {"n": number, "pad": "x" * size}) for _ in range(3)))
            journal.commit()
        return list(journal.read())


def test_a_bookmark_before_entries_that_were_taken_back_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 30)
    file = tmp_path / "journal.ndjson"
    with open_reader(tmp_path) as reader:
        list(reader.read_on())
        mark = reader.bookmark()
        content = file.read_bytes()
        lines = content.splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:5]))

        with pytest.raises(JournalOwnershipLostError, match="taken back"):
            reader.read_from(mark)
        with pytest.raises(JournalOwnershipLostError, match="taken back"):
            reader.check_read()
        file.write_bytes(content)
        reader.check_read()
        assert list(reader.read_from(mark)) == []


def test_damage_after_a_bookmark_is_noticed_and_damage_before_it_is_not_read(tmp_path: Path) -> None:
    entries = write(tmp_path, 3000, size=200)
    file = tmp_path / "journal.ndjson"
    with open_reader(tmp_path) as reader:
        marks = [reader.bookmark() for _ in reader.read_on()]
        mark = next(mark for mark in marks if mark.seq > 1000)
        content = bytearray(file.read_bytes())
        content[mark.offset // 2] ^= 1
        file.write_bytes(content)
        assert list(reader.read_from(mark)) == entries[mark.seq - 1 :]

        content[mark.offset + 30] ^= 1
        file.write_bytes(content)
        with pytest.raises(JournalCorruptError):
            list(reader.read_from(mark))


def test_a_bookmark_is_known_while_entries_are_still_being_returned(tmp_path: Path) -> None:
    entries = write(tmp_path, 3000, size=200)
    with open_reader(tmp_path) as reader:
        marks = {reader.bookmark() for _ in reader.read_on()}

        assert len(marks) > 5
        for mark in marks:
            assert next(reader.read_from(mark), None) == (
                entries[mark.seq - 1] if mark.seq <= len(entries) else None
            )


@pytest.mark.parametrize("size", [5, 3000])
def test_the_last_entries_are_those_that_reading_everything_ends_with(tmp_path: Path, size: int) -> None:
    entries = write(tmp_path, 300, size=size)
    with open_reader(tmp_path) as reader:
        for most in (1, 2, 3, 7, 100, len(entries), 10_000):
            assert reader.read_last(most) == entries[-most:]


def test_the_last_entries_are_read_without_those_before(tmp_path: Path) -> None:
    entries = write(tmp_path, 300, size=3000)
    file = tmp_path / "journal.ndjson"
    with open_reader(tmp_path) as reader:
        content = bytearray(file.read_bytes())
        content[40] ^= 1
        file.write_bytes(content)
        assert reader.read_last(4) == entries[-4:]


def test_the_last_entries_end_before_a_line_that_is_not_complete(tmp_path: Path) -> None:
    entries = write(tmp_path, 300)
    file = tmp_path / "journal.ndjson"
    text = file.read_bytes().rstrip(b"\n")
    file.write_bytes(text + b'\n{"seq":302,"c":302,"at":1,"ki' + b"\n" * 100)
    with open_reader(tmp_path) as reader:
        assert reader.read_last(4) == entries[-4:]


def test_a_closed_reader_has_no_bookmark_to_read_from(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with open_reader(tmp_path) as reader:
        list(reader.read_on())
        mark = reader.bookmark()

    for ask in (lambda: reader.read_from(mark), reader.check_read, lambda: reader.read_last(1)):
        with pytest.raises(JournalClosedError):
            ask()
