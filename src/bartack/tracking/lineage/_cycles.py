"""Every cycle of a directed graph, once, by Johnson's method.

An event that would close a cycle is refused, so cycles only come from data that was brought in another way. There can be
exponentially many: they are made one by one, and ``steps`` bounds the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Graph = dict[str, list[str]]


class SearchLimitError(Exception):
    """The search was given up; there may be more cycles."""


def iter_cycles(edges: Iterable[tuple[str, str]], steps: int = 1_000_000) -> Iterator[list[str]]:
    """The cycles in the order of their node ids, each beginning with its least.

    Raises:
        SearchLimitError: The search did not finish within the given number of steps.
    """
    graph = _cyclic_part(edges)
    backwards = _reversed(graph)
    budget = [steps]
    for start in sorted(graph):
        # What can be reached from the start and leads back to it, without those that were a start before.
        part = _reachable(graph, start) & _reachable(backwards, start)
        budget[0] -= len(part)
        if start in graph[start] or len(part) > 1:
            yield from _cycles_from(
                start, {node: [n for n in graph[node] if n in part] for node in part}, budget
            )


def _cyclic_part(edges: Iterable[tuple[str, str]]) -> Graph:
    """The graph without what nothing leads to and what leads nowhere: none of that is on a cycle."""
    graph: Graph = {}
    for source, target in sorted(set(edges)):
        graph.setdefault(source, []).append(target)
        graph.setdefault(target, [])
    return _peeled(_reversed(_peeled(_reversed(graph))))


def _peeled(graph: Graph) -> Graph:
    """The graph without the nodes that lead nowhere, nor to anything but such nodes."""
    backwards = _reversed(graph)
    left = {node: len(following) for node, following in graph.items()}
    waiting = [node for node, count in left.items() if count == 0]
    while waiting:
        gone = waiting.pop()
        del left[gone]
        for node in backwards[gone]:
            left[node] -= 1
            if left[node] == 0:
                waiting.append(node)
    return {node: sorted(target for target in graph[node] if target in left) for node in left}


def _reversed(graph: Graph) -> Graph:
    backwards: Graph = {node: [] for node in graph}
    for node, following in graph.items():
        for target in following:
            backwards[target].append(node)
    return backwards


def _reachable(graph: Graph, start: str) -> set[str]:
    seen = {start}
    waiting = [start]
    while waiting:
        for node in graph[waiting.pop()]:
            if node not in seen and node > start:
                seen.add(node)
                waiting.append(node)
    return seen


def _cycles_from(start: str, graph: Graph, budget: list[int]) -> Iterator[list[str]]:
    """The cycles through ``start`` in a graph where everything leads back to it."""
    path = [start]
    blocked = {start}
    waits_for: dict[str, set[str]] = {node: set() for node in graph}
    closed = [False]
    following = [iter(graph[start])]
    while following:
        budget[0] -= 1
        if budget[0] < 0:
            raise SearchLimitError
        node = next(following[-1], None)
        if node is None:
            following.pop()
            _leave(path, closed, blocked, waits_for, graph)
        elif node == start:
            closed[-1] = True
            yield list(path)
        elif node not in blocked:
            path.append(node)
            blocked.add(node)
            closed.append(False)
            following.append(iter(graph[node]))


def _leave(
    path: list[str], closed: list[bool], blocked: set[str], waits_for: dict[str, set[str]], graph: Graph
) -> None:
    """Step back. A node that led to a cycle is free again; one that did not waits until a node after it is."""
    node, found = path.pop(), closed.pop()
    if found:
        _unblock(node, blocked, waits_for)
    else:
        for target in graph[node]:
            waits_for[target].add(node)
    if closed:
        closed[-1] = closed[-1] or found


def _unblock(node: str, blocked: set[str], waits_for: dict[str, set[str]]) -> None:
    waiting = [node]
    while waiting:
        freed = waiting.pop()
        if freed in blocked:
            blocked.discard(freed)
            waiting.extend(waits_for[freed])
            waits_for[freed].clear()
