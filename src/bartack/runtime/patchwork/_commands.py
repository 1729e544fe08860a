"""Commands of a Patchwork program: how the values it puts into words become the form that is executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from bartack.errors import TypeMismatchError
from bartack.runtime.patchwork._values import is_array, kind_of, mismatch, text
from bartack.supervision.forms import (
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

Written = str | Word
"""A word as the compiler writes it: a plain text, or its parts."""
Step = list[Written] | SimpleCommand | Group
"""A command of a pipeline as the compiler writes it."""


def word(*parts: object) -> Word:
    """A word made of texts, values and nested commands.

    Raises:
        TypeMismatchError: A value in it is null, or has no text.
    """
    return [part if isinstance(part, Bare | Capture) else _text(part) for part in parts]


def _text(value: object) -> str:
    if value is None:
        raise TypeMismatchError("a word of a command", "a value", "null")
    return text(value)


def arguments(value: object) -> list[Written]:
    """The elements of an array as one word each."""
    if not is_array(value):
        raise mismatch("$@{…} in a command", "an array", value)
    return [[_text(element)] for element in value]


def command(
    words: Sequence[Written],
    *,
    env: Sequence[tuple[str, Written]] = (),
    redirects: Sequence[tuple[object, ...]] = (),
) -> SimpleCommand:
    """A program with its arguments."""
    return SimpleCommand(
        [_word(one) for one in words],
        [(name, _word(value)) for name, value in env],
        [_redirect(one) for one in redirects],
    )


def group(form: object, *, redirects: Sequence[tuple[object, ...]] = ()) -> Group:
    """``( … )`` in a command line."""
    return Group(as_form(form), [_redirect(one) for one in redirects])


def commands(first: list[Step], *rest: object) -> Form:
    """Pipelines joined by ``&&`` and ``||``."""
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return Form(
        _pipeline(first),
        [("&&" if operator == "&&" else "||", _pipeline(cast("list[Step]", one))) for operator, one in pairs],
    )


def nested(form: object) -> Capture:
    """``$( … )`` in a word."""
    return Capture(as_form(form))


def as_form(form: object) -> Form:
    """What the compiler wrote, as a form."""
    if isinstance(form, Form):
        return form
    if not is_array(form):
        raise TypeError(f"{kind_of(form)} is not a form")
    return Form(_pipeline(cast("list[Step]", form)))


def _pipeline(steps: list[Step]) -> Pipeline:
    return Pipeline([step if isinstance(step, SimpleCommand | Group) else command(step) for step in steps])


def _word(written: Written) -> Word:
    return [written] if isinstance(written, str) else written


def _redirect(written: tuple[object, ...]) -> Redirect | Duplicate:
    if len(written) == 2:
        to, source = cast("tuple[Literal[1, 2], Literal[1, 2]]", written)
        return Duplicate(to, source)
    fd, operator, target = cast('tuple[Literal[0, 1, 2], Literal["<", ">", ">>"], Written]', written)
    return Redirect(fd, operator, _word(target))


def bare(written: str) -> Part:
    """Unquoted text, which may match names of files."""
    return Bare(written)
