"""A part of the graph as a drawing: an SVG file, or a page that needs nothing but a browser.

Nothing in a file is executed and nothing is loaded from elsewhere; names and ids are text, whatever is in them. Where things
go is decided in ``_layout.py``.
"""

from __future__ import annotations

import unicodedata
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from bartack.tracking.lineage._graph import LineagePicture
from bartack.tracking.lineage._layout import DrawnEdge, Layout, lay_out
from bartack.tracking.lineage.wire import Edge, LineageNode

BOX_WIDTH: Final = 188
BOX_HEIGHT: Final = 54
COLUMN: Final = 250
ROW: Final = 74
MARGIN: Final = 28
LEGEND: Final = 44

NAME_CELLS: Final = 19
FACT_CELLS: Final = 26

WORDS: Final = {
    "derived_from": "derived",
    "modified_from": "modified",
    "merged_from": "merged",
    "forked_from": "forked",
    "replaced_by": "replaced",
    "deprecated_by": "deprecated",
    "inspired_by": "inspired",
}
"""Edge types in their order in the legend, and in a word."""

_STYLE: Final = """
.lineage { --paper: #fbfaf8; --box: #ffffff; --line: #d9d4cc; --ink: #26231f; --soft: #756d63; --root: #b4461f;
  --root-box: #fdf1ec; --c0: #3f6fb5; --c1: #b4461f; --c2: #7a4fa3; --c3: #2c8a63; --c4: #b98a12; --c5: #8b857c; --c6: #c2558c;
  font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { .lineage { --paper: #1b1917; --box: #262320; --line: #4a443d; --ink: #f0ebe4;
  --soft: #a69d91; --root: #f08a5d; --root-box: #3a2820; --c0: #7da7e8; --c1: #f08a5d; --c2: #b993e0; --c3: #62c49a;
  --c4: #e0b84a; --c5: #9d968c; --c6: #e58bb8; } }
.paper { fill: var(--paper); }
.box rect { fill: var(--box); stroke: var(--line); stroke-width: 1.2; }
.box .name { fill: var(--ink); font-size: 13.5px; font-weight: 600; }
.box .fact { fill: var(--soft); font-size: 11.5px; }
.box .more { fill: var(--soft); font-size: 18px; font-weight: 700; }
.box:hover rect { stroke: var(--ink); }
.stub rect { stroke-dasharray: 5 4; fill: var(--paper); }
.stub .name { font-weight: 400; font-style: italic; fill: var(--soft); }
.old .name { text-decoration: line-through; fill: var(--soft); }
.root rect { fill: var(--root-box); stroke: var(--root); stroke-width: 2; }
.edge { fill: none; stroke-width: 1.7; opacity: 0.85; }
.edge:hover { stroke-width: 3.2; opacity: 1; }
.legend { fill: var(--soft); font-size: 12px; }
.e0 { stroke: var(--c0); } .e1 { stroke: var(--c1); } .e2 { stroke: var(--c2); } .e3 { stroke: var(--c3); }
.e4 { stroke: var(--c4); } .e5 { stroke: var(--c5); stroke-dasharray: 6 4; } .e6 { stroke: var(--c6); stroke-dasharray: 2 4; }
.h0 { fill: var(--c0); } .h1 { fill: var(--c1); } .h2 { fill: var(--c2); } .h3 { fill: var(--c3); } .h4 { fill: var(--c4); }
.h5 { fill: var(--c5); } .h6 { fill: var(--c6); }
"""

_PAGE_STYLE: Final = """
html { color-scheme: light dark; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5; }
main { max-width: 1640px; margin: 0 auto; padding: 32px 28px 48px; }
h1 { font-size: 26px; margin: 0 0 2px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.88em; overflow-wrap: anywhere; }
.id { color: var(--soft); margin: 0 0 18px; }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 22px; padding: 0; list-style: none; }
.chips li { border: 1px solid var(--line); background: var(--box); border-radius: 999px; padding: 2px 12px; font-size: 13px; }
.chips b { font-weight: 600; }
.drawing { border: 1px solid var(--line); border-radius: 12px; overflow: auto; margin: 0 0 30px; }
.drawing svg { display: block; margin: 0 auto; max-width: 100%; height: auto; }
h2 { font-size: 17px; margin: 0 0 8px; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); padding: 6px 16px 6px 0; }
td { border-bottom: 1px solid var(--line); padding: 6px 16px 6px 0; vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; }
tr.here td { color: var(--root); font-weight: 600; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 24px; }
"""


class Point(NamedTuple):
    """A place in the drawing, in pixels."""

    x: float
    y: float


class Box(NamedTuple):
    """A version of a pattern: its name and facts are cut to fit."""

    node: LineageNode
    corner: Point
    name: str
    facts: str
    title: str
    is_root: bool
    is_cut: bool
    """There is more beyond it."""


class Arrow(NamedTuple):
    """An edge; ``number`` is the place of its type in ``WORDS``."""

    number: int
    path: str
    title: str


class LegendKey(NamedTuple):
    """What the arrows of a number stand for."""

    number: int
    word: str
    place: Point


class LineageDrawing(NamedTuple):
    """The shapes of a drawing."""

    width: int
    height: int
    arrows: list[Arrow]
    boxes: list[Box]
    legend: list[LegendKey]


def draw_svg(picture: LineagePicture) -> str:
    """A picture as an SVG file."""
    drawing = _drawing(picture)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawing}\n'


def draw_page(picture: LineagePicture) -> str:
    """A picture as an HTML page, with a table of its nodes."""
    root = picture.root
    chips = "".join(f"<li>{name} <b>{_text(value)}</b></li>" for name, value in _facts(picture))
    nodes = sorted(picture.nodes.values(), key=lambda node: (node.generation, node.created_at, node.node_id))
    rows = "\n".join(_row(node, here=node.node_id == root.node_id) for node in nodes)
    cut = " There is more beyond the nodes marked with …" if picture.cut else ""
    return f"""<!doctype html>
<html lang="en" class="lineage">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(_title(root))} · lineage</title>
<style>{_STYLE}{_PAGE_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(_title(root))}</h1>
<p class="id"><code>{_text(root.pattern_id)}</code></p>
<ul class="chips">{chips}</ul>
<div class="drawing">
{_drawing(picture, styled=False)}
</div>
<h2>Patterns in this picture</h2>
<div class="table">
<table>
<thead><tr><th>Name</th><th>Version</th><th>Generation</th><th>Language</th><th>Created</th><th>Id</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<footer>Made by bartack lineage show.{cut}</footer>
</main>
</body>
</html>
"""


def _facts(picture: LineagePicture) -> list[tuple[str, str]]:
    root = picture.root
    facts = [
        ("version", root.version),
        ("generation", str(root.generation)),
        ("language", root.language),
        ("type", root.pattern_type),
        ("created", root.created_at[:10]),
        ("patterns shown", str(len(picture.nodes))),
    ]
    return facts + ([("state", "deprecated")] if root.deprecated else [])


def _row(node: LineageNode, *, here: bool) -> str:
    known = "not known yet" if node.stub else node.created_at[:10]
    cells = "".join(
        f'<td class="number">{_text(value)}</td>'
        for value in (node.version, str(node.generation), node.language, known)
    )
    start = '<tr class="here">' if here else "<tr>"
    return f"{start}<td>{_text(_title(node))}</td>{cells}<td><code>{_text(node.pattern_id)}</code></td></tr>"


def draw_shapes(picture: LineagePicture) -> LineageDrawing:
    """The shapes of a picture, for a page that writes its own markup and has its own style."""
    edges = [
        edge for edge in picture.edges if {edge.parent_node_id, edge.child_node_id} <= set(picture.nodes)
    ]
    layout = lay_out(
        list(picture.nodes), [DrawnEdge(edge.parent_node_id, edge.child_node_id) for edge in edges]
    )
    used = [kind for kind in WORDS if any(edge.edge_type == kind for edge in edges)]
    width = (layout.layers - 1) * COLUMN + BOX_WIDTH + 2 * MARGIN
    width = max(width, 2 * MARGIN + len(used) * 104)
    height = round((layout.rows - 1) * ROW + BOX_HEIGHT + 2 * MARGIN + (LEGEND if used else 0))
    return LineageDrawing(
        width,
        height,
        [_arrow(edge, layout) for edge in edges],
        [_box(node, layout, picture) for node in picture.nodes.values()],
        [
            LegendKey(WORDS_ORDER[kind], WORDS[kind], Point(MARGIN + place * 104, height - LEGEND / 2))
            for place, kind in enumerate(used)
        ],
    )


def _drawing(picture: LineagePicture, *, styled: bool = True) -> str:
    shapes = draw_shapes(picture)
    width, height = shapes.width, shapes.height
    # On a page it shrinks to fit, as long as it can be read.
    least = "" if styled else f' style="min-width: {round(width * 0.72)}px"'
    style = f"<style>{_STYLE}</style>\n" if styled else ""
    parts = [
        f'<svg class="lineage" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"{least} '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="lineage of {_text(_title(picture.root))}">',
        f"{style}<defs>{''.join(_head(key.number) for key in shapes.legend)}</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *(_write_arrow(arrow) for arrow in shapes.arrows),
        *(_write_box(box) for box in shapes.boxes),
        "\n".join(_write_key(key) for key in shapes.legend),
        "</svg>",
    ]
    return "\n".join(parts)


WORDS_ORDER: Final = {kind: number for number, kind in enumerate(WORDS)}


def _head(number: int) -> str:
    return (
        f'<marker id="head{number}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="h{number}" d="M0 1 L10 5 L0 9 z"/></marker>'
    )


def _corner(layout: Layout, node_id: str) -> Point:
    return Point(MARGIN + layout.layer[node_id] * COLUMN, MARGIN + layout.height[node_id] * ROW)


def _arrow(edge: Edge, layout: Layout) -> Arrow:
    start, end = _corner(layout, edge.parent_node_id), _corner(layout, edge.child_node_id)
    bends = layout.bends[DrawnEdge(edge.parent_node_id, edge.child_node_id)]
    points = [Point(start.x + BOX_WIDTH, start.y + BOX_HEIGHT / 2)]
    for layer, height in bends:
        x, y = MARGIN + layer * COLUMN, MARGIN + height * ROW + BOX_HEIGHT / 2
        points += [Point(x, y), Point(x + BOX_WIDTH, y)]
    points.append(Point(end.x - 2, end.y + BOX_HEIGHT / 2))
    title = f"{WORDS.get(edge.edge_type, edge.edge_type)}, {edge.edge_weight:.0%} alike"
    return Arrow(WORDS_ORDER.get(edge.edge_type, 0), _curve(points), title)


def _write_arrow(arrow: Arrow) -> str:
    return (
        f'<path class="edge e{arrow.number}" d="{arrow.path}" marker-end="url(#head{arrow.number})">'
        f"<title>{_text(arrow.title)}</title></path>"
    )


def _curve(points: list[Point]) -> str:
    """Curves between layers, straight lines through them."""
    path = f"M{points[0].x:.1f} {points[0].y:.1f}"
    for number, (here, there) in enumerate(pairwise(points)):
        if number % 2:
            path += f" L{there.x:.1f} {there.y:.1f}"
        else:
            half = (there.x - here.x) / 2
            path += f" C{here.x + half:.1f} {here.y:.1f} {there.x - half:.1f} {there.y:.1f} {there.x:.1f} {there.y:.1f}"
    return path


def _box(node: LineageNode, layout: Layout, picture: LineagePicture) -> Box:
    title = f"{_title(node)}\n{node.pattern_id}\nversion {node.version}, generation {node.generation}"
    state = "deprecated" if node.deprecated else "not known yet" if node.stub else node.language
    return Box(
        node,
        _corner(layout, node.node_id),
        _fit(_title(node), NAME_CELLS),
        _fit(f"{node.version} · {state}", FACT_CELLS),
        title,
        node.node_id == picture.root.node_id,
        node.node_id in picture.cut,
    )


def _write_box(box: Box) -> str:
    kinds = ["box"]
    kinds += ["root"] if box.is_root else []
    kinds += ["stub"] if box.node.stub else []
    kinds += ["old"] if box.node.deprecated else []
    more = f'<text class="more" x="{BOX_WIDTH - 24}" y="20">…</text>' if box.is_cut else ""
    return (
        f'<g class="{" ".join(kinds)}" transform="translate({box.corner.x:.1f} {box.corner.y:.1f})">'
        f"<title>{_text(box.title)}</title>"
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="9"/>'
        f'<text class="name" x="14" y="23">{_text(box.name)}</text>'
        f'<text class="fact" x="14" y="41">{_text(box.facts)}</text>{more}</g>'
    )


def _write_key(key: LegendKey) -> str:
    (x, y), number = key.place, key.number
    return (
        f'<path class="edge e{number}" d="M{x} {y} L{x + 24} {y}" marker-end="url(#head{number})"/>'
        f'<text class="legend" x="{x + 31}" y="{y + 4}">{key.word}</text>'
    )


def _title(node: LineageNode) -> str:
    return node.pattern_name or node.pattern_id


def _fit(text: str, cells: int) -> str:
    """The beginning of a text that takes at most this number of columns."""
    used = 0
    for place, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > cells:
            return text[: max(place - 1, 0)].rstrip() + "…"
    return text


def _text(text: str) -> str:
    """Text for a file of markup: nothing in it is taken for markup, and nothing that no such file may hold is left."""
    seen = "".join(
        c if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs", "Co", "Cn"} else "\ufffd"
        for c in text
    )
    return escape(seen)
