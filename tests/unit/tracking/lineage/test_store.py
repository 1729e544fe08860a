from __future__ import annotations

import itertools
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.errors import (
    CursorError,
    EventConflictError,
    EventInvalidError,
    EventValueError,
    LineageCycleError,
    PatternNotFoundError,
    StoreTooNewError,
    StoreUnavailableError,
)
from bartack.tracking.lineage._cycles import SearchLimitError, iter_cycles
from bartack.tracking.lineage._store import LineageStore
from bartack.tracking.lineage.wire import (
    LineageQuery,
    PageQuery,
    QueryType,
    SearchRequest,
    ValidateRequest,
    parse_event,
)

Body = dict[str, object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LineageStore]:
    with LineageStore(tmp_path / "lineage.db") as opened:
        yield opened


def created(pattern: str, *parents: str, version: str = "1.0.0", **members: object) -> Body:
    return {
        "event_type": "pattern_created",
        "pattern_id": pattern,
        "pattern_version": version,
        "parent_pattern_ids": list(parents),
        "parent_versions": ["1.0.0"] * len(parents),
        **members,
    }


def chain(store: LineageStore, length: int) -> None:
    for number in range(length):
        store.track(created(f"p{number}", *([f"p{number - 1}"] if number else [])))


def rows(store: LineageStore, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(store.path) as db:
        found: list[tuple[object, ...]] = db.execute(query).fetchall()
    db.close()
    return found


def import_edge(store: LineageStore, parent: str, child: str) -> None:
    """Put an edge into the database without the store, as an import might."""
    with sqlite3.connect(store.path) as db:
        ids = [
            db.execute("SELECT node_id FROM nodes WHERE pattern_id = ?", (name,)).fetchone()[0]
            for name in (parent, child)
        ]
        db.execute(
            "INSERT INTO edges(edge_id, source_node_id, target_node_id, edge_type, created_at)"
            " VALUES (?, ?, ?, 'inspired_by', '')",
            (f"e_{parent}_{child}", *ids),
        )
    db.close()


def everything(store: LineageStore) -> list[list[tuple[object, ...]]]:
    """The graph without what depends on the moment and order of arrival."""
    return [
        rows(
            store,
            "SELECT node_id, pattern_id, pattern_name, pattern_version, pattern_data, generation, stub, deprecated,"
            " metadata, created_at FROM nodes ORDER BY 1",
        ),
        rows(
            store,
            "SELECT edge_id, source_node_id, target_node_id, edge_type, edge_weight, metadata, created_at"
            " FROM edges ORDER BY 1",
        ),
        rows(store, "SELECT event_id, node_id, event_type, body_sha256 FROM events ORDER BY 1"),
    ]


def test_an_event_makes_a_node_and_says_where(store: LineageStore) -> None:
    answer = store.track(created("a", pattern_name="area", event_id="e1"))

    assert (answer.pattern_id, answer.pattern_version, answer.generation) == ("a", "1.0.0", 0)
    assert (answer.event_id, answer.event_recorded, answer.duplicate) == ("e1", True, False)
    assert store.lineage("a").node.node_id == answer.node_id


def test_node_ids_are_the_same_on_every_machine(store: LineageStore) -> None:
    assert store.track(created("a")).node_id == "n_20c23edd94f1b7096d39be50"


def test_an_event_that_comes_again_gets_its_first_answer(store: LineageStore) -> None:
    body = created("b", "a", event_id="e1")
    first = store.track(body)
    store.track(created("a", "root"))

    again = store.track(body)

    assert store.lineage("b").node.generation == 2
    assert (first.generation, again.generation) == (1, 1)
    assert again.duplicate
    assert len(rows(store, "SELECT * FROM events")) == 2


def test_an_event_without_an_id_gets_one_from_what_it_says(store: LineageStore) -> None:
    first = store.track(created("a"))

    again = store.track(created("a"))
    other = store.track(created("a", reason="another"))

    assert (again.event_id, again.duplicate) == (first.event_id, True)
    assert (other.event_id == first.event_id, other.duplicate) == (False, False)


def test_the_id_of_another_event_is_refused(store: LineageStore) -> None:
    store.track(created("a", event_id="e1"))

    with pytest.raises(EventConflictError) as refused:
        store.track(created("b", event_id="e1"))

    assert refused.value.event_id == "e1"
    with pytest.raises(PatternNotFoundError):
        store.lineage("b")


def test_a_parent_that_is_not_known_becomes_a_stub_and_is_filled_later(store: LineageStore) -> None:
    store.track(created("child", "parent"))
    before = store.lineage("parent").node

    store.track(created("parent", pattern_name="the parent"))

    after = store.lineage("parent").node
    assert (before.stub, before.generation, after.stub, after.pattern_name) == (True, 0, False, "the parent")
    assert before.node_id == after.node_id


def test_a_parent_without_a_version_is_its_newest_node(store: LineageStore) -> None:
    for version in ("1.9.0", "1.10.0", "1.2.0"):
        store.track(created("parent", version=version))

    body = created("child", "parent")
    del body["parent_versions"]
    store.track(body)

    assert [item.version for item in store.lineage("child").ancestors] == ["1.10.0"]


def test_a_generation_is_one_more_than_the_highest_of_the_parents(store: LineageStore) -> None:
    chain(store, 3)
    store.track(created("other"))

    assert store.track(created("merged", "p2", "other")).generation == 3


@pytest.mark.parametrize("limit", [10_000, 2])
def test_a_late_parent_moves_all_that_came_from_it(
    store: LineageStore, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.tracking.lineage._write.REGENERATE_LIMIT", limit)
    for number in range(6, 0, -1):
        store.track(created(f"p{number}", f"p{number - 1}"))
    for number in range(10):
        # Beyond the limit the rest is made up for by the events that follow.
        store.track(created(f"x{number}", f"y{number}"))

    assert [store.lineage(f"p{number}").node.generation for number in range(7)] == list(range(7))


def test_a_pattern_cannot_come_from_its_descendant(store: LineageStore) -> None:
    chain(store, 4)
    before = everything(store)

    with pytest.raises(LineageCycleError) as refused:
        store.track(created("p0", "p3", "unheard-of"))

    assert (refused.value.parent, refused.value.child) == ("p3 1.0.0", "p0 1.0.0")
    assert everything(store) == before


def test_a_pattern_cannot_come_from_itself(store: LineageStore) -> None:
    with pytest.raises(LineageCycleError):
        store.track(created("a", "a"))


def test_returning_to_earlier_code_is_a_new_version_and_no_cycle(store: LineageStore) -> None:
    store.track(created("a"))
    store.track(created("b", "a", event_type="pattern_modified", version="1.0.1"))
    store.track(
        created("a", "b", event_type="pattern_modified", version="1.0.2") | {"parent_versions": ["1.0.1"]}
    )

    assert [item.pattern_id for item in store.lineage("a").ancestors] == ["b", "a"]
    assert store.cycles().cycles == []


@pytest.mark.parametrize(
    ("event", "edge"),
    [
        ("pattern_created", "derived_from"),
        ("pattern_modified", "modified_from"),
        ("pattern_merged", "merged_from"),
        ("pattern_forked", "forked_from"),
        ("pattern_deprecated", "deprecated_by"),
    ],
)
def test_an_edge_has_the_type_of_its_event(store: LineageStore, event: str, edge: str) -> None:
    store.track(created("child", "parent", event_type=event))

    assert [item.edge_type for item in store.lineage("child").ancestors] == [edge]


def test_an_edge_may_name_its_type_and_an_older_name_is_understood(store: LineageStore) -> None:
    store.track(created("a", "p", edge_type="inspired_by"))
    store.track(created("b", "p", edge_type="created_from"))

    assert [store.lineage(name).ancestors[0].edge_type for name in ("a", "b")] == [
        "inspired_by",
        "derived_from",
    ]


def test_an_application_is_counted_at_the_newest_version_and_makes_no_edge(store: LineageStore) -> None:
    store.track(created("a", version="1.0.0"))
    store.track(created("a", version="1.2.0"))

    answer = store.track(
        {"event_type": "pattern_applied", "pattern_id": "a", "parent_pattern_ids": ["ignored"]}
    )

    assert answer.pattern_version == "1.2.0"
    assert rows(store, "SELECT * FROM edges") == []


def test_an_application_does_not_say_what_a_pattern_is(store: LineageStore) -> None:
    store.track({"event_type": "pattern_applied", "pattern_id": "a", "pattern_name": "wrong"})
    store.track(created("a", pattern_name="right"))
    store.track(
        {"event_type": "pattern_applied", "pattern_id": "a", "pattern_name": "wrong", "event_id": "again"}
    )

    assert store.lineage("a").node.pattern_name == "right"


def test_a_deprecated_pattern_is_marked(store: LineageStore) -> None:
    store.track(created("a"))

    store.track({"event_type": "pattern_deprecated", "pattern_id": "a"})

    assert store.lineage("a").node.deprecated


def history() -> list[Body]:
    bodies: list[Body] = [
        created("a", occurred_at="2026-01-01T00:00:00Z", pattern_data={"code": "a"}, event_id="01"),
        created("a", occurred_at="2026-01-02T00:00:00Z", pattern_name="told later", event_id="02"),
        created("a", pattern_name="told without a time", event_id="00"),
        created("b", "a", occurred_at="2026-01-02T00:00:00Z", event_id="03"),
        created("c", "b", "a", occurred_at="2026-01-03T00:00:00+01:00", reason="x", event_id="04"),
        created("c", "b", edge_weight=0.5, occurred_at="2026-01-02T23:00:00Z", reason="y", event_id="05"),
        created("d", "c", "z", occurred_at="2026-01-04T00:00:00Z", event_id="06"),
    ]
    applied: Body = {
        "event_type": "pattern_applied",
        "pattern_id": "b",
        "pattern_version": "1.0.0",
        "occurred_at": "2026-01-05T00:00:00Z",
    }
    gone: Body = {**applied, "event_type": "pattern_deprecated", "occurred_at": "2026-01-06T00:00:00Z"}
    return [*bodies, applied, gone]


@pytest.mark.requirement("lineage-takes-any-order")
@settings(max_examples=30 if "SOAK" in os.environ else 12, deadline=None)
@given(order=st.permutations(range(len(history()))), repeats=st.integers(1, 2))
def test_the_order_of_arrival_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: Sequence[int], repeats: int
) -> None:
    folder = tmp_path_factory.mktemp("order")
    bodies = history()
    # Times of stubs and of events that state none are those of their arrival; they are not compared.
    with LineageStore(folder / "one.db") as one, LineageStore(folder / "two.db") as two:
        for body in bodies:
            one.track(body)
        for number in list(order) * repeats:
            two.track(bodies[number])

        first, second = everything(one), everything(two)

    assert [[row[:-1] for row in table] for table in first[:2]] == [
        [row[:-1] for row in table] for table in second[:2]
    ]
    assert first[2] == second[2]


def test_ancestors_come_nearest_first_with_the_shortest_distance(store: LineageStore) -> None:
    chain(store, 4)
    store.track(created("end", "p3", "p1"))

    found = store.lineage("end").ancestors

    assert [(item.pattern_id, item.distance) for item in found] == [
        ("p3", 1),
        ("p1", 1),
        ("p0", 2),
        ("p2", 2),
    ]


@pytest.mark.parametrize(
    ("asked", "up", "down"),
    [("ancestry", ["p1", "p0"], []), ("descendants", [], ["p3", "p4"]), ("both", ["p1", "p0"], ["p3", "p4"])],
)
def test_a_query_looks_up_or_down_or_both(
    store: LineageStore, asked: QueryType, up: list[str], down: list[str]
) -> None:
    chain(store, 5)

    answer = store.lineage("p2", LineageQuery(query_type=asked))

    assert [item.pattern_id for item in answer.ancestors] == up
    assert [item.pattern_id for item in answer.descendants] == down


def test_the_depth_bound_cuts_and_says_so(store: LineageStore) -> None:
    chain(store, 5)

    cut = store.lineage("p4", LineageQuery(max_depth=3))
    whole = store.lineage("p4", LineageQuery(max_depth=4))

    assert ([item.distance for item in cut.ancestors], cut.truncated) == ([1, 2, 3], True)
    assert (len(whole.ancestors), whole.truncated) == (4, False)


def test_a_pattern_that_no_event_mentioned_is_not_found(store: LineageStore) -> None:
    store.track(created("a"))

    with pytest.raises(PatternNotFoundError):
        store.lineage("b")
    with pytest.raises(PatternNotFoundError):
        store.lineage("a", LineageQuery(version="2.0.0"))
    with pytest.raises(PatternNotFoundError):
        store.evolution("b")


def test_pages_hold_each_relative_once_while_others_are_added(store: LineageStore) -> None:
    for number in range(10):
        store.track(created(f"c{number}", "root"))
        store.track(created(f"d{number}", f"c{number}"))
    query = LineageQuery(query_type="descendants", limit=3)
    whole = [
        item.pattern_id for item in store.lineage("root", LineageQuery(query_type="descendants")).descendants
    ]

    seen: list[str] = []
    answer = store.lineage("root", query)
    while True:
        seen += [item.pattern_id for item in answer.descendants]
        if answer.next_cursor is None:
            break
        # Adds a child, and a shorter way to one that would come later.
        number = len(seen)
        store.track(created(f"late{number}", "root"))
        store.track(created(f"d{9 - number % 10}", "root", event_id=f"shorter{number}"))
        answer = store.lineage(
            "root", LineageQuery(query_type="descendants", limit=3, cursor=answer.next_cursor)
        )

    assert seen == whole


def test_a_cursor_of_another_query_is_refused(store: LineageStore) -> None:
    chain(store, 4)
    cursor = store.lineage("p3", LineageQuery(limit=1)).next_cursor
    assert cursor is not None

    for foreign in (
        LineageQuery(limit=1, cursor=cursor, max_depth=5),
        LineageQuery(limit=1, cursor=cursor, query_type="both"),
        LineageQuery(limit=1, cursor=cursor + "A"),
        LineageQuery(limit=1, cursor="nonsense"),
        LineageQuery(limit=1, cursor="é"),
        LineageQuery(limit=1, cursor=""),
    ):
        with pytest.raises(CursorError):
            store.lineage("p3", foreign)
    with pytest.raises(CursorError):
        store.lineage("p2", LineageQuery(limit=1, cursor=cursor))
    assert store.lineage("p3", LineageQuery(limit=2, cursor=cursor)).ancestors


def test_an_evolution_follows_modification_and_replacement_only(store: LineageStore) -> None:
    store.track(created("a"))
    store.track(created("b", "a", event_type="pattern_modified"))
    store.track(created("c", "b", edge_type="replaced_by"))
    store.track(created("elsewhere", "b"))

    answer = store.evolution("b")

    assert [node.pattern_id for node in answer.evolution_nodes] == ["a", "b", "c"]
    assert [edge.edge_type for edge in answer.evolution_edges] == ["modified_from", "replaced_by"]
    assert answer.total_versions == 3


def test_an_evolution_comes_in_pages(store: LineageStore) -> None:
    for number in range(1, 8):
        parents = ["a"] if number > 1 else []
        store.track(
            created("a", *parents, event_type="pattern_modified", version=f"1.0.{number}")
            | {"parent_versions": [f"1.0.{number - 1}" for _ in parents]}
        )

    versions: list[str] = []
    edges = 0
    answer = store.evolution("a", PageQuery(limit=3))
    while True:
        versions += [node.version for node in answer.evolution_nodes]
        edges += len(answer.evolution_edges)
        if answer.next_cursor is None:
            break
        answer = store.evolution("a", PageQuery(limit=3, cursor=answer.next_cursor))

    assert versions == [f"1.0.{number}" for number in range(1, 8)]
    assert edges == 6


def test_orphans_are_stubs_and_children_of_nothing_but_stubs(store: LineageStore) -> None:
    store.track(created("known"))
    store.track(created("fine", "known", "stub1"))
    store.track(created("orphan", "stub1", "stub2"))

    first = store.orphans(PageQuery(limit=2))
    assert first.next_cursor is not None
    rest = store.orphans(PageQuery(limit=2, cursor=first.next_cursor))

    found = [node.pattern_id for node in [*first.orphans, *rest.orphans]]
    assert sorted(found) == ["orphan", "stub1", "stub2"]
    assert rest.next_cursor is None


def test_an_imported_cycle_is_named_once_and_queries_end(store: LineageStore) -> None:
    chain(store, 5)
    import_edge(store, "p3", "p1")

    cycles = store.cycles()
    around = store.lineage("p2", LineageQuery(query_type="both", max_depth=100))
    store.track(created("p9", "p3"))
    store.track(created("p1", "p0", event_id="again"))

    (cycle,) = cycles.cycles
    assert cycle[0] == min(cycle)
    assert len(cycle) == 3
    assert sorted(item.pattern_id for item in around.ancestors) == ["p0", "p1", "p3"]
    assert around.next_cursor is None


def test_cycles_come_in_pages(store: LineageStore) -> None:
    chain(store, 4)
    for parent, child in [("p1", "p0"), ("p2", "p1"), ("p3", "p0")]:
        import_edge(store, parent, child)
    whole = store.cycles().cycles

    paged: list[list[str]] = []
    answer = store.cycles(PageQuery(limit=1))
    while True:
        paged += answer.cycles
        if answer.next_cursor is None:
            break
        answer = store.cycles(PageQuery(limit=1, cursor=answer.next_cursor))

    assert paged == whole
    assert len(whole) == 3


def brute_cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    names = sorted({name for edge in edges for name in edge})
    return sorted(
        list(path)
        for size in range(1, len(names) + 1)
        for path in itertools.permutations(names, size)
        if path[0] == min(path)
        and all(pair in edges for pair in zip(path, (*path[1:], path[0]), strict=True))
    )


@given(st.sets(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"))))
def test_every_cycle_is_found_exactly_once(edges: set[tuple[str, str]]) -> None:
    assert list(iter_cycles(edges)) == brute_cycles(edges)


def test_the_search_for_cycles_ends_when_there_are_too_many() -> None:
    names = [f"n{number:02}" for number in range(20)]

    with pytest.raises(SearchLimitError):
        list(iter_cycles(itertools.permutations(names, 2), steps=10_000))


def test_a_long_chain_has_no_cycle() -> None:
    assert list(iter_cycles((f"n{number:06}", f"n{number + 1:06}") for number in range(50_000))) == []


def test_words_are_found_in_name_language_type_and_code(store: LineageStore) -> None:
    store.track(
        created("a", pattern_name="Rectangle area", language="python", pattern_data={"code": "w * h"})
    )
    store.track(created("b", pattern_name="Other", language="rust", pattern_data={"code": "fn area_of(x)"}))
    store.track(created("c", pattern_name="area"))
    store.track(created("d", pattern_name="nothing"))

    answer = store.search(SearchRequest(query="area"))

    assert [found.pattern_id for found in answer.results] == ["c", "a", "b"]
    assert answer.total == 3
    assert answer.results[2].snippet == "fn [area]_of(x)"
    assert [found.pattern_id for found in store.search(SearchRequest(query="area python")).results] == ["a"]
    assert [found.pattern_id for found in store.search(SearchRequest(query="rec")).results] == ["a"]


def test_a_search_is_narrowed_by_language_type_and_time(store: LineageStore) -> None:
    store.track(created("a", language="python", pattern_type="class", occurred_at="2026-01-01T00:00:00Z"))
    store.track(created("b", language="rust", pattern_type="class", occurred_at="2026-01-02T00:00:00Z"))
    store.track(created("c", language="rust", pattern_type="code", occurred_at="2026-01-03T00:00:00Z"))

    def found(**members: object) -> list[str]:
        request = parse_search({"query": "", **members})
        return sorted(item.pattern_id for item in store.search(request).results)

    assert found() == ["a", "b", "c"]
    assert found(language="rust") == ["b", "c"]
    assert found(pattern_type="class") == ["a", "b"]
    assert found(since="2026-01-02T01:00:00+01:00") == ["b", "c"]


def parse_search(members: Body) -> SearchRequest:
    from bartack.tracking.lineage.wire import convert  # noqa: PLC0415 - only here

    return convert(members, SearchRequest)


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "*", "a\0b", "-", "pattern_name:", "(", "^x", "é ß", "' OR 1"]
)
def test_no_query_is_an_error_of_syntax(store: LineageStore, query: str) -> None:
    store.track(created("a", pattern_name="a b"))

    assert store.search(SearchRequest(query=query)).total in {0, 1}


def test_search_pages_hold_each_match_once_while_others_are_added(store: LineageStore) -> None:
    for number in range(10):
        store.track(
            created(f"a{number}", pattern_name="area" if number % 3 else "x", pattern_data={"code": "area"})
        )
    whole = [found.pattern_id for found in store.search(SearchRequest(query="area")).results]

    seen: list[str] = []
    answer = store.search(SearchRequest(query="area", limit=2))
    while True:
        seen += [found.pattern_id for found in answer.results]
        if answer.next_cursor is None:
            break
        store.track(created(f"late{len(seen)}", pattern_name="area"))
        answer = store.search(SearchRequest(query="area", limit=2, cursor=answer.next_cursor))

    assert seen == whole
    assert len(whole) == 10


def test_a_sound_graph_is_valid(store: LineageStore) -> None:
    chain(store, 5)

    answer = store.validate()

    assert (answer.lineage_valid, answer.issues) == (True, [])


def damage(store: LineageStore, statement: str) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("check", "statement"),
    [
        ("generations", "UPDATE nodes SET generation = 7 WHERE pattern_id = 'p4'"),
        ("dangling", "UPDATE edges SET source_node_id = 'n_gone' WHERE seq = 4"),
        ("orphans", "UPDATE nodes SET stub = 1 WHERE pattern_id = 'p0'"),
        ("versions", "UPDATE nodes SET version_order = 9 WHERE pattern_id = 'p4' AND version_order > 9"),
        (
            "cycles",
            "INSERT INTO edges SELECT 99, 'e', target_node_id, source_node_id, 'inspired_by', '', 1, '', '', ''"
            " FROM edges WHERE seq = 1",
        ),
    ],
)
def test_each_check_finds_its_damage_and_no_other_looks_for_it(
    store: LineageStore, check: str, statement: str
) -> None:
    chain(store, 5)
    store.track(
        created("p4", "p4", version="1.0.1", event_type="pattern_modified") | {"parent_versions": ["1.0.0"]}
    )
    damage(store, statement)

    answer = store.validate()
    alone = store.validate(convert_checks([check]))

    assert not answer.lineage_valid
    assert {issue.check for issue in alone.issues} == {check}
    assert (answer.cycles_found > 0) == (check == "cycles")
    assert (answer.orphans_found > 0) == (check == "orphans")


def convert_checks(checks: list[str]) -> ValidateRequest:
    from bartack.tracking.lineage.wire import convert  # noqa: PLC0415 - only here

    return convert({"checks": checks}, ValidateRequest)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"event_type": "pattern_eaten"}, "event_type"),
        ({"pattern_id": ""}, "pattern_id"),
        ({"pattern_id": "x" * 1001}, "pattern_id"),
        ({"pattern_version": "1.0"}, "pattern_version"),
        ({"pattern_version": "1.0.0\n"}, "pattern_version"),
        ({"pattern_version": "1.0.1234567"}, "pattern_version"),
        ({"parent_pattern_ids": ["p"] * 65}, "parent_pattern_ids"),
        ({"parent_pattern_ids": ["p"], "parent_versions": ["1.0.0", "1.0.0"]}, "parent_versions"),
        ({"edge_weight": 1.5}, "edge_weight"),
        ({"occurred_at": "yesterday"}, "occurred_at"),
        ({"occurred_at": "2026-01-01T00:00:00"}, "occurred_at"),
        ({"occurred_at": "0001-01-01T00:00:00+05:00"}, "occurred_at"),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(members: Body, field: str) -> None:
    with pytest.raises(EventValueError) as refused:
        parse_event(created("a") | members)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (["no object"], ""),
        (None, ""),
        ({"pattern_id": "a"}, "event_type"),
        ({"event_type": "pattern_created"}, "pattern_id"),
        (created("a") | {"pattern_id": 7}, "pattern_id"),
        (created("a") | {"parent_pattern_ids": ["a", 7]}, "parent_pattern_ids[1]"),
        (created("a") | {"metadata": [7]}, "metadata"),
    ],
)
def test_a_member_that_is_missing_or_of_the_wrong_type_is_refused_by_name(body: object, field: str) -> None:
    with pytest.raises(EventInvalidError) as refused:
        parse_event(body)

    assert type(refused.value) is EventInvalidError
    assert refused.value.field == field


def test_a_number_that_not_every_reader_keeps_does_not_lose_an_event(store: LineageStore) -> None:
    body = created("a", metadata={"n": 2**60}, pattern_data={"m": 2**80})

    first, again = store.track(body), store.track(body)

    assert (first.duplicate, again.duplicate, first.event_id) == (False, True, again.event_id)


@pytest.mark.parametrize("name", ["a/b", "a\0b", "x" * 300, "🧵", "a b", "..", "%2F"])
def test_ids_of_any_kind_are_kept(store: LineageStore, name: str) -> None:
    store.track(created(name))
    store.track(created("child", name))

    assert store.lineage(name).node.pattern_id == name
    assert [item.pattern_id for item in store.lineage("child").ancestors] == [name]


def test_one_refused_event_leaves_the_others_of_its_batch(store: LineageStore) -> None:
    batch = [created("a", event_id="1"), created("a", "a", event_id="2"), created("b", event_id="3")]

    results = store.track_many([parse_event(body) for body in batch])

    assert isinstance(results[1], LineageCycleError)
    assert rows(store, "SELECT event_id FROM events ORDER BY 1") == [("1",), ("3",)]


def test_one_wrong_event_stops_no_other(store: LineageStore) -> None:
    results = store.track_all([created("a"), {"event_type": "nonsense"}, created("b", "a")])

    assert [type(result).__name__ for result in results] == ["Tracked", "EventValueError", "Tracked"]
    assert len(store.lineage("b").ancestors) == 1


def test_the_database_is_for_its_owner_only(store: LineageStore) -> None:
    store.track(created("a"))

    assert {stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.glob("lineage.db*")} == {0o600}


def test_a_database_of_a_newer_version_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "lineage.db"
    with LineageStore(path) as store:
        damage(store, "PRAGMA user_version = 99")
    before = path.read_bytes()

    for read_only in (False, True):
        with pytest.raises(StoreTooNewError):
            LineageStore(path, read_only=read_only).open()

    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database, but long enough to look like one " * 50, b"x"])
def test_a_file_that_is_not_a_database_is_refused_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lineage.db"
    path.write_bytes(content)

    with pytest.raises(StoreUnavailableError):
        LineageStore(path).open()

    assert path.read_bytes() == content


def test_a_second_store_of_a_process_keeps_the_lock_of_the_first(store: LineageStore) -> None:
    program = (
        "import sys\n"
        "from bartack.tracking.lineage._store import LineageStore\n"
        "with LineageStore(sys.argv[1]) as store:\n"
        "    store.stats()\n"
    )
    store.track(created("a"))
    log = Path(f"{store.path}-wal")
    before = log.stat().st_ino
    with LineageStore(store.path):
        # The last process to close a database deletes its log, unless it finds the lock of another process.
        subprocess.run([sys.executable, "-c", program, str(store.path)], check=True, timeout=120)

        assert log.stat().st_ino == before


def test_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine(x)")
    other.close()

    with pytest.raises(StoreUnavailableError, match="not a lineage database"):
        LineageStore(path).open()


def test_reading_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        LineageStore(tmp_path / "lineage.db", read_only=True).open()

    assert "lineage.db" not in os.listdir(tmp_path)


def test_a_reader_cannot_write(store: LineageStore) -> None:
    store.track(created("a"))

    with LineageStore(store.path, read_only=True) as reader, pytest.raises(StoreUnavailableError):
        reader.track(created("b"))


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LineageStore(tmp_path / "lineage.db").open()
    store.close()

    with pytest.raises(StoreUnavailableError):
        store.track(created("a"))
    with pytest.raises(StoreUnavailableError):
        store.lineage("a")


def test_stats_count_what_is_there(store: LineageStore) -> None:
    chain(store, 3)
    store.track(created("q", "unknown", language="rust", occurred_at="2030-01-01T00:00:00Z"))
    store.track({"event_type": "pattern_deprecated", "pattern_id": "p0"})

    stats = store.stats()

    assert (stats.patterns, stats.nodes, stats.stubs, stats.deprecated, stats.deepest_generation) == (
        5,
        5,
        1,
        1,
        2,
    )
    assert stats.edges == {"derived_from": 3}
    assert stats.events == {"pattern_created": 4, "pattern_deprecated": 1}
    assert stats.languages == {"unknown": 3, "rust": 1}
    assert stats.last_event_at == "2030-01-01T00:00:00.000000+00:00"
    assert stats.size_bytes > 0


def test_a_dense_graph_is_walked_node_by_node_not_path_by_path(store: LineageStore) -> None:
    # Two to the power of forty paths.
    for level in range(40):
        parents = [f"{level - 1}-{side}" for side in "lr"] if level else []
        for side in "lr":
            store.track(created(f"{level}-{side}", *parents))

    answer = store.lineage("39-l", LineageQuery(max_depth=100, limit=1000))

    assert len(answer.ancestors) == 78


def test_a_picture_has_every_edge_between_its_nodes_and_marks_where_it_was_cut(store: LineageStore) -> None:
    chain(store, 6)
    store.track(created("p2", "side", event_id="side"))

    picture = store.picture("p3", query_type="both", depth=2)

    names = {picture.nodes[node].pattern_id for node in picture.nodes}
    assert names == {"p1", "p2", "side", "p3", "p4", "p5"}
    assert {picture.nodes[node].pattern_id for node in picture.cut} == {"p1"}
    ends = {end for edge in picture.edges for end in (edge.parent_node_id, edge.child_node_id)}
    assert ends <= set(picture.nodes)
    assert len(picture.edges) == 5


def test_many_threads_write_and_read_one_store(store: LineageStore) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    chain(store, 2)
    order = random.Random(7)

    def work(number: int) -> int:
        store.track(created(f"t{number}", f"p{order.randrange(2)}"))
        return len(store.lineage("p0", LineageQuery(query_type="descendants")).descendants)

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(work, range(100)))

    assert max(seen) >= 50
    assert len(rows(store, "SELECT * FROM events")) == 102
