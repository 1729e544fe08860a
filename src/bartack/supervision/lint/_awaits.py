"""Finds calls that are never awaited, and failures of workers that no ``except`` can save the run from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from bartack.supervision.lint._code import Callee, WorkerCode
from bartack.supervision.lint._file import iter_inside
from bartack.supervision.lint._hit import Hit
from bartack.supervision.lint._names import last_name
from bartack.supervision.lint._rules import CTX_BLOCKS, CTX_TAKES_CALLS, SHOWN_BY

_BROAD: Final = frozenset({"", "Exception", "BaseException", "BartackError", "RunError", "WorkerError"})
"""Handlers that are meant for failures of workers, too."""
_USES: Final = (
    ast.Assert,
    ast.BinOp,
    ast.Expr,
    ast.For,
    ast.FormattedValue,
    ast.If,
    ast.UnaryOp,
    ast.While,
    ast.comprehension,
)
"""What uses a value at once, or throws it away."""
_COLLECT: Final = 'use: outcome = await ctx.delegate({call}, on_failure="collect")'


def find_forgotten(code: WorkerCode) -> Iterator[Hit]:
    """Calls in worker code whose outcome is used, or thrown away, without ``await``."""
    for function in code.functions:
        for node in code.nodes_of(function):
            callee = code.callee(node) if isinstance(node, ast.Call) else None
            if callee is not None and isinstance(node, ast.Call) and _owner(code, node) is function:
                yield from _look_at(code, function, node, callee)


def _owner(code: WorkerCode, node: ast.AST) -> ast.AST | None:
    """The innermost function around a node that is worker code in its own right: what is inside of it is looked at once."""
    return next((above for above in code.file.above(node) if above in code.functions), None)


def _look_at(code: WorkerCode, function: ast.AST, call: ast.Call, callee: Callee) -> Iterator[Hit]:
    if callee.kind == "block":
        if isinstance(code.file.above_node(call), ast.Expr):
            word = CTX_BLOCKS.get(callee.name.rpartition(".")[2], "async with")
            message = f"{callee.name}() does nothing without its block"
            yield Hit(call, "forgotten_await", message, f"write: {word} {callee.name}(…):")
        return
    if _is_lost(code, function, call, callee.kind):
        what = {"step": "the step ", "worker": "the worker "}.get(callee.kind, "")
        message = f"{what}{callee.name}() is never awaited, so it does not happen"
        yield Hit(call, "forgotten_await", message, f"write: await {callee.name}(…)")


def _is_lost(code: WorkerCode, function: ast.AST, node: ast.expr, kind: str) -> bool:
    """Whether a value that is to be awaited is used, or thrown away, as if it had been."""
    parent = code.file.above_node(node)
    lost = isinstance(parent, _USES)
    match parent:
        case ast.IfExp():
            lost = node is parent.test or _is_lost(code, function, parent, kind)
        case ast.BoolOp():
            lost = node is not parent.values[-1] or _is_lost(code, function, parent, kind)
        case ast.Compare() | ast.Attribute() | ast.Subscript():
            # A description of a worker can be compared and looked at; a coroutine can be closed.
            lost = kind not in {"worker", "helper"}
        case ast.Return():
            lost = code.file.function(node) is function and code.file.is_decorated_worker(function)
        case ast.Call() if node is not parent.func:
            lost = _is_shown(code, parent, kind)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            lost = _is_kept_in_vain(code, function, name, kind)
        case _:
            pass
    return lost


def _is_shown(code: WorkerCode, outer: ast.Call, kind: str) -> bool:
    """Whether a call takes values only, not what is still to be awaited."""
    if isinstance(outer.func, ast.Name) and outer.func.id in SHOWN_BY:
        return True
    name = last_name(outer.func)
    is_ctx = isinstance(outer.func, ast.Attribute) and last_name(outer.func.value) == "ctx"
    if is_ctx and name in {"print", "log"}:
        return True
    takes = code.callee(outer)
    if takes is None or kind == "worker":
        return False
    return takes.kind in {"step", "worker", "mailbox"} or (
        takes.kind == "ctx" and name not in CTX_TAKES_CALLS
    )


def _is_kept_in_vain(code: WorkerCode, function: ast.AST, name: str, kind: str) -> bool:
    """Whether a name that is assigned once is never awaited, nor given to anything that may do so."""
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    if sum(not isinstance(node.ctx, ast.Load) for node in uses) != 1:
        return False
    if any(isinstance(node, ast.Global | ast.Nonlocal) and name in node.names for node in ast.walk(function)):
        return False
    loads = [node for node in uses if isinstance(node.ctx, ast.Load)]
    return all(
        not isinstance(code.file.above_node(node), ast.Assign | ast.AnnAssign)
        and _is_lost(code, function, node, kind)
        for node in loads
    )


# Failures of workers.


def find_caught(code: WorkerCode) -> Iterator[Hit]:
    """``except`` around a worker whose failure fails the run, whatever it does."""
    for function in code.functions:
        for node in code.nodes_of(function):
            if _owner(code, node) is not function:
                continue
            if isinstance(node, ast.Try):
                yield from _look_at_try(code, node)
            elif isinstance(node, ast.Call):
                yield from _look_at_gather(code, node)


def _look_at_try(code: WorkerCode, block: ast.Try) -> Iterator[Hit]:
    awaits = [node for part in block.body for node in iter_inside(part) if isinstance(node, ast.Await)]
    children = [(node, name) for node in awaits if (name := _child(code, node.value))]
    if not children:
        return
    for handler in block.handlers:
        meant = bool(_caught(handler) & _BROAD) or len(children) == len(awaits)
        if meant and not any(
            isinstance(node, ast.Raise) for part in handler.body for node in iter_inside(part)
        ):
            node, name = children[0]
            message = f"a failure of {name} fails the whole run; this except cannot save it"
            yield Hit(handler, "caught_failure", message, _COLLECT.format(call=_called(node.value)))
            return


def _look_at_gather(code: WorkerCode, call: ast.Call) -> Iterator[Hit]:
    """The failures that ``ctx.gather`` collects are those of branches: a worker that is one fails the run."""
    callee = code.callee(call)
    if callee is None or callee.name != "ctx.gather" or not _collects(call):
        return
    for argument in call.args:
        inner = code.callee(argument) if isinstance(argument, ast.Call) else None
        if inner is not None and inner.kind == "worker":
            message = f"a failure of {inner.name} fails the whole run; ctx.gather cannot collect it"
            yield Hit(argument, "caught_failure", message, _COLLECT.format(call=f"[{inner.name}(…), …]"))


def _child(code: WorkerCode, node: ast.expr) -> str:
    """The worker whose failure an awaited expression raises; empty if it is none."""
    if isinstance(node, ast.Name):
        return node.id if _is_spawned(code, node) else ""
    callee = code.callee(node) if isinstance(node, ast.Call) else None
    if callee is None or not isinstance(node, ast.Call):
        return ""
    if callee.kind == "worker":
        return callee.name
    if callee.name == "ctx.delegate" and not _collects(node):
        return "a delegated worker"
    return ""


def _is_spawned(code: WorkerCode, name: ast.Name) -> bool:
    """Whether a name stands for a worker that was spawned in the same function, and not collected."""
    scope = code.file.function(name) or code.file.tree
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Await):
            continue
        made = node.value.value
        if any(isinstance(target, ast.Name) and target.id == name.id for target in node.targets):
            callee = code.callee(made) if isinstance(made, ast.Call) else None
            return callee is not None and callee.name == "ctx.spawn" and not _collects(made)
    return False


def _collects(call: ast.expr) -> bool:
    """Whether ``on_failure`` is given as something else than ``"fail"``."""
    if not isinstance(call, ast.Call):
        return False
    given = [word.value for word in call.keywords if word.arg == "on_failure"]
    return any(not (isinstance(value, ast.Constant) and value.value == "fail") for value in given)


def _called(node: ast.expr) -> str:
    return (
        f"{last_name(node.func)}(…)"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        else "…"
    )


def _caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {""}
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {last_name(kind) for kind in kinds}
