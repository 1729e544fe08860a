"""JSON Schemas of everything that goes over the wire or into a file, made from the types that the code decodes with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from bartack.agents.contract import AgentEvent
from bartack.agents.protocol import messages as m
from bartack.agents.protocol._payloads import INPUTS, PAYLOADS, REQUIRED_PAYLOAD
from bartack.agents.scripted.scripted import Script

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

TYPES: Final[Mapping[str, object]] = {
    "command": m.Command,
    "cancel": m.Cancel,
    "tool-result": m.ToolResult,
    "notice": m.Notice,
    "hello": m.Hello,
    "event": m.Event,
    "heartbeat": m.Heartbeat,
    "log": m.Log,
    "tool-call": m.ToolCall,
    "script": Script,
    "agent-transcript-line": AgentEvent,
}

_REVIEWED: Final = {
    "if": {"properties": {"event": {"const": "review.completed"}}, "required": ["event"]},
    "then": {"properties": {"status": {"enum": ["approved", "changes_requested"]}}, "required": ["status"]},
}
"""A review has a verdict."""


def schema_names() -> list[str]:
    """The names of the schemas of agents."""
    return list(TYPES)


def schema(name: str, *, closed: bool = False) -> dict[str, object]:
    """One schema.

    Args:
        name: One of ``schema_names``.
        closed: Members that are not listed are forbidden.

    Raises:
        KeyError: There is no such schema.
    """
    made = render_schema(name, TYPES[name], closed=closed)
    if name == "command":
        _say_which(made, "Command", "action", "inputs", INPUTS, closed=closed)
    elif name == "event":
        # What an agent says more in a payload is kept, and never an error.
        _say_which(made, "Event", "event", "payload", PAYLOADS, closed=False)
    return made


def _say_which(
    made: dict[str, object], of: str, by: str, member: str, types: Mapping[str, type], *, closed: bool
) -> None:
    """Let the value of one member of a message decide what another one is; a value that is not known leaves it open."""
    found, definitions = msgspec.json.schema_components(
        list(types.values()), schema_hook=_anything, ref_template="#/$defs/{name}"
    )
    if closed:
        for definition in definitions.values():
            definition["additionalProperties"] = False
    _speak_ecma(definitions)
    message = cast("dict[str, dict[str, object]]", made["$defs"])[of]
    rules: list[object] = [
        {
            "if": {"properties": {by: {"const": value}}, "required": [by]},
            "then": {
                "properties": {member: one if _is_needed(value, by) else {"anyOf": [one, {"type": "null"}]}},
                **({"required": [member]} if _is_needed(value, by) else {}),
            },
        }
        for value, one in zip(types, found, strict=True)
    ]
    if by == "event":
        rules.append(_REVIEWED)
    message["allOf"] = rules
    made["$defs"] = {**cast("dict[str, object]", made["$defs"]), **definitions}


def _is_needed(value: str, by: str) -> bool:
    return by == "action" or value in REQUIRED_PAYLOAD


def render_schema(name: str, of: object, *, closed: bool = False) -> dict[str, object]:
    """The schema of a type, under a name."""
    made = cast("dict[str, object]", msgspec.json.schema(of, schema_hook=_anything))
    definitions = cast("dict[str, dict[str, object]]", made.pop("$defs", {}))
    if closed:
        for definition in definitions.values():
            if "properties" in definition:
                definition["additionalProperties"] = False
    _speak_ecma(made)
    _speak_ecma(definitions)
    head: dict[str, object] = {"$schema": DIALECT, "$id": f"urn:bartack:schema:{name}:v1"}
    return {**head, **made, **({"$defs": definitions} if definitions else {})}


def _speak_ecma(part: object) -> None:
    """Write patterns as JSON Schema wants them: ECMAScript has other marks for the beginning and the end of a text."""
    if isinstance(part, list):
        for item in cast("list[object]", part):
            _speak_ecma(item)
    elif isinstance(part, dict):
        members = cast("dict[str, object]", part)
        pattern = members.get("pattern")
        if isinstance(pattern, str):
            members["pattern"] = pattern.replace(r"\A", "^").replace(r"\Z", "$")
        for member in members.values():
            _speak_ecma(member)


def schema_text(rendered: dict[str, object]) -> bytes:
    """A schema as it is shown and shipped."""
    return msgspec.json.format(msgspec.json.encode(rendered), indent=2) + b"\n"


def _anything(kind: type) -> dict[str, object]:
    """Any JSON value fits where the code says ``object``."""
    if kind is not object:
        raise NotImplementedError(f"{kind} has no schema")
    return {"description": "Any JSON value."}
