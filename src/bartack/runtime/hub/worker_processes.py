"""The processes of a run's workers: forked by the zygote, watched until nothing of them is left.

The core decides which worker has a process and what its end means (``kernel/workers.py``). Here each process has a token, a
connection, a scoreboard on which it writes what it is busy with, and a pipe for its errors (``post_mortem.py``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable

from bartack.core.disk import is_disk_trouble
from bartack.errors import FrameError
from bartack.runtime.hub.connections import Connections
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.parents import Parents
from bartack.runtime.hub.post_mortem import PostMortem
from bartack.runtime.kernel.actions import ReadScoreboard, StartWorker, StopWorker
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.workers import START_FAILED
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import Process
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.parent.wire import Exited, Gone, ParentEvent, Started, StartFailed
from bartack.supervision.process.limits import files_limit
from bartack.supervision.process.system import read_facts


class WorkerProcesses:
    """Starts and stops the processes of workers, and reports their ends to the core."""

    def __init__(
        self,
        run: RunDir,
        core: Core,
        parents: Parents,
        connections: Connections,
        post_mortem: PostMortem,
        new_token: Callable[[], int],
    ) -> None:
        self._run, self._core, self._parents = run, core, parents
        self._connections, self._post_mortem = connections, post_mortem
        self._new_token = new_token
        self._workers: dict[int, tuple[str, int]] = {}
        """Path and incarnation, by token."""
        self._scoreboards: dict[int, tuple[int, Scoreboard]] = {}
        """By token, beside the number of the connection."""
        self._statuses: dict[int, str] = {}
        self._pids: dict[int, int] = {}

    def start(self, action: StartWorker) -> None:
        """Perform ``StartWorker``."""
        token = self._new_token()
        try:
            with contextlib.ExitStack() as on_failure:
                self._fork(action, token, on_failure)
                on_failure.pop_all()
        except OSError as error:
            if is_disk_trouble(error):
                raise
            problem = f"{START_FAILED}{error.strerror or error}"
            self._core.process_gone(action.path, action.incarnation, problem)
        else:
            self._workers[token] = (action.path, action.incarnation)

    def stop(self, action: StopWorker) -> None:
        """Perform ``StopWorker``."""
        zygote = self._parents.zygote
        for token, (path, _) in self._workers.items():
            if path == action.path and zygote is not None:
                if action.grace_s:
                    zygote.stop(token, action.grace_s)
                else:
                    zygote.kill(token)

    def event(self, event: ParentEvent) -> None:
        """The zygote reports something about a process."""
        match event:
            case Started(token=token, pids=pids, pidfds=pidfds):
                self._pids[token] = pids[0]
                self._post_mortem.started(token, pids[0])
                for fd in pidfds:
                    os.close(fd)
            case Exited(token=token, statuses=statuses, max_rss_kb=max_rss_kb):
                self._pids.pop(token, None)
                self._statuses[token] = self._post_mortem.reason_of(reason_of(statuses[0]))
                self._post_mortem.exited(token, max_rss_kb)
            case Gone(token=token, leftovers=leftovers, survivors=survivors):
                path, incarnation = self._workers.pop(token, ("", 0))
                reason = self._statuses.pop(token, "lost")
                busy, end = self._take_bodies(token), self._post_mortem.end(token)
                if path:
                    self._core.report_orphans(path, leftovers, survivors)
                    self._core.process_gone(path, incarnation, reason, busy=busy, end=end)
            case StartFailed(token=token, problem=problem):
                path, incarnation = self._workers.pop(token, ("", 0))
                self._take_bodies(token)
                self._post_mortem.end(token)
                if path:
                    self._core.process_gone(path, incarnation, f"{START_FAILED}{problem}")
            case _:
                return

    def all_lost(self) -> None:
        """The zygote died, and every worker with it. That does not count as a crash of the workers."""
        lost, self._workers = self._workers, {}
        self._pids.clear()
        for token, (path, incarnation) in lost.items():
            self._take_bodies(token)
            end = self._post_mortem.end(token)
            self._core.process_gone(path, incarnation, "lost its parent", counted=False, end=end)

    # Scoreboards.

    def connection_numbers(self) -> list[int]:
        """The connections of all processes that have a scoreboard."""
        return [number for number, _ in self._scoreboards.values()]

    def read_one(self, action: ReadScoreboard) -> None:
        """Perform ``ReadScoreboard``."""
        peer = self._core.turn.by_worker.get(action.path)
        if peer is not None:
            self.read_scoreboard(peer.number)

    def read_scoreboard(self, number: int) -> None:
        """Hand the core the bodies that the worker of a connection runs, as far as it does not know them."""
        scoreboard = next((board for peer, board in self._scoreboards.values() if peer == number), None)
        peer = self._core.turn.peers.get(number)
        if scoreboard is None or peer is None or peer.worker is None:
            return
        for begin in bodies_on(scoreboard):
            if (begin.p, begin.n) not in peer.worker.open:
                self._core.frame(number, begin)

    def bodies(self, path: str) -> list[str]:
        """The names of the bodies that a worker runs now, also of those that began a moment ago and are not recorded."""
        peer = self._core.turn.by_worker.get(path)
        number = 0 if peer is None else peer.number
        found = (board for connection, board in self._scoreboards.values() if connection == number)
        return [begin.about for board in found for begin in bodies_on(board)]

    def _take_bodies(self, token: int) -> list[f.Begin]:
        """The bodies that a process ran which is gone."""
        _, scoreboard = self._scoreboards.pop(token, (0, None))
        if scoreboard is None:
            return []
        bodies = bodies_on(scoreboard)
        scoreboard.close()
        return bodies

    # What there is.

    def are_asleep(self) -> bool:
        """Whether no process computes."""
        facts = [read_facts(pid) for pid in self._pids.values()]
        return all(one is not None and one.state == "S" for one in facts)

    def processes(self) -> list[Process]:
        """All as ``bartack ps`` shows them."""
        return [
            Process(
                "worker",
                self._pids.get(token, 0),
                worker=path,
                incarnation=incarnation,
                started=self._post_mortem.began_us(token),
            )
            for token, (path, incarnation) in self._workers.items()
        ]

    def close(self) -> None:
        """Close what the hub holds of processes that are gone."""
        for _, scoreboard in self._scoreboards.values():
            scoreboard.close()
        self._post_mortem.close()

    def _fork(self, action: StartWorker, token: int, on_failure: contextlib.ExitStack) -> None:
        """Have the zygote fork a worker; what was opened for it belongs to the hub unless that fails.

        Raises:
            OSError: The system has no descriptor left, or none that the hub does not need itself.
        """
        zygote = self._parents.zygote
        if zygote is None:
            raise OSError(errno.ESRCH, "the program that starts workers died too often")
        with contextlib.ExitStack() as closing:
            ours, theirs = socket.socketpair()
            closing.callback(theirs.close)
            on_failure.callback(ours.close)
            scoreboard = Scoreboard.create()
            on_failure.callback(scoreboard.close)
            errors = self._post_mortem.begin(token)
            closing.callback(os.close, errors)
            on_failure.callback(self._post_mortem.end, token)
            check_room(max(theirs.fileno(), scoreboard.fileno(), errors), files_limit())
            payload = self._run.worker_payload(self._core.state, action.path, action.incarnation)
            env = {"BARTACK_WORKER": f"{action.path}#{action.incarnation}"}
            trace = self._core.trace_of_worker(action.path)
            if trace:
                env["TRACEPARENT"] = trace
            zygote.fork(token, payload, [theirs.fileno(), scoreboard.fileno(), errors], env)
            connection = self._connections.add(ours, (action.path, action.incarnation))
            self._scoreboards[token] = (connection.number, scoreboard)


def bodies_on(scoreboard: Scoreboard) -> list[f.Begin]:
    """The bodies on a scoreboard. A process can die while it writes there, or corrupt its memory: unreadable lines are left out."""
    found: list[f.Begin] = []
    for data in scoreboard.read():
        with contextlib.suppress(FrameError):
            frame = f.decode_to_hub(data)
            if isinstance(frame, f.Begin):
                found.append(frame)
    return found


def reason_of(status: int) -> str:
    """How a process ended, as the journal has it."""
    if status >= 0:
        return f"exit:{status}"
    try:
        return f"signal:{signal.Signals(-status).name}"
    except ValueError:
        return f"signal:{-status}"  # one of those that have no name
