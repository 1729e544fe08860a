"""The rules of skills, commands and agents: one Markdown file each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from bartack.plugin.rules._finding import PluginFinding
from bartack.plugin.rules._front_matter import Head, Value, read_head
from bartack.plugin.rules._names import MOST, name_problem

DESCRIPTION_MOST: Final = 1024
HINT_MOST: Final = 80
COLORS: Final = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "cyan")
MODEL: Final = re.compile(r"inherit|sonnet|opus|haiku|claude-[a-z0-9.-]+")

SKILL: Final = frozenset(
    (
        "name", "description", "argument-hint", "allowed-tools", "disable-model-invocation", "user-invocable", "model", "license",
    )
)  # fmt: skip
COMMAND: Final = frozenset(
    ("description", "argument-hint", "allowed-tools", "disable-model-invocation", "model")
)
AGENT: Final = frozenset(("name", "description", "tools", "model", "color", "maxTurns"))

_TOOL: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:\((?P<pattern>[^()]+)\))?")
_SHELL: Final = "!`"
_INCLUSION: Final = re.compile(r"(?:^|(?<=\s))@[^\s@]")
_POSITION: Final = re.compile(r"\$[0-9]")
_ARGUMENTS: Final = "$ARGUMENTS"


class Document(NamedTuple):
    """A Markdown file of a plugin: its path, what it is, the name that its place gives it, and its head."""

    file: str
    kind: str
    name: str
    head: Head


def read_document(file: str, text: str) -> Document | None:
    """A file as a document of a plugin; ``None`` if its place gives it no meaning."""
    parts = file.split("/")
    if parts[0] == "skills" and len(parts) == 3 and parts[2] == "SKILL.md":
        return Document(file, "skill", parts[1], read_head(file, text))
    if parts[0] in {"commands", "agents"} and len(parts) == 2 and file.endswith(".md"):
        return Document(file, parts[0][:-1], parts[1].removesuffix(".md"), read_head(file, text))
    return None


_ALLOWED: Final = {"skill": SKILL, "command": COMMAND, "agent": AGENT}


def check_document(document: Document) -> Iterator[PluginFinding]:
    """The rules that a document breaks by itself."""
    head = document.head
    yield from head.findings
    for key in head.values:
        if key not in _ALLOWED[document.kind]:
            allowed = ", ".join(sorted(_ALLOWED[document.kind]))
            yield _at(document, key, f"a {document.kind} has no such key; it has {allowed}")
    yield from _check_name(document)
    yield from _check_texts(document)
    yield from _check_types(document)
    yield from _check_tools(document)
    yield from _check_body(document)


def _at(document: Document, key: str, problem: str) -> PluginFinding:
    return PluginFinding(document.file, document.head.lines.get(key, 0), key, problem)


def _check_name(document: Document) -> Iterator[PluginFinding]:
    problem = name_problem(document.name, MOST)
    if problem:
        yield PluginFinding(document.file, 0, "name", problem)
    if document.kind == "command":
        return
    given = document.head.values.get("name")
    if given != document.name:
        place = "folder" if document.kind == "skill" else "file"
        found = "is missing" if given is None else f"is {given!r}"
        yield _at(document, "name", f"it {found}, but the {place} is called {document.name!r}")


def _check_texts(document: Document) -> Iterator[PluginFinding]:
    values = document.head.values
    description = values.get("description")
    if not isinstance(description, str) or not description.strip():
        yield _at(document, "description", "it is missing; a model chooses by it")
    else:
        yield from (_at(document, "description", problem) for problem in description_problems(description))
    hint = values.get("argument-hint")
    if hint is not None and (not isinstance(hint, str) or len(hint) > HINT_MOST or not _is_line(hint)):
        yield _at(document, "argument-hint", f"it is not one line of at most {HINT_MOST} characters")


def description_problems(text: str) -> Iterator[str]:
    """What is wrong with a description."""
    if len(text) > DESCRIPTION_MOST:
        yield f"it has {len(text)} characters, at most {DESCRIPTION_MOST} are allowed"
    if not _is_line(text):
        yield "it is not one line of printable characters"
    if "<" in text or ">" in text:
        yield "'<' and '>' are not allowed in it"


def _is_line(text: str) -> bool:
    return text.isprintable()


_BOOLEANS: Final = ("disable-model-invocation", "user-invocable")


def _check_types(document: Document) -> Iterator[PluginFinding]:
    values = document.head.values
    for key in _BOOLEANS:
        if key in values and not isinstance(values[key], bool):
            yield _at(document, key, "it is neither true nor false")
    if "color" in values and values["color"] not in COLORS:
        yield _at(document, "color", f"{values['color']!r} is not one of {', '.join(COLORS)}")
    model = values.get("model")
    if model is not None and not (isinstance(model, str) and MODEL.fullmatch(model)):
        yield _at(document, "model", f"{model!r} is neither 'inherit' nor the name of a model")
    turns = values.get("maxTurns")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        yield _at(document, "maxTurns", "it is not an integer from 1 on")
    licence = values.get("license")
    if licence is not None and not isinstance(licence, str):
        yield _at(document, "license", "it is not a text")


def _check_tools(document: Document) -> Iterator[PluginFinding]:
    for key in ("allowed-tools", "tools"):
        if key in document.head.values:
            for problem in tool_problems(document.head.values[key]):
                yield _at(document, key, problem)


def tool_problems(value: Value) -> Iterator[str]:
    """What is wrong with a list of tools."""
    if not isinstance(value, list):
        yield "it is not a list"
        return
    for item in value:
        matched = _TOOL.fullmatch(item)
        if matched is None:
            yield f"{item!r} is neither a tool nor a tool with a pattern, such as Bash(git status)"
        elif len(matched["name"]) > MOST:
            yield f"{item!r} has a name of {len(matched['name'])} characters, at most {MOST} are allowed"
        elif matched["name"] == "Bash" and (matched["pattern"] or "*").strip("*: ") == "":
            yield "Bash without a pattern allows every command"


def _check_body(document: Document) -> Iterator[PluginFinding]:
    head = document.head
    count = 0
    for number, line in enumerate(head.body.split("\n"), head.body_line):
        if _SHELL in line:
            yield PluginFinding(
                document.file, number, "", "'!`' executes a shell command while the prompt is built"
            )
        if _INCLUSION.search(line):
            yield PluginFinding(document.file, number, "", "'@' at the start of a word includes a file")
        if _POSITION.search(line):
            yield PluginFinding(
                document.file, number, "", "'$' and a digit is replaced by an argument of the user"
            )
        count += line.count(_ARGUMENTS)
        if line.count(_ARGUMENTS) and count > 1:
            yield PluginFinding(document.file, number, "", f"{_ARGUMENTS} stands there more than once")
