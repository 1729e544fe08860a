"""What the tests of the architecture want to know of each source file. A file is parsed once, and its tree is not kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

SRC: Final = Path(__file__).parents[2] / "src"
MODULES: Final = sorted((SRC / "bartack").rglob("*.py"))


class Module(NamedTuple):
    """The docstring of a file, and what it imports as absolute dotted names."""

    docstring: str | None
    imports: tuple[str, ...]


@cache
def module_of(path: Path) -> Module:
    """The facts of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Module(ast.get_docstring(tree), tuple(_imports(tree, path)))


def package_of(path: Path) -> str:
    """The dotted name of the package that a file is in."""
    return ".".join(path.relative_to(SRC).parent.parts)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, wherever it stands. Expressions are not looked into: they are most of a tree and hold no statement."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def _imports(tree: ast.AST, path: Path) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            anchor = package_of(path).split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*anchor, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
