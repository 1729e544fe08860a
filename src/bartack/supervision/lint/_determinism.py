"""Finds what worker code does between steps that may be different when it is replayed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from bartack.supervision.lint._code import WorkerCode
from bartack.supervision.lint._hit import Hit
from bartack.supervision.lint._names import last_name
from bartack.supervision.lint._rules import (
    ANY_PATH_METHODS,
    DETERMINISTIC,
    NONDETERMINISTIC,
    NONDETERMINISTIC_MODULES,
    PATH_METHODS,
)

_PATHS: Final = frozenset({"pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath"})
_DEEPEST: Final = 8
"""A name may be made of itself."""
_PATH_PARTS: Final = frozenset(
    {"parent", "joinpath", "with_suffix", "with_name", "with_stem", "absolute", "resolve"}
)


def find_nondeterminism(code: WorkerCode) -> Iterator[Hit]:
    """Uses of the clock, of randomness, of files and the like in worker code."""
    seen: set[ast.AST] = set()
    for function, because in code.functions.items():
        called_by = "" if last_function_name(function) == because else f" (worker code: {because} calls this)"
        for node in code.nodes_of(function):
            if node in seen or code.is_given_to_step(node):
                continue
            seen.add(node)
            found = _look(code, node)
            if found is not None and isinstance(node, ast.expr):
                name, instead = found
                message = (
                    f"{name} in a worker is executed again on replay, where its result may differ{called_by}"
                )
                yield Hit(node, "nondeterminism", message, f"use {instead}")


def last_function_name(function: ast.AST) -> str:
    """The name of a function."""
    return getattr(function, "name", "")


def _look(code: WorkerCode, node: ast.AST) -> tuple[str, str] | None:
    """The name of what is used, and what there is instead."""
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        return _look_at_name(code, node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _look_at_method(code, node.func)
    return None


def _look_at_name(code: WorkerCode, node: ast.Attribute | ast.Name) -> tuple[str, str] | None:
    parent = code.file.above_node(node)
    if isinstance(parent, ast.Attribute):
        return None  # the whole name is looked at
    full = code.file.names.resolve(node)
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if not full:
        plain = isinstance(node, ast.Name) and node.id in {"open", "input"} and is_called
        return (node.id, NONDETERMINISTIC[node.id]) if plain and isinstance(node, ast.Name) else None
    if full in DETERMINISTIC or code.is_given_to_step(node):
        return None
    parts = full.split(".")
    for count in range(len(parts), 1, -1):
        instead = NONDETERMINISTIC.get(".".join(parts[:count]))
        if instead is not None:
            return ".".join(parts[:count]), instead
    for count in range(len(parts) - 1, 0, -1):
        # Classes and constants of these modules are the same each time; what they do is not.
        instead = NONDETERMINISTIC_MODULES.get(".".join(parts[:count]))
        if instead is not None and is_called:
            return full, instead
    return None


def _look_at_method(code: WorkerCode, func: ast.Attribute) -> tuple[str, str] | None:
    """A method of a path that looks at the disk, or changes it."""
    instead = PATH_METHODS.get(func.attr)
    if instead is None or last_name(func.value) == "ctx":
        return None
    if code.file.names.resolve(func) in NONDETERMINISTIC:
        return None  # found by its name
    if func.attr in ANY_PATH_METHODS or _is_path(code, func.value):
        return f"Path.{func.attr}", instead
    return None


def _is_path(code: WorkerCode, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is a path, as far as that can be seen."""
    if depth > _DEEPEST:
        return False
    found = False
    match node:
        case ast.Call(func=func):
            found = code.file.names.resolve(func) in _PATHS
            found = found or (isinstance(func, ast.Attribute) and _is_part(code, func, depth))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            found = _is_path(code, left, depth + 1) or _is_path(code, right, depth + 1)
        case ast.Attribute(attr="dir", value=ast.Attribute(attr="session")):
            found = True
        case ast.Attribute():
            found = _is_part(code, node, depth)
        case ast.Name():
            found = any(_is_path(code, value, depth + 1) for value in _values_of(code, node))
        case _:
            pass
    return found


def _is_part(code: WorkerCode, node: ast.Attribute, depth: int) -> bool:
    return node.attr in _PATH_PARTS and _is_path(code, node.value, depth + 1)


def _values_of(code: WorkerCode, name: ast.Name) -> Iterator[ast.expr]:
    """What a name is assigned in its function, or at the top level; an annotation counts as a call of what it names."""
    function = code.file.function(name)
    scopes = [code.file.tree] if function is None else [function, code.file.tree]
    for scope in scopes:
        for node in ast.walk(scope) if scope is function else ast.iter_child_nodes(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name.id:
                    yield value
                case ast.AnnAssign(target=ast.Name(id=found), annotation=kind) if found == name.id:
                    yield ast.Call(func=kind, args=[], keywords=[])
                case ast.arg(arg=found, annotation=ast.expr() as kind) if found == name.id:
                    yield ast.Call(func=kind, args=[], keywords=[])
                case _:
                    pass
