"""From code and context to a pattern event: id, version, parents and edge, and the rows that remember them.

``Draft`` is an event that is not durable yet, with what has to be remembered beside it in the same transaction. What a caller
has said wrongly is an ``ArgumentFault``, a value.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, cast

from bartack.errors import ResilienceError
from bartack.resilience import StateStore
from bartack.resilience.cache import TakenBackError
from bartack.resilience.outbox.outbox import bump
from bartack.tracking.pattern._name import language_of, name_of
from bartack.tracking.pattern._pattern import (
    ID_SCHEME,
    NormalForm,
    id_of,
    language_slug,
    normalise,
    type_slug,
)
from bartack.tracking.pattern._similarity import (
    FIRST_VERSION,
    MAJOR_FROM,
    Version,
    free_version,
    next_version,
    parse_version,
    similarity_of,
)

CONTEXT_KEYS: Final = {"file_path", "language", "pattern_type", "tool_name", "session_id", "reason"}
SEEN: Final = "creation"
SEEN_S: Final = 86_400.0
_NORMAL_MOST: Final = 64 * 1024
_CODE_MOST: Final = 1024 * 1024
_PARENTS_MOST: Final = 64

Event = dict[str, object]
Context = Mapping[str, object]


class ArgumentFault(NamedTuple):
    """What is wrong with what a caller gave."""

    problem: str


class KnownPattern(NamedTuple):
    """What is remembered of a pattern: its newest version, and its normal form unless that was too long."""

    version: str
    normal: NormalForm | None


class Draft(NamedTuple):
    """An event to be kept, and what to remember with it."""

    event: Event
    normal: NormalForm | None = None
    parent: str | None = None
    similarity: float | None = None
    seen_key: str = ""

    @property
    def pattern_id(self) -> str:
        """The pattern this is about."""
        return str(self.event["pattern_id"])

    def remember(self, connection: sqlite3.Connection, wall: float) -> None:
        """Write what has to be known the next time, in the transaction that keeps the event.

        Raises:
            TakenBackError: The same creation was tracked a short time ago, by any process.
        """
        if self.seen_key:
            self._remember_creation(connection, wall)
        version = str(self.event.get("pattern_version", FIRST_VERSION))
        if self.normal is not None:
            self._remember_pattern(connection, version, self.normal, wall)
        path = file_of(self.event)
        if path and self.normal is not None:
            connection.execute(
                "INSERT OR REPLACE INTO files VALUES(?,?,?,?)", (path, self.pattern_id, version, wall)
            )

    def _remember_pattern(
        self, connection: sqlite3.Connection, version: str, normal: NormalForm, wall: float
    ) -> None:
        query = "SELECT version FROM patterns WHERE pattern_id=?"
        found = connection.execute(query, (self.pattern_id,)).fetchone()
        # The same code may be created once more, in another file: its newest version stays the newest.
        newest = max(version, found[0], key=parse_version) if found else version
        connection.execute(
            "INSERT OR REPLACE INTO patterns VALUES(?,?,?,?)",
            (self.pattern_id, newest, _stored(normal), wall),
        )

    def _remember_creation(self, connection: sqlite3.Connection, wall: float) -> None:
        found = connection.execute(
            "SELECT 1 FROM seen WHERE kind=? AND key=? AND expires>?", (SEEN, self.seen_key, wall)
        ).fetchone()
        if found:
            raise TakenBackError
        connection.execute(
            "INSERT OR REPLACE INTO seen VALUES(?,?,?,?)",
            (SEEN, self.seen_key, wall + SEEN_S, str(self.event.get("event_id", ""))),
        )
        bump(connection, "creations", 1)


def _stored(normal: NormalForm) -> str | None:
    text = f"{normal.normaliser}\0{normal.text}"
    try:
        return text if len(text.encode()) <= _NORMAL_MOST else None
    except UnicodeEncodeError:  # half of a surrogate pair, which SQLite does not take
        return None


def file_of(event: Mapping[str, object]) -> str:
    """The file an event is about, as an absolute path; empty if none."""
    metadata = event.get("metadata")
    path = cast("Event", metadata).get("file_path") if isinstance(metadata, dict) else None
    return path if isinstance(path, str) else ""


class Drafter:
    """Makes events from code, with what a state database remembers.

    Args:
        store: Where patterns and files are remembered.
        keep_code: Whether the code goes into the event, or only its size and checksum.
    """

    def __init__(self, store: StateStore, *, keep_code: bool = True) -> None:
        self._store = store
        self._keep_code = keep_code

    def created(self, code: str, context: Context, parents: Sequence[str] = ()) -> Draft | ArgumentFault:
        """Some code came into being, perhaps from others."""
        if not code.strip():
            return ArgumentFault("there is no code")
        if len(parents) > _PARENTS_MOST:
            return ArgumentFault(f"more than {_PARENTS_MOST} parents")
        normal, pattern = self._identify(code, context)
        known = {parent: self.known(parent) for parent in parents}
        version, alike = FIRST_VERSION, None
        if len(parents) == 1:
            alike = _alike(known[parents[0]], normal)
            version = next_version(_newest(known[parents[0]]), alike)
        version = free_version(version, self._newest_of(pattern) if parents else None)
        event = self._event("pattern_created", pattern, version, context, code, normal)
        _add_parents(event, known, "derived_from")
        return Draft(event, normal, similarity=alike, seen_key=seen_key(pattern, context))

    def modified(
        self, parent: str, code: str, context: Context, reason: str | None = None, *, by_path: bool = False
    ) -> Draft | ArgumentFault:
        """A pattern was changed. ``by_path``: the parent was found by its file, not named by the caller."""
        if not code.strip():
            return ArgumentFault("there is no code")
        if not parent:
            return ArgumentFault("there is no pattern to modify")
        normal, pattern = self._identify(code, context)
        known = self.known(parent)
        if pattern == parent:
            draft = self.applied(pattern, context)
            assert isinstance(draft, Draft)
            return draft._replace(parent=parent, similarity=1.0)
        alike = _alike(known, normal)
        if alike is not None and alike < MAJOR_FROM and by_path:
            event = self._event("pattern_created", pattern, FIRST_VERSION, context, code, normal)
            _metadata(event)["replaces"] = parent
            return Draft(event, normal, parent, alike)
        version = free_version(next_version(_newest(known), alike), self._newest_of(pattern))
        event = self._event("pattern_modified", pattern, version, context, code, normal, reason)
        far = alike is not None and alike < MAJOR_FROM
        _add_parents(event, {parent: known}, "derived_from" if far else "modified_from")
        if alike is not None:
            event["edge_weight"] = round(alike, 6)
        return Draft(event, normal, parent, alike)

    def applied(self, pattern: str, context: Context) -> Draft | ArgumentFault:
        """A pattern was used as it is."""
        if not pattern:
            return ArgumentFault("there is no pattern to apply")
        version = self._newest_of(pattern) or FIRST_VERSION
        return Draft(self._event("pattern_applied", pattern, version, context))

    def merged(
        self, sources: Sequence[str], code: str, context: Context, reason: str | None = None
    ) -> Draft | ArgumentFault:
        """Several patterns became one."""
        if not sources:
            return ArgumentFault("there are no sources to merge")
        if len(sources) > _PARENTS_MOST:
            return ArgumentFault(f"more than {_PARENTS_MOST} sources")
        if not code.strip():
            return ArgumentFault("there is no code")
        normal, pattern = self._identify(code, context)
        known = {source: self.known(source) for source in sources if source != pattern}
        highest = max((parse_version(_newest(one)).major for one in known.values()), default=1)
        version = free_version(str(Version(highest + 1, 0, 0)), self._newest_of(pattern))
        event = self._event("pattern_merged", pattern, version, context, code, normal, reason)
        _add_parents(event, known, "merged_from")
        return Draft(event, normal)

    def pattern_of_file(self, path: str) -> str | None:
        """The pattern that a file held last."""
        found = self._recall("SELECT pattern_id FROM files WHERE path=?", absolute(path))
        return str(found[0]) if found else None

    def known(self, pattern: str) -> KnownPattern | None:
        """What is remembered of a pattern."""
        found = self._recall("SELECT version,normal FROM patterns WHERE pattern_id=?", pattern)
        if found is None:
            return None
        stored = found[1]
        if not isinstance(stored, str):
            return KnownPattern(str(found[0]), None)
        normaliser, _, text = stored.partition("\0")
        return KnownPattern(str(found[0]), NormalForm(normaliser, text))

    def _recall(self, query: str, key: str) -> tuple[object, ...] | None:
        def work(connection: sqlite3.Connection) -> tuple[object, ...] | None:
            row: tuple[object, ...] | None = connection.execute(query, (key,)).fetchone()
            return row

        try:
            return self._store.read(work)
        except (ResilienceError, UnicodeEncodeError):  # without memory an event is still worth keeping
            return None

    def _newest_of(self, pattern: str) -> str | None:
        known = self.known(pattern)
        return known.version if known else None

    def _identify(self, code: str, context: Context) -> tuple[NormalForm, str]:
        language, kind = _language(context), _text(context, "pattern_type")
        normal = normalise(code, language)
        return normal, id_of(normal, language, kind)

    def _event(
        self,
        event_type: str,
        pattern: str,
        version: str,
        context: Context,
        code: str | None = None,
        normal: NormalForm | None = None,
        reason: str | None = None,
    ) -> Event:
        language, kind, path = _language(context), _text(context, "pattern_type"), _text(context, "file_path")
        name = name_of(code, language, type_slug(kind), path) if code is not None else ""
        metadata: Event = {key: value for key, value in context.items() if key not in CONTEXT_KEYS}
        metadata |= {key: context[key] for key in ("tool_name", "session_id") if context.get(key)}
        metadata["id_scheme"] = ID_SCHEME
        if path:
            metadata["file_path"] = absolute(path)
        if normal is not None:
            metadata["normaliser"] = normal.normaliser
        event: Event = {
            "event_type": event_type,
            "pattern_id": pattern,
            "pattern_name": name,
            "pattern_type": type_slug(kind),
            "language": language_slug(language),
            "pattern_version": version,
            "pattern_data": self._data(code, path) if code is not None else {},
            "triggered_by": "claude-code" if context.get("session_id") else "api",
            "metadata": metadata,
            "occurred_at": datetime.fromtimestamp(self._store.wall(), UTC).isoformat(),
        }
        why = reason or _text(context, "reason")
        return {**event, "reason": why} if why else event

    def _data(self, code: str, path: str) -> Event:
        raw = code.encode("utf-8", "surrogatepass")
        if self._keep_code and len(raw) <= _CODE_MOST:
            return {"code": code, "file_path": path} if path else {"code": code}
        return {
            "code_omitted": True,
            "file_path": path,
            "size": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }


def seen_key(pattern: str, context: Context) -> str:
    """What makes two creations the same: the pattern, and the file it is in."""
    path = _text(context, "file_path")
    return f"{pattern}\0{absolute(path)}" if path else f"{pattern}\0"


def absolute(path: str) -> str:
    """A path as it is remembered."""
    return os.path.abspath(os.path.expanduser(path))


def _text(context: Context, key: str) -> str:
    value = context.get(key)
    return "" if value is None else str(value)


def _language(context: Context) -> str:
    return _text(context, "language") or language_of(_text(context, "file_path"))


def _alike(known: KnownPattern | None, normal: NormalForm) -> float | None:
    if known is None or known.normal is None:
        return None
    return similarity_of(known.normal, normal)


def _newest(known: KnownPattern | None) -> str:
    return known.version if known else FIRST_VERSION


def _metadata(event: Event) -> Event:
    found = event["metadata"]
    assert isinstance(found, dict)
    return cast("Event", found)


def _add_parents(event: Event, known: Mapping[str, KnownPattern | None], edge: str) -> None:
    if not known:
        return
    event["parent_pattern_ids"] = list(known)
    if any(known.values()):
        event["parent_versions"] = [one.version if one else None for one in known.values()]
    event["edge_type"] = edge
