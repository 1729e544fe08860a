"""Python trees as readable text: one comment with file and line for each Patchwork statement.

Only the nodes that the compiler makes are known here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Final

_INDENT: Final = "    "


def python_text(module: ast.Module, lines: Mapping[ast.stmt, int], path: str) -> str:
    """A module as text."""
    writer = _Writer(lines, path)
    parts: list[str] = []
    for place, statement in enumerate(module.body):
        if place and isinstance(statement, ast.FunctionDef):
            parts.append("")
        parts += writer.statement(statement, "")
    return "\n".join(parts) + "\n" if parts else ""


class _Writer:
    """Writes statements, each with the comment that belongs to it."""

    def __init__(self, lines: Mapping[ast.stmt, int], path: str) -> None:
        self._lines = lines
        self._path = path

    def statement(self, node: ast.stmt, indent: str) -> Iterator[str]:
        """The lines of a statement."""
        line = self._lines.get(node)
        if line is not None:
            yield f"{indent}# {self._path}:{line}"
        match node:
            case ast.FunctionDef():
                yield f"{indent}def {node.name}({_parameters(node.args)}):"
                yield from self._body(node.body, indent)
            case ast.If():
                yield from self._if(node, indent)
            case ast.While():
                yield f"{indent}while {_expression(node.test)}:"
                yield from self._body(node.body, indent)
            case ast.For():
                yield f"{indent}for {_expression(node.target)} in {_expression(node.iter)}:"
                yield from self._body(node.body, indent)
            case ast.Try():
                yield f"{indent}try:"
                yield from self._body(node.body, indent)
                for handler in node.handlers:
                    yield f"{indent}except Exception as {handler.name}:"
                    yield from self._body(handler.body, indent)
            case _:
                yield indent + _simple(node)

    def _body(self, body: list[ast.stmt], indent: str) -> Iterator[str]:
        for statement in body:
            yield from self.statement(statement, indent + _INDENT)

    def _if(self, node: ast.If, indent: str) -> Iterator[str]:
        word = "if"
        while True:
            yield f"{indent}{word} {_expression(node.test)}:"
            yield from self._body(node.body, indent)
            rest = node.orelse
            if len(rest) == 1 and isinstance(rest[0], ast.If) and rest[0] not in self._lines:
                node, word = rest[0], "elif"
                continue
            if rest:
                yield f"{indent}else:"
                yield from self._body(rest, indent)
            return


def _parameters(arguments: ast.arguments) -> str:
    required = len(arguments.args) - len(arguments.defaults)
    return ", ".join(
        argument.arg if place < required else f"{argument.arg}=rt_missing"
        for place, argument in enumerate(arguments.args)
    )


def _simple(node: ast.stmt) -> str:
    text = "pass"
    match node:
        case ast.Expr():
            text = _expression(node.value)
        case ast.Assign():
            text = f"{_expression(node.targets[0])} = {_expression(node.value)}"
        case ast.Return():
            text = "return" if node.value is None else f"return {_expression(node.value)}"
        case ast.Nonlocal():
            text = f"nonlocal {', '.join(node.names)}"
        case ast.Break():
            text = "break"
        case ast.Continue():
            text = "continue"
        case _:
            pass
    return text


def _expression(node: ast.expr) -> str:
    match node:
        case ast.Constant():
            text = _constant(node.value)
        case ast.Name():
            text = node.id
        case ast.Attribute():
            text = f"{_expression(node.value)}.{node.attr}"
        case ast.Call():
            named = [f"{keyword.arg}={_expression(keyword.value)}" for keyword in node.keywords]
            text = f"{_expression(node.func)}({', '.join([*map(_expression, node.args), *named])})"
        case ast.List():
            text = f"[{', '.join(map(_expression, node.elts))}]"
        case ast.Tuple():
            inner = ", ".join(map(_expression, node.elts))
            text = f"({inner},)" if len(node.elts) == 1 else f"({inner})"
        case ast.Starred():
            text = f"*{_expression(node.value)}"
        case ast.Dict():
            text = f"{{{', '.join(map(_entry, node.keys, node.values))}}}"
        case _:
            text = _operation(node)
    return text


def _operation(node: ast.expr) -> str:
    match node:
        case ast.NamedExpr():
            return f"({node.target.id} := {_expression(node.value)})"
        case ast.IfExp():
            test, then, otherwise = map(_expression, (node.test, node.body, node.orelse))
            return f"({then} if {test} else {otherwise})"
        case ast.BoolOp():
            word = " and " if isinstance(node.op, ast.And) else " or "
            return f"({word.join(map(_expression, node.values))})"
        case ast.UnaryOp():
            return f"(not {_expression(node.operand)})"
        case ast.Compare():
            word = _COMPARED[type(node.ops[0])]
            return f"{_expression(node.left)} {word} {_expression(node.comparators[0])}"
        case ast.Subscript():
            return f"{_expression(node.value)}[{_expression(node.slice)}]"
        case _:
            raise TypeError(f"the compiler makes no {type(node).__name__}")


_COMPARED: Final[Mapping[type, str]] = {ast.Is: "is", ast.IsNot: "is not", ast.Eq: "=="}


def _entry(key: ast.expr | None, value: ast.expr) -> str:
    return f"**{_expression(value)}" if key is None else f"{_expression(key)}: {_expression(value)}"


def _constant(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
