from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from bartack.cli.app._edge import Edge, guarded_streams, own
from bartack.cli.app._lossy import LossyStream
from bartack.cli.app._terminal import (
    Screen,
    cells,
    columns,
    graphemes,
    human_size,
    human_time,
    printable,
    shorten,
)
from bartack.journal.veil import Secrets, Veil
from bartack.runtime.hub.log import HubLog


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no descriptor")


@pytest.fixture
def plain_env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_colour_is_for_terminals_only(plain_env: pytest.MonkeyPatch) -> None:
    assert painted(Terminal()) == "\x1b[31mx\x1b[0m\n"
    assert painted(io.StringIO()) == "x\n"
    plain_env.setenv("TERM", "dumb")
    assert painted(Terminal()) == "x\n"


def painted(stream: io.StringIO) -> str:
    screen = Screen(stream)
    screen.line(screen.paint("x", "red"))
    return stream.getvalue()


def test_who_wants_no_colour_gets_none(plain_env: pytest.MonkeyPatch) -> None:
    plain_env.setenv("NO_COLOR", "1")
    assert not Screen(Terminal()).colour
    plain_env.setenv("NO_COLOR", "")
    assert Screen(Terminal()).colour


def test_the_width_is_asked_for_then_assumed(plain_env: pytest.MonkeyPatch) -> None:
    assert Screen(Terminal()).width == 80
    plain_env.setenv("COLUMNS", "33")
    assert Screen(Terminal()).width == 33
    plain_env.setenv("COLUMNS", "nonsense")
    assert Screen(Terminal()).width == 80
    assert Screen(io.StringIO()).width is None


def test_text_is_cut_for_terminals_only(plain_env: pytest.MonkeyPatch) -> None:
    plain_env.setenv("COLUMNS", "20")

    assert Screen(Terminal()).fit("x" * 50, 5) == "x" * 12 + "..."
    assert Screen(io.StringIO()).fit("x" * 50, 5) == "x" * 50


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abc", 3, "abc"),
        ("abcdefghij", 9, "abcdef..."),
        ("漢字漢字漢字", 12, "漢字漢字漢字"),
        ("漢字漢字漢字", 10, "漢字漢..."),
        ("漢字漢字漢字", 11, "漢字漢字..."),
    ],
)
def test_text_is_shortened_to_columns_not_characters(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short
    assert cells(short) <= width


def test_styles_and_combining_marks_take_no_column() -> None:
    red, plain = own("\x1b[31m"), own("\x1b[0m")
    assert cells(f"{red}ab{plain}c") == 3
    assert cells("e\u0301") == 1
    assert cells("\u1112\u1161\u11ab") == 2


@pytest.mark.parametrize(
    ("character", "width"),
    [
        ("e\u0301", 1),
        ("漢", 2),
        ("\u2708\ufe0f", 2),
        ("\U0001f1e9\U0001f1ea", 4),
        ("\U0001f44d\U0001f3fd", 4),
        ("\U0001f469\u200d\U0001f4bb", 4),
    ],
)
def test_a_character_of_several_parts_is_kept_whole_or_left_out(character: str, width: int) -> None:
    """Where terminals differ, the larger number of columns counts."""
    assert list(graphemes(f"a{character}b")) == [("a", 1), (character, width), ("b", 1)]
    for room in range(1, 12):
        short = shorten(character * 20, room, "")
        assert short == character * (room // width)


def test_a_table_is_aligned_whatever_is_painted() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.colour = True

    screen.table([(screen.paint("a", "red"), "漢", "x"), ("bbb", "c", "yy")])

    assert stream.getvalue() == "  \x1b[31ma\x1b[0m    漢  x\n  bbb  c   yy\n"


def test_paragraphs_are_wrapped_and_kept_apart() -> None:
    stream = io.StringIO()

    Screen(stream).paragraph("one\n  two\n\nthree " + "word " * 30)

    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["  one two", ""]
    assert lines[2].startswith("  three word")
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("\n\t\u202e", "\\n\\t\\u202e"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (70_002, "70.0 kB"),
        (5 * 10**9, "5.0 GB"),
        (10**13, "10.0 TB"),
    ],
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert human_size(count) == shown


def test_on_a_real_terminal_lines_fit_and_are_coloured(journal_dir: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "72", "TERM": "xterm", "NO_COLOR": ""}
    with subprocess.Popen(
        [sys.executable, "-m", "bartack", "journal", "show", str(journal_dir)], stdout=theirs, env=env
    ) as process:
        os.close(theirs)
        shown = read_all(ours)

    lines = shown.decode().replace("\r\n", "\n").splitlines()
    assert process.returncode == 0
    assert len(lines) == 5
    assert max(cells(re.sub(r"\x1b\[[0-9]+m", "", line)) for line in lines) == 72
    assert "\x1b[36m" in lines[0]
    assert "..." in lines[0]


def read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:  # a terminal whose other side is closed has no end of file
        pass
    finally:
        os.close(fd)
    return b"".join(parts)


STREAMS: dict[str, Callable[[TextIO], io.TextIOBase]] = {
    "edge": Edge,
    "lossy": LossyStream,
    "log": lambda stream: HubLog(stream, Veil(Secrets({}, ()))),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_around_one_that_was_closed_ends_without_a_word(kind: str) -> None:
    inner = io.StringIO()
    outer = STREAMS[kind](inner)
    inner.close()

    outer.close()

    assert outer.closed


def test_what_is_opened_in_place_of_a_missing_stream_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    with guarded_streams():
        edge = sys.stdout
        assert isinstance(edge, Edge)
        was_closed = edge.inner.closed

    assert (was_closed, edge.inner.closed) == (False, True)
    assert sys.stdout is None


@pytest.fixture
def narrow(plain_env: pytest.MonkeyPatch) -> Terminal:
    plain_env.setenv("COLUMNS", "20")
    plain_env.setenv("NO_COLOR", "1")
    return Terminal()


def test_the_last_column_of_a_listing_is_shortened_to_what_is_left(narrow: Terminal) -> None:
    Screen(narrow).listing([("a", "long enough"), ("bcd", "so long that it cannot fit")])

    assert narrow.getvalue() == "  a    long enough\n  bcd  so long th...\n"


def test_a_listing_of_nothing_is_nothing(narrow: Terminal) -> None:
    Screen(narrow).listing([])

    assert narrow.getvalue() == ""


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
