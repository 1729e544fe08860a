from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.tracking import LineagePicture, LineageStore, draw_page, draw_svg, iter_tree
from bartack.tracking.lineage._layout import DrawnEdge, lay_out

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</title><script>alert(1)</script>&\"'\x07"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LineageStore]:
    with LineageStore(tmp_path / "lineage.db") as opened:
        yield opened


def track(store: LineageStore, pattern: str, *parents: str, **members: object) -> None:
    store.track(
        {
            "event_type": "pattern_created",
            "pattern_id": pattern,
            "pattern_name": f"name of {pattern}",
            "parent_pattern_ids": list(parents),
            **members,
        }
    )


def diamond(store: LineageStore) -> LineagePicture:
    """From top two ways lead over left and right to bottom, and on to the end; one more goes around them all."""
    track(store, "top", "lost")
    track(store, "left", "top")
    track(store, "right", "top")
    track(store, "bottom", "left", "right", event_type="pattern_merged")
    track(store, "end", "bottom", "top")
    return store.picture("bottom")


def lines(picture: LineagePicture, way: str) -> list[str]:
    found = iter_tree(picture, "up" if way == "up" else "down")
    return [f"{line.rails}{line.edge_type} {line.node.pattern_id}{line.mark}" for line in found]


def test_a_tree_writes_each_node_out_once(store: LineageStore) -> None:
    picture = diamond(store)

    assert lines(picture, "up") == [
        "├─ merged_from left",
        "│  └─ derived_from top",
        "│     └─ derived_from lost",
        "└─ merged_from right",
        "   └─ derived_from top↑",
    ]
    assert lines(picture, "down") == ["└─ derived_from end"]


def test_a_tree_marks_where_it_was_cut(store: LineageStore) -> None:
    for number in range(1, 6):
        track(store, f"p{number}", f"p{number - 1}")

    assert lines(store.picture("p3", depth=1), "up") == ["└─ derived_from p2…"]
    assert lines(store.picture("p3", depth=1), "down") == ["└─ derived_from p4…"]


def test_a_tree_of_a_long_history_needs_no_recursion(store: LineageStore) -> None:
    for number in range(1, 101):
        track(store, f"p{number}", f"p{number - 1}")

    assert len(lines(store.picture("p100", depth=100), "up")) == 100


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


def test_a_drawing_has_a_box_for_each_node_and_a_curve_for_each_edge(store: LineageStore) -> None:
    picture = diamond(store)

    drawing = parsed(draw_svg(picture))

    boxes = [group for group in drawing.iter(f"{SVG}g") if "box" in group.get("class", "")]
    curves = [path for path in drawing.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    assert len(boxes) == len(picture.nodes) == 6
    assert len(curves) == len(picture.edges) == 7
    assert [group.get("class") for group in boxes if "root" in group.get("class", "")] == ["box root"]
    assert sum("stub" in group.get("class", "") for group in boxes) == 1


def test_a_drawing_stays_within_its_frame(store: LineageStore) -> None:
    drawing = parsed(draw_svg(diamond(store)))

    width, height = float(drawing.get("width", "")), float(drawing.get("height", ""))
    for path in drawing.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+\.\d", path.get("d", ""))]
        assert all(0 <= x <= width for x in numbers[::2])
        assert all(0 <= y <= height for y in numbers[1::2])


def test_text_is_never_taken_for_markup(store: LineageStore) -> None:
    name = NASTY
    track(store, name, pattern_name=name, language=name[:50], pattern_type=name[:50])
    picture = store.picture(name)

    drawing = parsed(draw_svg(picture))
    seen = Tags()
    seen.feed(draw_page(picture))

    assert [element.tag for element in drawing.iter() if "script" in element.tag] == []
    assert "script" not in seen.names
    assert "\x07" not in draw_svg(picture) + draw_page(picture)


class Tags(HTMLParser):
    """Collects the names of all elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.mark.requirement("drawings-stand-alone")
def test_a_page_loads_nothing_and_runs_nothing(store: LineageStore) -> None:
    page = draw_page(diamond(store))
    seen = Tags()
    seen.feed(page)

    assert {"script", "link", "img", "iframe", "object", "form", "a"} & seen.names == set()
    assert {name for name in seen.attributes if name.startswith("on") or name in {"src", "href"}} == set()
    assert "default-src 'none'" in page
    assert re.findall(r"url\((?!#)", page) == []


def test_a_page_lists_every_pattern(store: LineageStore) -> None:
    page = draw_page(diamond(store))

    assert page.count("<tr") == 1 + 6
    assert page.count('<tr class="here">') == 1
    assert all(f"<code>{name}</code>" in page for name in ("top", "left", "right", "bottom", "end", "lost"))


def test_a_long_name_is_cut_to_the_box(store: LineageStore) -> None:
    track(store, "a", pattern_name="a name that is much too long for its box")
    track(store, "b", pattern_name="長い名前はここで切られる")

    assert ">a name that is muc…<" in draw_svg(store.picture("a"))
    assert ">長い名前はここで…<" in draw_svg(store.picture("b"))


def test_a_deprecated_pattern_and_a_cut_are_to_be_seen(store: LineageStore) -> None:
    for number in range(1, 5):
        track(store, f"p{number}", f"p{number - 1}")
    track(store, "p4", event_type="pattern_deprecated")

    drawing = draw_svg(store.picture("p4", depth=1))

    assert 'class="box root old"' in drawing
    assert drawing.count('class="more"') == 1


def test_an_imported_cycle_can_be_drawn() -> None:
    layout = lay_out(["a", "b", "c"], [DrawnEdge("a", "b"), DrawnEdge("b", "c"), DrawnEdge("c", "a")])

    assert set(layout.bends) == {DrawnEdge("a", "b"), DrawnEdge("b", "c"), DrawnEdge("c", "a")}


NODES = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.just([f"n{number}" for number in range(count)]),
        st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20),
    )
)


@given(NODES)
def test_parents_stand_left_of_their_children_and_no_box_on_another(
    graph: tuple[list[str], set[tuple[int, int]]],
) -> None:
    nodes, pairs = graph
    edges = [DrawnEdge(nodes[min(pair)], nodes[max(pair)]) for pair in sorted(pairs) if pair[0] != pair[1]]

    layout = lay_out(nodes, edges)

    assert all(layout.layer[edge.source] < layout.layer[edge.target] for edge in edges)
    for layer in range(layout.layers):
        heights = sorted(layout.height[node] for node in nodes if layout.layer[node] == layer)
        assert all(below - above > 0.999 for above, below in pairwise(heights))
    assert min(layout.height.values()) >= 0


@given(NODES)
def test_an_edge_has_a_point_in_every_layer_it_crosses(
    graph: tuple[list[str], set[tuple[int, int]]],
) -> None:
    nodes, pairs = graph
    edges = [DrawnEdge(nodes[min(pair)], nodes[max(pair)]) for pair in sorted(pairs) if pair[0] != pair[1]]

    layout = lay_out(nodes, edges)

    for edge in edges:
        between = range(layout.layer[edge.source] + 1, layout.layer[edge.target])
        assert [layer for layer, _ in layout.bends[edge]] == list(between)
