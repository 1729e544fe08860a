"""Emits telemetry of monitors and links. ``mail_events.py`` passes on the entries, and emits the events when they are durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Value
from bartack.supervision import Monitor
from bartack.telemetry import Event
from bartack.telemetry.catalogue import (
    LinkExit,
    MonitorCleaned,
    MonitorCreated,
    MonitorDown,
    MonitorLeaked,
)


class MonitorEventEmitter:
    """Makes events of what happens to monitors and links.

    Args:
        state: The state of the run.
        add: Emits an event when its entry is durable.
    """

    def __init__(self, state: State, add: Callable[[Event], None]) -> None:
        self._state = state
        self._add = add
        self.makers: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.MonitorMade: self._made,
            e.MonitorReported: self._reported,
            e.MonitorGone: self._removed,
            e.LinkReported: self._link_acted,
            e.WorkerEnded: self._worker_ended,
        }

    def _made(self, data: e.MonitorMade, at: int, value: Value) -> None:
        self._add(
            MonitorCreated(
                active=self._state.monitors.stats().active + 1,
                monitor=data.ref,
                tag=data.tag,
                target=data.target,
                watcher=data.watcher,
                run=self._state.run_id,
            )
        )

    def _reported(self, data: e.MonitorReported, at: int, value: Value) -> None:
        monitor = self._state.monitors.get(data.ref)
        if monitor is None:
            return
        self._add(
            MonitorDown(
                age_ns=max(at - monitor.created_us, 0) * 1000,
                monitor=monitor.ref,
                tag=monitor.tag,
                target=monitor.target,
                watcher=monitor.watcher,
                reason=data.reason,
                run=self._state.run_id,
            )
        )
        self._cleaned(monitor, at, automatic=True)

    def _removed(self, data: e.MonitorGone, at: int, value: Value) -> None:
        monitor = self._state.monitors.get(data.ref)
        if monitor is not None:
            self._cleaned(monitor, at, automatic=False)

    def _link_acted(self, data: e.LinkReported, at: int, value: Value) -> None:
        exit_ = LinkExit(
            count=1,
            ended=data.by,
            worker=data.path,
            trapped=data.trapped,
            reason=data.reason,
            run=self._state.run_id,
        )
        self._add(exit_)

    def _worker_ended(self, data: e.WorkerEnded, at: int, value: Value) -> None:
        if data.error is None or data.final:
            left = [] if data.cut else self._state.monitors_left(data.path)
            for monitor in self._state.monitors.of_watcher(data.path):
                if monitor.ref in left:
                    self._leaked(monitor, at)
                self._cleaned(monitor, at, automatic=True)

    def _leaked(self, monitor: Monitor, at: int) -> None:
        self._add(
            MonitorLeaked(
                age_ns=max(at - monitor.created_us, 0) * 1000,
                monitor=monitor.ref,
                tag=monitor.tag,
                target=monitor.target,
                watcher=monitor.watcher,
                reason="scope_left",
                stack="\n".join(monitor.stack),
                run=self._state.run_id,
            )
        )

    def _cleaned(self, monitor: Monitor, at: int, *, automatic: bool) -> None:
        self._add(
            MonitorCleaned(
                age_ns=max(at - monitor.created_us, 0) * 1000,
                monitor=monitor.ref,
                tag=monitor.tag,
                target=monitor.target,
                watcher=monitor.watcher,
                automatic=automatic,
                run=self._state.run_id,
            )
        )
