"""What a walk over a file needs to know: who stands above a node, and which names are used for what."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bartack.supervision.lint._names import Names, last_name
from bartack.supervision.lint._rules import LIMITED, LIMITED_METHODS, QUEUES

Function = ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """A parsed file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes: list[ast.AST] = [tree]
        """All of them, from the outside in. They are collected once: each walk over a tree takes as long as parsing it."""
        self._above: dict[ast.AST, ast.AST] = {}
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                self._above[child] = node
                self.nodes.append(child)
        self.names = Names(self.nodes)
        self.joined: set[str] = set()
        """What ``join`` is called on; empty text: something without a name."""
        self.queues: set[str] = set()
        for node in self.nodes:
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._note_join(node.func)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            made = self.names.resolve(node.value.func)
            self.queues |= set(targets_of(node)) if made in QUEUES else set()

    def _note_join(self, called: ast.expr) -> None:
        if not isinstance(called, ast.Attribute) or called.attr != "join":
            return
        if not isinstance(called.value, ast.Constant | ast.JoinedStr):
            self.joined.add(last_name(called.value))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, from the inside out."""
        while (found := self._above.get(node)) is not None:
            yield found
            node = found

    def above_node(self, node: ast.AST) -> ast.AST | None:
        """What a node is directly in."""
        return self._above.get(node)

    def parent(self, node: ast.AST) -> ast.AST:
        """What a node is directly in; a name for the result is looked through."""
        found = self._above[node]
        return self._above[found] if isinstance(found, ast.Await | ast.NamedExpr) else found

    def function(self, node: ast.AST) -> Function | None:
        """The function that a node is in."""
        return next((above for above in self.above(node) if isinstance(above, Function)), None)

    def is_limited(self, node: ast.AST) -> bool:
        """Whether a node is inside of a block or a call that ends it in time."""
        return any(self._limits(above) for above in self.above(node))

    def _limits(self, node: ast.AST) -> bool:
        if isinstance(node, ast.With | ast.AsyncWith):
            return any(self._is_limit(item.context_expr) for item in node.items)
        return isinstance(node, ast.Call) and self.names.resolve(node.func) in LIMITED

    def _is_limit(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        full = self.names.resolve(node.func)
        return full in LIMITED or (not full and last_name(node.func) in LIMITED_METHODS)

    def is_dropped(self, call: ast.Call) -> bool:
        """Whether the result of a call is not used."""
        parent = self.parent(call)
        if isinstance(parent, ast.Expr):
            return True
        if not isinstance(parent, ast.Assign | ast.AnnAssign):
            return False
        names = targets_of(parent)
        scope = self.function(call) or self.tree
        used = {
            node.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        plain = all(isinstance(target, ast.Name) for target in _targets(parent))
        return plain and used.isdisjoint(names)

    def is_decorated_worker(self, node: ast.AST) -> bool:
        """Whether a node is the function of a worker."""
        return isinstance(node, Function) and self.is_decorated(node, "worker")

    def is_decorated(self, function: Function, name: str) -> bool:
        """Whether a function is, say, a worker: by its decorator's full name."""
        decorators = [node.func if isinstance(node, ast.Call) else node for node in function.decorator_list]
        return any(
            self.names.resolve(node) in {f"bartack.{name}", f"bartack.runtime.{name}"} for node in decorators
        )


def targets_of(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """The last names of what is assigned to."""
    return [last_name(target) for target in _targets(node)]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def iter_inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, without functions of its own."""
    if isinstance(node, Function | ast.Lambda):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from iter_inside(child)
