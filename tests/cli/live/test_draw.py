"""The lines of the live view."""

from __future__ import annotations

import msgspec
import pytest
from tests.cli.live.pictures import FRAMES, PICTURES, PIPELINE, QUESTION, WIDTHS, crowd, frame

from bartack.cli.app._terminal import cells
from bartack.cli.live._draw import HIGHEST, Picture, Row, clock, count, draw, plain, wrap


@pytest.mark.requirement("live-view-fits")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PICTURES)
def test_a_frame_is_as_it_was(name: str, width: int) -> None:
    kept = (FRAMES / f"{name}-{width}.txt").read_text(encoding="utf-8")

    assert frame(PICTURES[name], width) == kept, "write them anew: python -m tests.cli.live.pictures"


@pytest.mark.requirement("live-view-fits")
@pytest.mark.parametrize("name", PICTURES)
def test_no_line_is_as_wide_as_the_terminal_and_no_view_as_high(name: str) -> None:
    for width in (*range(1, 60), 80, 120, 200):
        for height in (3, 5, 10, 24, 100):
            drawn = draw(PICTURES[name], width, height)
            prompt = 1 if PICTURES[name].asked is not None else 0
            assert max(cells(plain(line)) for line in drawn) <= max(width - 1, 1)
            # A question has at least one line beside the head, on the smallest terminal, too.
            assert len(drawn) + prompt <= max(min(height - 2, HIGHEST), 1 + 2 * prompt)


@pytest.mark.requirement("live-view-fits")
def test_what_matters_most_is_shown_first() -> None:
    shown = [plain(line) for line in draw(crowd(), 120, 10)]

    assert "failing" in shown[0]
    assert [line.split()[2] for line in shown[1:3]] == ["b20", "b40"]
    assert all("think ann" in line for line in shown[3:5])
    assert shown[5].startswith(" 1,261 more: 47 receive findings, 10 shell, 3 think, ")
    assert shown[5].endswith("1,200 done")


def test_the_longest_waiting_come_before_others() -> None:
    rows = [Row(name=f"w{place}", doing="waits", kind="receive x", since_s=place) for place in range(30)]
    picture = Picture(title="t", run="run-1", status="running", rows=rows, names=4)

    shown = [plain(line).split() for line in draw(picture, 80, 8)]

    assert [words[1] for words in shown[1:-1]] == ["w26", "w27", "w28", "w29"]
    assert shown[-1] == ["26", "more:", "26", "receive", "x"]


def test_columns_keep_their_width_whatever_the_rows_say() -> None:
    few = msgspec.structs.replace(PIPELINE, rows=PIPELINE.rows[:1], asked=None)

    first, second = (plain(draw(picture, 120, 24)[1]) for picture in (PIPELINE, few))

    assert first == second


def test_money_that_was_computed_from_prices_is_marked() -> None:
    picture = msgspec.structs.replace(PIPELINE, estimated=True)

    assert "0.63 of 10.00 USD (estimated)" in plain(draw(picture, 120, 24)[0])
    assert "estimated" not in plain(draw(PIPELINE, 120, 24)[0])


def test_a_question_is_below_the_view_and_does_not_hide_it() -> None:
    asked = msgspec.structs.replace(PIPELINE, asked=QUESTION, hint="")

    with_it = [plain(line) for line in draw(asked, 80, 24)]
    without = [plain(line) for line in draw(msgspec.structs.replace(asked, asked=None), 80, 24)]

    assert with_it[: len(without)] == without
    assert with_it[len(without) :] == [" ? q1 weeks: Publish version 1.4?  yes or no  (1 of 3)"]


def test_a_long_question_keeps_its_beginning_and_its_options() -> None:
    long = msgspec.structs.replace(
        QUESTION, lines=[f"line {place}" for place in range(50)], options=["a", "b"]
    )

    shown = [plain(line) for line in draw(msgspec.structs.replace(PIPELINE, asked=long), 80, 24)]

    assert "line 0" in shown[1]
    assert shown[-1] == "   1 a   2 b"
    assert any("more lines: bartack answer run-" in line for line in shown)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0:00"), (9.9, "0:09"), (161, "2:41"), (3600, "1:00:00"), (86_400 * 5, "5 days")],
)
def test_durations_are_shown_as_on_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(999, "999"), (1000, "1.0k"), (41_200, "41k"), (1_234_567, "1.2M"), (98_700_000, "99M")],
)
def test_large_numbers_are_shown_in_short(number: int, shown: str) -> None:
    assert count(number) == shown


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("abcdefghijk", ["abcdefgh", "ijk"]),
        ("漢字漢字漢字", ["漢字漢字", "漢字"]),
        ("", [""]),
    ],
)
def test_texts_are_broken_between_words_and_never_inside_a_character(text: str, lines: list[str]) -> None:
    assert wrap(text, 8) == lines
    assert wrap(f"a {text}".strip(), 8, 8)[0] == ""
