"""Looks through one Python file for what supervision cannot see. Nothing is imported and nothing is run."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

from bartack.supervision.lint._awaits import find_caught, find_forgotten
from bartack.supervision.lint._code import WorkerCode
from bartack.supervision.lint._determinism import find_nondeterminism
from bartack.supervision.lint._file import File, iter_inside
from bartack.supervision.lint._finding import ERRORS, TYPES, Finding, Severity
from bartack.supervision.lint._hit import Hit
from bartack.supervision.lint._names import last_name
from bartack.supervision.lint._rules import (
    HTTPX,
    LOOP_TASKS,
    MONITORS,
    PROCESSES,
    SPAWN,
    TASKS,
    THREADS,
    WAIT_METHODS,
    WAITS,
    Wait,
)
from bartack.supervision.lint._versions import find_version_names

_ALLOW: Final = re.compile(r"#\s*bartack:\s*allow\[([a-z_,\s]+)\]\s*(.*)")
_CANCELLATIONS: Final = frozenset(
    {"asyncio.CancelledError", "asyncio.exceptions.CancelledError", "bartack.errors.StepCancelledError"}
)


def check_text(text: str, file: str) -> list[Finding]:
    """Everything that is to be found in the text of a file, sorted by line."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
        return [Finding(file, line, 1, "file_error", f"this file is not valid Python: {error}", "", "error")]
    allowed, complaints = _read_allowed(text, file)
    found = [
        _finding(file, hit)
        for hit in _look(File(tree), file)
        if hit.type not in allowed.get(hit.node.lineno, set())
    ]
    return sorted([*found, *complaints])


def _finding(file: str, hit: Hit) -> Finding:
    severity: Severity = "error" if hit.type in ERRORS else "warning"
    node = hit.node
    return Finding(file, node.lineno, node.col_offset + 1, hit.type, hit.message, hit.suggestion, severity)


def _read_allowed(text: str, file: str) -> tuple[dict[int, set[str]], list[Finding]]:
    """What each line is allowed, and where the reason is missing."""
    allowed: dict[int, set[str]] = {}
    complaints: list[Finding] = []
    # Few files have such a comment, and to take a text apart takes longer than everything else that is done with it.
    for line, column, comment in _comments(text) if _ALLOW.search(text) else ():
        found = _ALLOW.search(comment)
        if found is None:
            continue
        names = {name.strip() for name in found[1].split(",")}
        allowed[line] = names
        unknown = sorted(names - set(TYPES))
        if not found[2].strip():
            message = "this silences a finding without a reason"
            complaints.append(
                Finding(
                    file, line, column, "allow_without_reason", message, "write the reason after the bracket"
                )
            )
        elif unknown:
            message = f"unknown finding {unknown[0]!r}"
            there = "one of: " + ", ".join(TYPES)
            complaints.append(Finding(file, line, column, "allow_without_reason", message, there))
    return allowed, complaints


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1] + 1, token.string
    except (tokenize.TokenError, IndentationError):
        return  # an unreadable file has been reported


def _look(file: File, path: str) -> Iterator[Hit]:
    for node in file.nodes:
        if isinstance(node, ast.Call):
            yield from _look_at_call(file, node)
        elif isinstance(node, ast.Try):
            yield from _swallowed(file, node)
    code = WorkerCode(file, path)
    yield from find_forgotten(code)
    yield from find_caught(code)
    yield from find_nondeterminism(code)
    yield from find_version_names(code)


def _look_at_call(file: File, call: ast.Call) -> Iterator[Hit]:
    full, name = file.names.resolve(call.func), last_name(call.func)
    if full in TASKS or (not full and name in LOOP_TASKS and _is_loop(file, call)):
        if file.is_dropped(call):
            advice = "use a task group, a child spec, or executor.fire_and_forget"
            yield Hit(call, "unsupervised_task", "the result of this task is never checked", advice)
    elif full in PROCESSES or full.startswith(SPAWN):
        advice = 'use a shell step, or ChildSpec(kind="process")'
        yield Hit(call, "unsupervised_process", f"the process that {full} starts is never stopped", advice)
    elif full in THREADS:
        if not _is_joined(file, call):
            yield Hit(
                call,
                "unsupervised_thread",
                "this thread is never joined",
                "use a task, or join with a timeout",
            )
    elif _is_monitor(full, call) and not _is_cleaned_up(file, call):
        yield Hit(call, "missing_cleanup", "this monitor is never removed", "use: async with monitor(...)")
    yield from _unlimited(file, call, full, name)


# Tasks, threads, monitors.


def _is_loop(file: File, call: ast.Call) -> bool:
    """Whether a method is called on an event loop: a task group sees to its tasks itself."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return file.names.resolve(owner.func) in {"asyncio.get_running_loop", "asyncio.get_event_loop"}
    return owner is not None and "loop" in last_name(owner).lower()


def _is_joined(file: File, call: ast.Call) -> bool:
    parent = file.parent(call)
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return any(last_name(target) in file.joined for target in targets)
    # Kept in a list or passed on: it may be joined there.
    return not isinstance(parent, ast.Expr | ast.Attribute) and bool(file.joined)


def _is_monitor(full: str, call: ast.Call) -> bool:
    if full:
        return full in MONITORS
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "monitor":
        return False
    owner = last_name(func.value).lower()
    return owner == "ctx" or "monitor" in owner or owner == "manager"


def _is_cleaned_up(file: File, call: ast.Call) -> bool:
    if isinstance(file.parent(call), ast.withitem):
        return True
    scope = file.function(call) or file.tree
    finals = [node for block in ast.walk(scope) if isinstance(block, ast.Try) for node in block.finalbody]
    return any(
        isinstance(inner, ast.Call) and last_name(inner.func) == "demonitor"
        for node in finals
        for inner in ast.walk(node)
    )


# Waits.


def _unlimited(file: File, call: ast.Call, full: str, name: str) -> Iterator[Hit]:
    wait = WAITS.get(full)
    if wait is None and not full:
        wait = _method_wait(file, call, name)
    taken_away = full.startswith(HTTPX) and _is_none(call, "timeout")
    if taken_away or (wait is not None and not _has_limit(call, wait)):
        if file.is_limited(call):
            return
        keyword = wait.keyword if wait is not None else "timeout"
        shown = full or f".{name}()"
        yield Hit(call, "wait_without_deadline", f"{shown} may wait forever", f"give it {keyword}=…")


def _method_wait(file: File, call: ast.Call, name: str) -> Wait | None:
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    if name == "get":
        return Wait(place=1) if last_name(owner) in file.queues else None
    if name == "call":
        is_mailbox = any(
            isinstance(node, ast.Attribute) and node.attr == "mailbox" for node in ast.walk(owner)
        )
        return WAIT_METHODS[name] if is_mailbox else None
    if name == "result" and isinstance(file.function(call), ast.AsyncFunctionDef):
        return None  # an asyncio task that is not done raises; it does not wait
    if name == "join" and isinstance(owner, ast.Constant | ast.JoinedStr):
        return None
    return WAIT_METHODS.get(name)


def _has_limit(call: ast.Call, wait: Wait) -> bool:
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(arg, ast.Starred) for arg in call.args
    ):
        return True  # it may be in there
    given = [keyword.value for keyword in call.keywords if keyword.arg == wait.keyword]
    if wait.place < len(call.args):
        given.append(call.args[wait.place])
    if wait.keyword == "timeout" and wait.place == 1 and _never_blocks(call):
        return True
    return any(not _is_nothing(value) for value in given)


def _never_blocks(call: ast.Call) -> bool:
    """``lock.acquire(False)``, ``queue.get(block=False)``."""
    first = call.args[:1] or [
        keyword.value for keyword in call.keywords if keyword.arg in {"block", "blocking"}
    ]
    return any(isinstance(value, ast.Constant) and value.value is False for value in first)


def _is_none(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name and _is_nothing(keyword.value) for keyword in call.keywords)


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# Cancellation.


def _swallowed(file: File, block: ast.Try) -> Iterator[Hit]:
    if not isinstance(file.function(block), ast.AsyncFunctionDef) or not _awaits(block.body):
        return
    for handler in block.handlers:
        if _catches_cancellation(file, handler) and not _raises(handler.body):
            message = "this keeps a cancellation from ending the task"
            yield Hit(handler, "swallowed_cancel", message, "re-raise it after cleaning up")
            return
        if _catches_cancellation(file, handler):
            return  # it is passed on from here


def _awaits(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(inner, ast.Await | ast.AsyncFor | ast.AsyncWith)
        for node in body
        for inner in iter_inside(node)
    )


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(inner, ast.Raise) for node in body for inner in iter_inside(node))


def _catches_cancellation(file: File, handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for node in caught:
        if file.names.resolve(node) in _CANCELLATIONS:
            return True
        if isinstance(node, ast.Name) and node.id == "BaseException":
            return True
    return False
