"""A short way to write down what a text was parsed into."""

from __future__ import annotations

from typing import cast

from bartack.language import parse, tree


def sketch(node: object) -> str:
    """A node and all below it in one line: kind in front, parts in brackets, incidental things left out."""
    if isinstance(node, tuple):
        return f"[{' '.join(sketch(part) for part in cast('tuple[object, ...]', node))}]"
    if not isinstance(node, tree.Node):
        return repr(node)
    if isinstance(node, tree.Name):
        return node.name
    if isinstance(node, tree.Identifier | tree.Operator):
        return getattr(node, "name", "") or getattr(node, "symbol", "")
    if isinstance(node, tree.Number):
        return f"{node.value:g}"
    hidden = {"start", "end", "opener", "broken", "comments", "doc", "raw"}
    fields = {name: getattr(node, name) for name in node.__struct_fields__ if name not in hidden}
    shown = [sketch(value) for value in fields.values() if value or (value == 0 and value is not False)]
    return f"{type(node).__name__}({' '.join(shown)})" if shown else type(node).__name__


def module(text: str) -> tree.Module:
    """The tree of a text that has no errors."""
    parsed = parse(text, "t.pw")
    assert [(found.code, found.message) for found in parsed.diagnostics if found.severity == "error"] == []
    return parsed.tree


def statement(text: str) -> tree.Unit:
    """The only unit of a text that has no errors."""
    units = module(text).units
    assert len(units) == 1, sketch(units)
    return units[0]


def expression(text: str) -> tree.Expression:
    """The expression that is the whole text."""
    found = statement(text)
    assert isinstance(found, tree.ExpressionStatement)
    return found.value


def codes(text: str | bytes) -> list[str]:
    """The codes of what is said about a text, in order."""
    return [found.code for found in parse(text, "t.pw").diagnostics]


def said(text: str) -> list[tuple[str, str]]:
    """What is said about a text: each code with the text it points at."""
    parsed = parse(text, "t.pw")
    return [(found.code, parsed.source[found.span]) for found in parsed.diagnostics]
