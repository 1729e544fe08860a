"""Values there and back: what travels, as what, and what is refused where."""

from __future__ import annotations

import datetime
import enum
import json
import math
import resource
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.errors import MessageTooLargeError, MessageValueError, TypeMismatchError
from bartack.runtime.protocol.values import (
    MAX_VALUE,
    Codec,
    UnsupportedTypeError,
    check_annotation,
    codec,
    encode,
    encode_atoms,
    plain_or_repr,
    schema_of,
)


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int
    tags: list[str] = field(default_factory=list[str])


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list["Tree"])


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Loose(msgspec.Struct):
    n: int


class Options(TypedDict, total=False):
    depth: int


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Odd(enum.Enum):
    PAIR = (1, 2)


class Text(str):
    __slots__ = ()


UserId = NewType("UserId", int)

NOW = datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.UTC)

TRAVELLERS: list[tuple[object, object, object]] = [
    (None, None, None),
    (bool, True, True),
    (int, -(2**63), -(2**63)),
    (int, 2**64 - 1, 2**64 - 1),
    (float, 0.1, 0.1),
    (str, "naïve ☃", "naïve ☃"),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[int, ...], (1, 2, 3), [1, 2, 3]),
    (dict[str, int], {"b": 1, "a": 2}, {"b": 1, "a": 2}),
    (Literal["a", "b"], "b", "b"),
    (int | None, None, None),
    (int | str, "a", "a"),
    (Any, {"a": [1, None, True]}, {"a": [1, None, True]}),
    (object, {"a": [1]}, {"a": [1]}),
    (list[object], [1, "a"], [1, "a"]),
    (dict, {"a": 1}, {"a": 1}),
    (Finding, Finding("a.py", 3, ["x"]), {"file": "a.py", "risk": 3, "tags": ["x"]}),
    (Tree, Tree("a", [Tree("b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
    (Strict, Strict(1), {"n": 1}),
    (Options, {"depth": 2}, {"depth": 2}),
    (Point, Point(1, 2), [1, 2]),
    (Colour, Colour.RED, "red"),
    (Level, Level.HIGH, 3),
    (datetime.datetime, NOW, "2026-03-01T09:30:00Z"),
    (datetime.date, datetime.date(2026, 3, 1), "2026-03-01"),
    (datetime.timedelta, datetime.timedelta(days=1, seconds=3), "P1DT3S"),
    (uuid.UUID, uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal, Decimal("1.50"), "1.50"),
    (bytes, b"\x00\xff", "AP8="),
    (Path, Path("a/b"), "a/b"),
    (PurePosixPath, PurePosixPath("a"), "a"),
    (list[Finding], [Finding("a", 1)], [{"file": "a", "risk": 1, "tags": []}]),
    (dict[str, Path], {"p": Path("x")}, {"p": "x"}),
    (Annotated[int, "documented"], 5, 5),
    (UserId, 7, 7),
]


@pytest.mark.parametrize(("annotation", "value", "wire"), TRAVELLERS, ids=str)
def test_a_value_travels_and_comes_back_as_what_it_was(
    annotation: object, value: object, wire: object
) -> None:
    kind = codec(annotation)

    data = kind.encode(value)
    back = kind.decode(data)

    assert json.loads(data) == wire
    assert back == value
    assert type(back) is type(value)


def test_the_order_of_keys_is_kept() -> None:
    assert encode({"b": 1, "a": 2}) == b'{"b":1,"a":2}'


REFUSED: list[tuple[object, str, str]] = [
    ({"items": [0, 1, 2, {"when": NOW.replace(tzinfo=None)}]}, "$.items[3].when", "naive datetime"),
    ([1.0, float("nan")], "$[1]", "nan is not a JSON number"),
    (float("inf"), "$", "inf is not a JSON number"),
    ({1, 2}, "$", "set"),
    ([frozenset[int]()], "$[0]", "frozenset"),
    (2**64, "$", "an integer beyond 64 bits"),
    (-(2**63) - 1, "$", "an integer beyond 64 bits"),
    ({1: 2}, "$[1]", "a key that is not a string but int"),
    ({"a b": {None: 1}}, "$['a b'][None]", "a key that is not a string but NoneType"),
    (["\ud800"], "$[0]", "a lone surrogate"),
    ({"\ud800": 1}, "$['\\ud800']", "a lone surrogate"),
    (Finding("a", 1, ["\udfff"]), "$.tags[0]", "a lone surrogate"),
    (Point(1, 2**70), "$.y", "an integer beyond 64 bits"),
    (Strict(2**70), "$.n", "an integer beyond 64 bits"),
    (Odd.PAIR, "$", "an Enum whose value is tuple"),
    (print, "$", "builtin_function_or_method"),
    (Text("a"), "$", "Text"),
    (1j, "$", "complex"),
    (bytearray(b"a"), "$", "bytearray"),
    ([datetime.time(1, 2)], "$[0]", "time"),
    (Path("\udc80"), "$", "a lone surrogate"),
]


@pytest.mark.parametrize(("value", "place", "problem"), REFUSED, ids=repr)
def test_what_cannot_travel_is_refused_with_its_place(value: object, place: str, problem: str) -> None:
    with pytest.raises(MessageValueError) as refused:
        encode(value)

    assert (refused.value.place, refused.value.problem) == (place, problem)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(MessageValueError, match="nested more than 128 deep"):
        encode(loop)


def test_a_value_over_16_mib_is_refused() -> None:
    with pytest.raises(MessageTooLargeError) as refused:
        encode("x" * MAX_VALUE, "a message to inbox")

    assert refused.value.size == MAX_VALUE + 2
    assert refused.value.what == "a message to inbox"


MISMATCHES: list[tuple[object, bytes, str, str, str]] = [
    (int, b'"1"', "$", "int", "str"),
    (int, b"1.0", "$", "int", "float"),
    (bool, b"1", "$", "bool", "int"),
    (str, b"null", "$", "str", "null"),
    (list[int], b'[1,"2"]', "$[1]", "int", "str"),
    (dict[str, list[int]], b'{"a":[true]}', "$[...][0]", "int", "bool"),
    (Finding, b'{"file":"a","risk":"high"}', "$.risk", "int", "str"),
    (Finding, b'{"file":"a"}', "$", "Finding", "Object missing required field `risk`"),
    (Strict, b'{"n":1,"m":2}', "$", "Strict", "Object contains unknown field `m`"),
    (list[Path], b"[5]", "$[0]", "Path", "int"),
    (Colour, b'"blue"', "$", "Colour", "Invalid enum value 'blue'"),
    (Literal["a"], b'"b"', "$", "typing.Literal['a']", "Invalid enum value 'b'"),
    (int | None, b'"x"', "$", "int | null", "str"),
]


@pytest.mark.parametrize(("annotation", "data", "place", "expected", "found"), MISMATCHES, ids=repr)
def test_what_does_not_fit_its_annotation_is_named(
    annotation: object, data: bytes, place: str, expected: str, found: str
) -> None:
    with pytest.raises(TypeMismatchError) as refused:
        codec(annotation).decode(data)

    assert (refused.value.place, refused.value.expected, refused.value.found) == (place, expected, found)


def test_unknown_fields_are_refused_only_by_structs_that_forbid_them() -> None:
    assert codec(Loose).decode(b'{"n":1,"m":2}') == Loose(1)


def test_a_value_is_checked_against_its_annotation_when_it_leaves() -> None:
    with pytest.raises(TypeMismatchError, match="expected int, found str"):
        codec(int).encode("1")
    with pytest.raises(MessageValueError, match="set"):
        codec(list[int]).encode({1})


def test_atoms_are_encoded_together_as_they_are_one_by_one() -> None:
    kinds = [codec(int), codec(str | None), codec(float), codec(Any)]
    values = (2**64 - 1, None, 0.5)

    assert encode_atoms(kinds, values) == b"[" + b",".join(encode(value) for value in values) + b"]"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True),
        (float, 1),
        (int, 2**64),
        (float, math.nan),
        (str, "\ud800"),
        (str, '"' * MAX_VALUE),
        (str | list[int], "a"),
        (Any, [1]),
    ],
)
def test_what_needs_a_closer_look_is_not_encoded_together(annotation: object, value: object) -> None:
    assert encode_atoms([codec(annotation)], (value,)) is None


def test_a_copy_shares_nothing_with_its_original() -> None:
    original = {"a": [1]}

    kind: Codec[dict[str, list[int]]] = codec(dict[str, list[int]])
    copied = kind.decode(kind.encode(original))
    original["a"].append(2)

    assert copied == {"a": [1]}


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (set[int], "set cannot be serialised"),
        (list[set[int]], "set cannot be serialised"),
        (dict[int, str], "keys of type int cannot be serialised"),
        (bytearray, "bytearray cannot be serialised"),
        (datetime.time, "time cannot be serialised"),
        (complex, "complex cannot be serialised"),
        (Callable[[], None], "Callable cannot be serialised"),
        (datetime.datetime | str, "more than one str-like type"),
    ],
    ids=str,
)
def test_an_annotation_whose_values_do_not_travel_is_refused(annotation: object, problem: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=problem):
        codec(annotation)


def test_an_annotation_may_contain_itself() -> None:
    check_annotation(Tree)


def test_text_needs_no_schema() -> None:
    assert schema_of(str) is None


def test_the_schema_of_an_annotation_says_what_is_wanted() -> None:
    schema = schema_of(dict[str, Path])

    assert schema == {"type": "object", "additionalProperties": {"type": "string"}}
    assert schema_of(bool) == {"type": "boolean"}
    assert schema_of(list[object]) == {"type": "array", "items": {"description": "any value"}}


def test_what_is_no_json_stands_as_its_repr() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert plain_or_repr({"a": (1, 2)}) == {"a": [1, 2]}
    assert plain_or_repr({1, 2}) == "{1, 2}"
    assert "Rude" in str(plain_or_repr(Rude()))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(JSON)
def test_every_json_value_comes_back_unchanged(value: object) -> None:
    back = codec(Any).decode(encode(value))

    assert back == value
    assert repr(back) == repr(value)


def as_it_is(value: bytes) -> object:
    return value


def deep_inside(value: bytes) -> object:
    return [{"inside": value}]


@pytest.mark.parametrize("wrap", [as_it_is, deep_inside])
def test_a_gigabyte_is_refused_before_it_is_encoded(wrap: Callable[[bytes], object]) -> None:
    """Nothing ever touches these bytes: the system gives out pages of zeros only to who looks at them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(MessageTooLargeError, match="1073741824 bytes"):
        encode(wrap(bytes(1 << 30)), "a result")

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
