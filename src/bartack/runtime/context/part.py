"""What the members of ``ctx`` have in common."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from bartack.runtime.protocol.durations import check_seconds
from bartack.runtime.protocol.steps import Args
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.operations import AnyBranch, StepOp
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

Seconds = float | datetime.timedelta
"""A duration: seconds, or a ``timedelta``."""

OVERRIDABLE: Final = ("receive", "call", "shell", "prompt", "delegate")
"""Kinds of waits whose limits a block of a program may set."""

encode_args: Final = msgspec.json.Encoder(order="deterministic").encode


class Members:
    """A part of ``ctx``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def _step(
        self,
        step: str,
        args: Args,
        decode: Callable[[Buffer], T],
        about: str = "",
        *,
        value: bytes | None = None,
        written: bytes | None = None,
    ) -> StepOp[T]:
        """A step that the hub does."""
        self._scheduler.check_here(f"ctx.{step}")
        return StepOp(step, encode_args(args), decode, about=about[:120], value=value, written=written)


def scheduler_of(members: Members) -> Scheduler:
    """The scheduler of the worker that a ``ctx`` belongs to."""
    return members._scheduler  # noqa: SLF001 - of a class of this module


def nothing(data: Buffer) -> None:
    """The outcome of a step that has none."""


def seconds_of(duration: Seconds, name: str = "timeout_s") -> float:
    """A duration in seconds.

    Raises:
        ValueError: It is negative, or longer than anything lasts.
    """
    seconds = duration.total_seconds() if isinstance(duration, datetime.timedelta) else float(duration)
    return check_seconds(seconds, name)


def limit_of(duration: Seconds | None) -> float | None:
    """A duration in seconds, if there is one."""
    return None if duration is None else seconds_of(duration)


def limit_here(scheduler: Scheduler, kind: str, duration: Seconds | None) -> float | None:
    """The limit of a wait: the given one, or else that of a block around it; ``None`` if there is neither."""
    return scheduler.queue.current.limits.get(kind) if duration is None else seconds_of(duration)


class DefaultLimits:
    """A ``with`` block in which other limits than the defaults hold for waits that are given none."""

    def __init__(self, scheduler: Scheduler, limits: Mapping[str, Seconds]) -> None:
        unknown = sorted(set(limits) - set(OVERRIDABLE))
        if unknown:
            raise ValueError(f"unknown limit {unknown[0]!r} (known: {', '.join(OVERRIDABLE)})")
        self._scheduler = scheduler
        self._limits = {kind: seconds_of(duration, kind) for kind, duration in limits.items()}
        self._entered: list[tuple[AnyBranch, Mapping[str, float]]] = []

    def __enter__(self) -> None:
        self._scheduler.check_here("ctx.timeouts")
        branch = self._scheduler.queue.current
        self._entered.append((branch, branch.limits))
        branch.limits = {**branch.limits, **self._limits}

    def __exit__(self, *problem: object) -> None:
        branch, before = self._entered.pop()
        branch.limits = before


def check_options(options: Mapping[str, object], known: type) -> None:
    """Raise ``TypeError`` if an option is unknown."""
    unknown = sorted(set(options) - set(known.__annotations__))
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")


def moment_of(when: datetime.datetime) -> int:
    """A moment in microseconds since 1970.

    Raises:
        ValueError: It has no time zone.
    """
    if when.utcoffset() is None:
        raise ValueError(f"{when!r} has no time zone")
    return (when - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
