"""Paths inside a worker: its own, those of its branches, and those of the tools it runs for an agent.

A branch has the path of the branch around it, a dot, the number of the step that started it, a dot and its own number:
``main.4.1``. A call of a tool has the path of the branch whose prompt it belongs to, the number of the prompt and its own number:
``main/do:5.1``. Both nest. The path of another worker continues with ``/`` and a number, and is none of these.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DO: Final = "/do:"


class CallPlace(NamedTuple):
    """A call of a tool: the step of its prompt, and its number."""

    p: str
    n: int
    call: int

    @property
    def path(self) -> str:
        """The path that its steps have."""
        return f"{self.p}{DO}{self.n}.{self.call}"


def parse_call(path: str) -> CallPlace | None:
    """The call of a tool that a path belongs to, if it is exactly that of one."""
    head, mark, tail = path.rpartition(DO)
    n, dot, call = tail.partition(".")
    if not mark or not dot or not n.isdecimal() or not call.isdecimal():
        return None
    return CallPlace(head, int(n), int(call))


def is_inside(path: str, around: str) -> bool:
    """Whether a path lies inside another one of the same worker."""
    return path.startswith((f"{around}.", f"{around}{DO}"))


def number_inside(path: str, around: str) -> int | None:
    """The number of the step of ``around`` that a path inside it was started by; ``None`` if it is not inside."""
    for mark in (".", DO):
        if path.startswith(around + mark):
            return int(path[len(around) + len(mark) :].partition(".")[0])
    return None


def outer(path: str) -> str:
    """The path around the innermost branch or call that a path is; empty if it is neither."""
    head, _, segment = path.rpartition("/")
    numbers = segment.removeprefix("do:").split(".")
    if segment.startswith("do:") and len(numbers) == 2:
        return head
    return path.rpartition(".")[0].rpartition(".")[0] if path.count(".") > 1 else ""


def worker_path(path: str) -> str:
    """The path of the worker that a path belongs to."""
    while around := outer(path):
        path = around
    return path
