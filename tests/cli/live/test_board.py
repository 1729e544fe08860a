"""The live view on a terminal: exactly one view is on the screen, whatever happens between two frames."""

from __future__ import annotations

import random
import re
from itertools import permutations

import pytest
from tests.cli.live.screens import ScreenStream

from bartack.cli.live._board import Board, as_output
from bartack.cli.live._draw import Line, Picture, Piece, Row, draw


def lines(*texts: str) -> list[Line]:
    return [(Piece(text),) for text in texts]


def view(board: Board, number: int = 0, *, above: str = "", prompt: str = "", rows: int = 3) -> None:
    """Draw a view of some workers for the size of now."""
    size = board.size
    picture = Picture(
        title="team.py",
        run="run-1",
        status="running",
        steps=number,
        rows=[Row(name=f"worker {i}", verb="shell", text="x" * 60, since_s=number) for i in range(rows)],
        names=12,
    )
    board.frame(draw(picture, size.columns, size.rows), size, above=above, prompt=prompt)


def heads(stream: ScreenStream) -> int:
    """How many views are on the screen."""
    return sum("running 0:00" in line for line in stream.screen.texts())


def test_what_is_drawn_takes_the_place_of_what_was_drawn_before(stream: ScreenStream) -> None:
    board = Board(stream)

    board.frame(lines("one", "two"), board.size)
    board.frame(lines("three", "two"), board.size)
    assert stream.screen.texts() == ["three", "two"]
    board.frame(lines("four"), board.size)
    assert stream.screen.texts() == ["four"]
    board.frame(lines("five", "six", "seven"), board.size)
    assert stream.screen.texts() == ["five", "six", "seven"]
    board.erase("the end\n")

    assert stream.screen.texts() == ["the end"]
    assert (stream.screen.cursor.x, stream.screen.cursor.y) == (0, 1)


@pytest.mark.requirement("live-view-is-drawn-once")
def test_a_frame_is_one_synchronised_write_of_what_has_changed(stream: ScreenStream) -> None:
    board = Board(stream)
    board.frame(lines("one", "two", "three"), board.size)
    del stream.frames[:]

    board.frame(lines("one", "two", "three"), board.size)
    assert stream.frames == []
    board.frame(lines("one", "2", "three"), board.size)

    (frame,) = stream.frames
    assert frame.startswith("\x1b[?2026h")
    assert frame.endswith("\x1b[?2026l")
    assert ("2" in frame, "one" in frame, "three" in frame) == (True, False, False)


@pytest.mark.requirement("live-view-is-drawn-once")
def test_no_mode_of_the_terminal_is_changed(stream: ScreenStream) -> None:
    board = Board(stream)
    view(board)
    view(board, 1, above="out\n")
    view(board, 1, prompt="> ")
    view(board, 2, above="more\n", prompt="> ")
    board.erase()

    modes = set(re.findall(r"\x1b\[\?(\d+)[hl]", "".join(stream.frames)))
    assert modes == {"2026"}
    assert "\x1b[r" not in "".join(stream.frames)


def test_output_scrolls_above_the_view(stream: ScreenStream) -> None:
    board = Board(stream)
    view(board)
    for number in range(30):
        view(board, number, above=f"line {number}\n")
    board.erase()

    assert [line for line in stream.screen.all_texts() if line] == [f"line {number}" for number in range(30)]


@pytest.mark.requirement("live-view-is-drawn-once")
def test_an_answer_that_is_being_typed_stays_where_it_is(stream: ScreenStream) -> None:
    board = Board(stream)
    for number in range(12):  # so that the prompt comes to the last row of the screen
        view(board, number, above=f"before {number}\nand\n", prompt=" > ", rows=2 + number % 2)
        if not number:
            stream.type("half an ")
    stream.type("answer")

    texts = stream.screen.texts()
    assert texts[-1] == " > half an answer"
    assert heads(stream) == 1
    assert [line for line in stream.screen.all_texts() if line.startswith("before")] == [
        f"before {number}" for number in range(12)
    ]

    stream.type("\n")
    board.typed("half an answer")
    view(board, 99)
    assert heads(stream) == 1
    assert "half an" not in "\n".join(stream.screen.texts())


def test_lines_that_were_typed_without_a_question_leave_no_second_view(stream: ScreenStream) -> None:
    board = Board(stream)
    view(board)
    stream.type("hello\n")
    board.typed("hello")
    view(board, 1)

    assert heads(stream) == 1


def test_a_text_that_the_terminal_breaks_is_counted_in_rows(stream: ScreenStream) -> None:
    board = Board(stream)
    view(board, prompt="> ")
    view(board, 1, above=as_output("x" * 200) + as_output("\x1b[31m漢字\x1b[0m" * 30), prompt="> ")

    texts = stream.screen.texts()
    assert (texts[0], texts[2], texts[4].count("漢")) == ("x" * 80, "x" * 40, 10)
    assert heads(stream) == 1
    assert texts[5].startswith("team.py")


SIZES = [(80, 24), (40, 10), (160, 30), (20, 6), (79, 23), (16, 3)]


@pytest.mark.requirement("live-view-survives-resizing")
@pytest.mark.parametrize("prompt", ["", " > "])
def test_a_resize_between_two_frames_leaves_exactly_one_view(stream: ScreenStream, prompt: str) -> None:
    for before, after in permutations(SIZES, 2):
        board = Board(stream)
        stream.screen.reset()
        stream.screen.set_size(*before)
        view(board, prompt=prompt)
        view(board, 1, above="output\n", prompt=prompt)

        stream.screen.set_size(*after)
        view(board, 2, prompt=prompt)

        assert heads(stream) == 1, (before, after)
        board.erase()
        assert not any("running" in line for line in stream.screen.texts())


@pytest.mark.requirement("live-view-survives-resizing")
def test_any_sequence_of_frames_output_and_sizes_leaves_exactly_one_view(stream: ScreenStream) -> None:
    chance = random.Random(7)
    board = Board(stream)
    for number in range(300):
        if chance.random() < 0.3:
            stream.screen.set_size(chance.randint(30, 200), chance.randint(5, 40))
        above = "".join(as_output("out " * chance.randint(1, 60)) for _ in range(chance.randint(0, 3)))
        prompt = " > " if chance.random() < 0.5 else ""
        view(board, number, above=above, prompt=prompt, rows=chance.randint(0, 20))

        assert heads(stream) == 1, number
