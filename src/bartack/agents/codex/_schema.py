"""How Codex is asked for a value: by its own output schema if that is strict already, else by a tool of ours, ``answer``.

The API accepts only schemas in which every object is closed and requires all its members; others would have to be changed, and the
value would not be what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

import msgspec

from bartack.agents.program._json_lines import Json
from bartack.agents.reply import check_value

_STRICT_KEYS: Final = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs", "title",
        "description",
    }
)  # fmt: skip
"""Keywords that every strict schema may have."""

Schema = Mapping[str, object]


class ValuePlan(NamedTuple):
    """How one value is asked for.

    Attributes:
        schema: What the value has to be; ``None`` if text is wanted.
        output_schema: What Codex gets as the schema of its last message.
        answer_schema: What the tool ``answer`` takes.
        wrapped: The value is the member ``value`` of what that tool takes.
    """

    schema: Json | None = None
    output_schema: Json | None = None
    answer_schema: Json | None = None
    wrapped: bool = False

    @property
    def in_text(self) -> bool:
        """Whether the value is asked for in words only."""
        return self.schema is not None and self.output_schema is None and self.answer_schema is None

    def check(self, arguments: Json) -> tuple[object, list[str]]:
        """The value in a call of ``answer``, and what is wrong with it."""
        assert self.schema is not None
        if self.wrapped and "value" not in arguments:
            return msgspec.UNSET, ["$.value: expected a value, found nothing"]
        value, faults = check_value(arguments["value"] if self.wrapped else arguments, self.schema)
        return value, [str(fault) for fault in faults]


def plan_value(schema: Json | None, *, may_decline: bool = False, has_tools: bool = True) -> ValuePlan:
    """How to ask for a value of a schema. An output schema leaves no way to decline, which is a text.

    A thread that continues another one has no tools of ours but those of that one; there a value is asked for in words.
    """
    if schema is None:
        return ValuePlan()
    whole = _inlined(schema)
    if whole.get("type") == "object" and is_strict(whole) and not may_decline:
        return ValuePlan(schema, output_schema=whole)
    if not has_tools:
        return ValuePlan(schema)
    if whole.get("type") == "object":
        return ValuePlan(schema, answer_schema=whole)
    inner = {name: part for name, part in schema.items() if name not in {"$defs", "$schema"}}
    shared: Json = {name: schema[name] for name in ("$defs", "$schema") if name in schema}
    taken: Json = {
        **shared,
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    return ValuePlan(schema, answer_schema=taken, wrapped=True)


def _inlined(schema: Json) -> Json:
    """A schema that is only a reference to a part of itself, as that part: the API wants an object at the top."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    parts = schema.get("$defs")
    part = cast("Json", parts).get(name) if isinstance(parts, dict) and name else None
    if not isinstance(part, dict):
        return schema
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    inlined: Json = {**rest, **cast("Json", part)}
    others = {
        key: value
        for key, value in cast("Json", parts).items()
        if key != name or _refers(cast("Json", part), name)
    }
    return (
        {**inlined, "$defs": others}
        if others
        else {key: value for key, value in inlined.items() if key != "$defs"}
    )


def _refers(part: Json, name: str) -> bool:
    return f'"#/$defs/{name}"'.encode() in msgspec.json.encode(part)


def is_strict(schema: object) -> bool:
    """Whether every object in a schema is closed and requires all its members, and nothing else is in it."""
    if not isinstance(schema, dict):
        return False
    given = cast("Schema", schema)
    if not set(given) <= _STRICT_KEYS:
        return False
    if given.get("type") == "object" and not _is_closed(given):
        return False
    return all(is_strict(part) for part in _parts(given))


def _is_closed(schema: Schema) -> bool:
    members, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False or not isinstance(members, dict):
        return False
    return isinstance(required, list) and set(cast("list[str]", required)) == set(cast("Json", members))


def _parts(schema: Schema) -> list[object]:
    several = [schema.get("properties"), schema.get("$defs")]
    named = [part for group in several if isinstance(group, dict) for part in cast("Json", group).values()]
    listed = schema.get("anyOf")
    either = cast("list[object]", listed) if isinstance(listed, list) else []
    return [*named, *either, *([schema["items"]] if "items" in schema else [])]
