"""A depot that is gone with its process, for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bartack.core.closing import Closing
from bartack.core.ids import new_run_id
from bartack.core.watch import Watch
from bartack.depot import ledger
from bartack.depot._contract import MOST_QUEUED, Claim, Job, NodeFacts, Schedule, Seat, Standing, Verdict
from bartack.depot._memory_run import MemoryRun, MemoryWatch
from bartack.errors import NodeRunningError, ScheduleError, ScheduleNotFoundError


class MemoryDepot:
    """See ``Depot`` and ``RunStore``. It may be used by several threads.

    Args:
        most: How many runs the queue takes.
    """

    def __init__(self, most: int = MOST_QUEUED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._runs: dict[str, Standing] = {}
        self._kept: dict[str, MemoryRun] = {}
        self._schedules: dict[str, Schedule] = {}
        self._node: NodeFacts | None = None
        self._watches: list[MemoryWatch] = []

    def submit(self, job: Job, now_us: int) -> Standing:
        """See ``Depot.submit``."""
        with self._lock:
            return self._put(ledger.submit(self._runs, job, now_us, self._most))

    def find(self, run: str) -> Standing | None:
        """See ``Depot.find``."""
        return self._runs.get(run)

    def standings(self) -> Sequence[Standing]:
        """See ``Depot.standings``."""
        return ledger.ordered(list(self._runs.values()))

    def withdraw(self, run: str) -> Standing:
        """See ``Depot.withdraw``."""
        with self._lock:
            found = ledger.withdraw(self._runs, run)
            del self._runs[run]
            self._wake()
            return found

    def sit(self, node: NodeFacts) -> Seat:
        """See ``Depot.sit``."""
        with self._lock:
            if self._node is not None:
                raise NodeRunningError(self._node.pid)
            self._node = node
            return _MemorySeat(self)

    def seated(self) -> NodeFacts | None:
        """See ``Depot.seated``."""
        return self._node

    def leave_seat(self) -> None:
        """The node is gone, as if it had been killed."""
        self._node = None

    def take_over(self, node: str, now_us: int) -> Sequence[Standing]:
        """See ``Depot.take_over``."""
        with self._lock:
            return [self._put(one) for one in ledger.take_over(self._runs, node, now_us)]

    def claim(self, node: str, most: int, now_us: int) -> Sequence[Claim]:
        """See ``Depot.claim``."""
        with self._lock:
            changed = [self._put(one) for one in ledger.claim(self._runs, node, most, now_us)]
        return [Claim(one.job, one.fence) for one in changed if one.state == "owned"]

    def release(self, claim: Claim, verdict: Verdict, now_us: int) -> bool:
        """See ``Depot.release``."""
        with self._lock:
            changed = ledger.release(self._runs, claim, verdict, now_us)
            if changed is not None:
                self._put(changed)
        return changed is not None

    def settle(self, seen: Standing, verdict: Verdict, now_us: int) -> bool:
        """See ``Depot.settle``."""
        with self._lock:
            changed = ledger.settle(self._runs, seen, verdict, now_us)
            if changed is not None:
                self._put(changed)
        return changed is not None

    def forget(self, before_us: int) -> int:
        """See ``Depot.forget``."""
        with self._lock:
            gone = ledger.forgotten(self._runs, before_us)
            for name in gone:
                del self._runs[name]
        return len(gone)

    def runs(self) -> Sequence[MemoryRun]:
        """See ``RunStore.runs``."""
        return [run for run in reversed(self._kept.values()) if run.exists()]

    def run(self, run_id: str) -> MemoryRun:
        """See ``RunStore.run``."""
        return self._kept.setdefault(run_id, MemoryRun(run_id))

    def new_run(self) -> MemoryRun:
        """See ``RunStore.new_run``."""
        return self.run(new_run_id())

    def put_schedule(self, schedule: Schedule, *, replace: bool = False) -> None:
        """See ``Depot.put_schedule``."""
        with self._lock:
            if schedule.name in self._schedules and not replace:
                raise ScheduleError(schedule.name, "there is a schedule of this name")
            self._schedules[schedule.name] = schedule
            self._wake()

    def schedules(self) -> Sequence[Schedule]:
        """See ``Depot.schedules``."""
        return [self._schedules[name] for name in sorted(self._schedules)]

    def advance(self, name: str, seen_us: int, schedule: Schedule) -> bool:
        """See ``Depot.advance``."""
        with self._lock:
            found = self._schedules.get(name)
            if found is None or found.next_us != seen_us:
                return False
            self._schedules[name] = schedule
            return True

    def remove_schedule(self, name: str) -> Schedule:
        """See ``Depot.remove_schedule``."""
        with self._lock:
            if name not in self._schedules:
                raise ScheduleNotFoundError(name)
            self._wake()
            return self._schedules.pop(name)

    def watch(self) -> Watch:
        """See ``Depot.watch``."""
        with self._lock:
            watch = MemoryWatch()
            self._watches.append(watch)
            return watch

    def _put(self, standing: Standing) -> Standing:
        self._runs[standing.job.run] = standing
        self._wake()
        return standing

    def _wake(self) -> None:
        for watch in self._watches:
            watch.changed.set()


class _MemorySeat(Closing):
    def __init__(self, depot: MemoryDepot) -> None:
        self._depot = depot

    def close(self) -> None:
        self._depot.leave_seat()
