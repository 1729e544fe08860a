"""Canonical JSON, compared with the reference package on every kind of value it takes or refuses."""

from __future__ import annotations

import enum
import json
import math
import os
import struct
from collections import OrderedDict, defaultdict
from typing import NamedTuple, Self, cast

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bartack.core.canonical_json import canonical
from bartack.errors import CanonicalJsonError

EXAMPLES = 300 if "SOAK" in os.environ else 100
"""As many are the same each time; ``make soak`` tries others, and more of them."""

INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text()
BMP_EDGE = st.text(
    st.sampled_from("a\u00e9\ud7ff\ue000\uffee\uffff\U00010000\U0001f600\U0010ffff"), max_size=4
)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS


def _nested(leaves: st.SearchStrategy[object], keys: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    def containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner)

    return st.recursive(leaves, containers, max_leaves=20)


def _reference(value: object) -> bytes | None:
    """What the reference package says; ``None`` if it refuses."""
    try:
        found: bytes = rfc8785.dumps(cast("None", value))
    except (ValueError, TypeError, RecursionError):
        return None
    return found


def _ours(value: object) -> bytes | None:
    try:
        return canonical(value)
    except CanonicalJsonError:
        return None


@given(_nested(SCALARS, TEXTS | BMP_EDGE))
@settings(max_examples=EXAMPLES, deadline=None)
def test_equals_the_reference_on_every_json_value(value: object) -> None:
    assert canonical(value) == _reference(value)


@given(
    _nested(
        SCALARS
        | st.integers()
        | st.floats()
        | st.text(st.characters(codec=None))
        | st.binary(max_size=3)
        | st.complex_numbers()
        | st.sets(st.integers(), max_size=2),
        st.text(st.characters(codec=None), max_size=3),
    )
)
@example(2**53)
@example(-(2**53))
@example({"a": "\ud800"})
@example({"\udfff": 1})
@example({"a": 1, 2: 3})
@example({None: 1})
@example({b"a": 1})
@example([float("nan")])
@example([-math.inf])
@settings(max_examples=EXAMPLES, deadline=None)
def test_refuses_exactly_what_the_reference_refuses(value: object) -> None:
    assert _ours(value) == _reference(value)


@given(st.integers(0, 2**64 - 1))
@example(0x8000000000000000)
@example(0x0000000000000001)
@example(0x7FEFFFFFFFFFFFFF)
@example(0x4340000000000000)
@example(0x444B1AE4D6E2EF50)
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_writes_every_finite_double_as_javascript_does(bits: int) -> None:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]

    assert _ours(value) == _reference(value)


@pytest.mark.parametrize("exponent", range(-8, 24))
def test_changes_the_form_of_numbers_where_javascript_does(exponent: int) -> None:
    for digits in ("1", "1.5", "9.999999999999999", "1.2345678901234567"):
        value = float(f"{digits}e{exponent}")

        assert canonical([value, -value]) == _reference([value, -value])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.0, b"0"),
        (1.0, b"1"),
        (1e21, b"1e+21"),
        (1e20, b"100000000000000000000"),
        (1e-6, b"0.000001"),
        (1e-7, b"1e-7"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (5e-324, b"5e-324"),
        ("\x00\x08\x1f\x7f\u2028\\\"/'<", b'"\\u0000\\b\\u001f\x7f\xe2\x80\xa8\\\\\\"/\'<"'),
        ({}, b"{}"),
        ([], b"[]"),
        ((), b"[]"),
    ],
)
def test_has_the_form_of_rfc_8785(value: object, text: bytes) -> None:
    assert canonical(value) == text


def test_sorts_keys_by_utf16_units() -> None:
    members = {"\uff5e": 1, "\U0001f600": 2, "z": 3, "\r": 4, "1": 5, "\u00f6": 6}

    found = canonical({"inside": [members]})

    assert found == '{"inside":[{"\\r":4,"1":5,"z":3,"\u00f6":6,"\U0001f600":2,"\uff5e":1}]}'.encode()


def test_takes_an_emoji_in_a_value_for_no_reason_to_sort_otherwise() -> None:
    value = {"\uff5e": "\U0001f600", "a": ["\U0001f600"]}

    assert canonical(value) == _reference(value)


class _Level(enum.IntEnum):
    LOW = 1


class _Colour(enum.StrEnum):
    RED = "red"


class _Coded(enum.StrEnum):
    """Has a value of its own beside the text that it is."""

    def __new__(cls, text: str, value: str) -> Self:
        made = str.__new__(cls, text)
        made._value_ = value
        return made

    FIRST = ("first", "1st")


class _Name(str):
    __slots__ = ()


class _Pair(NamedTuple):
    left: object
    right: object


class _Loud(float):
    def __repr__(self) -> str:
        return "LOUD"


class _Counted(int):
    def __int__(self) -> int:
        return 7


SUBCLASSES: list[object] = [
    _Level.LOW,
    {_Colour.RED: _Colour.RED},
    {_Coded.FIRST: _Coded.FIRST},
    {_Name("b"): 1, "a": _Name("c")},
    _Pair(1, [_Pair("a", None)]),
    OrderedDict(b=1, a=2),
    defaultdict(int, {"b": 1, "a": 2}),
    _Loud(1.5),
    _Counted(3),
    [True, 1, False, 0],
    {"": {"": ""}},
]


@pytest.mark.parametrize("value", SUBCLASSES)
def test_writes_subclasses_as_the_reference_does(value: object) -> None:
    assert canonical(value) == _reference(value)


@pytest.mark.parametrize("value", [object(), b"bytes", bytearray(), {1}, 1j, range(3), math.inf])
def test_refuses_what_is_not_a_json_value(value: object) -> None:
    with pytest.raises(CanonicalJsonError) as caught:
        canonical(value)

    assert caught.value.place == "$"
    assert caught.value.code == "BT103"


REFUSED: list[tuple[object, str, str]] = [
    ({"a": [1, 2, 3, 2**53]}, "$.a[3]", "beyond"),
    ({"a": [{"b": math.nan}]}, "$.a[0].b", "not finite"),
    ([0, {"a b": "\ud800"}], "$[1]['a b']", "surrogate"),
    ([[{"\ud800": 1}]], "$[0][0]", "surrogate"),
    ({"first": [], "second": {3: 4}}, "$.second", "3 is not a string"),
    ({"ok": [[], {}], "x": {"y": object()}}, "$.x.y", "object"),
]


@pytest.mark.parametrize(("value", "place", "problem"), REFUSED)
def test_names_the_place_and_the_problem(value: object, place: str, problem: str) -> None:
    with pytest.raises(CanonicalJsonError) as caught:
        canonical(value)

    assert caught.value.place == place
    assert problem in caught.value.problem


def _deep(levels: int, wrap: bool) -> object:
    value: object = 1e300
    for _ in range(levels):
        value = {"a": value} if wrap else [value]
    return value


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("levels", [50, 400, 1000])
def test_writes_deep_values(levels: int, wrap: bool) -> None:
    found = canonical(_deep(levels, wrap))

    assert found.count(b"{" if wrap else b"[") == levels
    assert b"1e+300" in found


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("levels", [1001, 100_000])
def test_refuses_values_that_are_too_deep_without_a_crash(levels: int, wrap: bool) -> None:
    value = _deep(levels, wrap)

    with pytest.raises(CanonicalJsonError, match="nested deeper than 1000"):
        canonical(value)

    while isinstance(value, dict | list):  # taken apart by hand: the interpreter would do it by recursion
        value = cast("object", value.pop("a") if isinstance(value, dict) else value.pop())


def test_refuses_a_value_that_contains_itself() -> None:
    value: list[object] = []
    value.append({"again": value})

    with pytest.raises(CanonicalJsonError, match="contains itself") as caught:
        canonical(value)

    assert caught.value.place.startswith("$[0].again[0]")
    assert len(caught.value.place) < 300


def test_leaves_the_value_as_it_was() -> None:
    value = {"whole": 2.0, "list": [3.0, {"x": 4.0}]}
    before = json.dumps(value)

    assert canonical(value) == b'{"list":[3,{"x":4}],"whole":2}'

    assert json.dumps(value) == before
