"""Which functions of a file run as worker code, and what the calls in it stand for.

Worker code runs again on replay: workers, everything that is given a ``ctx``, and the plain functions that these call. The bodies
of steps are not, and neither is what ``ctx.step`` is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from bartack.supervision.lint._file import File, Function
from bartack.supervision.lint._names import last_name
from bartack.supervision.lint._rules import CTX_AWAITED, CTX_BLOCKS, MAILBOX_AWAITED, MAILBOX_BLOCKS

_CONTEXTS: Final = frozenset({"bartack.Context", "bartack.runtime.Context"})
_PARENTS: Final = 4
"""As many directories above a file are looked through for the modules that it imports."""


class Callee(NamedTuple):
    """What a call calls: ``ctx``, ``mailbox``, ``block`` (for ``async with``), ``step``, ``worker`` or ``helper``, and its name."""

    kind: str
    name: str


class WorkerCode:
    """The worker code of one file."""

    def __init__(self, file: File, path: str) -> None:
        self.file = file
        self._path = path
        self._defined = defined_in(file)
        self._in_step = set(self._given_to_steps())
        self.functions: dict[ast.AST, str] = {}
        """Each function that is worker code, with the name of the worker or the function that makes it so."""
        self._collect()

    def _given_to_steps(self) -> Iterator[ast.AST]:
        """What ``ctx.step`` is given to call."""
        for node in self.file.nodes:
            if isinstance(node, ast.Call) and self._is_step_call(node) and node.args:
                yield node.args[0]

    def _is_step_call(self, call: ast.Call) -> bool:
        func = call.func
        return isinstance(func, ast.Attribute) and func.attr == "step" and last_name(func.value) == "ctx"

    def _collect(self) -> None:
        plain = {node.name: node for node in self.file.tree.body if isinstance(node, Function)}
        waiting = [
            (node, node.name)
            for node in self.file.nodes
            if isinstance(node, Function) and self._has_context(node)
        ]
        while waiting:
            function, because = waiting.pop()
            if function in self.functions:
                continue
            self.functions[function] = because
            for call in self.nodes_of(function):
                called = call.func if isinstance(call, ast.Call) else None
                if isinstance(called, ast.Name) and self._defined.get(called.id) in {"helper", "function"}:
                    waiting.append((plain[called.id], because))

    def _has_context(self, function: Function) -> bool:
        if self.file.is_decorated(function, "worker"):
            return True
        if self.file.is_decorated(function, "step"):
            return False
        first = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        annotated = any(self._is_context(argument.annotation) for argument in first)
        named = any(argument.arg == "ctx" and argument.annotation is None for argument in first)
        uses_workers = any(kind in {"worker", "step"} for kind in self._defined.values())
        return annotated or (named and uses_workers and isinstance(function, ast.AsyncFunctionDef))

    def _is_context(self, annotation: ast.expr | None) -> bool:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            name = annotation.value
            return self.file.names.resolve(ast.Name(name)) in _CONTEXTS if name.isidentifier() else False
        return annotation is not None and self.file.names.resolve(annotation) in _CONTEXTS

    def nodes_of(self, function: ast.AST) -> Iterator[ast.AST]:
        """What runs as worker code in a function: with the functions inside it, without steps and without its signature."""
        body: list[ast.AST] = [*function.body] if isinstance(function, Function) else [function]
        while body:
            node = body.pop()
            if isinstance(node, Function | ast.Lambda) and self._is_step_body(node):
                continue
            yield node
            body.extend(ast.iter_child_nodes(node))

    def _is_step_body(self, node: Function | ast.Lambda) -> bool:
        if isinstance(node, ast.Lambda):
            return node in self._in_step
        given = any(isinstance(other, ast.Name) and other.id == node.name for other in self._in_step)
        return given or self.file.is_decorated(node, "step")

    def is_given_to_step(self, node: ast.AST) -> bool:
        """Whether ``ctx.step`` is given this to call."""
        return node in self._in_step

    # Calls.

    def callee(self, call: ast.Call) -> Callee | None:
        """What a call in worker code calls, if that has to be awaited or entered."""
        func = call.func
        if isinstance(func, ast.Attribute):
            found = _member(func)
            if found is not None:
                return found
        if isinstance(func, ast.Name) and func.id in self._defined:
            kind = self._defined[func.id]
            return Callee(kind, func.id) if kind != "function" else None
        full = self.file.names.resolve(func)
        kind = _kind_elsewhere(full, self._path) if full else ""
        return Callee(kind, last_name(func)) if kind else None


def _member(func: ast.Attribute) -> Callee | None:
    """A member of ``ctx``, or of one of its mailboxes."""
    owner, name = func.value, func.attr
    if last_name(owner) == "ctx":
        if name in CTX_AWAITED:
            return Callee("ctx", f"ctx.{name}")
        return Callee("block", f"ctx.{name}") if name in CTX_BLOCKS else None
    if not _is_mailbox(owner):
        return None
    if name in MAILBOX_AWAITED:
        return Callee("mailbox", f"{ast.unparse(owner)}.{name}")
    return Callee("block", f"{ast.unparse(owner)}.{name}") if name in MAILBOX_BLOCKS else None


def _is_mailbox(node: ast.expr) -> bool:
    """``ctx.inbox``, ``ctx.mailbox.NAME``, ``ctx.mailbox["name"]``, and the same of ``ctx.session``."""
    if isinstance(node, ast.Attribute) and node.attr == "inbox":
        return last_name(node.value) == "ctx"
    if not isinstance(node, ast.Attribute | ast.Subscript):
        return False
    room = node.value
    if not isinstance(room, ast.Attribute) or room.attr != "mailbox":
        return False
    return last_name(room.value) in {"ctx", "session"}


def defined_in(file: File) -> dict[str, str]:
    """The functions at the top level of a file: step, worker, helper (an ``async def``) or function."""
    found: dict[str, str] = {}
    for node in file.tree.body:
        if not isinstance(node, Function):
            continue
        if file.is_decorated(node, "step"):
            found[node.name] = "step"
        elif file.is_decorated(node, "worker"):
            found[node.name] = "worker"
        elif node.decorator_list:
            continue  # what a decorator makes of it is not known
        else:
            found[node.name] = "helper" if isinstance(node, ast.AsyncFunctionDef) else "function"
    return found


# Other files of the project.


def _kind_elsewhere(full: str, path: str) -> str:
    """What a name that is imported from another file of the project stands for there; empty if that is not known."""
    module, _, name = full.rpartition(".")
    if not module.strip("."):
        return ""
    for file in _candidates(module, Path(path)):
        found = _defined_at(str(file), _changed(file)).get(name, "")
        return found if found != "function" else ""
    return ""


def _candidates(module: str, path: Path) -> Iterator[Path]:
    level = len(module) - len(module.lstrip("."))
    parts = module.lstrip(".").split(".")
    near = path.absolute().parents
    folders = near[level - 1 : level] if level else near[:_PARENTS]
    for folder in folders:
        for file in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
            if file.is_file():
                yield file


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=256)
def _defined_at(path: str, changed: int) -> dict[str, str]:
    try:
        return defined_in(File(ast.parse(Path(path).read_text("utf-8"), path)))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
