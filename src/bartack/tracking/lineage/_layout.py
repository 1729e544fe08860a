"""Where the nodes and edges of a drawing go: layers from left to right, few crossings, straight where it can be.

Each node stands to the right of its parents. An edge over several layers gets a point in each layer between, which takes part
like a node, so that it runs around the boxes and not through them. The order within a layer follows the neighbours, and so,
as far as there is room, does the height.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

SWEEPS: Final = 12
NODE_ROOM: Final = 1.0
POINT_ROOM: Final = 0.45
"""How much of a layer's height a node and a point of an edge take; 1 is a row."""


class DrawnEdge(NamedTuple):
    """From a node to one that stands further to the right."""

    source: str
    target: str


class Layout(NamedTuple):
    """Layer and height of each node, in rows, and the points of each edge between its ends."""

    layer: dict[str, int]
    height: dict[str, float]
    bends: dict[DrawnEdge, list[tuple[int, float]]]

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return max(self.layer.values(), default=0) + 1

    @property
    def rows(self) -> float:
        """How high it is."""
        points = [height for bends in self.bends.values() for _, height in bends]
        return max([*self.height.values(), *points], default=0.0) + 1


def lay_out(nodes: Sequence[str], edges: Iterable[DrawnEdge]) -> Layout:
    """Find a place for every node. Edges that close a cycle are drawn, but have no say."""
    wanted = list(dict.fromkeys(edges))
    layer, forward = _layers(nodes, wanted)
    chains = {edge: _chain(edge, layer) for edge in forward}
    places = dict(layer)
    for chain in chains.values():
        for step, point in enumerate(chain[1:-1], 1):
            places[point] = layer[chain[0]] + step
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    height = _heights(places, links, set(nodes))
    bends: dict[DrawnEdge, list[tuple[int, float]]] = {edge: [] for edge in wanted}
    for edge, chain in chains.items():
        bends[edge] = [(places[point], height[point]) for point in chain[1:-1]]
    return Layout(layer, {node: height[node] for node in nodes}, bends)


def _layers(nodes: Sequence[str], edges: list[DrawnEdge]) -> tuple[dict[str, int], list[DrawnEdge]]:
    """The layer of each node, right of all its parents, and the edges that lead to the right."""
    waits = dict.fromkeys(nodes, 0)
    following: dict[str, list[str]] = {node: [] for node in nodes}
    for edge in edges:
        waits[edge.target] += 1
        following[edge.source].append(edge.target)
    layer = dict.fromkeys(nodes, 0)
    ready = [node for node in nodes if waits[node] == 0]
    left = [node for node in nodes if waits[node]]
    done: set[str] = set()
    while ready or left:
        # In a cycle no node is ready: the first of the waiting ones begins.
        node = ready.pop() if ready else left.pop(0)
        if node in done:
            continue
        done.add(node)
        for target in following[node]:
            if target not in done:
                layer[target] = max(layer[target], layer[node] + 1)
                waits[target] -= 1
                if waits[target] == 0:
                    ready.append(target)
    _pull_right(nodes, following, layer)
    return layer, [edge for edge in edges if layer[edge.source] < layer[edge.target]]


def _pull_right(nodes: Sequence[str], following: dict[str, list[str]], layer: dict[str, int]) -> None:
    """A node without parents stands beside its nearest child, not at the far left."""
    has_parent = {target for targets in following.values() for target in targets}
    for node in nodes:
        nearest = [layer[target] for target in following[node] if layer[target] > layer[node]]
        if node not in has_parent and nearest:
            layer[node] = min(nearest) - 1


def _chain(edge: DrawnEdge, layer: dict[str, int]) -> list[str]:
    between = layer[edge.target] - layer[edge.source] - 1
    return [edge.source, *(f"{edge.source}\0{edge.target}\0{step}" for step in range(between)), edge.target]


def _heights(places: dict[str, int], links: list[tuple[str, str]], nodes: set[str]) -> dict[str, float]:
    columns: list[list[str]] = [[] for _ in range(max(places.values(), default=0) + 1)]
    for place, number in places.items():
        columns[number].append(place)
    before: dict[str, list[str]] = {place: [] for place in places}
    after: dict[str, list[str]] = {place: [] for place in places}
    for source, target in links:
        before[target].append(source)
        after[source].append(target)
    room = {place: NODE_ROOM if place in nodes else POINT_ROOM for place in places}
    height = {place: float(number) for column in columns for number, place in enumerate(column)}
    for sweep in range(SWEEPS):
        both = sweep >= SWEEPS // 2
        for column in columns if sweep % 2 == 0 else reversed(columns):
            near = {
                place: (before[place] if sweep % 2 == 0 or both else [])
                + (after[place] if sweep % 2 == 1 or both else [])
                for place in column
            }
            _settle(column, near, height, room)
    lowest = min(height.values(), default=0.0)
    return {place: found - lowest for place, found in height.items()}


def _settle(
    column: list[str], near: dict[str, list[str]], height: dict[str, float], room: dict[str, float]
) -> None:
    """Move each place of a column to the middle of its neighbours, as far as the others leave room."""
    wish = {
        place: sum(height[other] for other in near[place]) / len(near[place])
        if near[place]
        else height[place]
        for place in column
    }
    column.sort(key=lambda place: wish[place])
    blocks: list[_Block] = []
    for place in column:
        blocks.append(_Block([place], wish[place] - room[place] / 2, room[place]))
        while len(blocks) > 1 and blocks[-1].top < blocks[-2].top + blocks[-2].size:
            last = blocks.pop()
            blocks[-1].join(last)
    for block in blocks:
        top = block.top
        for place in block.places:
            height[place] = top + room[place] / 2
            top += room[place]


class _Block:
    """Places that stand one upon the other, as near to their wishes, all together, as that allows."""

    def __init__(self, places: list[str], wishes: float, size: float) -> None:
        self.places = places
        self.size = size
        self._wishes = wishes

    @property
    def top(self) -> float:
        """Where it begins: the mean of where its members would have it begin."""
        return self._wishes / len(self.places)

    def join(self, below: _Block) -> None:
        """Put another block under this one."""
        self._wishes += below._wishes - len(below.places) * self.size
        self.places += below.places
        self.size += below.size
