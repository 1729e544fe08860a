"""What an event does to the graph. Everything here happens inside a transaction of the caller.

Events may come in any order and more than once; nodes, edges and generations are the same afterwards. So a parent that is not
known yet becomes a stub, which its own event fills later; and where two events describe one node or edge, the earlier one is
believed: by the time it states, else by its id, never by when it arrived.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from bartack.errors import EventConflictError, LineageCycleError
from bartack.tracking.lineage._schema import edge_id_of, node_id_of, version_order
from bartack.tracking.lineage.wire import EdgeTypeGiven, Event, EventType, Tracked, TrackRequest

FIRST_VERSION: Final = "1.0.0"

REGENERATE_LIMIT: Final = 10_000
"""The most nodes that get a new generation with one event; the rest get theirs with the next events."""

INDEXED_CHARACTERS: Final = 64 * 1024
"""So much of a pattern's code can be searched."""

DEFAULT_EDGE: Final[dict[EventType, EdgeTypeGiven | None]] = {
    "pattern_created": "derived_from",
    "pattern_modified": "modified_from",
    "pattern_merged": "merged_from",
    "pattern_forked": "forked_from",
    "pattern_deprecated": "deprecated_by",
    "pattern_applied": None,
}
"""The type of the edges of an event that names none; an application makes no edge by itself."""

DESCRIBING: Final = frozenset({"pattern_created", "pattern_modified", "pattern_merged", "pattern_forked"})
"""The events that describe a pattern. The others only report a use of it."""


def record_event(db: sqlite3.Connection, event: Event, now: str) -> Tracked:
    """Record an event, once; what is known already is answered as it was then.

    Raises:
        EventConflictError: Another event has this id.
        LineageCycleError: A parent comes from the pattern itself.
    """
    known = _first_answer(db, event)
    if known is not None:
        return known
    request = event.request
    version = _version_of(db, event)
    node_id = _ensure_node(db, request.pattern_id, version, event.occurred_at or now)
    if request.event_type in DESCRIBING:
        _fill_node(db, node_id, event, now)
    if request.event_type == "pattern_deprecated":
        db.execute("UPDATE nodes SET deprecated = 1 WHERE node_id = ?", (node_id,))
    edge_type = request.edge_type or DEFAULT_EDGE[request.event_type]
    if request.parent_pattern_ids and edge_type is not None:
        parents = _ensure_parents(db, request, event.occurred_at or now)
        _refuse_cycle(db, parents, node_id)
        _add_edges(db, parents, node_id, edge_type, event, now)
        _regenerate(db, node_id)
    return _remember(db, event, node_id, version, now)


def _first_answer(db: sqlite3.Connection, event: Event) -> Tracked | None:
    row = db.execute(
        "SELECT e.body_sha256, n.node_id, n.pattern_id, n.pattern_version, e.generation"
        " FROM events e JOIN nodes n USING (node_id) WHERE e.event_id = ?",
        (event.event_id,),
    ).fetchone()
    if row is None:
        return None
    if row[0] != event.body_sha256:
        raise EventConflictError(event.event_id)
    node_id, pattern_id, version, generation = row[1:]
    return Tracked(node_id, pattern_id, version, generation, True, event.event_id, True)


def newest_version(db: sqlite3.Connection, pattern_id: str) -> str | None:
    """The greatest version of a pattern that is known."""
    row = db.execute(
        "SELECT pattern_version FROM nodes WHERE pattern_id = ? ORDER BY version_order DESC LIMIT 1",
        (pattern_id,),
    ).fetchone()
    return row[0] if row else None


def _version_of(db: sqlite3.Connection, event: Event) -> str:
    request = event.request
    if request.pattern_version is not None:
        return request.pattern_version
    if request.event_type in DESCRIBING:
        return FIRST_VERSION
    return newest_version(db, request.pattern_id) or FIRST_VERSION


def _ensure_node(db: sqlite3.Connection, pattern_id: str, version: str, at: str) -> str:
    node_id = node_id_of(pattern_id, version)
    db.execute(
        "INSERT INTO nodes(node_id, pattern_id, pattern_version, version_order, created_at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (node_id, pattern_id, version, version_order(version), at),
    )
    return node_id


def _ensure_parents(db: sqlite3.Connection, request: TrackRequest, at: str) -> list[str]:
    versions = request.parent_versions or [None] * len(request.parent_pattern_ids)
    parents: dict[str, None] = {}
    for pattern_id, version in zip(request.parent_pattern_ids, versions, strict=True):
        known = version or newest_version(db, pattern_id) or FIRST_VERSION
        parents[_ensure_node(db, pattern_id, known, at)] = None
    return list(parents)


def _newest_key(event: Event) -> str:
    """A text that is less for the event that is to be believed; events that state a time come first."""
    return f"{event.occurred_at or '~'} {event.event_id}"


def _fill_node(db: sqlite3.Connection, node_id: str, event: Event, now: str) -> None:
    request = event.request
    told_by = _newest_key(event)
    seq, stub, believed = db.execute(
        "SELECT seq, stub, told_by FROM nodes WHERE node_id = ?", (node_id,)
    ).fetchone()
    if not stub and believed <= told_by:
        return
    db.execute(
        "UPDATE nodes SET pattern_name = ?, pattern_type = ?, language = ?, pattern_data = ?, metadata = ?,"
        " created_at = ?, told_by = ?, stub = 0 WHERE seq = ?",
        (
            *(request.pattern_name, request.pattern_type, request.language or "unknown"),
            *(_json(request.pattern_data), _json(request.metadata), event.occurred_at or now, told_by, seq),
        ),
    )
    if not stub:
        db.execute("DELETE FROM search WHERE rowid = ?", (seq,))
    _index(db, seq, request)


def _index(db: sqlite3.Connection, seq: int, request: TrackRequest) -> None:
    code = request.pattern_data.get("code")
    text = code[:INDEXED_CHARACTERS] if isinstance(code, str) else ""
    db.execute(
        "INSERT INTO search(rowid, pattern_name, language, pattern_type, code) VALUES (?, ?, ?, ?, ?)",
        (seq, request.pattern_name, request.language or "unknown", request.pattern_type, text),
    )


def _refuse_cycle(db: sqlite3.Connection, parents: list[str], child: str) -> None:
    has_children = db.execute("SELECT 1 FROM edges WHERE source_node_id = ? LIMIT 1", (child,)).fetchone()
    if has_children is None and child not in parents:
        return
    # UNION, not UNION ALL: each node below is looked at once, also where a cycle was imported.
    row = db.execute(
        "WITH RECURSIVE below(node_id) AS (SELECT ? UNION"
        " SELECT e.target_node_id FROM below JOIN edges e ON e.source_node_id = below.node_id)"
        " SELECT p.pattern_id || ' ' || p.pattern_version, c.pattern_id || ' ' || c.pattern_version"
        " FROM below JOIN nodes p USING (node_id) JOIN nodes c ON c.node_id = ?"
        " WHERE below.node_id IN (SELECT value FROM json_each(?)) LIMIT 1",
        (child, child, _json(parents)),
    ).fetchone()
    if row is not None:
        raise LineageCycleError(*row)


def _add_edges(
    db: sqlite3.Connection, parents: list[str], child: str, given: EdgeTypeGiven, event: Event, now: str
) -> None:
    request = event.request
    edge_type = "derived_from" if given == "created_from" else given
    facts = (request.transformation_type, request.edge_weight, _json(_edge_facts(request)))
    db.executemany(
        "INSERT INTO edges(edge_id, source_node_id, target_node_id, edge_type, transformation_type, edge_weight,"
        " metadata, created_at, told_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(source_node_id, target_node_id, edge_type) DO UPDATE SET"
        " transformation_type = excluded.transformation_type, edge_weight = excluded.edge_weight,"
        " metadata = excluded.metadata, created_at = excluded.created_at, told_by = excluded.told_by"
        " WHERE excluded.told_by < told_by",
        [
            (
                *(edge_id_of(parent, child, edge_type), parent, child, edge_type),
                *facts,
                *(event.occurred_at or now, _newest_key(event)),
            )
            for parent in parents
        ],
    )


def _edge_facts(request: TrackRequest) -> dict[str, object]:
    return {} if request.reason is None else {"reason": request.reason}


def _regenerate(db: sqlite3.Connection, node_id: str) -> None:
    """Give a node, and what comes from it, the generation that its parents now demand."""
    stale = {row[0] for row in db.execute("SELECT node_id FROM stale")}
    if stale:
        db.execute("DELETE FROM stale")
    waiting = stale | {node_id}
    # No path is longer than there are nodes: beyond that it is a cycle that was imported.
    (highest,) = db.execute("SELECT max(seq) FROM nodes").fetchone()
    left = REGENERATE_LIMIT
    while waiting and left > 0:
        changed = [
            (generation, changed_id)
            for changed_id, known, generation in _demanded(db, waiting)
            if known < generation <= highest
        ]
        db.executemany("UPDATE nodes SET generation = ? WHERE node_id = ?", changed[:left])
        rest = {changed_id for _, changed_id in changed[left:]}
        left -= len(changed)
        waiting = rest | _children(db, [changed_id for _, changed_id in changed])
    if waiting:
        db.executemany("INSERT INTO stale VALUES (?) ON CONFLICT DO NOTHING", [(name,) for name in waiting])


def _demanded(db: sqlite3.Connection, nodes: Iterable[str]) -> list[tuple[str, int, int]]:
    """Nodes with the generation they have and the one that their parents demand."""
    return db.execute(
        "SELECT n.node_id, n.generation, coalesce(1 + max(p.generation), 0) FROM json_each(?) j"
        " JOIN nodes n ON n.node_id = j.value LEFT JOIN edges e ON e.target_node_id = n.node_id"
        " LEFT JOIN nodes p ON p.node_id = e.source_node_id GROUP BY n.node_id",
        (_json(list(nodes)),),
    ).fetchall()


def _children(db: sqlite3.Connection, nodes: Iterable[str]) -> set[str]:
    found = db.execute(
        "SELECT e.target_node_id FROM json_each(?) j JOIN edges e ON e.source_node_id = j.value",
        (_json(list(nodes)),),
    )
    return {row[0] for row in found}


def _remember(db: sqlite3.Connection, event: Event, node_id: str, version: str, now: str) -> Tracked:
    request = event.request
    (generation,) = db.execute("SELECT generation FROM nodes WHERE node_id = ?", (node_id,)).fetchone()
    db.execute(
        "INSERT INTO events(event_id, node_id, event_type, event_data, triggered_by, occurred_at, received_at,"
        " generation, body_sha256) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(
                event.event_id,
                node_id,
                request.event_type,
                _json(_event_facts(request)),
                request.triggered_by,
            ),
            *(event.occurred_at, now, generation, event.body_sha256),
        ),
    )
    return Tracked(
        node_id=node_id,
        pattern_id=request.pattern_id,
        pattern_version=version,
        generation=generation,
        event_recorded=True,
        event_id=event.event_id,
        duplicate=False,
    )


def _event_facts(request: TrackRequest) -> dict[str, object]:
    # The node keeps the code; the event keeps what only the event knows.
    return {
        "parent_pattern_ids": request.parent_pattern_ids,
        "parent_versions": request.parent_versions,
        "reason": request.reason,
        "metadata": request.metadata,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
