"""How a value is asked for: by Codex's own schema if that is strict, else by a tool of ours."""

from __future__ import annotations

import msgspec
import pytest

from bartack.agents.codex._schema import is_strict, plan_value

CLOSED: dict[str, object] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def test_a_strict_schema_is_given_to_codex_as_it_is() -> None:
    plan = plan_value(CLOSED)

    assert plan.output_schema == CLOSED
    assert plan.answer_schema is None


def test_a_reference_at_the_top_is_replaced_by_what_it_names() -> None:
    plan = plan_value({"$ref": "#/$defs/A", "$defs": {"A": CLOSED}})

    assert plan.output_schema == CLOSED


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    tree: dict[str, object] = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}},
        "required": ["next"],
        "additionalProperties": False,
    }

    assert plan_value({"$ref": "#/$defs/T", "$defs": {"T": tree}}).output_schema == {
        **tree,
        "$defs": {"T": tree},
    }


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"required": []},
        {"properties": {"a": {"type": "integer", "minimum": 1}}},
        {"properties": {"a": {"type": "object"}}},
        {"properties": {"a": {"type": "array", "items": {"type": "object"}}}},
        {"properties": {"a": {"anyOf": [{"type": "object"}]}}},
        {"properties": {"a": True}},
        {"$defs": {"x": {"type": "object"}}},
    ],
)
def test_a_schema_that_is_not_strict_goes_through_the_tool(change: dict[str, object]) -> None:
    schema = {**CLOSED, **change}

    assert not is_strict(schema)
    assert plan_value(schema).answer_schema == schema
    assert plan_value(schema).output_schema is None


def test_an_answer_that_may_be_declined_goes_through_the_tool() -> None:
    assert plan_value(CLOSED, may_decline=True).answer_schema == CLOSED


def test_a_value_that_is_not_an_object_is_a_member_of_one() -> None:
    plan = plan_value({"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": CLOSED}})

    assert plan.wrapped
    assert plan.answer_schema == {
        "$defs": {"A": CLOSED},
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert plan.check({"value": [{"a": 1}]}) == ([{"a": 1}], [])
    assert plan.check({}) == (msgspec.UNSET, ["$.value: expected a value, found nothing"])
    assert plan.check({"value": [{"a": "x"}]})[1] == ['$[0].a: expected integer, found "x"']


def test_text_needs_no_schema() -> None:
    assert plan_value(None) == (None, None, None, False)


def test_a_thread_without_tools_is_asked_in_words() -> None:
    plan = plan_value({"type": "integer"}, has_tools=False)

    assert plan.in_text
    assert plan_value(CLOSED, has_tools=False).output_schema == CLOSED
