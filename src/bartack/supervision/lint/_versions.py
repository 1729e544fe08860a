"""Finds versions whose names are not fixed: a name that is computed is another one as soon as something else changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from bartack.supervision.lint._code import WorkerCode
from bartack.supervision.lint._hit import Hit
from bartack.supervision.lint._names import last_name

LONGEST: Final = 100
_ADVICE: Final = 'write a name as text: await ctx.version("new-review")'


def find_version_names(code: WorkerCode) -> Iterator[Hit]:
    """Calls of ``ctx.version`` in worker code without a name that is text in the program, or a constant."""
    seen: set[ast.AST] = set()
    for function in code.functions:
        for node in code.nodes_of(function):
            if isinstance(node, ast.Call) and node not in seen and _is_version(code, node):
                seen.add(node)
                problem = _problem(node)
                if problem:
                    yield Hit(node, "version_name", problem, _ADVICE)


def _is_version(code: WorkerCode, call: ast.Call) -> bool:
    callee = code.callee(call)
    return callee is not None and callee.kind == "ctx" and last_name(call.func) == "version"


def _problem(call: ast.Call) -> str:
    by_name = (keyword.value for keyword in call.keywords if keyword.arg == "name")
    name = call.args[0] if call.args else next(by_name, None)
    match name:
        case None:
            return "this version has no name"
        case ast.Constant(value=str() as text):
            if not text:
                return "the name of this version is empty"
            too_long = len(text) > LONGEST
            return f"the name of this version has more than {LONGEST} characters" if too_long else ""
        case ast.Name(id=constant) | ast.Attribute(attr=constant) if constant.isupper():
            return ""
        case _:
            return "the name of this version is computed, so it can change with other parts of the program"
