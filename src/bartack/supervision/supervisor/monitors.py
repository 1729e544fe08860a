"""Which watcher monitors which target. A registry without clock, loop or process: its owner reports what happened, and when.

A monitor reports the end of its target exactly once, and is gone then. It also goes when its watcher ends or removes it. Each
is found by its own name, by its target and by its watcher; whichever way it goes, nothing of it stays in any of the three.
"""

from __future__ import annotations

import sys
from typing import Final, Literal, NamedTuple

STACK_DEPTH: Final = 8
"""How many frames of its creator a monitor remembers."""

LeakReason = Literal["owner_gone", "scope_left", "old"]


class Monitor(NamedTuple):
    """One watch."""

    ref: str
    target: str
    watcher: str
    tag: str
    created_us: int
    """Microseconds since 1970."""
    stack: tuple[str, ...]
    """Where it was made, one text per frame, innermost last."""
    into: str = ""
    """The mailbox that its message goes to, in a run."""


class Down(NamedTuple):
    """The report that a watcher gets when its target has ended."""

    monitor: Monitor
    incarnation: int
    reason: str
    at_us: int

    def message(self) -> dict[str, object]:
        """The message that the watcher gets."""
        return {
            "type": "DOWN",
            "monitor": self.monitor.ref,
            "target": self.monitor.target,
            "incarnation": self.incarnation,
            "reason": self.reason,
            "tag": self.monitor.tag,
            "at": self.at_us,
        }


class Leak(NamedTuple):
    """A monitor that can no longer be used, or (``old``) one that is only listed."""

    monitor: Monitor
    reason: LeakReason
    age_us: int


class MonitorStats(NamedTuple):
    """Counts since the registry exists; ``created`` is always ``cleaned`` + ``active``."""

    created: int
    cleaned: int
    leaked: int
    active: int


class MonitorRegistry:
    """The monitors of one run or supervisor."""

    def __init__(self) -> None:
        self._monitors: dict[str, Monitor] = {}
        self._by_target: dict[str, dict[str, None]] = {}
        self._by_watcher: dict[str, dict[str, None]] = {}
        self._created = 0
        self._leaked = 0

    def __contains__(self, ref: str) -> bool:
        return ref in self._monitors

    def add(self, monitor: Monitor) -> bool:
        """Keep a monitor; return whether its name was new."""
        if monitor.ref in self._monitors:
            return False
        self._created += 1
        self._monitors[monitor.ref] = monitor
        self._by_target.setdefault(monitor.target, {})[monitor.ref] = None
        self._by_watcher.setdefault(monitor.watcher, {})[monitor.ref] = None
        return True

    def remove(self, ref: str) -> Monitor | None:
        """Remove a monitor; return it if it was there."""
        monitor = self._monitors.pop(ref, None)
        if monitor is not None:
            _drop(self._by_target, monitor.target, ref)
            _drop(self._by_watcher, monitor.watcher, ref)
        return monitor

    def target_down(self, target: str, incarnation: int, reason: str, at_us: int) -> list[Down]:
        """A target has ended: the reports to its watchers, in the order in which they began to watch. Returned once."""
        gone = [self.remove(ref) for ref in list(self._by_target.get(target, ()))]
        return [Down(monitor, incarnation, reason, at_us) for monitor in gone if monitor is not None]

    def watcher_gone(self, watcher: str) -> list[Monitor]:
        """A watcher has ended: its monitors, which are gone now."""
        gone = [self.remove(ref) for ref in list(self._by_watcher.get(watcher, ()))]
        return [monitor for monitor in gone if monitor is not None]

    def leaked(self, ref: str, reason: LeakReason, now_us: int) -> Leak | None:
        """A monitor was leaked: remove it and report that, once."""
        monitor = self.remove(ref)
        if monitor is None:
            return None
        self._leaked += 1
        return Leak(monitor, reason, now_us - monitor.created_us)

    def is_target(self, name: str) -> bool:
        """Whether it is watched."""
        return name in self._by_target

    def watchers(self) -> list[str]:
        """All watchers."""
        return list(self._by_watcher)

    def targets(self) -> list[str]:
        """All targets."""
        return list(self._by_target)

    def get(self, ref: str) -> Monitor | None:
        """The monitor of this name, if it is there."""
        return self._monitors.get(ref)

    def of_watcher(self, watcher: str) -> list[Monitor]:
        """What a watcher watches, in the order in which it began."""
        return [self._monitors[ref] for ref in self._by_watcher.get(watcher, ())]

    def of_target(self, target: str) -> list[Monitor]:
        """The monitors of a watcher, in the order in which they were made."""
        return [self._monitors[ref] for ref in self._by_target.get(target, ())]

    def monitors(self) -> list[Monitor]:
        """Every monitor, oldest first."""
        return list(self._monitors.values())

    def older_than(self, age_s: float, now_us: int) -> list[Leak]:
        """Healthy monitors of a certain age: a question, not a report."""
        return [
            Leak(monitor, "old", now_us - monitor.created_us)
            for monitor in self._monitors.values()
            if now_us - monitor.created_us > age_s * 1e6
        ]

    def stats(self) -> MonitorStats:
        """How many there were, and are."""
        active = len(self._monitors)
        return MonitorStats(self._created, self._created - active, self._leaked, active)


def _drop(index: dict[str, dict[str, None]], name: str, ref: str) -> None:
    refs = index[name]
    del refs[ref]
    if not refs:
        del index[name]


def creators_stack(*own_files: str) -> tuple[str, ...]:
    """Where we are, without the frames of ``own_files``: enough to find the creator, innermost last."""
    frame = sys._getframe(1)  # noqa: SLF001 - the module that walks stacks reads every source line, which costs a hundred times more
    found: list[str] = []
    while len(found) < STACK_DEPTH:
        code = frame.f_code
        if found or code.co_filename not in own_files:
            found.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        if frame.f_back is None:
            break
        frame = frame.f_back
    return tuple(reversed(found))
