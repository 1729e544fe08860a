"""Drafts on their way to a commit: checked, encoded and given their places. Both engines stage the same way."""

from __future__ import annotations

import math
import re
from threading import Lock
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.core.clock import Clock
from bartack.errors import EntryError
from bartack.journal.contract import DATA_LIMIT, INLINE_LIMIT, BlobStore, Draft
from bartack.journal.veil import Veil

GROUP_LIMIT: Final = 16 * 1024 * 1024
"""The most bytes one atomic group may take in the journal itself."""

_LINE_BREAK: Final = ord("\n")
"""As a number: ``in`` finds a byte in a third of the time that it takes to find bytes."""
_KIND = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*")
_encode = msgspec.json.Encoder().encode
_check_json = typed.decoder(msgspec.Raw).decode


class Group(msgspec.Struct, frozen=True, gc=False):
    """Drafts that become one line."""

    seq: int
    at: int
    bodies: list[bytes]


class Stage:
    """Where drafts wait for the next commit.

    Attributes:
        last_seq: Place of the last draft that was taken.

    Args:
        blobs: Where large values go; it hides secrets by itself.
        clock: The time of entries.
        last_seq: Place of the last entry that is there.
        veil: Hides the secrets.
    """

    def __init__(self, blobs: BlobStore, clock: Clock, last_seq: int, veil: Veil | None = None) -> None:
        self.last_seq = last_seq
        self._blobs = blobs
        self._clock = clock
        self._veil = veil
        self._groups: list[Group] = []
        self._mutex = Lock()
        self._kinds: dict[str, bytes] = {}

    def add(self, drafts: tuple[Draft, ...], *, join: bool = False) -> int:
        """Take one atomic group, or with ``join`` more of the last one; return the place of the first of these entries."""
        if not drafts:
            raise EntryError("", "a group needs at least one entry")
        bodies = list(map(self._body, drafts))
        if self._veil is not None:
            bodies = list(map(self._veil.hide, bodies))
        if join:
            return self._join(drafts[0].kind, bodies)
        if len(bodies) > 1:
            _check_group(drafts[0].kind, bodies)
        return self._place(bodies)

    def add_own(self, kind: str, data: msgspec.Struct) -> int:
        """Take an entry of the engine itself: its kinds are reserved."""
        return self._place([b'"kind":"%b","data":%b' % (kind.encode(), _encode(data))])

    def take(self) -> list[Group]:
        """Everything that waits; nothing waits afterwards."""
        with self._mutex:
            groups, self._groups = self._groups, []
        return groups

    def _place(self, bodies: list[bytes]) -> int:
        with self._mutex:
            seq = self.last_seq + 1
            self._groups.append(Group(seq, self._clock.now_us(), bodies))
            self.last_seq += len(bodies)
        return seq

    def _join(self, kind: str, bodies: list[bytes]) -> int:
        with self._mutex:
            if not self._groups:
                raise EntryError(kind, "no group is staged that it could join")
            group = self._groups[-1].bodies
            _check_group(kind, [*group, *bodies])
            seq = self.last_seq + 1
            group += bodies
            self.last_seq += len(bodies)
        return seq

    def _body(self, draft: Draft) -> bytes:
        prefix = self._kinds.get(draft.kind) or self._learn(draft.kind)
        data = _encode_data(draft)
        value, ref = draft.value, draft.ref
        if value is not None:
            if ref is not None:
                raise EntryError(draft.kind, "an entry has a value or a reference, not both")
            if not draft.sound or _LINE_BREAK in value:
                _check_text(draft.kind, "value", value)
            if len(value) <= INLINE_LIMIT:
                return b'%b%b,"value":%b' % (prefix, data, value)
            ref = self._blobs.put(value)
        elif ref is not None:
            self._blobs.check(ref)
        return prefix + data if ref is None else b'%b%b,"ref":%b' % (prefix, data, _encode(ref))

    def _learn(self, kind: str) -> bytes:
        if len(kind) > 64 or not _KIND.fullmatch(kind):
            raise EntryError(kind, "a kind is made of lower-case words joined by dots, 64 characters at most")
        if kind.startswith("journal."):
            raise EntryError(kind, "kinds that begin with 'journal.' are the engine's own")
        prefix = self._kinds[kind] = b'"kind":"%b","data":' % kind.encode()
        return prefix


def _check_group(kind: str, bodies: list[bytes]) -> None:
    if sum(map(len, bodies)) > GROUP_LIMIT:
        raise EntryError(kind, f"the group takes more than {GROUP_LIMIT} bytes")


def _encode_data(draft: Draft) -> bytes:
    try:
        data = _encode(draft.data)
    except (TypeError, ValueError, RecursionError) as error:
        raise EntryError(draft.kind, f"data is not JSON: {error}") from error
    if data[:1] != b"{":
        raise EntryError(draft.kind, "data must be an object")
    if len(data) > DATA_LIMIT:
        raise EntryError(
            draft.kind, f"data takes {len(data)} bytes, more than {DATA_LIMIT}; put it into the value"
        )
    if data.find(b"null") >= 0 and not is_finite(draft.data):
        raise EntryError(draft.kind, "data holds a number that is not finite; JSON has none")
    # What was encoded already (msgspec.Raw) goes through the encoder unseen.
    if not draft.sound or _LINE_BREAK in data:
        _check_text(draft.kind, "data", data)
    return data


def is_finite(value: object) -> bool:
    """Whether every number in something to be encoded is one: the encoder turns the others into null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, msgspec.Struct):
        return all(is_finite(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, dict):
        return all(map(is_finite, cast("dict[str, object]", value).values()))
    if isinstance(value, list | tuple):
        return all(map(is_finite, cast("list[object]", value)))
    return True


def _check_text(kind: str, part: str, text: bytes) -> None:
    """Refuse what would not come back as it went in: a line is one line of UTF-8, and JSON all through."""
    if b"\n" in text:
        raise EntryError(kind, f"{part} holds a line break; encode it as one line")
    try:
        _check_json(text)
        if not text.isascii():
            text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EntryError(kind, f"{part} is not JSON: {error}") from error
