"""The front matter of a Markdown file of a plugin: a small part of YAML, written and read here.

Each line is ``key: value``. A value is a JSON string, ``true`` or ``false``, an integer, or a list of JSON strings. Everything
else is refused, because YAML readers disagree about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, cast

from bartack.plugin.rules._finding import PluginFinding

Value: TypeAlias = str | bool | int | list[str]

_FENCE: Final = "---"
_LINE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*): (.+)")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


class Head(NamedTuple):
    """A file that was read: its keys with values and lines, its body, and where the body starts."""

    values: dict[str, Value]
    lines: dict[str, int]
    body: str
    body_line: int
    findings: list[PluginFinding]


def write_head(values: Mapping[str, Value], body: str) -> str:
    """A Markdown file with front matter."""
    lines = [f"{key}: {_written(value)}" for key, value in values.items()]
    return "\n".join([_FENCE, *lines, _FENCE, "", body.rstrip("\n"), ""])


def _written(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_head(file: str, text: str) -> Head:
    """Read the front matter of a file. What is wrong with it is in the findings; the rest is read anyway."""
    lines = text.split("\n")
    found = Head({}, {}, "", 1, [])
    if lines[0] != _FENCE:
        found.findings.append(PluginFinding(file, 1, "", "the file does not start with a line '---'"))
        return found._replace(body=text)
    for number, line in enumerate(lines[1:], 2):
        if line == _FENCE:
            return found._replace(body="\n".join(lines[number:]), body_line=number + 1)
        _read_line(file, number, line, found)
    found.findings.append(PluginFinding(file, 1, "", "the line '---' after the keys is missing"))
    return found


def _read_line(file: str, number: int, line: str, found: Head) -> None:
    if "\t" in line:
        found.findings.append(PluginFinding(file, number, "", "there is a tab; use blanks"))
        return
    matched = _LINE.fullmatch(line)
    if matched is None:
        found.findings.append(PluginFinding(file, number, "", "the line is not 'key: value'"))
        return
    key, text = matched.groups()
    if key in found.values:
        found.findings.append(
            PluginFinding(file, number, key, f"the key is given twice, first in line {found.lines[key]}")
        )
        return
    value = _read_value(text)
    if value is None:
        problem = 'the value is not a "text" in double quotes, true, false, an integer, or ["a", "list"]'
        found.findings.append(PluginFinding(file, number, key, problem))
        return
    found.values[key] = value
    found.lines[key] = number


def _read_value(text: str) -> Value | None:
    if text in {"true", "false"}:
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if text[0] not in '"[':
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        return value
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    return cast("list[str]", items) if all(isinstance(item, str) for item in items) else None
