"""Offsets, lines and columns, and what is not text at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.language.sketch import codes

from bartack.language import Place, Source, Span, parse


def test_columns_count_code_points() -> None:
    source = Source('x = "é🙂" + y', "t.pw")

    assert source.place(source.text.index("y")) == Place(offset=11, line=1, column=12)


def test_a_line_ends_at_lf_or_crlf_and_not_at_a_lone_cr() -> None:
    source = Source("a\rb\r\nc\nd", "t.pw")

    assert [source.line_text(number) for number in (1, 2, 3)] == ["a\rb", "c", "d"]
    assert [source.line_of(offset) for offset in (0, 2, 4, 5, 7)] == [1, 1, 1, 2, 3]


def test_the_end_of_the_text_is_a_place() -> None:
    assert Source("a\n", "t.pw").place(2) == Place(2, 2, 1)
    assert Source("", "t.pw").place(0) == Place(0, 1, 1)
    assert Source("ab", "t.pw").place(99) == Place(2, 1, 3)


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    parsed = parse("\ufeff?", "t.pw")

    assert parsed.diagnostics[0].span == Span(0, 1)
    assert codes(b"\xef\xbb\xbfprint(1)") == []


@given(st.text(alphabet="aé🙂\r\n\t", max_size=60))
def test_every_offset_is_in_the_line_that_its_place_names(text: str) -> None:
    source = Source(text, "t.pw")

    for offset in range(len(text) + 1):
        place = source.place(offset)
        assert source.line_starts[place.line - 1] + place.column - 1 == offset
        assert "\n" not in text[source.line_starts[place.line - 1] : offset]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"print(1)\n\xff", "this file is not UTF-8 (byte 9)"),
        ("é = \x00".encode(), "this file contains a NUL byte (byte 5)"),
        (b"\xed\xa0\x80", "this file is not UTF-8 (byte 0)"),
    ],
)
def test_bytes_that_are_not_text_are_one_error_and_nothing_else(data: bytes, message: str) -> None:
    parsed = parse(data, "t.pw")

    assert [(found.code, found.message) for found in parsed.diagnostics] == [("PW100", message)]
    assert parsed.tree.units == ()


def test_a_text_with_a_nul_or_half_a_character_is_refused_like_its_bytes() -> None:
    assert parse("a\0", "t.pw").diagnostics[0].message == "this file contains a NUL byte (byte 1)"
    assert parse("é\ud800", "t.pw").diagnostics[0].message == "this file is not UTF-8 (byte 2)"


def test_a_file_over_four_mebibytes_is_refused() -> None:
    line = "#" + "é" * 511 + "\n"

    assert codes(line * 4096) == []
    assert codes(line * 4096 + "a") == ["PW110"]
    assert codes((line * 4096 + "a").encode()) == ["PW110"]
