"""Questions about the graph: where something came from, what became of it, what is missing.

Every function reads inside a transaction of the caller, so it sees one moment of the graph. The walk goes level by level and
looks at each node once; a recursive query that carries its path would look at each *path* once, and there can be more paths
than atoms. Where only "is it reachable" matters, a recursive query does the same work in one statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from bartack.core import typed
from bartack.errors import PatternNotFoundError
from bartack.tracking.lineage._cursor import make_cursor, read_cursor
from bartack.tracking.lineage._write import newest_version
from bartack.tracking.lineage.wire import (
    Edge,
    EvolutionAnswer,
    LineageAnswer,
    LineageNode,
    LineageQuery,
    OrphansAnswer,
    PageQuery,
    QueryType,
    Relative,
)

Direction = Literal["up", "down"]
DIRECTIONS: Final[dict[QueryType, tuple[Direction, ...]]] = {
    "ancestry": ("up",),
    "descendants": ("down",),
    "both": ("up", "down"),
}

NODE_COLUMNS: Final = (
    "node_id, pattern_id, pattern_name, pattern_type, language, pattern_version, generation,"
    " stub, deprecated, created_at"
)

_STEP: Final[dict[Direction, str]] = {
    "up": (
        "SELECT e.source_node_id, e.edge_type, e.target_node_id"
        " FROM json_each(?) j JOIN edges e ON e.target_node_id = j.value"
        " WHERE e.seq <= ? ORDER BY e.seq"
    ),
    "down": (
        "SELECT e.target_node_id, e.edge_type, e.source_node_id"
        " FROM json_each(?) j JOIN edges e ON e.source_node_id = j.value"
        " WHERE e.seq <= ? ORDER BY e.seq"
    ),
}


class Step(NamedTuple):
    """A node that a walk reached: over an edge of which type, after how many edges."""

    node_id: str
    edge_type: str
    distance: int


class Walk(NamedTuple):
    """All that a walk saw, nearest first. ``cut``: nodes from which it would have continued, had it been allowed to."""

    steps: list[Step]
    cut: frozenset[str]


class LineagePicture(NamedTuple):
    """A part of the graph around one node, ready to be drawn."""

    root: LineageNode
    nodes: dict[str, LineageNode]
    edges: list[Edge]
    cut: frozenset[str]


def find_node(db: sqlite3.Connection, pattern_id: str, version: str | None) -> LineageNode:
    """A version of a pattern, by default its newest.

    Raises:
        PatternNotFoundError: It is not known.
    """
    wanted = version or newest_version(db, pattern_id)
    row = db.execute(
        f"SELECT {NODE_COLUMNS} FROM nodes WHERE pattern_id = ? AND pattern_version = ?",  # noqa: S608 - our own words
        (pattern_id, wanted),
    ).fetchone()
    if row is None:
        raise PatternNotFoundError(pattern_id, version)
    return node_of(row)


def node_of(row: tuple[Any, ...]) -> LineageNode:
    """A row of ``NODE_COLUMNS`` as a node."""
    node_id, pattern_id, name, kind, language, version, generation, stub, deprecated, created_at = row
    facts = bool(stub), bool(deprecated), created_at
    return LineageNode(node_id, pattern_id, name, kind, language, version, generation, *facts)


def load_nodes(db: sqlite3.Connection, node_ids: Iterable[str]) -> dict[str, LineageNode]:
    """Nodes by their ids."""
    rows = db.execute(
        f"SELECT {NODE_COLUMNS} FROM json_each(?) j JOIN nodes n ON n.node_id = j.value",  # noqa: S608 - our own words
        (_json(list(node_ids)),),
    )
    return {row[0]: node_of(row) for row in rows}


def walk(db: sqlite3.Connection, start: str, direction: Direction, depth: int, last_edge: int) -> Walk:
    """Everything within ``depth`` edges of a node in one direction, each node once, by its shortest way."""
    seen = {start}
    level = [start]
    steps: list[Step] = []
    for distance in range(1, depth + 1):
        below: list[str] = []
        for node_id, edge_type, _ in db.execute(_STEP[direction], (_json(level), last_edge)):
            if node_id not in seen:
                seen.add(node_id)
                below.append(node_id)
                steps.append(Step(node_id, edge_type, distance))
        level = below
        if not level:
            break
    return Walk(steps, _cut(db, level, direction, last_edge, seen))


def _cut(
    db: sqlite3.Connection, level: list[str], direction: Direction, last_edge: int, seen: set[str]
) -> frozenset[str]:
    rows = db.execute(_STEP[direction], (_json(level), last_edge)).fetchall() if level else []
    return frozenset(row[2] for row in rows if row[0] not in seen)


def last_seq(db: sqlite3.Connection, table: Literal["nodes", "edges"]) -> int:
    """What was added last to a table."""
    (found,) = db.execute(f"SELECT coalesce(max(seq), 0) FROM {table}").fetchone()  # noqa: S608 - one of two words
    return int(found)


def find_lineage(db: sqlite3.Connection, pattern_id: str, query: LineageQuery) -> LineageAnswer:
    """The relatives of a pattern, page by page.

    Raises:
        PatternNotFoundError: It is not known.
        CursorError: The cursor belongs to another query.
    """
    version = None if query.version is UNSET else query.version
    node = find_node(db, pattern_id, version)
    asked: list[object] = ["lineage", node.node_id, query.query_type, query.max_depth]
    last_edge, offset = (
        (last_seq(db, "edges"), 0) if query.cursor is UNSET else read_cursor(asked, query.cursor, 2)
    )
    ways = {
        direction: walk(db, node.node_id, direction, query.max_depth, last_edge)
        for direction in DIRECTIONS[query.query_type]
    }
    found = [(direction, step) for direction, way in ways.items() for step in way.steps]
    page = found[offset : offset + query.limit]
    nodes = load_nodes(db, {step.node_id for _, step in page})
    end = offset + query.limit
    return LineageAnswer(
        node=node,
        ancestors=[_relative(nodes[step.node_id], step) for direction, step in page if direction == "up"],
        descendants=[_relative(nodes[step.node_id], step) for direction, step in page if direction == "down"],
        truncated=any(way.cut for way in ways.values()),
        next_cursor=make_cursor(asked, last_edge, end) if end < len(found) else None,
    )


def _relative(node: LineageNode, step: Step) -> Relative:
    return Relative(
        pattern_id=node.pattern_id,
        pattern_name=node.pattern_name,
        version=node.version,
        generation=node.generation,
        edge_type=step.edge_type,
        distance=step.distance,
    )


def find_picture(
    db: sqlite3.Connection, pattern_id: str, version: str | None, query_type: QueryType, depth: int
) -> LineagePicture:
    """The part of the graph around a pattern.

    Raises:
        PatternNotFoundError: It is not known.
    """
    root = find_node(db, pattern_id, version)
    last_edge = last_seq(db, "edges")
    ways = [walk(db, root.node_id, direction, depth, last_edge) for direction in DIRECTIONS[query_type]]
    nodes = load_nodes(db, {step.node_id for way in ways for step in way.steps} | {root.node_id})
    rows = db.execute(
        "SELECT e.source_node_id, e.target_node_id, e.edge_type, e.edge_weight, e.transformation_type"
        " FROM json_each(?) j JOIN edges e ON e.target_node_id = j.value WHERE e.seq <= ? ORDER BY e.seq",
        (_json(list(nodes)), last_edge),
    )
    edges = [Edge(*row) for row in rows if row[0] in nodes]
    return LineagePicture(root, nodes, edges, frozenset().union(*(way.cut for way in ways)))


def find_code(db: sqlite3.Connection, pattern_id: str, version: str | None) -> str:
    """The code of a version of a pattern; empty if none was recorded.

    Raises:
        PatternNotFoundError: It is not known.
    """
    node = find_node(db, pattern_id, version)
    (data,) = db.execute("SELECT pattern_data FROM nodes WHERE node_id = ?", (node.node_id,)).fetchone()
    code = typed.decode(data, type=dict[str, object]).get("code")
    return code if isinstance(code, str) else ""


_CHAIN: Final = """
WITH RECURSIVE chain(node_id) AS (
  SELECT node_id FROM nodes WHERE pattern_id = :pattern AND seq <= :last_node
  UNION
  SELECT CASE chain.node_id WHEN e.source_node_id THEN e.target_node_id ELSE e.source_node_id END
    FROM chain JOIN edges e ON e.source_node_id = chain.node_id OR e.target_node_id = chain.node_id
    WHERE e.edge_type IN ('modified_from', 'replaced_by') AND e.seq <= :last_edge)
SELECT seq, node_id FROM chain JOIN nodes USING (node_id) ORDER BY seq
"""


def find_evolution(db: sqlite3.Connection, pattern_id: str, query: PageQuery) -> EvolutionAnswer:
    """All versions that are connected with a pattern by modification and replacement.

    Raises:
        PatternNotFoundError: It is not known.
        CursorError: The cursor belongs to another query.
    """
    find_node(db, pattern_id, None)
    asked: list[object] = ["evolution", pattern_id]
    last_node, last_edge, after = (
        (last_seq(db, "nodes"), last_seq(db, "edges"), 0)
        if query.cursor is UNSET
        else read_cursor(asked, query.cursor, 3)
    )
    bounds = {"pattern": pattern_id, "last_node": last_node, "last_edge": last_edge}
    total, rows = _page(db.execute(_CHAIN, bounds), after, query.limit + 1)
    page = [node_id for _, node_id in rows[: query.limit]]
    nodes = load_nodes(db, page)
    more = len(rows) > query.limit
    return EvolutionAnswer(
        total_versions=total,
        evolution_nodes=[nodes[node_id] for node_id in page],
        evolution_edges=_evolution_edges(db, page, last_edge),
        next_cursor=make_cursor(asked, last_node, last_edge, rows[query.limit - 1][0]) if more else None,
    )


def _page(rows: Iterable[tuple[int, str]], after: int, limit: int) -> tuple[int, list[tuple[int, str]]]:
    every = list(rows)
    return len(every), [row for row in every if row[0] > after][:limit]


def _evolution_edges(db: sqlite3.Connection, children: list[str], last_edge: int) -> list[Edge]:
    """The edges of the chain that end in these nodes, so that each is on the page of its child."""
    rows = db.execute(
        "SELECT e.source_node_id, e.target_node_id, e.edge_type, e.edge_weight, e.transformation_type"
        " FROM json_each(?) j JOIN edges e ON e.target_node_id = j.value"
        " WHERE e.edge_type IN ('modified_from', 'replaced_by') AND e.seq <= ? ORDER BY e.seq",
        (_json(children), last_edge),
    )
    return [Edge(*row) for row in rows]


_ORPHANS: Final = """
FROM nodes n WHERE (n.stub OR (
  EXISTS (SELECT 1 FROM edges e WHERE e.target_node_id = n.node_id)
  AND NOT EXISTS (SELECT 1 FROM edges e LEFT JOIN nodes p ON p.node_id = e.source_node_id
                  WHERE e.target_node_id = n.node_id AND p.stub IS NOT 1)))
"""


def find_orphans(db: sqlite3.Connection, query: PageQuery) -> OrphansAnswer:
    """Stubs, and nodes all of whose parents are stubs.

    Raises:
        CursorError: The cursor belongs to another query.
    """
    asked: list[object] = ["orphans"]
    (after,) = (0,) if query.cursor is UNSET else read_cursor(asked, query.cursor, 1)
    rows = db.execute(
        f"SELECT seq, {NODE_COLUMNS} {_ORPHANS} AND n.seq > ? ORDER BY seq LIMIT ?",
        (after, query.limit + 1),
    ).fetchall()
    page = rows[: query.limit]
    more = len(rows) > query.limit
    return OrphansAnswer(
        [node_of(row[1:]) for row in page], make_cursor(asked, page[-1][0]) if more else None
    )


def count_orphans(db: sqlite3.Connection) -> int:
    """How many nodes ``find_orphans`` would list."""
    (found,) = db.execute(f"SELECT count(*) {_ORPHANS}").fetchone()
    return int(found)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
