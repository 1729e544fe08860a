from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from bartack.cli.app._paint import Board
from bartack.cli.app._terminal import Screen, columns, human_time


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    return FakeTerminal()


def lines(*texts: str) -> Callable[[Screen], None]:
    def write(screen: Screen) -> None:
        for text in texts:
            screen.line(text)

    return write


def test_what_is_drawn_takes_the_place_of_what_was_drawn_before(terminal: FakeTerminal) -> None:
    board = Board(terminal)

    board.draw(lines("one", "two"))
    board.draw(lines("three"))
    board.erase()

    assert terminal.getvalue() == "one\ntwo\n\x1b[2A\r\x1b[Jthree\n\x1b[1A\r\x1b[J"


def test_the_same_is_not_drawn_again(terminal: FakeTerminal) -> None:
    board = Board(terminal)
    board.draw(lines("one"))
    drawn = terminal.getvalue()

    board.draw(lines("one"))

    assert terminal.getvalue() == drawn


def test_a_line_that_the_terminal_breaks_is_erased_whole(terminal: FakeTerminal) -> None:
    board = Board(terminal)

    board.draw(lines("x" * 41, "y" * 20))
    board.erase()

    assert terminal.getvalue().endswith("\x1b[4A\r\x1b[J")


def test_more_than_the_terminal_has_room_for_is_not_drawn(terminal: FakeTerminal) -> None:
    Board(terminal).draw(lines(*map(str, range(100))))

    assert terminal.getvalue().splitlines() == [str(number) for number in range(23)]


def test_where_there_is_no_terminal_nothing_is_erased() -> None:
    stream = io.StringIO()
    board = Board(stream)

    board.draw(lines("one"))
    board.draw(lines("two"))
    board.erase()

    assert stream.getvalue() == "one\ntwo\n"


def test_the_last_column_of_a_listing_is_shortened_to_what_is_left(terminal: FakeTerminal) -> None:
    Screen(terminal).listing([("a", "long enough"), ("bcd", "so long that it cannot fit")])

    assert terminal.getvalue() == "  a    long enough\n  bcd  so long th...\n"


def test_a_listing_of_nothing_is_nothing(terminal: FakeTerminal) -> None:
    Screen(terminal).listing([])

    assert terminal.getvalue() == ""


def test_columns_are_aligned_and_end_where_their_text_ends() -> None:
    assert columns([("a", "b", ""), ("long", "c", "d")]) == ["a     b", "long  c  d"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1.0, "0.0 ms"),
        (0.0004, "0.4 ms"),
        (0.0994, "99.4 ms"),
        (0.1, "0.1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (49 * 3600, "2 days"),
    ],
)
def test_durations_are_for_people(seconds: float, shown: str) -> None:
    assert human_time(seconds) == shown
