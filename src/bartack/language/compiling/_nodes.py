"""Python syntax nodes that carry places of Patchwork text.

Owns the conversion of offsets to Python's lines and byte columns, and short ways to make nodes. Knows nothing of what
the nodes mean; `_expressions.py` does.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Sequence
from typing import TypedDict, TypeVar

from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Source

RT = "rt"

A = TypeVar("A", bound="ast.expr | ast.stmt")


class NoCodeError(Exception):
    """The compiler has no code for a part of a program."""

    def __init__(self, node: tree.Node) -> None:
        super().__init__(f"no code for {type(node).__name__} at {node.start}")
        self.node = node


class Position(TypedDict):
    """Where a Python node is: lines from 1, columns in bytes from 0."""

    lineno: int
    col_offset: int
    end_lineno: int
    end_col_offset: int


class Places:
    """The places of one source, as Python counts them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._starts = source.line_starts
        self._ascii = source.text.isascii()
        self._widths: dict[int, list[int] | None] = {}
        self._known: dict[tree.Node, Position] = {}

    def of(self, node: tree.Node) -> Position:
        """Where a node of the tree is."""
        found = self._known.get(node)
        if found is None:
            line, column = self._place(node.start)
            end_line, end_column = self._place(max(node.start, node.end))
            found = self._known[node] = Position(
                lineno=line, col_offset=column, end_lineno=end_line, end_col_offset=end_column
            )
        return found

    def at(self, node: tree.Node) -> tuple[int, int]:
        """Line and column of a node's start, as people count them."""
        line = bisect_right(self._starts, node.start)
        return line, node.start - self._starts[line - 1] + 1

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        column = offset - self._starts[line - 1]
        return line, column if self._ascii else self._bytes_before(line, column)

    def _bytes_before(self, line: int, column: int) -> int:
        if line not in self._widths:
            self._widths[line] = _byte_columns(self._source.line_text(line))
        widths = self._widths[line]
        return column if widths is None else widths[min(column, len(widths) - 1)]


def _byte_columns(text: str) -> list[int] | None:
    """How many bytes stand before each character of a line; None when that is how many characters do."""
    if text.isascii():
        return None
    columns, total = [0], 0
    for character in text:
        total += len(character.encode("utf-8", "replace"))
        columns.append(total)
    return columns


class Maker:
    """Makes Python nodes at the places of tree nodes."""

    def __init__(self, source: Source) -> None:
        self.places = Places(source)

    def name(self, node: tree.Node, name: str) -> ast.expr:
        """A name that is read."""
        return ast.Name(name, ast.Load(), **self.places.of(node))

    def stored(self, node: tree.Node, name: str) -> ast.Name:
        """A name that is assigned."""
        return ast.Name(name, ast.Store(), **self.places.of(node))

    def constant(self, node: tree.Node, value: str | float | bool | None) -> ast.expr:
        """A constant; an integral number is an integer."""
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)
        return ast.Constant(value, **self.places.of(node))

    def at(self, node: tree.Node) -> ast.expr:
        """The place of a node as a value: line and column."""
        line, column = self.places.at(node)
        where = self.places.of(node)
        return ast.Tuple([ast.Constant(line, **where), ast.Constant(column, **where)], ast.Load(), **where)

    def runtime(self, node: tree.Node, attribute: str) -> ast.expr:
        """An attribute of the runtime.

        It is on one line: a call of an attribute that is not, Python places at the attribute's last word.
        """
        where = self.places.of(node)
        if where["end_lineno"] != where["lineno"]:
            end = where["col_offset"] + 1
            where = Position({**where, "end_lineno": where["lineno"], "end_col_offset": end})
        return ast.Attribute(self.name(node, RT), attribute, ast.Load(), **where)

    def rt(self, node: tree.Node, method: str, *arguments: ast.expr, **named: ast.expr | None) -> ast.expr:
        """A call of a method of the runtime; named arguments that are None are left out."""
        return self.call(node, self.runtime(node, method), arguments, named)

    def effect(
        self, node: tree.Node, method: str, *arguments: ast.expr, **named: ast.expr | None
    ) -> ast.expr:
        """A call of the runtime that has an effect: it gets its place."""
        return self.rt(node, method, *arguments, **named, at=self.at(node))

    def call(
        self,
        node: tree.Node,
        function: ast.expr,
        arguments: Sequence[ast.expr] = (),
        named: dict[str, ast.expr | None] | None = None,
    ) -> ast.expr:
        """A call."""
        where = self.places.of(node)
        keywords = [
            ast.keyword(name, value, **where) for name, value in (named or {}).items() if value is not None
        ]
        return ast.Call(function, list(arguments), keywords, **where)

    def listed(self, node: tree.Node, elements: Sequence[ast.expr]) -> ast.expr:
        """A list."""
        return ast.List(list(elements), ast.Load(), **self.places.of(node))

    def tupled(self, node: tree.Node, elements: Sequence[ast.expr]) -> ast.expr:
        """A tuple."""
        return ast.Tuple(list(elements), ast.Load(), **self.places.of(node))

    def starred(self, node: tree.Node, value: ast.expr) -> ast.expr:
        """`*value` in a list."""
        return ast.Starred(value, ast.Load(), **self.places.of(node))

    def named(self, node: tree.Node, name: str, value: ast.expr) -> ast.expr:
        """`(name := value)`."""
        return ast.NamedExpr(self.stored(node, name), value, **self.places.of(node))

    def choice(self, node: tree.Node, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
        """`then if test else otherwise`."""
        return ast.IfExp(test, then, otherwise, **self.places.of(node))

    def negation(self, node: tree.Node, test: ast.expr) -> ast.expr:
        """`not test`."""
        return ast.UnaryOp(ast.Not(), test, **self.places.of(node))

    def is_there(self, node: tree.Node, value: ast.expr) -> ast.expr:
        """`value is not None`."""
        where = self.places.of(node)
        return ast.Compare(value, [ast.IsNot()], [ast.Constant(None, **where)], **where)

    def last(self, node: tree.Node, values: Sequence[ast.expr], place: int = -1) -> ast.expr:
        """One of several values, after all of them were evaluated from left to right: the last, or the first."""
        where = self.places.of(node)
        return ast.Subscript(self.tupled(node, values), ast.Constant(place, **where), ast.Load(), **where)

    def assign(self, node: tree.Node, name: str, value: ast.expr) -> ast.stmt:
        """`name = value`."""
        return ast.Assign([self.stored(node, name)], value, **self.places.of(node))

    def expression(self, node: tree.Node, value: ast.expr) -> ast.stmt:
        """An expression as a statement."""
        return ast.Expr(value, **self.places.of(node))

    def branch(
        self, node: tree.Node, test: ast.expr, body: list[ast.stmt], otherwise: list[ast.stmt] | None = None
    ) -> ast.stmt:
        """`if test: … else: …`."""
        return ast.If(test, body, otherwise or [], **self.places.of(node))

    def returned(self, node: tree.Node, value: ast.expr | None) -> ast.stmt:
        """`return value`."""
        return ast.Return(value, **self.places.of(node))

    def function(
        self, node: tree.Node, name: str, parameters: Sequence[tuple[str, bool]], body: list[ast.stmt]
    ) -> ast.stmt:
        """`def name(parameters): …`; optional parameters have a flag."""
        where = self.places.of(node)
        missing = ast.Name("rt_missing", ast.Load(), **where)
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(parameter, None, **where) for parameter, _ in parameters],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[missing for _, optional in parameters if optional],
        )
        function = ast.FunctionDef(name, arguments, body, [], None, **where)
        # Python 3.12 requires the field, even empty; earlier versions do not have it.
        vars(function)["type_params"] = []
        return function
