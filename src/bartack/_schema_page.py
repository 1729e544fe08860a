"""Types of an API as Markdown: tables of their members, made of JSON schemas. Used for reference pages that tests compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

Schema = dict[str, object]

LARGEST = 2**53 - 1
"""A bound that only says that a number fits into JSON."""


def members_table(schema: Schema, heading: str) -> Iterator[str]:
    """The members of a type as a table; ``heading``: ``member`` for what is answered, else what is asked, with defaults."""
    required = cast("list[str]", schema.get("required", []))
    defaults = heading != "member"
    yield f"| {heading} | type |" + (" default |\n|---|---|---|" if defaults else "\n|---|---|")
    for name, member in cast("dict[str, Schema]", schema["properties"]).items():
        default = "required" if name in required else _default(member)
        yield f"| `{name}` | {type_words(member)}{_described(member)} |" + (
            f" {default} |" if defaults else ""
        )
    yield ""


def _described(member: Schema) -> str:
    text = str(member.get("description", ""))
    return f". {text}" if text and not text.startswith("Three numbers") else ""


def _default(member: Schema) -> str:
    if member.get("default") is None:
        return ""
    value = member["default"]
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def type_words(member: Schema) -> str:
    """The type of a member in a few words."""
    if "anyOf" in member:
        kinds = [type_words(one) for one in cast("list[Schema]", member["anyOf"])]
        return " or ".join(kinds)
    if "enum" in member:
        return ", ".join(f"`{value}`" for value in cast("list[str]", member["enum"]))
    if "$ref" in member:
        name = str(member["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kind = "date and time" if member.get("format") == "date-time" else str(member.get("type", "any value"))
    if "prefixItems" in member:
        return f"[{', '.join(type_words(one) for one in cast('list[Schema]', member['prefixItems']))}]"
    if kind == "array":
        kind = f"array of {type_words(cast('Schema', member.get('items') or {}))}"
    return kind + _bounds(member)


def _bounds(member: Schema) -> str:
    if str(member.get("description", "")).startswith("Three numbers"):
        return ", three numbers (`1.4.2`)"
    bounds = [
        f"{words} {member[key]}"
        for key, words in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("maxLength", "up to"),
            ("maxItems", "at most"),
        )
        if member.get(key) not in {None, LARGEST}
    ]
    unit = " characters" if "maxLength" in member else " items" if "maxItems" in member else ""
    return f", {' '.join(bounds)}{unit}" if bounds else ""
