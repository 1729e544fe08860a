"""A form as people read it: one line, quoted only where it would be misread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from bartack.supervision.forms._form import (
    Bare,
    Capture,
    Duplicate,
    Form,
    Group,
    Part,
    Pipeline,
    Redirect,
    SimpleCommand,
    Word,
)

_HARMLESS: Final = re.compile(r"[\w@%+=:,./^{}-]+")
_CONTROL: Final = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {10: "\\n", 9: "\\t"}


Clean = Callable[[str], str]
"""Removes secrets from a text."""


def show_form(form: Form, clean: Clean = str) -> str:
    """A form in one line; ``clean`` sees every text before it is quoted, and the whole line."""
    return clean(_show(form, clean))


def _show(form: Form, clean: Clean) -> str:
    parts = [_show_pipeline(form.first, clean)]
    for joint, pipeline in form.rest:
        parts += [joint, _show_pipeline(pipeline, clean)]
    return " ".join(parts)


def _show_pipeline(pipeline: Pipeline, clean: Clean) -> str:
    return " | ".join(_show_command(command, clean) for command in pipeline.commands)


def _show_command(command: SimpleCommand | Group, clean: Clean) -> str:
    if isinstance(command, Group):
        parts = [f"({_show(command.form, clean)})"]
    else:
        parts = [f"{name}={_show_word(word, clean)}" for name, word in command.env]
        parts += [_show_word(word, clean) for word in command.words]
    return " ".join([*parts, *(_show_redirect(place, clean) for place in command.redirects)])


def _show_redirect(place: Redirect | Duplicate, clean: Clean) -> str:
    if isinstance(place, Duplicate):
        return _duplicate(place)
    return f"{_operator(place)} {_show_word(place.target, clean)}"


def _duplicate(place: Duplicate) -> str:
    return f"{place.fd}>&{place.source}"


def _operator(place: Redirect) -> str:
    return f"{2 if place.fd == 2 else ''}{place.op}"


def _show_word(word: Word, clean: Clean) -> str:
    """A word; its exact parts in quotes if they have a character in them with a meaning in a shell."""
    shown = "".join(_show_part(part, clean) for part in word)
    return shown or "''"


def _show_part(part: Part, clean: Clean) -> str:
    if isinstance(part, Capture):
        return f"$({_show(part.form, clean)})"
    text = clean(part if isinstance(part, str) else part.text).translate(_CONTROL)
    if isinstance(part, Bare) or _HARMLESS.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'" if text else ""


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
                yield _duplicate(place)
            else:
                yield from (_operator(place), _word_text(place.target))


def _word_text(word: Word) -> str:
    return "".join(
        part if isinstance(part, str) else _show_part(part, str) if isinstance(part, Capture) else part.text
        for part in word
    )
