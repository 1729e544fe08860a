"""The processes of workers: which workers have one, which wait for one, and how a process is started and stopped.

A worker is an entry in the journal; its process executes it and may be replaced by another one, which replays the worker's history.
This module keeps account of processes and decides when each is started. It does not decide what the end of a process means: read
``workers.py`` for crashes and restarts, ``delegates.py`` for workers that start others.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final

from bartack.runtime.kernel.actions import CloseConnection, SendHistory, StartWorker, StopWorker
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.worker_state import StepKey, WorkerState

STARTING_AT_ONCE: Final = 16
"""How many processes may be on their way to their hello. More at a time are not faster, and each waits for all others."""

EXIT_GRACE_S: Final = 1.0
"""How long a process whose connection is closed may take to exit."""


class ProcessDesk(Desk):
    """Keeps a process for each worker that has something left to do."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.alive: dict[str, int] = {}
        """Workers that have, or are about to have, a process; with its incarnation."""
        self.absent: dict[str, WorkerState] = {}
        """Those of them that have not reached their last recorded step: not started, starting, or replaying."""
        self._queue: dict[str, int] = {}
        """Those of them whose processes are started when others have said hello, in order."""
        self._starting: set[str] = set()
        self._held_back: dict[StepKey, deque[WorkerState]] = {}
        """Workers that a delegate with a limit starts when others have ended."""
        self._made_by: dict[str, StepKey] = {}
        self._running: Counter[StepKey] = Counter()
        """How many of the workers that a step made have a process."""
        self._incarnations: dict[str, int] = {}
        self._expected: set[str] = set()
        """Workers whose process the hub itself has stopped: its end is not a crash."""
        self._late: set[tuple[str, int]] = set()
        """Processes that were stopped because they did not say hello in time."""

    # Starting.

    def resumed(self) -> None:
        """Start every worker that has something left to do."""
        self.launch_all(list(self.state.workers.values()))

    def hello(self, number: int, hello: f.Hello) -> Peer | None:
        """A worker's process has connected. One that is not the current process of its worker is refused."""
        worker = self.state.workers.get(hello.path)
        if worker is None or worker.ended or self.alive.get(hello.path) != hello.incarnation:
            return None
        self._starting.discard(hello.path)
        self._start_more()
        peer = Peer(number, worker=worker, incarnation=hello.incarnation, name=hello.path)
        self.turn.add_peer(peer)
        if self.run_events is not None:
            self.run_events.process_ready(hello.path, hello.incarnation)
        self.turn.after_commit(SendHistory(number, hello.path, len(worker.history)))
        return peer

    def launch_all(self, workers: list[WorkerState]) -> None:
        """Start those that have not ended and have no process, as far as the limits of their delegates allow."""
        for step in {worker.parent for worker in workers}:
            self._held_back.pop(step, None)
        for worker in workers:
            if worker.ended or worker.path in self.alive:
                continue
            if self._running[worker.parent] < self._limit_of(worker.parent):
                self.launch(worker)
            else:
                self._held_back.setdefault(worker.parent, deque()).append(worker)

    def launch_next(self, step: StepKey) -> None:
        """A worker has ended: if its delegate holds others back, start the next."""
        waiting = self._held_back.get(step)
        while waiting and self._running[step] < self._limit_of(step):
            worker = waiting.popleft()
            known = self.state.workers.get(worker.path) is worker
            if known and not worker.ended and worker.path not in self.alive:
                self.launch(worker)
        if waiting is not None and not waiting:
            del self._held_back[step]

    def launch_again(self, worker: WorkerState, delay_s: float) -> None:
        """Start another process for a worker, at once or after a pause."""
        if worker.ended or self.state.failure is not None:
            return
        if delay_s == 0.0:
            self.launch(worker)
            return

        def launch() -> None:
            if not worker.ended and worker.path not in self.alive and self.state.failure is None:
                self.launch(worker)

        self.timers.after(delay_s, launch)

    def launch(self, worker: WorkerState) -> None:
        """Have a process for a worker, as soon as fewer others are starting."""
        number = self._incarnations.get(worker.path, 0) + 1
        self._incarnations[worker.path] = number
        self.alive[worker.path] = number
        self.absent[worker.path] = worker
        self._made_by[worker.path] = worker.parent
        self._running[worker.parent] += 1
        self._queue[worker.path] = number
        self._start_more()

    def incarnation_of(self, worker: WorkerState) -> int:
        """The number of a worker's process; 0 if it has none."""
        return self.alive.get(worker.path, 0)

    # Reaching the last recorded step.

    def arrived(self, worker: WorkerState) -> None:
        """The process of a worker has replayed its history."""
        self.absent.pop(worker.path, None)

    @property
    def is_replaying(self) -> bool:
        """Whether a worker has yet to replay its history."""
        return any(worker.history for worker in self.absent.values())

    # Stopping.

    def restart(self, worker: WorkerState) -> None:
        """Stop the process of a worker; another one replays its history. This does not count as a crash."""
        self._expected.add(worker.path)
        self.detach(worker.path)
        self.turn.after_commit(StopWorker(worker.path))

    def stop(self, path: str) -> None:
        """Stop the process of a worker, if it was started."""
        if path in self._queue:
            self._forget(path)
        else:
            self.turn.after_commit(StopWorker(path))

    def remove(self, path: str) -> bool:
        """A worker has no process any more, so that another worker may have one. Returns whether it was started."""
        was_started = path not in self._queue
        self._starting.discard(path)
        if self._forget(path):
            self._start_more()
        return was_started

    def dismiss(self, peer: Peer, worker: WorkerState) -> None:
        """A worker has ended: have its process exit."""
        self.turn.send(peer, f.Leave())
        self.expect_exit(worker, peer.incarnation, self.timeouts.limit("child_stop"))

    def expect_exit(self, worker: WorkerState, incarnation: int, seconds: float = EXIT_GRACE_S) -> None:
        """The process of a worker should exit by itself; stop it if it does not."""

        def too_long() -> None:
            if self.alive.get(worker.path) == incarnation:
                self.turn.after_commit(StopWorker(worker.path))

        self.timers.after(seconds, too_long)

    def detach(self, path: str) -> bool:
        """Ignore whatever a worker's process still sends. Returns whether it had replayed its history."""
        peer = self.turn.peer_of(path)
        if peer is None:
            return False
        self.turn.remove_peer(peer)
        self.turn.with_next_commit(CloseConnection(peer.number))
        if path in self.alive and peer.worker is not None:
            self.absent[path] = peer.worker
        return not peer.replaying

    def ended(self, path: str, incarnation: int, reason: str) -> str | None:
        """A process has ended. Returns why; ``None`` if it was not the current process of its worker."""
        if self.alive.get(path) != incarnation:
            return None
        if (path, incarnation) in self._late:
            self._late.discard((path, incarnation))
            reason = "hello_timeout"
        self.remove(path)
        if self.run_events is not None:
            self.run_events.process_gone(path, incarnation, reason)
        return reason

    def is_crash(self, path: str, incarnation: int) -> bool:
        """Whether the hub has not stopped a process that has ended. Otherwise a body in it may have its outcome already."""
        return self.alive.get(path) == incarnation and path not in self._expected

    def take_expected(self, path: str) -> bool:
        """Whether the hub had stopped the process of a worker that has ended; asked once for each."""
        expected = path in self._expected
        self._expected.discard(path)
        return expected

    def forget_incarnations(self) -> None:
        """Workers are no longer part of the run: forget how many processes they had."""
        self._incarnations = {
            path: number
            for path, number in self._incarnations.items()
            if path in self.state.workers or path in self.alive
        }

    # Inside.

    def _limit_of(self, step: StepKey) -> float:
        """How many workers a step may have running: a delegate may limit them."""
        above = self.state.worker_of(step[0]) if step[0] else None
        opened = above.open.get(step) if above is not None else None
        return (opened.limit if opened is not None else 0) or math.inf

    def _start_more(self) -> None:
        """Start processes that are in the queue, as many as may be starting at a time."""
        while self._queue and len(self._starting) < STARTING_AT_ONCE:
            path = next(iter(self._queue))
            self._start(self.state.workers[path], self._queue.pop(path))

    def _start(self, worker: WorkerState, number: int) -> None:
        self._starting.add(worker.path)
        if self.run_events is not None:
            self.run_events.process_started(worker.path, number)
        self.turn.after_commit(StartWorker(worker.path, number))

        def is_missing() -> bool:
            return self.alive.get(worker.path) == number and self.turn.peer_of(worker.path) is None

        def late() -> None:
            self._late.add((worker.path, number))
            self.turn.after_commit(StopWorker(worker.path))

        self.timers.after(self.timeouts.limit("child_start"), late, is_missing)

    def _forget(self, path: str) -> bool:
        """A worker has no process any more, or needs none. Returns whether it had, or was about to have one."""
        if self.alive.pop(path, None) is None:
            return False
        step = self._made_by.pop(path)
        self._running[step] -= 1
        if not self._running[step]:
            del self._running[step]
        self.absent.pop(path, None)
        self._queue.pop(path, None)
        return True
