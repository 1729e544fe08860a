from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest

from bartack.agents.schema_flaws import find_schema_flaw
from bartack.runtime.protocol.values import schema_of


@dataclass
class Node:
    name: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", max_length=9)]
    kind: Literal["leaf", "root"]
    size: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    below: list[Node] | None = None
    pair: tuple[int, str] = (1, "")
    more: dict[str, bool | int] | None = None


@pytest.mark.parametrize(
    "annotation", [Node, int, list[Node], tuple[()], dict[str, Node], Literal[1, 2], object]
)
def test_schemas_of_annotations_are_sound(annotation: object) -> None:
    assert find_schema_flaw(schema_of(annotation) or {}) == ""


@pytest.mark.parametrize(
    ("schema", "flaw"),
    [
        ({"type": "nonsense"}, "$.type: expected one of null, boolean, integer, "),
        ({"type": []}, "$.type: expected one of "),
        ({"properties": {"a": 7}}, "$.properties.a: expected a schema, found integer"),
        ({"properties": []}, "$.properties: expected an object"),
        ({"items": {"minimum": "1"}}, "$.items.minimum: expected a number"),
        ({"maxLength": -1}, "$.maxLength: expected a whole number of at least 0"),
        ({"required": [1]}, "$.required: expected a list of names"),
        ({"enum": []}, "$.enum: expected a list that is not empty"),
        ({"anyOf": [{}, {"pattern": "("}]}, "$.anyOf[1].pattern: expected a regular expression ("),
        ({"$ref": "#/$defs/a", "$defs": {}}, "$.$ref: expected a reference to a part of the schema"),
        ({"$ref": "https://example.com/a"}, "$.$ref: expected a reference to a part of the schema"),
        ({"$ref": 7}, "$.$ref: expected a text"),
    ],
)
def test_a_flaw_is_named_with_its_place(schema: dict[str, object], flaw: str) -> None:
    assert find_schema_flaw(schema).startswith(flaw)


def test_keywords_of_others_and_references_to_any_part_are_accepted() -> None:
    schema = {
        "$ref": "#/properties/a~1b",
        "properties": {"a/b": {"type": ["string", "null"], "x-note": object()}},
        "additionalProperties": False,
        "items": True,
    }

    assert find_schema_flaw(schema) == ""


def test_a_schema_without_end_is_refused() -> None:
    schema: dict[str, object] = {}
    schema["items"] = schema

    assert find_schema_flaw(schema).endswith("it has more than 100 levels")
