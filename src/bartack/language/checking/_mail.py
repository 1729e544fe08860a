"""Mailboxes of a whole program: names that are sent to but never received from, and messages that lack a field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from bartack.language.checking._types import Type, literals_of, same_value
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import MOST_SHOWN, Diagnostic, diagnose
from bartack.language.syntax._near import nearest
from bartack.language.syntax._source import Span

Part = Literal["send", "receive", "both"]
SENDING = frozenset(("send", "call"))
RECEIVING = frozenset(("receive", "delivery"))


Value: TypeAlias = str | float | bool | None
Literals: TypeAlias = Mapping[str, tuple[Value, ...]]
"""Fields, and the values that each of them may have."""


class MailUse(msgspec.Struct, eq=False):
    """One use of a mailbox; `name` is None when it is computed.

    `both` is a use that may send and receive: a mailbox in a variable, a subscription. `fields` are the fields of a
    message written as an object, or those a receiver takes by a pattern; None when they are not known.
    """

    name: str | None
    part: Part
    file: str
    span: Span
    fields: frozenset[str] | None = None
    literals: Literals = {}
    """Of a message the fields with values that are written out; of a receiver the fields that must have certain values."""


def message_fields(message: tree.Expression) -> frozenset[str] | None:
    """The fields of a message that is written as an object; None when they are not known."""
    message = tree.bare(message)
    if not isinstance(message, tree.Object):
        return None
    keys: list[str] = []
    for field in message.fields:
        if isinstance(field, tree.Spread):
            return None
        keys.append(field.key.name)
    return frozenset(keys)


def pattern_fields(pattern: tree.Pattern) -> frozenset[str] | None:
    """The fields that a pattern takes out of a message; None when it takes the message as a whole."""
    if not isinstance(pattern, tree.ObjectPattern):
        return None
    return frozenset(field.key.name for field in pattern.fields)


def message_literals(message: tree.Expression) -> Literals:
    """The fields of a message whose values are written out."""
    message = tree.bare(message)
    found: dict[str, tuple[Value, ...]] = {}
    for field in message.fields if isinstance(message, tree.Object) else ():
        if isinstance(field, tree.ObjectField):
            value = tree.bare(field.value)
            if isinstance(value, (tree.Number, tree.Boolean)):
                found[field.key.name] = (value.value,)
            elif isinstance(value, tree.Null):
                found[field.key.name] = (None,)
            elif isinstance(value, tree.String) and value.literal is not None:
                found[field.key.name] = (value.literal,)
    return found


def pattern_literals(pattern: tree.Pattern, types: Mapping[tree.Node, Type]) -> Literals:
    """The fields of a pattern that must have one of some values."""
    found: dict[str, tuple[Value, ...]] = {}
    for field in pattern.fields if isinstance(pattern, tree.ObjectPattern) else ():
        kind = types.get(field.type) if field.type is not None else None
        literals = literals_of(kind) if kind is not None else None
        if literals is not None:
            found[field.key.name] = literals
    return found


def check_mail(uses: Sequence[MailUse]) -> Iterable[Diagnostic]:
    """What is to be said about the mailboxes of a program, given all uses of them."""
    if any(use.name is None and use.part == "both" for use in uses):
        return
    named: dict[str, list[MailUse]] = {}
    for use in uses:
        if use.name is not None:
            named.setdefault(use.name, []).append(use)
    anywhere: set[Part] = {use.part for use in uses if use.name is None}
    meant = _NearMailbox(named)
    for name, its in named.items():
        parts: set[Part] = {*(use.part for use in its), *anywhere}
        if "both" not in parts:
            yield from _one_sided(its, parts, meant)
            if not anywhere:
                yield from _lacking(name, its)
                yield from _never_matched(name, its)


class _NearMailbox:
    """Finds the mailbox with a near name that has just what another one lacks.

    A search looks at every mailbox, so there are at most as many searches as a file has diagnostics that are shown.
    """

    def __init__(self, named: Mapping[str, list[MailUse]]) -> None:
        self._candidates: dict[Part, list[str]] = {"send": [], "receive": []}
        for name, uses in named.items():
            part = uses[0].part
            if part in self._candidates and all(use.part == part for use in uses):
                self._candidates[part].append(name)
        self._left = MOST_SHOWN

    def label(self, name: str, lacking: Part) -> str:
        """A question that names the mailbox; nothing if there is none."""
        if not self._left:
            return ""
        self._left -= 1
        near = nearest(name, self._candidates[lacking])
        return "" if near is None else f"did you mean `{near}`?"


def _one_sided(uses: list[MailUse], parts: set[Part], meant: _NearMailbox) -> Iterable[Diagnostic]:
    first = uses[0]
    name = first.name or ""
    if "receive" not in parts:
        text = f"mailbox `{name}` is sent to but never received from"
        help_, label = _help(name, "receive()"), meant.label(name, "receive")
        yield diagnose("PW210", text, first.file, first.span, helps=(help_,), label=label)
    if "send" not in parts:
        text = f"mailbox `{name}` is received from but never sent to"
        help_, label = _help(name, "send(…)"), meant.label(name, "send")
        yield diagnose("PW211", text, first.file, first.span, helps=(help_,), label=label)


def _help(name: str, call: str) -> str:
    spelled = f".{name}" if name.isidentifier() else f'["{name}"]'
    return f"some worker must call `self.session.mailbox{spelled}.{call}`"


def _lacking(name: str, uses: list[MailUse]) -> Iterable[Diagnostic]:
    taken = [use.fields for use in uses if use.part == "receive"]
    sent = [use for use in uses if use.part == "send"]
    if not taken or any(use.fields is None for use in sent):
        return
    wanted: frozenset[str] | None = None
    for fields in taken:
        if fields is None:
            return
        wanted = fields if wanted is None else wanted & fields
    for use in sent:
        for field in sorted((wanted or frozenset()) - (use.fields or frozenset())):
            text = f"message to `{name}` lacks field `{field}` matched by every receiver"
            yield diagnose("PW212", text, use.file, use.span)


def _never_matched(name: str, uses: list[MailUse]) -> Iterable[Diagnostic]:
    """Receivers that wait for a value which no message has."""
    sent = [use for use in uses if use.part == "send"]
    if not sent or any(use.fields is None for use in sent):
        return
    for use in uses:
        if use.part != "receive":
            continue
        for field, wanted in use.literals.items():
            if not any(_may_match(message, field, wanted) for message in sent):
                shown = " or ".join(f"`{field}: {json.dumps(one, ensure_ascii=False)}`" for one in wanted)
                given = sorted({_shown(message, field) for message in sent})
                text = f"no message to `{name}` has {shown}"
                helps = (f"the messages have {', '.join(given)}",)
                yield diagnose("PW212", text, use.file, use.span, helps=helps)
                break


def _may_match(message: MailUse, field: str, wanted: tuple[Value, ...]) -> bool:
    if field not in (message.fields or ()):
        return False
    given = message.literals.get(field)
    return given is None or any(same_value(one, other) for one in given for other in wanted)


def _shown(message: MailUse, field: str) -> str:
    given = message.literals.get(field)
    if given is None:
        return f"no `{field}`"
    return f"`{field}: {json.dumps(given[0], ensure_ascii=False)}`"
