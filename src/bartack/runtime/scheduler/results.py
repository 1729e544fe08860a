"""Results that steps return to a program: small frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import msgspec

from bartack.errors import StepError
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.frames import ErrorData, StackLine

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command ended. It is true if the status is 0, and its text is what it wrote."""

    argv: list[str]
    status: int
    stdout: str = ""
    stderr: str = ""

    @classmethod
    def success(cls, stdout: str = "") -> ShellResult:
        """The result of a command that went well, for tests."""
        return cls([], 0, stdout)

    @property
    def ok(self) -> bool:
        """Whether the status is 0."""
        return self.status == 0

    def lines(self) -> list[str]:
        """What it wrote, by lines."""
        return self.stdout.splitlines()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return self.stdout.rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class ShellBytes:
    """How a command ended whose output is not text."""

    argv: list[str]
    status: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the status is 0."""
        return self.status == 0

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a value."""

    kind: str
    """Name of the exception's class."""
    message: str
    value: dict[str, object] = field(default_factory=dict[str, object])
    """The facts of the error."""
    worker: str = ""
    stack: list[StackLine] = field(default_factory=list[StackLine])
    error: ErrorData | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, data: ErrorData) -> Failure:
        """The failure that an error is."""
        facts = {name: value for name, value in data.facts.items() if name != "message"}
        return cls(data.type.rpartition(":")[2], data.message, facts, data.worker, data.stack, data)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """How one worker or branch ended, when failures are collected."""

    ok: bool
    value: T_co | None = None
    error: Failure | None = None

    def unwrap(self) -> T_co:
        """The value; the error of a failure is raised."""
        if self.error is None:
            return cast("T_co", self.value)
        if self.error.error is not None:
            raise revive_error(self.error.error)
        raise StepError(self.error.kind, self.error.message, self.error.value)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T_co]):
    """What an agent replied, with everything around it."""

    value: T_co
    text: str
    key: str
    agent: str
    conversation: str = ""
    usd: float = 0.0
    tokens: int = 0
    turns: int = 1
    artifacts: list[str] = field(default_factory=list[str])
    usd_estimated: bool = False


class Budget(msgspec.Struct, frozen=True):
    """The money of a run."""

    limit_usd: float | None
    spent_usd: float
    reserved_usd: float

    @property
    def left_usd(self) -> float | None:
        """What can still be spent; ``None`` without a limit."""
        return None if self.limit_usd is None else self.limit_usd - self.spent_usd - self.reserved_usd
