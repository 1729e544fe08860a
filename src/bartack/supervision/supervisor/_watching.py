"""Monitors for programs without a run: watch a supervisor's child, or a task, and be notified of its end once.

The watcher is the task that makes the monitor; when it ends, its monitors go with it. A monitor that its program has lost
without letting go of it is a leak: it is taken away and reported once, with the place where it was made.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Final, Protocol, Self

from bartack.core.clock import Clock, SystemClock
from bartack.core.closing import Closing
from bartack.errors import DeadlineExceededError, MonitorUnavailableError
from bartack.supervision.supervisor._child import ChildInfo
from bartack.supervision.supervisor.monitors import (
    Down,
    Leak,
    LeakReason,
    Monitor,
    MonitorRegistry,
    MonitorStats,
    creators_stack,
)
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import MonitorCleaned, MonitorCreated, MonitorDown, MonitorLeaked

LEAKS_KEPT: Final = 1000
NO_TASK: Final = "callback"
"""The watcher's name where no task runs; it never ends."""

_ALIVE: Final = frozenset({"starting", "running", "waiting", "stopping", "failed"})


class Target(Protocol):
    """Something that can be watched."""

    @property
    def manager(self) -> MonitorManager:
        """Who keeps the monitors of it."""
        ...

    @property
    def name(self) -> str:
        """Its name, which watchers get."""
        ...

    def gone(self) -> bool:
        """Whether it is unknown or has ended already."""
        ...

    def watched(self) -> None:
        """It is watched now."""
        ...


class ChildTarget:
    """A child of a supervisor. It is down when it has ended for good, not when it is started again."""

    def __init__(self, manager: MonitorManager, name: str, find: Callable[[], ChildInfo | None]) -> None:
        self.manager = manager
        self.name = name
        self._find = find

    def gone(self) -> bool:
        """See ``Target.gone``."""
        info = self._find()
        return info is None or info.state not in _ALIVE

    def watched(self) -> None:
        """Its supervisor notifies the manager by itself."""


class TaskTarget:
    """A task. It is down when it is done."""

    def __init__(self, manager: MonitorManager, task: asyncio.Task[object]) -> None:
        self.manager = manager
        self.name = name_of(task)
        self._task = task

    def gone(self) -> bool:
        """See ``Target.gone``."""
        return self._task.done()

    def watched(self) -> None:
        """See ``Target.watched``."""
        self.manager.follow(self._task)


def name_of(task: asyncio.Task[object]) -> str:
    """A name that no other living task has."""
    return f"task:{task.get_name()}@{id(task):x}"


class Inbox:
    """Where DOWN messages of several monitors can arrive, in order."""

    def __init__(self) -> None:
        self._messages: deque[Down] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    async def receive(self, timeout_s: float) -> dict[str, object]:
        """The oldest message.

        Raises:
            DeadlineExceededError: None came within ``timeout_s`` seconds.
        """
        await _wait(self._arrived, timeout_s)
        message = self._messages.popleft().message()
        if not self._messages:
            self._arrived.clear()
        return message

    def put(self, down: Down) -> None:
        """A message arrives."""
        self._messages.append(down)
        self._arrived.set()

    def withdraw(self, ref: str) -> None:
        """Take back what a monitor has sent and was not received."""
        self._messages = deque(down for down in self._messages if down.monitor.ref != ref)
        if not self._messages:
            self._arrived.clear()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        raise DeadlineExceededError("receive", timeout_s, "explicit") from None


class MonitorRef(Closing):
    """A monitor in the hands of its watcher. As a context manager, with or without ``async``, it removes itself."""

    def __init__(self, manager: MonitorManager, ref: str, target: str, inbox: Inbox) -> None:
        self.ref = ref
        self.target = target
        self.inbox = inbox
        self._manager = manager

    async def down(self, timeout_s: float) -> dict[str, object]:
        """Wait for the DOWN message of this monitor, or of any that goes into the same inbox.

        Raises:
            DeadlineExceededError: None came within ``timeout_s`` seconds.
        """
        return await self.inbox.receive(timeout_s)

    def close(self) -> None:
        """Watch no longer. A message that was not received is taken back."""
        self._manager.demonitor(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._manager.abandon(self.ref)


class MonitorManager:
    """Keeps the monitors of one supervisor, or of a program's tasks.

    Args:
        owner: Whose they are; errors name it.
        clock: The time when a monitor is made.
        telemetry: Receives monitors made, cleaned up, down and leaked.
    """

    def __init__(
        self, owner: str = "program", clock: Clock | None = None, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self.owner = owner
        self._clock = clock or SystemClock()
        self._telemetry = telemetry
        self._registry = MonitorRegistry()
        self._numbers = count(1)
        self._inboxes: dict[str, Inbox] = {}
        self._followed: weakref.WeakSet[asyncio.Task[object]] = weakref.WeakSet()
        self._abandoned: deque[str] = deque()
        self._leaks: deque[Leak] = deque(maxlen=LEAKS_KEPT)
        self._closed = False

    def monitor(self, target: Target, tag: str = "untagged", into: Inbox | None = None) -> MonitorRef:
        """Watch ``target`` until it ends, the calling task ends, or ``demonitor``. One that has ended is down at once.

        Raises:
            MonitorUnavailableError: The supervisor has ended.
        """
        self._check_open()
        self.sweep()
        task = _current_task()
        watcher = NO_TASK if task is None else name_of(task)
        if task is not None:
            self.follow(task)
        inbox = Inbox() if into is None else into
        stack = creators_stack(__file__)
        monitor = Monitor(
            f"mon-{next(self._numbers)}", target.name, watcher, tag, self._clock.now_us(), stack
        )
        ref = MonitorRef(self, monitor.ref, target.name, inbox)
        self._registry.add(monitor)
        self._inboxes[monitor.ref] = inbox
        self._note_created(monitor)
        if target.gone():
            self._registry.remove(monitor.ref)
            self._deliver(Down(monitor, 0, "noproc", self._clock.now_us()))
        else:
            target.watched()
        return ref

    def task(self, task: asyncio.Task[object]) -> TaskTarget:
        """A task to be watched."""
        return TaskTarget(self, task)

    def demonitor(self, ref: MonitorRef, *, flush: bool = True) -> bool:
        """Watch no longer; return whether the monitor was there. With ``flush``, a message not yet received is taken back."""
        self.sweep()
        if flush:
            ref.inbox.withdraw(ref.ref)
        monitor = self._registry.remove(ref.ref)
        if monitor is None:
            return False
        self._clean(monitor, automatic=False)
        return True

    def list_monitors(self) -> list[Monitor]:
        """Every monitor, oldest first.

        Raises:
            MonitorUnavailableError: The supervisor has ended.
        """
        self._check_open()
        self.sweep()
        return self._registry.monitors()

    def get_stats(self) -> MonitorStats:
        """How many there were, and are."""
        self.sweep()
        return self._registry.stats()

    def find_leaks(self, age_s: float | None = None) -> list[Leak]:
        """Leaked monitors; with ``age_s`` also healthy ones that are older, which are only listed."""
        self.sweep()
        old = [] if age_s is None else self._registry.older_than(age_s, self._clock.now_us())
        return [*self._leaks, *old]

    # What happens.

    def target_down(self, target: str, incarnation: int, reason: str) -> None:
        """A target has ended: notify its watchers."""
        self.sweep()
        for down in self._registry.target_down(target, incarnation, reason, self._clock.now_us()):
            self._deliver(down)

    def follow(self, task: asyncio.Task[object]) -> None:
        """Get notified of the end of a task."""
        if task not in self._followed:
            self._followed.add(task)
            task.add_done_callback(self._task_done)

    def abandon(self, ref: str) -> None:
        """The last hold on a monitor is lost. May be called at any moment, so it only takes a note."""
        if ref in self._registry:
            self._abandoned.append(ref)

    def sweep(self) -> None:
        """Remove leaked monitors, and report them."""
        while self._abandoned:
            self._leak(self._abandoned.popleft(), "scope_left")

    def close(self) -> None:
        """The supervisor has ended: all targets that are still watched are lost."""
        for target in self._registry.targets():
            self.target_down(target, 0, "lost")
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise MonitorUnavailableError(self.owner)

    def _task_done(self, task: asyncio.Task[object]) -> None:
        name = name_of(task)
        # Who asks a task for its exception answers for it, so only who watches it does.
        if self._registry.is_target(name):
            failed = task.cancelled() or task.exception() is not None
            self.target_down(name, 0, "error" if failed else "normal")
        for monitor in self._registry.watcher_gone(name):
            self._clean(monitor, automatic=True)

    def _deliver(self, down: Down) -> None:
        monitor = down.monitor
        self._inboxes.pop(monitor.ref).put(down)
        if self._telemetry.wanted(MonitorDown):
            self._telemetry.emit(
                MonitorDown(
                    age_ns=(down.at_us - monitor.created_us) * 1000,
                    monitor=monitor.ref,
                    tag=monitor.tag,
                    target=monitor.target,
                    watcher=monitor.watcher,
                    reason=down.reason,
                )
            )
        self._note_cleaned(monitor, automatic=True)

    def _clean(self, monitor: Monitor, *, automatic: bool) -> None:
        self._inboxes.pop(monitor.ref, None)
        self._note_cleaned(monitor, automatic=automatic)

    def _leak(self, ref: str, reason: LeakReason) -> None:
        leak = self._registry.leaked(ref, reason, self._clock.now_us())
        if leak is None:
            return
        monitor = leak.monitor
        self._leaks.append(leak)
        self._clean(monitor, automatic=True)
        _log_leak(leak)
        if self._telemetry.wanted(MonitorLeaked):
            self._telemetry.emit(
                MonitorLeaked(
                    age_ns=leak.age_us * 1000,
                    monitor=monitor.ref,
                    tag=monitor.tag,
                    target=monitor.target,
                    watcher=monitor.watcher,
                    reason=reason,
                    stack="\n".join(monitor.stack),
                )
            )

    def _note_created(self, monitor: Monitor) -> None:
        if self._telemetry.wanted(MonitorCreated):
            self._telemetry.emit(
                MonitorCreated(
                    active=self._registry.stats().active,
                    monitor=monitor.ref,
                    tag=monitor.tag,
                    target=monitor.target,
                    watcher=monitor.watcher,
                )
            )

    def _note_cleaned(self, monitor: Monitor, *, automatic: bool) -> None:
        if self._telemetry.wanted(MonitorCleaned):
            self._telemetry.emit(
                MonitorCleaned(
                    age_ns=(self._clock.now_us() - monitor.created_us) * 1000,
                    monitor=monitor.ref,
                    tag=monitor.tag,
                    target=monitor.target,
                    watcher=monitor.watcher,
                    automatic=automatic,
                )
            )


def monitor(target: Target, tag: str = "untagged", into: Inbox | None = None) -> MonitorRef:
    """Watch a target inside a ``with`` or ``async with`` block, and be notified once when it ends.

    The DOWN message says which target ended and why (``reason``: ``normal``, ``error``, ``exit:<code>``, ``signal:<name>``,
    ``shutdown``, ``lost``, or ``noproc`` if it was gone already).

    Args:
        target: ``Supervisor.child(…)``, or ``MonitorManager.task(…)``.
        tag: A word of yours that the message carries.
        into: Where the message goes; without it, into an inbox of the monitor's own.
    """
    return target.manager.monitor(target, tag, into)  # bartack: allow[missing_cleanup] for a block


def _log_leak(leak: Leak) -> None:
    import logging  # noqa: PLC0415 - only a leak needs it

    monitor = leak.monitor
    place = monitor.stack[-1] if monitor.stack else "an unknown place"
    logging.getLogger("bartack.supervision").warning(
        "monitor %s of %s was never removed (%s); it was created at %s",
        monitor.ref,
        monitor.target,
        leak.reason,
        place,
    )


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
