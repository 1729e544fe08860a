"""Finding patterns by words, and looking for what is wrong with the graph.

The order of matches depends on each match alone (where the words are, and when it became known), not on how common the words
are: new patterns then move nothing from one page to another, and a cursor misses nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

from msgspec import UNSET

from bartack.tracking.lineage._cursor import make_cursor, read_cursor
from bartack.tracking.lineage._cycles import SearchLimitError, iter_cycles
from bartack.tracking.lineage._graph import count_orphans, find_orphans, last_seq
from bartack.tracking.lineage.wire import (
    CHECKS,
    Check,
    CyclesAnswer,
    Found,
    Issue,
    PageQuery,
    SearchAnswer,
    SearchRequest,
    ValidateAnswer,
    ValidateRequest,
    utc_text,
)

ISSUE_LIMIT: Final = 1000

_RANKED: Final = """
WITH matches AS (
  SELECT n.seq AS seq, CASE
      WHEN :words = '' THEN 1
      WHEN n.pattern_name = :exact COLLATE NOCASE THEN 0
      WHEN n.seq IN (SELECT rowid FROM search WHERE search MATCH :in_name) THEN 1
      ELSE 2 END AS tier
  FROM nodes n
  WHERE n.seq <= :last AND NOT n.stub
    AND (:words = '' OR n.seq IN (SELECT rowid FROM search WHERE search MATCH :words))
    AND (:language IS NULL OR n.language = :language)
    AND (:type IS NULL OR n.pattern_type = :type)
    AND (:since IS NULL OR n.created_at >= :since))
"""

_PAGE: Final = """
SELECT m.tier, m.seq, n.node_id, n.pattern_id, n.pattern_name, n.pattern_type, n.language, n.pattern_version,
  n.generation, n.created_at
FROM matches m JOIN nodes n USING (seq)
WHERE m.tier > :tier OR (m.tier = :tier AND m.seq < :seq)
ORDER BY m.tier, m.seq DESC LIMIT :limit
"""


def search_patterns(db: sqlite3.Connection, request: SearchRequest) -> SearchAnswer:
    """The patterns in which all the words occur, page by page.

    Raises:
        CursorError: The cursor belongs to another query.
        EventValueError: The time cannot be expressed in UTC.
    """
    since = utc_text(request.since, "since")
    asked: list[object] = ["search", request.query, request.language, request.pattern_type, since]
    last, tier, seq = (
        (last_seq(db, "nodes"), 0, 2**62) if request.cursor is None else read_cursor(asked, request.cursor, 3)
    )
    words = _match_text(request.query)
    facts = {
        "words": words,
        "in_name": f"pattern_name : ({words})" if words else "",
        "exact": request.query.strip(),
        "last": last,
        "language": request.language,
        "type": request.pattern_type,
        "since": since,
        "tier": tier,
        "seq": seq,
        "limit": request.limit + 1,
    }
    rows = db.execute(_RANKED + _PAGE, facts).fetchall()
    (total,) = db.execute(f"{_RANKED} SELECT count(*) FROM matches", facts).fetchone()  # noqa: S608 - our own words
    page = rows[: request.limit]
    more = len(rows) > request.limit
    return SearchAnswer(
        results=[_found(row, _snippet(db, words, row[1])) for row in page],
        total=total,
        next_cursor=make_cursor(asked, last, page[-1][0], page[-1][1]) if more else None,
    )


def _found(row: tuple[Any, ...], snippet: str) -> Found:
    _, _, node_id, pattern_id, name, kind, language, version, generation, created_at = row
    return Found(node_id, pattern_id, name, kind, language, version, generation, created_at, snippet)


def _match_text(query: str) -> str:
    """Words as the full-text index wants them: each quoted, so that none of them is an operator."""
    words = query.replace("\0", " ").split()
    quoted = [f'"{word.replace(chr(34), chr(34) * 2)}"' for word in words]
    return " AND ".join(quoted) + ("*" if quoted else "")


def _snippet(db: sqlite3.Connection, words: str, seq: int) -> str:
    if not words:
        return ""
    row = db.execute(
        "SELECT snippet(search, -1, '[', ']', '…', 12) FROM search WHERE search MATCH ? AND rowid = ?",
        (words, seq),
    ).fetchone()
    return row[0] if row else ""


def find_cycles(db: sqlite3.Connection, query: PageQuery) -> CyclesAnswer:
    """The cycles of the graph, page by page.

    Raises:
        CursorError: The cursor belongs to another query.
    """
    asked: list[object] = ["cycles"]
    # No event can add a cycle, so a number is a place that stays.
    (after,) = (0,) if query.cursor is UNSET else read_cursor(asked, query.cursor, 1)
    found: list[list[str]] = []
    truncated = False
    try:
        found.extend(islice(_cycles(db), after, after + query.limit + 1))
    except SearchLimitError:
        truncated = True
    more = len(found) > query.limit
    cursor = make_cursor(asked, after + query.limit) if more else None
    return CyclesAnswer(found[: query.limit], truncated, cursor)


def _cycles(db: sqlite3.Connection) -> Iterator[list[str]]:
    return iter_cycles(db.execute("SELECT source_node_id, target_node_id FROM edges"))


def validate(db: sqlite3.Connection, request: ValidateRequest) -> ValidateAnswer:
    """Make the checks that are asked for, by default all of them."""
    asked = request.checks or CHECKS
    checks: list[Check] = [check for check in CHECKS if check in asked]
    cycles = find_cycles(db, PageQuery(limit=ISSUE_LIMIT)).cycles if "cycles" in checks else []
    found = [_cycle_issues(cycles), *(_FINDERS[check](db) for check in checks if check != "cycles")]
    issues = list(islice(chain.from_iterable(found), ISSUE_LIMIT + 1))
    return ValidateAnswer(
        lineage_valid=not issues,
        orphans_found=count_orphans(db) if "orphans" in checks else 0,
        cycles_found=len(cycles),
        issues=issues[:ISSUE_LIMIT],
        truncated=len(issues) > ISSUE_LIMIT,
    )


def _orphan_issues(db: sqlite3.Connection) -> Iterator[Issue]:
    for node in find_orphans(db, PageQuery(limit=ISSUE_LIMIT)).orphans:
        what = "is known by name only" if node.stub else "has only parents that are known by name alone"
        yield Issue("orphans", node.node_id, f"{node.pattern_id} {node.version} {what}")


def _cycle_issues(cycles: list[list[str]]) -> Iterator[Issue]:
    for cycle in cycles:
        yield Issue("cycles", cycle[0], f"a cycle of {len(cycle)} nodes: {', '.join(cycle[:10])}")


def _generation_issues(db: sqlite3.Connection) -> Iterator[Issue]:
    rows = db.execute(
        "SELECT n.node_id, n.generation, coalesce(1 + max(p.generation), 0) AS demanded FROM nodes n"
        " LEFT JOIN edges e ON e.target_node_id = n.node_id LEFT JOIN nodes p ON p.node_id = e.source_node_id"
        " GROUP BY n.node_id HAVING n.generation <> demanded"
    )
    for node_id, known, demanded in rows:
        yield Issue("generations", node_id, f"has generation {known}, its parents demand {demanded}")


def _version_issues(db: sqlite3.Connection) -> Iterator[Issue]:
    rows = db.execute(
        "SELECT c.node_id, c.pattern_version, p.pattern_version FROM edges e"
        " JOIN nodes p ON p.node_id = e.source_node_id JOIN nodes c ON c.node_id = e.target_node_id"
        " WHERE e.edge_type = 'modified_from' AND p.pattern_id = c.pattern_id"
        " AND c.version_order <= p.version_order"
    )
    for node_id, child, parent in rows:
        yield Issue("versions", node_id, f"is version {child}, but was made from version {parent}")


def _dangling_issues(db: sqlite3.Connection) -> Iterator[Issue]:
    rows = db.execute(
        "SELECT edge_id, end_id FROM (SELECT edge_id, source_node_id AS end_id FROM edges"
        " UNION ALL SELECT edge_id, target_node_id FROM edges)"
        " WHERE end_id NOT IN (SELECT node_id FROM nodes)"
    )
    for edge_id, node_id in rows:
        yield Issue("dangling", node_id, f"edge {edge_id} ends in a node that does not exist")


_FINDERS: Final[dict[Check, Callable[[sqlite3.Connection], Iterator[Issue]]]] = {
    "orphans": _orphan_issues,
    "generations": _generation_issues,
    "versions": _version_issues,
    "dangling": _dangling_issues,
}
