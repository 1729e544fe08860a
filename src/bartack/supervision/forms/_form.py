"""What a shell form is: words, commands, redirections, pipelines, lists and groups, as plain data.

A form is parsed elsewhere and never turned back into text for a shell. ``_interpreter.py`` executes it, ``_shown.py`` shows it to
people. Encoded, it is JSON arrays; the same form always has the same encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

BUILTINS: Final = frozenset({"cd", "command", ":"})
"""The commands that are run without a program."""

_ACTIVE: Final = frozenset("*?[")


class Bare(msgspec.Struct, frozen=True, array_like=True, tag="bare"):
    """Text that stands in a word without quotes: ``*``, ``?``, ``[…]`` and ``**`` stand for names, ``~`` for the home directory."""

    text: str


class Capture(msgspec.Struct, frozen=True, array_like=True, tag="capture"):
    """What a form inside a word writes to its output, without the newlines at its end."""

    form: Form


Part = str | Bare | Capture
"""A piece of a word; a string is exact text."""

Word = list[Part]
"""Pieces that stand side by side. Nothing in them is ever split."""


class Redirect(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    """A descriptor of a command is a file. Names in ``target`` are not looked for: ``*`` is a star."""

    fd: Literal[0, 1, 2]
    op: Literal["<", ">", ">>"]
    target: Word


class Duplicate(msgspec.Struct, frozen=True, array_like=True, tag="same"):
    """A descriptor of a command is what another one is at this point: ``2>&1`` is ``Duplicate(2, 1)``."""

    fd: Literal[1, 2]
    source: Literal[1, 2]


class SimpleCommand(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """A program and its arguments, variables that only it gets, and where its descriptors go, from left to right."""

    words: list[Word]
    env: list[tuple[str, Word]] = []
    redirects: list[Redirect | Duplicate] = []


class Group(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """A form in parentheses: it has a working directory of its own."""

    form: Form
    redirects: list[Redirect | Duplicate] = []


class Pipeline(msgspec.Struct, frozen=True, array_like=True):
    """Commands that run at once, each reading what the one before it writes."""

    commands: list[SimpleCommand | Group]

    def __post_init__(self) -> None:
        if not self.commands:
            raise ValueError("a pipeline needs a command")


class Form(msgspec.Struct, frozen=True, array_like=True):
    """Pipelines one after the other: after ``&&`` if all went well so far, after ``||`` if not."""

    first: Pipeline
    rest: list[tuple[Literal["&&", "||"], Pipeline]] = []


class Plain(msgspec.Struct, frozen=True):
    """A form that is one program with exact words, and needs no interpreter."""

    argv: list[str]
    env: dict[str, str]


def plain_of(form: Form) -> Plain | None:
    """The one program that a form is, or ``None`` if there is more to it."""
    command = form.first.commands[0]
    if form.rest or len(form.first.commands) > 1 or isinstance(command, Group) or command.redirects:
        return None
    argv = [_exact(word) for word in command.words]
    env = {name: _exact(word) for name, word in command.env}
    if not argv or argv[0] in BUILTINS or None in argv or None in env.values():
        return None
    return Plain([word or "" for word in argv], {name: value or "" for name, value in env.items()})


def _exact(word: Word) -> str | None:
    """The text of a word whose pieces stand for nothing but themselves."""
    texts: list[str] = []
    for index, part in enumerate(word):
        if isinstance(part, Capture):
            return None
        text = part if isinstance(part, str) else part.text
        if isinstance(part, Bare) and (not _ACTIVE.isdisjoint(text) or (not index and text[:1] == "~")):
            return None
        texts.append(text)
    return "".join(texts)


def iter_texts(form: Form) -> Iterator[str]:
    """Every text in a form: pieces of words, and names of variables."""
    for pipeline in (form.first, *(pipeline for _, pipeline in form.rest)):
        for command in pipeline.commands:
            if isinstance(command, Group):
                yield from iter_texts(command.form)
                words: list[Word] = []
            else:
                yield from (name for name, _ in command.env)
                words = [*(word for _, word in command.env), *command.words]
            words += [place.target for place in command.redirects if isinstance(place, Redirect)]
            for part in (part for word in words for part in word):
                yield from iter_texts(part.form) if isinstance(part, Capture) else (_text(part),)


def _text(part: str | Bare) -> str:
    return part if isinstance(part, str) else part.text
