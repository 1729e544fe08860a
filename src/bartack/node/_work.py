"""The work of a node on one run of a database: a thread prepares the directory of the run, starts its hub and waits for its end.

What becomes of the run then is decided in ``_fleet_core.py``. The work is over when no process of the tree of the run is left on
this machine, not before: another node may begin the run as soon as it is given back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import kept_sets, load_kept_config
from bartack.core.accounts import user_of_children
from bartack.core.clock import SystemClock
from bartack.core.disk import is_disk_trouble
from bartack.depot import Job
from bartack.depot.fleet import Fleet
from bartack.depot.link import NodeLink
from bartack.depot.taken import HOLD_S, Taken
from bartack.errors import (
    DepotUnavailableError,
    EnvironmentUnavailableError,
    JournalCorruptError,
    JournalFullError,
    JournalLockedError,
    JournalLostError,
    JournalSyncError,
    ObjectStoreUnavailableError,
    TreeLockedError,
)
from bartack.node._chores import WORKSPACES
from bartack.node._core import Ending
from bartack.node._environments import Environments, Interpreter, NotNeededError
from bartack.node._fleet_core import CannotRun, Damaged, HubEnded, Postponed, Rewound, WorkEnd
from bartack.node._hubs import Hub, RealHubs
from bartack.runtime.client.start_hub import HubOrder, HubProcess, InterpreterProcess
from bartack.runtime.hub.forwarding import RequestForwarder
from bartack.runtime.hub.workspace.prepared import Prepared
from bartack.runtime.rundir.find import TERMINAL, read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.supervision.process.lock import take_tree_lock

LOOK_S: Final = 1.0
STOPS: Final = "its node stops"
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""What the system lacks now, and may have later."""
TREE_S: Final = 30.0
"""How long the processes of a run may take to end after its hub, before that is noted."""


def spawn_linked(
    link: NodeLink,
    taken: Taken,
    lease: int,
    python: str,
    prepared: Prepared | None,
    order: HubOrder,
    log: int,
    report: int,
    *,
    hold_s: float,
) -> HubProcess:
    """See ``Spawn``: a new interpreter that reaches the database through this node, and stands still without its lease."""
    with link.starting() as fds:
        process = subprocess.Popen(  # bartack: allow[unsupervised_process] it ends with its link  # noqa: S603 - our own interpreter and module
            [python, "-P", "-s", "-m", order.module, *order.words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=order.workspace,
            user=user_of_children(),
            env=order.environ,
            pass_fds=(report, lease, *fds),
        )
        instructions = {
            "report": report,
            "sets": list(order.sets),
            "rest_after_s": order.rest_after_s,
            "lease": lease,
            "hold_s": hold_s,
            "link": list(fds),
            "fence": taken.fence,
            "seen_us": taken.seen_us,
            "prepared": prepared,
        }
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(instructions))
    return InterpreterProcess(process)


def _postponed(error: DepotUnavailableError) -> Postponed:
    place = "its object store" if isinstance(error, ObjectStoreUnavailableError) else "the database"
    return Postponed(f"{place} did not answer: {error}")


def _damaged(run: Taken, error: JournalCorruptError) -> Damaged:
    return Damaged(
        f"{error}; nothing was changed. 'bartack db check {run.id} --on DATABASE' names what is damaged; restore that from a "
        f"backup of the database and give the run back with 'bartack resume {run.id} --on DATABASE', or start a new run"
    )


def _by_wall(ending: Ending, offset_us: int, now_us: int) -> Ending:
    """The same with the times of the clock on the wall of this machine, which that of the database is ahead of by ``offset_us``.

    A journal whose clock is ahead of that of the database waits from now on for as long as it has to.
    """
    if not ending.due_us:
        return ending
    due_us = min(ending.due_us - offset_us, now_us + ending.due_us - ending.last_us)
    return msgspec.structs.replace(ending, due_us=due_us, last_us=ending.last_us - offset_us)


_BY_ITSELF: Final = frozenset({"interrupted", "waiting", "resting"})
"""Reasons for which a hub stops that no other one continues from at once."""


class RunWork:
    """The work on a run that the node owns; see the module. It begins when it is made.

    Args:
        taken: The run.
        fleet: The node, in the database.
        runs: Where the directories of runs are.
        lease: The descriptor of the lease page.
        environments: With what the hub is started.
        rest_after_s: The hub stops when there is nothing to do for longer than this.
        say: Takes a line about what the node does.
        ended: Called in the thread when the work is over.
        restored: Called in the thread when the workspace is here as the latest copy has it, with the seconds that this took.
        hold_s: How long the run stands still before its hub gives up; see also ``NodeLink``.
    """

    def __init__(
        self,
        taken: Taken,
        fleet: Fleet,
        runs: Path,
        lease: int,
        *,
        environments: Environments,
        rest_after_s: float,
        say: Callable[[str], object],
        ended: Callable[[Taken, WorkEnd], object],
        restored: Callable[[Taken, float], object] = lambda _run, _took_s: None,
        hold_s: float = HOLD_S,
    ) -> None:
        self.taken = taken
        self._fleet = fleet
        self._runs = runs
        self._lease = lease
        self._environments = environments
        self._rest_after_s = rest_after_s
        self._say = say
        self._ended = ended
        self._restored = restored
        self._hold_s = hold_s
        self._hub: Hub | None = None
        self._link: NodeLink | None = None
        self._forwarder: RequestForwarder | None = None
        self._stops = threading.Event()
        self._is_hurried = False
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"bartack {taken.id}", daemon=True)
        self._thread.start()

    def note_request(self) -> None:
        """There may be a request to the run."""
        if self._forwarder is not None:
            self._forwarder.wake()

    def stop(self) -> None:
        """Ask its hub to stop when no step is in flight, such that another node can continue the run."""
        with self._mutex:
            self._stops.set()
            if self._link is not None:
                self._link.drain()

    def hurry(self) -> None:
        """Ask its hub to stop now; steps in flight are interrupted, and the run can be continued all the same."""
        with self._mutex:
            if self._is_hurried:
                return  # a second signal would kill it
            self._stops.set()
            self._is_hurried = True
            if self._hub is not None:
                self._hub.terminate()

    def kill(self) -> None:
        """End its hub at once."""
        with self._mutex:
            self._stops.set()
            if self._link is not None:
                self._link.close()

    def cut(self) -> None:
        """Have its hub kill itself, from any thread, and wait for nothing; ``kill`` follows."""
        with self._mutex:
            self._stops.set()
            if self._link is not None:
                self._link.cut()

    def join(self, timeout_s: float) -> bool:
        """Wait until the work is over, no longer than this; returns whether it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        end: WorkEnd
        try:
            end = self._run()
        except DepotUnavailableError as error:
            end = _postponed(error)
        except JournalLostError as error:
            end = Rewound(f"{error}; {self._runs / self.taken.id} may have them: move it away to do without")
        except JournalCorruptError as error:
            end = _damaged(self.taken, error)
        except NotNeededError:
            end = Postponed(STOPS)
        except EnvironmentUnavailableError as error:
            end = CannotRun(f"{error.code}: {error}")
        except (JournalFullError, JournalSyncError, JournalLockedError) as error:
            end = Postponed(str(error))
        except OSError as error:
            why = str(error)
            end = Postponed(why) if error.errno in _PASSING or is_disk_trouble(error) else CannotRun(why)
        except Exception as error:  # noqa: BLE001 - the boundary of one run: whatever is wrong with it, the node has others
            end = CannotRun(str(error) or type(error).__name__)
        self._ended(self.taken, end)

    def _run(self) -> WorkEnd:
        taken = self.taken
        earlier = RunDir(self._runs / taken.id)
        if earlier.path.exists():
            # What an earlier life of the node has left here may still write to the files of the run.
            self._wait_for_tree(earlier)
        path = self._fleet.prepare(taken, self._runs)
        run = RunDir(path)
        state = read_state(run)
        assert state.run is not None
        with self._environments.use(run, state.run, self._is_needed, self._begin) as interpreter:
            workspace, prepared = self._make_workspace(run, state, interpreter.environ)
            job = Job(run=taken.id, path=str(path), workspace=workspace)
            return self._run_hub(run, job, interpreter, prepared)

    def _run_hub(self, run: RunDir, job: Job, interpreter: Interpreter, prepared: Prepared | None) -> WorkEnd:
        taken = self.taken
        forwarder = RequestForwarder(run, self._fleet.answerer(taken))
        forwarder.leave()
        link = NodeLink(partial(self._fleet.take, taken, run.path), self._call, self._hold_s)
        mine = link, taken, self._lease, interpreter.python, prepared
        spawn = partial(spawn_linked, *mine, hold_s=self._hold_s)
        hubs = RealHubs(interpreter.environ, spawn, self._rest_after_s, moves=True)
        before = hubs.ending(job).progress
        ending: Ending | None = None
        try:
            with link, forwarder:
                with self._mutex:
                    self._link = link
                    if self._stops.is_set():
                        return Postponed(STOPS)
                started = hubs.start(job)
                if isinstance(started, Ending):
                    ending = started
                else:
                    forwarder.start()
                    self._forwarder = forwarder
                    self._wait(started)
        finally:
            # Also after a hub that was not there in time, or that met what an earlier one has left.
            self._wait_for_tree(run)
        if link.given_up is not None:
            forwarder.finish(rests=False)
            return _postponed(link.given_up)
        if link.damaged is not None:
            forwarder.finish(rests=False)
            return _damaged(taken, link.damaged)
        ending = _by_wall(ending or hubs.ending(job), self._fleet.node.offset_us, SystemClock().now_us())
        forwarder.finish(rests=ending.status in TERMINAL | {"failed"} or ending.stop in _BY_ITSELF)
        note = self._push(run) if ending.status == "completed" else ""
        return Postponed(STOPS) if note is None else HubEnded(job, before, ending, note)

    def _push(self, run: RunDir) -> str | None:
        """Push the branches of a completed run, if it is to be; returns what became of them. ``None``: the node stops before."""
        state = read_state(run)
        if state.copies.first is None or not state.copies.first.push:
            return ""
        from bartack.runtime.hub.carried import MIRRORS, fetch_copies  # noqa: PLC0415 - other runs end faster without it
        from bartack.runtime.hub.workspace.publication import publish  # noqa: PLC0415 - likewise

        load = partial(self._fleet.load_blob, self.taken, run.path)
        mirrors = self._runs.with_name(MIRRORS)
        fetch = partial(fetch_copies, run, state.copies, load, mirrors=mirrors, with_first=True)
        return publish(run, state, fetch, self._stops.wait, self._say)

    def _call(self, what: str, words: Sequence[object]) -> object:
        """Carry out a call of the hub."""
        if what == "waits" and words:
            self._say(f"{self.taken.id}: the node ends after {words[0]}")
            return True
        return self._fleet.call(self.taken, what, words)

    def _begin(self) -> None:
        """Something of the run is executed here, before its hub is there to be seen."""
        self._fleet.begin(self.taken)

    def _is_needed(self) -> bool:
        """Whether the node still wants to run it."""
        return not self._stops.is_set()

    def _make_workspace(
        self, run: RunDir, state: State, environ: Mapping[str, str]
    ) -> tuple[str, Prepared | None]:
        """Make the workspace of the run on this machine as its latest copy has it, if it keeps copies; returns where it is.

        Also returns how it was prepared, if it was prepared now.
        """
        if state.copies.latest is None:
            return run.workspace(state, None), None
        from bartack.runtime.hub.carried import MIRRORS, bring_workspace  # noqa: PLC0415 - other runs start faster without it
        from bartack.runtime.hub.workspace.preparation import Terms, prepare_workspace  # noqa: PLC0415 - likewise

        top = self._runs.with_name(WORKSPACES) / run.id
        load = partial(self._fleet.load_blob, self.taken, run.path)
        began = time.monotonic()
        place = bring_workspace(run, state.copies, top, load, self._runs.with_name(MIRRORS))
        self._restored(self.taken, time.monotonic() - began)
        if state.ended is not None and state.ended.status in TERMINAL:
            return place, None
        config = load_kept_config(run.path, Path(place), kept_sets(run.path)).workspace
        terms = Terms(environ, self._lease, self._stops.is_set, self._begin)
        return place, prepare_workspace(run, state, top, place, config, terms)

    def _wait(self, hub: Hub) -> None:
        with self._mutex:
            self._hub = hub
            if self._is_hurried:
                hub.terminate()
        poller = select.poll()  # unlike select, it takes any descriptor
        if hub.fd is not None:
            poller.register(hub.fd, select.POLLIN)
        while not hub.is_gone():
            poller.poll(LOOK_S * 1000)
        with self._mutex:
            self._hub = None
            hub.close()

    def _wait_for_tree(self, run: RunDir) -> None:
        while True:
            try:
                os.close(take_tree_lock(str(run.tree_lock), TREE_S))
            except TreeLockedError as error:
                self._say(f"{self.taken.id}: {error}")
            else:
                return
