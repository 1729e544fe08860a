"""Takes secrets out of what is shown: of every text that is not one of a closed set of words.

The values of an environment are known by the settings of the workspace. A model that holds none of them is returned as it is,
which one look at its JSON decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar, cast

import msgspec
from msgspec import inspect

from bartack.config.load import Config
from bartack.core.redact import Redactor
from bartack.web.models._model import Model, Shown

M = TypeVar("M", bound=Model)
S = TypeVar("S", bound=msgspec.Struct)

CUT_BYTES: Final = 256 * 1024
"""Values with more bytes than this are shown by their beginning."""

_encode: Final = msgspec.json.Encoder().encode


class Hider:
    """Hides the secrets of one workspace.

    Args:
        redactor: Knows them.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    @classmethod
    def of(cls, config: Config) -> Hider:
        """The one of these settings: secrets are in the environment and in ``tests.env``."""
        return cls(Redactor({**os.environ, **config.tests.env}, config.redaction.rule))

    def hide(self, model: M) -> M:
        """A model of ours without secrets. See ``hide_any``."""
        return self.hide_any(model)

    def hide_any(self, model: S) -> S:
        """A model without secrets, and without halves of characters, which JSON cannot hold."""
        try:
            encoded = _encode(model)
        except UnicodeEncodeError:
            return cast("S", _plan_of(type(model))(model, self._clean))
        if self._redactor.redact_bytes(encoded) is encoded:
            return model
        return cast("S", _plan_of(type(model))(model, self._redactor.redact_text))

    def _clean(self, text: str) -> str:
        # What is left of them comes from names of files, which may have any bytes.
        whole = text.encode("utf-8", "surrogateescape" if _is_bytes(text) else "replace")
        return self._redactor.redact_text(whole.decode("utf-8", "backslashreplace"))

    def text(self, text: str) -> str:
        """A text without secrets."""
        return self._redactor.redact_text(text)

    def line(self, line: bytes) -> bytes:
        """A line that an agent or a program wrote, without known secrets and without what stands after the name of one."""
        return self._redactor.hide_lines(line)

    def data(self, data: bytes) -> bytes:
        """Bytes without known secrets."""
        return self._redactor.redact_bytes(data)

    def show(self, encoded: bytes) -> Shown:
        """A value of the journal, given as JSON: whole, or its beginning if it is long."""
        size = len(encoded)
        if size > CUT_BYTES:
            # A secret may begin before the cut and end after it.
            head = self._redactor.redact_bytes(encoded[: CUT_BYTES + self._redactor.longest])[:CUT_BYTES]
            return Shown(size=size, text=head.decode("utf-8", "replace"), cut=True)
        try:
            return Shown(size=size, value=_sound(self._redactor.redact_value(msgspec.json.decode(encoded))))
        except (msgspec.DecodeError, RecursionError, OverflowError, UnicodeError):
            # It is JSON that no value of ours can stand for: nested too deeply, a number out of range, half a character.
            text = self._redactor.redact_bytes(encoded).decode("utf-8", "replace")
            return Shown(size=size, text=text, cut=True)


def _sound(value: object) -> object:
    """The value, if it can be encoded again."""
    _encode(value)
    return value


def _is_bytes(text: str) -> bool:
    """Whether all halves of characters in a text stand for bytes of a name."""
    return all(
        not "\ud800" <= character <= "\udfff" or "\udc80" <= character <= "\udcff" for character in text
    )


# Models.

_Change = Callable[[str], str]
_Plan = Callable[[object, _Change], object]


@cache
def _plan_of(kind: type) -> _Plan:
    """How the texts of a model are changed: those of its members that may hold any text."""
    plans = {
        field.name: plan
        for field in cast("inspect.StructType", inspect.type_info(kind)).fields
        if (plan := _plan_for(field.type)) is not None
    }

    def change_all(value: object, change: _Change) -> object:
        changed = {name: plan(getattr(value, name), change) for name, plan in plans.items()}
        return msgspec.structs.replace(cast("msgspec.Struct", value), **changed)

    return change_all


_CLOSED: Final = (
    inspect.LiteralType,
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.NoneType,
)
"""Members of these types hold no text, or one of a few words of ours."""


def _plan_for(kind: inspect.Type) -> _Plan | None:
    if isinstance(kind, inspect.Metadata):
        return _plan_for(kind.type)
    return None if isinstance(kind, _CLOSED) else _change


def _change(value: object, change: _Change) -> object:
    """Change a member: a text, a model, or a collection of them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, msgspec.Struct):
        return _plan_of(type(value))(value, change)
    if isinstance(value, list):
        return [_change(element, change) for element in cast("list[object]", value)]
    if isinstance(value, tuple):
        return tuple(_change(element, change) for element in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {_change(name, change): _change(member, change) for name, member in members.items()}
    return value
