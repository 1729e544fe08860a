"""The schema of a reply as Claude Code takes it: at the top is an object. Any other value is put into one, and taken out again."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from bartack.agents.contract import AgentRequest
from bartack.agents.program._json_lines import Json, object_of, text_of

DEFINITIONS: Final = "$defs"
_LOCAL: Final = f"#/{DEFINITIONS}/"


def is_wrapped(request: AgentRequest) -> bool:
    """Whether the value is put into an object."""
    return request.schema is not None and _resolve(request.schema).get("type") != "object"


def schema_text(request: AgentRequest) -> str:
    """The schema as it is given to the program."""
    schema = _resolve(request.schema or {})
    if is_wrapped(request):
        inner = {name: part for name, part in schema.items() if name != DEFINITIONS}
        definitions = {DEFINITIONS: schema[DEFINITIONS]} if DEFINITIONS in schema else {}
        schema = {"type": "object", "properties": {"value": inner}, "required": ["value"], **definitions}
    return msgspec.json.encode(schema).decode()


def unwrapped(request: AgentRequest, result: Json) -> object:
    """The value of a result; ``msgspec.UNSET`` if there is none but in its text."""
    if request.schema is None or "structured_output" not in result:
        return msgspec.UNSET
    value = result["structured_output"]
    if not is_wrapped(request):
        return value
    members = cast("Json", value) if isinstance(value, dict) else {}
    return members.get("value", msgspec.UNSET)


def _resolve(schema: Json) -> Json:
    """A schema that is only the name of a definition, as that definition."""
    seen: set[str] = set()
    found = schema
    while (name := text_of(found, "$ref")).startswith(_LOCAL) and name not in seen:
        seen.add(name)
        found = object_of(schema, DEFINITIONS, name.removeprefix(_LOCAL))
    kept = {DEFINITIONS: schema[DEFINITIONS]} if DEFINITIONS in schema else {}
    return {**found, **kept} if found is not schema else schema
