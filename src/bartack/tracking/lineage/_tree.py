"""A part of the graph as a tree, line by line, as a terminal shows it.

A node that has more than one parent would have to stand in several places with everything below it; it is written out once,
and elsewhere marked as shown above. The command line paints the lines; the same graph as a drawing is in ``draw.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bartack.tracking.lineage._graph import Direction, LineagePicture
from bartack.tracking.lineage.wire import LineageNode

Mark = Literal["", "↑", "…"]
"""Empty; shown above; there is more below it than was asked for."""


class TreeLine(NamedTuple):
    """One line: what is drawn before it, over which edge the node was reached, the node, and a mark."""

    rails: str
    edge_type: str
    node: LineageNode
    mark: Mark


def iter_tree(picture: LineagePicture, direction: Direction) -> Iterator[TreeLine]:
    """The lines of the tree from the root of a picture in one direction, without the root itself."""
    following = _following(picture, direction)
    written = {picture.root.node_id}
    waiting = list(reversed(_branches(following, picture.root.node_id, "")))
    while waiting:
        branch = waiting.pop()
        node = picture.nodes[branch.node_id]
        repeated = branch.node_id in written
        more = not repeated and branch.node_id in picture.cut and branch.node_id not in following
        yield TreeLine(branch.rails, branch.edge_type, node, "↑" if repeated else "…" if more else "")
        if not repeated:
            written.add(branch.node_id)
            waiting += reversed(_branches(following, branch.node_id, branch.below))


class _Branch(NamedTuple):
    node_id: str
    edge_type: str
    rails: str
    below: str


def _following(picture: LineagePicture, direction: Direction) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for edge in picture.edges:
        ends = (edge.child_node_id, edge.parent_node_id)
        here, there = ends if direction == "up" else (ends[1], ends[0])
        found.setdefault(here, []).append((there, edge.edge_type))
    return found


def _branches(following: dict[str, list[tuple[str, str]]], node_id: str, rails: str) -> list[_Branch]:
    steps = following.get(node_id, [])
    last = len(steps) - 1
    return [
        _Branch(
            there,
            edge_type,
            rails + ("└─ " if number == last else "├─ "),
            rails + ("   " if number == last else "│  "),
        )
        for number, (there, edge_type) in enumerate(steps)
    ]
