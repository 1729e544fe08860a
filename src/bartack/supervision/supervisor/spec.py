"""Children and supervisors as data: everything that can be said of them, and every rule that refuses nonsense.

A specification is checked when it is made, not when it is used: one that exists can be started. What becomes of it is decided in
``_core.py``.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, NoReturn, TypeGuard, cast, get_args

import msgspec

from bartack.core.backoff import Backoff
from bartack.errors import ChildSpecError

Restart = Literal["permanent", "transient", "temporary"]
"""When a child is started again: always, after an abnormal end, or never."""

Kind = Literal["task", "process", "supervisor"]
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
Stdio = Literal["logged", "inherit", "null"]

CHILD_BACKOFF: Final = Backoff(base_s=0.05, cap_s=1.0)
"""How long a child waits before it is started again, unless its specification says otherwise."""

SHUTDOWN_S: Final = 5.0
START_TIMEOUT_S: Final = 10.0
METADATA_BYTES: Final = 4096
LINE: Final = "line:"
"""How ``ready`` begins when a line of output decides."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NO_VARIABLES: Final[Mapping[str, str]] = {}
_ONLY_ZERO: Final = frozenset({0})


@dataclass(frozen=True)
class ChildSpec:
    """One child of a supervisor: what it is, when it is started again, and how it is stopped.

    Args:
        name: Unique among its siblings: letters, digits, ``_``, ``.`` and ``-``, at most 64.
        start: An async function (a task), the words of a command or a function at the top level of a module (a process of its
            own), or a ``SupervisorSpec``. A string is refused: there is no shell.
        kind: Follows from ``start``; can be given to have it checked.
        restart: ``permanent`` children are always started again, ``transient`` ones after an abnormal end, ``temporary`` never.
        shutdown: Seconds the child has to end when asked, or ``"kill"``. A supervisor has, by default, as long as all
            of its children together and one second more.
        start_timeout: Seconds until it has to be ready.
        ready: ``"started"``, ``"line:<regex>"`` (a process is ready when it prints a matching line), or an async function that
            is called until it returns something true.
        backoff: How long to wait before a restart; none for a temporary child.
        env: Variables added to the inherited environment of a process.
        cwd: The working directory of a process.
        stdio: What a process prints is ``"logged"`` line by line, goes where our own output goes (``"inherit"``), or nowhere
            (``"null"``).
        normal_codes: Exit codes of a process that are a normal end.
        metadata: A JSON object of at most 4 KiB, for readers of reports.

    Raises:
        ChildSpecError: The child could not work like this; the field and the rule are named.
    """

    name: str
    start: Callable[[], object] | Sequence[str] | SupervisorSpec
    _: KW_ONLY
    kind: Kind | None = None
    restart: Restart = "permanent"
    shutdown: float | Literal["kill"] | None = None
    start_timeout: float = START_TIMEOUT_S
    ready: str | Callable[[], object] = "started"
    backoff: Backoff | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | os.PathLike[str] | None = None
    stdio: Stdio = "logged"
    normal_codes: frozenset[int] = _ONLY_ZERO
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if not is_text(self.name) or not _NAME.fullmatch(self.name):
            raise ChildSpecError(
                f"child {self.name!r}", "name", "a name has 1 to 64 letters, digits, '_', '.' or '-'"
            )
        self._check_start()
        self._check_choice("restart", self.restart, get_args(Restart))
        self._check_times()
        self._check_ready()
        self._check_backoff()
        self._check_process()
        self._check_metadata()

    @property
    def is_process(self) -> bool:
        """Whether it runs in a process of its own."""
        return self.kind == "process"

    @property
    def grace_s(self) -> float:
        """How long it may take to end when asked; 0 if it is killed at once."""
        return 0.0 if self.shutdown == "kill" or self.shutdown is None else self.shutdown

    @property
    def longest_wait_s(self) -> float:
        """The longest time a restart of it may be put off."""
        backoff = self.backoff
        return backoff.cap_s if backoff is not None and backoff.base_s > 0 else 0.0

    def refuse(self, name: str, rule: str) -> NoReturn:
        """This child cannot be as it is described.

        Raises:
            ChildSpecError: Always.
        """
        raise ChildSpecError(f"child {self.name!r}", name, rule)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_choice(self, name: str, value: object, allowed: tuple[str, ...]) -> None:
        if not isinstance(value, str) or value not in allowed:
            self.refuse(name, f"{value!r} is not one of {', '.join(allowed)}")

    def _check_start(self) -> None:
        found = self._kind_of_start()
        if self.kind is not None:
            self._check_choice("kind", self.kind, get_args(Kind))
            if self.kind != found:
                self.refuse("kind", f"start is a {found}, not a {self.kind}")
        self._set("kind", found)

    def _kind_of_start(self) -> Kind:
        start = self.start
        if isinstance(start, SupervisorSpec):
            return "supervisor"
        if isinstance(start, str | bytes):
            self.refuse("start", "a command is a list of words; a string is never passed to a shell")
        if callable(start):
            return "task" if is_async(start) else self._check_function(start)
        if not isinstance(start, Sequence):
            self.refuse(
                "start",
                "it must be an async function, a function, the words of a command or a SupervisorSpec",
            )
        words = cast("Sequence[object]", start)
        if not words or not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
            self.refuse("start", "a command is a program and its words, all of them text without NUL")
        self._set("start", tuple(words))
        return "process"

    def _check_function(self, function: Callable[[], object]) -> Kind:
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
        if not isinstance(module, str) or not isinstance(name, str) or not _is_found(function, module, name):
            self.refuse(
                "start", "a function that runs in its own process must be at the top level of a module"
            )
        if module == "__main__" and getattr(sys.modules["__main__"], "__file__", None) is None:
            self.refuse("start", "a function that runs in its own process must be defined in a file")
        return "process"

    def _check_times(self) -> None:
        if self.shutdown is None:
            nested = self.start if isinstance(self.start, SupervisorSpec) else None
            self._set("shutdown", SHUTDOWN_S if nested is None else nested.shutdown_s + 1)
        elif self.shutdown != "kill" and not (is_number(self.shutdown) and self.shutdown >= 0):
            self.refuse(
                "shutdown", f"{self.shutdown!r} is neither 'kill' nor a number of seconds of at least 0"
            )
        if not is_number(self.start_timeout) or self.start_timeout <= 0:
            self.refuse("start_timeout", f"{self.start_timeout!r} is not a number of seconds over 0")

    def _check_ready(self) -> None:
        ready = self.ready
        if callable(ready):
            if not is_async(ready) or self.kind == "supervisor":
                self.refuse("ready", "only a task or a process can be checked by an async function")
            return
        if ready == "started":
            return
        if ready == "hello":
            self.refuse("ready", "only the workers of a run report when they are ready")
        if not is_text(ready) or not ready.startswith(LINE):
            self.refuse("ready", f"{ready!r} is neither 'started' nor 'line:<regex>' nor an async function")
        if not self.is_process or self.stdio != "logged":
            self.refuse(
                "ready", "only a process whose output is logged can report that it is ready by a line"
            )
        try:
            re.compile(ready.removeprefix(LINE))
        except re.error as error:
            self.refuse("ready", f"{ready!r} is not a regular expression: {error}")

    def _check_backoff(self) -> None:
        if self.restart == "temporary":
            if self.backoff is not None:
                self.refuse("backoff", "a temporary child is never restarted, so it has no backoff")
            return
        backoff = CHILD_BACKOFF if self.backoff is None else self.backoff
        if not isinstance(backoff, Backoff):
            self.refuse("backoff", f"{backoff!r} is not a Backoff")
        if not all(is_number(part) for part in (backoff.base_s, backoff.factor, backoff.cap_s)):
            self.refuse("backoff", "base_s, factor and cap_s are finite numbers")
        if backoff.base_s < 0 or backoff.cap_s < 0 or backoff.factor < 1:
            self.refuse("backoff", "base_s and cap_s are 0 or more, factor is 1 or more")
        self._set("backoff", backoff)

    def _check_process(self) -> None:
        self._check_choice("stdio", self.stdio, get_args(Stdio))
        given = {
            "env": self.env != _NO_VARIABLES,
            "cwd": self.cwd is not None,
            "stdio": self.stdio != "logged",
            "normal_codes": self.normal_codes != _ONLY_ZERO,
        }
        if not self.is_process:
            for name in [name for name, there in given.items() if there]:
                self.refuse(name, f"only a process can have it, and this is a {self.kind}")
        self._check_env()
        codes = frozenset(self.normal_codes)
        if not all(type(code) is int and 0 <= code <= 255 for code in codes):
            self.refuse("normal_codes", "exit codes are whole numbers from 0 to 255")
        self._set("normal_codes", codes)

    def _check_env(self) -> None:
        if not isinstance(self.env, Mapping):
            self.refuse("env", "variables are a mapping of names to values")
        for name, value in self.env.items():
            if not is_text(name) or not name or "=" in name or "\0" in name:
                self.refuse("env", f"{name!r} is not the name of a variable")
            if not is_text(value) or "\0" in value:
                self.refuse("env", f"the value of {name} is not text without NUL")
        self._set("env", dict(self.env))

    def _check_metadata(self) -> None:
        if not is_object(self.metadata):
            self.refuse("metadata", "metadata is a JSON object")
        try:
            size = len(msgspec.json.encode(self.metadata))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            self.refuse("metadata", f"metadata is a JSON object: {error}")
        if size > METADATA_BYTES:
            self.refuse("metadata", f"{size} bytes are more than {METADATA_BYTES}")


@dataclass(frozen=True, kw_only=True)
class SupervisorSpec:
    """A supervisor: its children in the order in which they start, and what is done when one of them ends.

    Args:
        children: Started in this order, stopped in reverse.
        strategy: Which children are started again with the one that ended: ``one_for_one`` only that, ``one_for_all`` all,
            ``rest_for_one`` it and those after it.
        max_restarts: The most restarts within ``max_seconds``; one more ends the supervisor.
        max_seconds: See ``max_restarts``.

    Raises:
        ChildSpecError: The supervisor could not work like this; the field and the rule are named.
    """

    children: tuple[ChildSpec, ...] = ()
    strategy: Strategy = "one_for_one"
    max_restarts: int = 3
    max_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not _are_children(self.children):
            _refuse("children", "children are a sequence of ChildSpec")
        object.__setattr__(self, "children", tuple(self.children))
        if not is_text(self.strategy) or self.strategy not in get_args(Strategy):
            _refuse("strategy", f"{self.strategy!r} is not one of {', '.join(get_args(Strategy))}")
        if type(self.max_restarts) is not int or self.max_restarts < 0:
            _refuse("max_restarts", f"{self.max_restarts!r} is not a whole number of at least 0")
        if not is_number(self.max_seconds) or self.max_seconds <= 0:
            _refuse("max_seconds", f"{self.max_seconds!r} is not a number of seconds over 0")
        seen: set[str] = set()
        for child in self.children:
            if child.name in seen:
                _refuse("children", f"two children have the name {child.name!r}")
            seen.add(child.name)
            self.check_patience(child)

    @property
    def shutdown_s(self) -> float:
        """How long stopping all children may take, one after the other."""
        return sum(child.grace_s for child in self.children)

    def check_patience(self, child: ChildSpec) -> None:
        """Refuse a child that waits so long between restarts that they never become too many.

        Raises:
            ChildSpecError: It does.
        """
        longest = self.max_restarts * child.longest_wait_s
        if longest >= self.max_seconds:
            child.refuse(
                "backoff",
                f"{self.max_restarts} restarts with waits of up to {child.longest_wait_s:g} s can take "
                f"{longest:g} s, so they would never be too many in {self.max_seconds:g} s: "
                "lower cap_s or max_restarts, or raise max_seconds",
            )


def _refuse(name: str, rule: str) -> NoReturn:
    raise ChildSpecError("supervisor", name, rule)


def is_text(value: object) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def is_object(value: object) -> bool:
    """Whether a value is a mapping with texts for keys."""
    return isinstance(value, Mapping) and all(map(is_text, cast("Mapping[object, object]", value)))


def _is_found(function: Callable[[], object], module: str, name: str) -> bool:
    """Whether another process finds the function by its module and name."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found == function


def _are_children(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(child, ChildSpec) for child in cast("Sequence[object]", value)
    )


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; ``True`` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_async(function: Callable[[], object]) -> bool:
    """Whether calling it makes a coroutine."""
    import inspect  # noqa: PLC0415 - slow to load, and who only reads specifications needs it not

    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it can be called is known; how is the question
    )
