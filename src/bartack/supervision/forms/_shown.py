"""A form as people read it: one line, quoted only where it would be misread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bartack.supervision.forms._form import (
    Bare,
    Capture,
    Duplicate,
    Form,
    Group,
    Pipeline,
    Redirect,
    SimpleCommand,
    Word,
)

_HARMLESS: Final = re.compile(r"[\w@%+=:,./^{}-]+")
_CONTROL: Final = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {10: "\\n", 9: "\\t"}


def show_form(form: Form) -> str:
    """A form in one line."""
    parts = [_show_pipeline(form.first)]
    for joint, pipeline in form.rest:
        parts += [joint, _show_pipeline(pipeline)]
    return " ".join(parts)


def _show_pipeline(pipeline: Pipeline) -> str:
    return " | ".join(_show_command(command) for command in pipeline.commands)


def _show_command(command: SimpleCommand | Group) -> str:
    if isinstance(command, Group):
        parts = [f"({show_form(command.form)})"]
    else:
        parts = [f"{name}={_show_word(word)}" for name, word in command.env]
        parts += [_show_word(word) for word in command.words]
    return " ".join([*parts, *map(_show_redirect, command.redirects)])


def _show_redirect(place: Redirect | Duplicate) -> str:
    if isinstance(place, Duplicate):
        return f"{place.fd}>&{place.source}"
    return f"{_operator(place)} {_show_word(place.target)}"


def _operator(place: Redirect) -> str:
    return f"{2 if place.fd == 2 else ''}{place.op}"


def _show_word(word: Word) -> str:
    """A word; its exact parts in quotes if they have anything in them that means something to somebody."""
    shown = "".join(map(_show_part, word))
    return shown or "''"


def _show_part(part: str | Bare | Capture) -> str:
    if isinstance(part, Capture):
        return f"$({show_form(part.form)})"
    text = part if isinstance(part, str) else part.text
    clean = text.translate(_CONTROL)
    if isinstance(part, Bare) or _HARMLESS.fullmatch(clean):
        return clean
    return "'" + clean.replace("'", "'\\''") + "'" if clean else ""


def form_words(form: Form) -> list[str]:
    """The words of a form, with ``|``, ``&&``, ``||``, ``(``, ``)`` and redirections as words of their own."""
    return list(_iter_words(form))


def _iter_words(form: Form) -> Iterator[str]:
    yield from _pipeline_words(form.first)
    for joint, pipeline in form.rest:
        yield joint
        yield from _pipeline_words(pipeline)


def _pipeline_words(pipeline: Pipeline) -> Iterator[str]:
    for index, command in enumerate(pipeline.commands):
        if index:
            yield "|"
        if isinstance(command, Group):
            yield from ("(", *_iter_words(command.form), ")")
        else:
            yield from (f"{name}={_word_text(word)}" for name, word in command.env)
            yield from map(_word_text, command.words)
        for place in command.redirects:
            if isinstance(place, Duplicate):
                yield _show_redirect(place)
            else:
                yield from (_operator(place), _word_text(place.target))


def _word_text(word: Word) -> str:
    return "".join(
        part if isinstance(part, str) else _show_part(part) if isinstance(part, Capture) else part.text
        for part in word
    )
