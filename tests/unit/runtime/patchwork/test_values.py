"""Values of Patchwork: their one form for numbers, their text, their truth, and how they become JSON."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.errors import LimitExceededError, NumberError, TypeMismatchError
from bartack.runtime import ShellResult
from bartack.runtime.patchwork import _operators as op
from bartack.runtime.patchwork._library import parse_json
from bartack.runtime.patchwork._values import (
    MailboxesValue,
    SessionValue,
    compact,
    equal,
    number,
    plain,
    text,
    truth,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.floats(allow_nan=False, allow_infinity=False).map(number),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_the_compact_form_of_a_value_reads_back_as_an_equal_value(value: object) -> None:
    assert equal(parse_json(compact(value)), value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_number_reads_back_as_the_same_number(value: float) -> None:
    assert float(text(number(value))) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_integral_numbers_have_no_point_and_no_sign_of_zero(value: float) -> None:
    found = number(value)

    assert type(found) is int or found != math.floor(found) or abs(found) > 2**53
    assert text(number(-0.0)) == "0"


@given(st.integers(-50, 50), st.integers(-50, 50).filter(bool))
def test_the_remainder_has_the_sign_of_the_divisor(left: int, right: int) -> None:
    found = op.remainder(left, right)

    assert isinstance(found, int)
    assert found == 0 or (found > 0) == (right > 0)


@pytest.mark.parametrize("value", [None, False, 0, "", [], ShellResult([], 1)])
def test_what_is_false(value: object) -> None:
    assert not truth(value)


@pytest.mark.parametrize("value", [True, 1, -0.5, " ", [0], {}, ShellResult([], 0)])
def test_what_is_true(value: object) -> None:
    assert truth(value)


def test_numbers_that_are_none_are_refused() -> None:
    for value in (math.inf, -math.inf, math.nan, 10**400):
        with pytest.raises(NumberError):
            number(value)


def test_opaque_values_become_objects_where_json_is_needed() -> None:
    session = SessionValue("run-1", "2026-01-01T00:00:00.000Z", "/d", MailboxesValue(lambda _: None))

    assert plain([ShellResult(["x"], 2, "o", "e"), session]) == [
        {"status": 2, "stdout": "o", "stderr": "e"},
        {"id": "run-1", "timestamp": "2026-01-01T00:00:00.000Z", "dir": "/d"},
    ]


def test_what_has_no_json_form_is_refused_with_its_place() -> None:
    with pytest.raises(TypeMismatchError, match=r"\$\.a\[1\]: expected a JSON value, found mailbox"):
        plain({"a": [1, MailboxesValue(lambda _: None)]})


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(LimitExceededError):
        plain(loop)


def test_copies_share_nothing() -> None:
    value: dict[str, object] = {"a": [1]}
    copied = plain(value)

    assert copied == value
    assert isinstance(copied, dict)
    assert copied["a"] is not value["a"]
