"""Replies of agents, read as what was asked for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.agents.reply import (
    Fault,
    ReplyFaultsError,
    check_value,
    is_declined,
    read_text,
    read_value,
    repair_request,
)


@dataclass
class Finding:
    file: str
    risk: int
    note: str | None = None


class Node(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inside: list[Node] = []


class Options(TypedDict, total=False):
    level: Literal["low", "high"]


def schema(annotation: object) -> dict[str, object]:
    return msgspec.json.schema(annotation)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("  two fixes \n", "two fixes"),
        ("```text\ninside\nof it\n```", "inside\nof it"),
        ("```text\n```", ""),
        ("```python\nx = 1\n```", "```python\nx = 1\n```"),
        ("see:\n```text\ninside\n```", "see:\n```text\ninside\n```"),
        ("```text\na\n```\n```text\nb\n```", "```text\na\n```\n```text\nb\n```"),
    ],
)
def test_text_is_the_whole_reply_or_the_inside_of_its_only_block(text: str, read: str) -> None:
    assert read_text(text) == read


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", int, 3),
        (" 3.0 ", int, 3),
        ("2.5", float, 2.5),
        ("true", bool, True),
        ("False", bool, False),
        ("high", Literal["low", "high"], "high"),
        ('"high"', Literal["low", "high"], "high"),
        ("2", Literal["1", "2"], "2"),
        ("high", Literal["low", "high"] | None, "high"),
        ("null", int | None, None),
        ("Here it is:\n```json\n[1, 2]\n```\nDone.", list[int], [1, 2]),
        ("First\n```json\n[1]\n```\nno:\n```\n[2]\n```", list[int], [2]),
        ("```python\n[1]\n```\n```json\n[2]\n```", list[int], [2]),
        ("~~~json\n{}\n~~~", dict[str, int], {}),
        ('````json\n"```"\n````', str | int, "```"),
        ('{"file": "a", "risk": 1, "mood": "good"}', Finding, {"file": "a", "risk": 1}),
        (
            '{"name": "a", "x": 1, "inside": [{"name": "b", "y": 2}]}',
            Node,
            {"name": "a", "inside": [{"name": "b"}]},
        ),
        ('{"a": 1, "b": 2}', dict[str, int], {"a": 1, "b": 2}),
        ('{"a": {"deep": [1]}}', object, {"a": {"deep": [1]}}),
        ('[1, "a"]', tuple[int, str], [1, "a"]),
        ("{}", Options, {}),
    ],
)
def test_a_value_is_found_where_agents_put_it(text: str, annotation: object, value: object) -> None:
    made = {} if annotation is object else schema(annotation)

    found = read_value(text, made)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "faults"),
    [
        ("about three", int, ["$: expected a JSON value, found about three"]),
        ("yes", bool, ["$: expected a JSON value, found yes"]),
        ('"3"', int, ['$: expected integer, found "3"']),
        ("true", int, ["$: expected integer, found true"]),
        ("1", bool, ["$: expected boolean, found 1"]),
        ("3.5", int, ["$: expected integer, found 3.5"]),
        ("NaN", float, ["$: expected a JSON value, found NaN"]),
        ("medium", Literal["low", "high"], ["$: expected a JSON value, found medium"]),
        ('"medium"', Literal["low", "high"], ['$: expected "high" or "low", found "medium"']),
        ("1", Literal[True, "x"], ['$: expected true or "x", found 1']),
        (
            '{"risk": "high"}',
            Finding,
            ["$.file: expected string, found nothing", '$.risk: expected integer, found "high"'],
        ),
        (
            '[{"name": "a", "inside": [{}]}]',
            list[Node],
            ["$[0].inside[0].name: expected string, found nothing"],
        ),
        (
            '{"name": "a"}',
            Finding | None,
            ["$.file: expected string, found nothing", "$.risk: expected integer, found nothing"],
        ),
        ("[1]", tuple[int, str], ["$: expected 2 elements, found 1"]),
        ("[1, 2]", tuple[int, str], ["$[1]: expected string, found 2"]),
        ("[1]", int | str, ["$: expected integer or string, found [1]"]),
        ("```json\n[1,\n```", list[int], ["$: expected a JSON value, found ```json\n[1,\n```"]),
        ('"\\ud800"', str | int, ['$: expected a JSON value, found "\\ud800"']),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(text: str, annotation: object, faults: list[str]) -> None:
    with pytest.raises(ReplyFaultsError) as caught:
        read_value(text, schema(annotation))

    assert list(map(str, caught.value.faults)) == faults


@pytest.mark.parametrize(
    ("value", "made", "expected"),
    [
        (5, {"type": "integer", "maximum": 4}, "at most 4"),
        (5, {"type": "integer", "exclusiveMinimum": 5}, "more than 5"),
        ("abc", {"type": "string", "maxLength": 2}, "a length of at most 2"),
        ("abc", {"type": "string", "pattern": "^x"}, "text like ^x"),
        ([1, 2], {"type": "array", "maxItems": 1}, "0 to 1 elements"),
        ("b", {"const": "a"}, '"a"'),
        (1, {"type": ["string", "null"]}, "string or null"),
    ],
)
def test_bounds_are_kept(value: object, made: dict[str, object], expected: str) -> None:
    assert [fault.expected for fault in check_value(value, made)[1]] == [expected]


def test_what_is_nested_too_deep_is_refused() -> None:
    made = {"$ref": "#/$defs/N", "$defs": {"N": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}

    with pytest.raises(ReplyFaultsError):
        read_value("[" * 200 + "]" * 200, made)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for made in (
        {"type": "integer"},
        {"enum": ["a", 1]},
        {"anyOf": [{"type": "boolean"}, {"type": "array"}]},
    ):
        with suppress(ReplyFaultsError):
            assert not check_value(read_value(text, made), made)[1]


def test_a_request_to_mend_names_every_fault_and_repeats_the_schema() -> None:
    request = repair_request(
        [Fault("$.a", "integer", "nothing"), Fault("$.b", "string", "1")], {"type": "object"}
    )

    assert "- $.a: expected integer, found nothing\n- $.b: expected string, found 1\n" in request
    assert request.endswith('{"type": "object"}')


@pytest.mark.parametrize(
    ("text", "declined"),
    [("CANNOT_DETERMINE", True), (" cannot_determine\n", True), ("I CANNOT_DETERMINE", False)],
)
def test_declining_is_one_word(text: str, declined: bool) -> None:
    assert is_declined(text) is declined
