"""The steps that are done in the worker itself: bodies of ``@step`` functions, and changes of files.

Here is what they are, and what the body of a step can ask about it. ``bodies.py`` executes and reports them.
"""

from __future__ import annotations

import contextvars
import datetime
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from bartack.runtime.protocol.durations import LONGEST_S
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.values import Buffer, Codec
from bartack.runtime.scheduler.operations import WorkOp
from bartack.runtime.scheduler.scheduler import Facts

if TYPE_CHECKING:
    import asyncio

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When and how often a step that raised is tried again.

    Attributes:
        attempts: How often it is tried in all.
        on: The exceptions after which it is tried again.
        base: Seconds before the second attempt.
        factor: How much longer each wait is than the one before.
        cap: The longest wait.
        jitter: ``full``: a random part of the wait; ``none``: all of it.
    """

    attempts: int = 3
    on: tuple[type[BaseException], ...] | None = None
    base: float = 0.5
    factor: float = 2.0
    cap: float = 30.0
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if self.base < 0 or self.factor < 1 or self.cap < 0:
            raise ValueError("base and cap must not be negative, and factor not less than 1")

    def wants(self, error: BaseException) -> bool:
        """Whether this exception is worth another attempt."""
        return isinstance(error, self.on or (Exception,))

    def delay_s(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after a failed attempt. An error's ``retry_after`` makes it longer, never shorter."""
        longest = min(self.cap, self.base * self.factor ** (attempt - 1))
        delay = longest * _fraction() if self.jitter == "full" else longest
        asked: object = getattr(error, "retry_after", None)
        # An error may ask for anything: for infinity, or for something that is not a number.
        return min(max(delay, asked), LONGEST_S) if isinstance(asked, int | float) else delay


def _fraction() -> float:
    # Not the random module: a forked process would repeat what its siblings draw.
    return int.from_bytes(os.urandom(7), "big") / 2**56


class BodyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the body of a step is executed."""

    name: str
    once: bool = False
    retry: Retry | None = None
    timeout_s: float | None = None
    max_crashes: int = 3
    changes: bool = True
    is_async: bool = False


class StepInfo:
    """Facts about a step, for its body. It can be kept, and handed to another process."""

    def __init__(self, facts: Facts, p: str, n: int, attempt: int, limit_s: float) -> None:
        self._facts = facts
        self._p = p
        self._n = n
        self.attempt = attempt
        self._limit_s = limit_s
        self._began = time.time()

    @property
    def run_id(self) -> str:
        """The run it is part of."""
        return self._facts.run

    @property
    def worker(self) -> str:
        """The path of its worker."""
        return self._facts.path

    @property
    def rewinds(self) -> int:
        """How often the worker was set back to a failing step."""
        return self._facts.rewinds

    @property
    def key(self) -> str:
        """The same on every attempt at this step: for services that know idempotency keys."""
        return step_key(self.run_id, self._p, self._n, self.rewinds)

    @property
    def deadline(self) -> datetime.datetime:
        """When the time of this attempt is over."""
        return datetime.datetime.fromtimestamp(self._began + self._limit_s, datetime.UTC)

    def __repr__(self) -> str:
        return f"StepInfo(run_id={self.run_id!r}, worker={self.worker!r}, key={self.key!r}, attempt={self.attempt})"


current_info: contextvars.ContextVar[StepInfo | None] = contextvars.ContextVar("step_info", default=None)


def step_info() -> StepInfo:
    """Facts about the step whose body calls this.

    Raises:
        RuntimeError: The caller is not the body of a step.
    """
    info = current_info.get()
    if info is None:
        raise RuntimeError("step_info() is for the body of a step")
    return info


class BodyOp(WorkOp[T_co]):
    """One execution of a ``@step`` function."""

    line = -1
    """Its line on the scoreboard; -1: none."""
    is_dated = False
    """It was set on the scoreboard: the hub may read much later that it began, so it says when."""
    task: asyncio.Task[object] | None = None

    def __init__(
        self,
        options: BodyOptions,
        function: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        written: bytes,
        result: Codec[T_co],
    ) -> None:
        super().__init__("body", written, result.decode, options.name, options.name)
        self.options = options
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.result: Codec[object] = result

    @property
    def words(self) -> str:
        """See ``Counted.words``."""
        return f"step {self.about}"


class FileOp(WorkOp[None]):
    """A change of a file. It is short, and always executed right where the scheduler is."""

    def __init__(
        self,
        step: str,
        written: bytes,
        perform: Callable[[Buffer], None],
        *,
        about: str,
        intend: Callable[[], bytes] | None = None,
    ) -> None:
        super().__init__(step, written, _nothing, about)
        self.perform = perform
        """Called with what the hub answered to the intent; ``null`` if it was not asked."""
        self.intend = intend
        """What has to be durable before it is performed."""


def _nothing(data: Buffer) -> None:
    """The outcome of a file step."""
