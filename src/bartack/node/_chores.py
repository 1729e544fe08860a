"""What a node of a database does beside its runs: work that is due for all nodes, schedules, directories that it needs no more.

It also shares with other nodes until when agents take no calls (``agents/pauses.py``).

A thread with a connection of its own, because none of that is urgent, and parts of it take long. Which node does what is decided by
the database: each piece of work is a row, and a row that another node has locked is passed over. What fails is reported, and keeps
nothing else from being done.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bartack.agents.pauses import Paused, keep_pauses, read_pauses
from bartack.core.clock import Clock, SystemClock
from bartack.core.closing import Closing
from bartack.depot.chores import Chore
from bartack.depot.timetable import FleetSchedule, Timetable
from bartack.depot.upkeep import Upkeep
from bartack.errors import DepotSchemaError, DepotUnavailableError, TreeLockedError
from bartack.node._cron import next_time
from bartack.runtime.hub.planned import first_entries
from bartack.runtime.hub.workspace.prepared import SETUP
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lock import take_tree_lock

if TYPE_CHECKING:
    from bartack.depot.team import Team

LOOK_S: Final = 2.0
"""How often to look whether something is due: schedules are exact to a minute."""
MOST_STARTS: Final = 20
"""In one look."""
TIDY_EVERY: Final = 1800
"""Directories are looked at after this number of looks."""
KEPT_US: Final = 24 * 3600 * 1_000_000
"""How long the directory of a run stays that the node does not own any more."""

LOST: Final = ".lost-"
"""How the names of directories begin that are being removed."""
WORKSPACES: Final = "work"
"""The directory beside those of runs with the workspaces of runs that keep copies of them."""

Say = Callable[[str], object]
PutAside = Callable[[Path], Path | None]
"""Renames the directory of a run; ``None`` if the node owns the run."""
FindHeld = Callable[[Sequence[str]], Collection[str]]
"""Returns which of some runs are held."""


class Worker(Protocol):
    """What a node can do for all; see ``Fleet``."""

    def do_chores(self, team: Team) -> Sequence[Chore]:
        """Do what is due; returns what was done."""
        ...

    def share_pauses(self, team: Team, known: Mapping[str, tuple[int, str]]) -> Mapping[str, tuple[int, str]]:
        """Report until when agents take no calls; returns what other nodes know, too."""
        ...


class Chores(Closing):
    """The thread; see the module.

    Attributes:
        misfit: Why this version of Bartack does not work with the database any more.

    Args:
        worker: Does what is due for all.
        team: The database, with a connection that nothing else uses. It is closed with the thread.
        timetable: The schedules, over that connection.
        runs: Where the directories of runs are.
        pauses: Where runs of this user note until when agents take no calls.
        put_aside: Renames the directory of a run that the node needs no more.
        remove_unused: Removes environments that no run has used for long, as of a time.
        say: Takes a line about what was done.
        wake: Called when ``misfit`` is known.
        clock: What time it is on this machine.
    """

    def __init__(
        self,
        worker: Worker,
        team: Team,
        timetable: Timetable,
        runs: Path,
        pauses: Path,
        put_aside: PutAside,
        remove_unused: Callable[[int], object],
        *,
        say: Say,
        wake: Callable[[], object],
        clock: Clock | None = None,
    ) -> None:
        self.misfit: DepotSchemaError | None = None
        self._worker = worker
        self._team = team
        self._timetable = timetable
        self._runs = runs
        self._pauses = pauses
        self._put_aside = put_aside
        self._remove_unused = remove_unused
        self._say = say
        self._wake = wake
        self._clock = clock or SystemClock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="bartack-chores", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is under way is finished."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(30)
        self._team.database.close()

    def _work(self) -> None:
        looks = 0
        while not self._ends.wait(LOOK_S) and self.misfit is None:
            self._try(self._do_chores)
            self._try(self._start_due)
            self._try(self._share_pauses)
            looks += 1
            if looks % TIDY_EVERY == 0:
                self._try(self._tidy)
                self._try(self._tidy_environments)

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except DepotUnavailableError:
            pass  # the loop of the node reports that
        except DepotSchemaError as error:
            self.misfit = error
            self._wake()
        except Exception as error:  # noqa: BLE001 - the boundary of what is not urgent: the node has runs
            self._say(f"a chore failed: {error}")

    def _do_chores(self) -> None:
        for chore in self._worker.do_chores(self._team):
            if chore.problem:
                self._say(f"the chore {chore.name!r} failed: {chore.problem}")

    def _start_due(self) -> None:
        for _ in range(MOST_STARTS):
            started = self._timetable.start_next(_following, first_entries)
            if started is None:
                return
            self._say(f"schedule {started.name}: {started.problem or f'{started.run} is queued'}")

    def _share_pauses(self) -> None:
        known = read_pauses(self._pauses, self._clock)
        noted = {name: (paused.until_us, paused.reason) for name, paused in known.items()}
        found = self._worker.share_pauses(self._team, noted)
        keep_pauses(self._pauses, {name: Paused(*paused) for name, paused in found.items()}, self._clock)

    def _tidy(self) -> None:
        remove_lost(self._runs, self._put_aside, self._clock.now_us(), self._find_held)

    def _find_held(self, ids: Sequence[str]) -> Collection[str]:
        found = Upkeep(self._team).waits_of(ids)
        return {run_id for run_id, wait in found.items() if wait.state == "held"}

    def _tidy_environments(self) -> None:
        self._remove_unused(self._clock.now_us())


def _following(schedule: FleetSchedule, after_us: int) -> int:
    return next_time(schedule.name, schedule.cron, schedule.zone, after_us)


def put_run_aside(directory: Path) -> Path:
    """Give the directory of a run another name, and take its workspace and worktrees into it: they go together."""
    run = RunDir(directory)
    work = directory.parent.with_name(WORKSPACES)
    (work / f"{run.id}{SETUP}").unlink(missing_ok=True)
    for place in (work / run.id, run.worktrees):
        with suppress(FileNotFoundError):  # not every run has them
            place.rename(directory / f"{LOST}{place.parent.name}")
    return directory.rename(directory.with_name(f"{LOST}{directory.name}"))


def remove_lost(runs: Path, put_aside: PutAside, now_us: int, find_held: FindHeld) -> list[str]:
    """Remove the directories and workspaces of runs that the node has not owned for a day; they are in the database.

    Those of a held run stay until a person has decided: they may have entries that the database has lost.
    """
    old: list[Path] = []
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        if path.name.startswith(LOST):
            shutil.rmtree(path, ignore_errors=True)  # a node was killed here
        elif path.name.startswith("run-") and _is_old(path, now_us):
            old.append(path)
    held = find_held([path.name for path in old])
    return [path.name for path in old if path.name not in held and _remove(path, put_aside)]


def _is_old(path: Path, now_us: int) -> bool:
    """Whether neither the directory nor a file in it has changed for a day."""
    times = [path.stat().st_mtime_ns]
    with suppress(OSError):  # a file may go meanwhile
        times += [place.stat(follow_symlinks=False).st_mtime_ns for place in os.scandir(path)]
    return now_us - max(times) // 1000 > KEPT_US


def _remove(path: Path, put_aside: PutAside) -> bool:
    try:
        lock = take_tree_lock(str(RunDir(path).tree_lock), 0)
    except (TreeLockedError, OSError):
        return False  # something of it still runs here
    try:
        aside = put_aside(path)
    finally:
        os.close(lock)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
    return aside is not None
