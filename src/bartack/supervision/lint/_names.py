"""What the names in a file stand for, by its imports: ``sp.Popen`` is ``subprocess.Popen`` after ``import subprocess as sp``."""

from __future__ import annotations

import ast
from collections.abc import Iterable


class Names:
    """The imports among the nodes of one file."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._known: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                self._add_modules(node)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    self._known[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _add_modules(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self._known[alias.asname] = alias.name
            else:
                top = alias.name.partition(".")[0]
                self._known[top] = top

    def resolve(self, node: ast.expr) -> str:
        """The full name that an expression stands for; empty if it does not stand for an imported one."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        start = self._known.get(node.id)
        return ".".join([start, *reversed(parts)]) if start else ""


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name: what is called, on any object."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
