"""The depot of a user in their state home: a file for each run and each schedule, and a lock that lets one caller at a time decide.

    depot/lock               held while a process decides
    depot/node.lock          held by the node as long as it lives; its content says which node that is
    depot/changes/wake       touched after every change
    depot/runs/RUN.json      a ``Standing``
    depot/schedules/NAME.json

A file is replaced as a whole, and is durable when a method returns. Several files that change in one call (``claim``) need not
change together: each says something that is true by itself. A file that cannot be read (damaged, or of a newer version) is left
alone and counts for nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bartack.core import typed
from bartack.core.closing import Closing
from bartack.core.files import open_private, replace_file
from bartack.core.flock import hold_lock, lock_within
from bartack.core.trust import check_private, make_private
from bartack.core.user_home import user_home
from bartack.core.watch import Watch, open_watch
from bartack.depot import ledger
from bartack.depot._contract import MOST_QUEUED, Claim, Job, NodeFacts, Schedule, Seat, Standing, Verdict
from bartack.errors import NodeRunningError, ScheduleError, ScheduleNotFoundError

FORMAT: Final = 1
SEAT_S: Final = 1.0
"""How long a seat has to be taken before it counts as that of another node."""
T = TypeVar("T", bound=msgspec.Struct)


class _Kept(msgspec.Struct, frozen=True):
    """What a file holds: its format, so that a newer one is recognised."""

    format: int
    value: msgspec.Raw


def user_depot() -> FileDepot:
    """The depot of this user."""
    return FileDepot(user_home() / "depot")


class FileDepot:
    """See ``Depot``, and the module for the files.

    Args:
        directory: Where they are; made when it is first written to.
        most: How many runs the queue takes.
    """

    def __init__(self, directory: str | os.PathLike[str], most: int = MOST_QUEUED) -> None:
        self.directory = Path(directory)
        self._most = most
        self._runs = self.directory / "runs"
        self._schedules = self.directory / "schedules"
        self._changes = self.directory / "changes"

    # Runs.

    def submit(self, job: Job, now_us: int) -> Standing:
        """See ``Depot.submit``."""
        with self._deciding():
            return self._put(ledger.submit(self._load_runs(), job, now_us, self._most))

    def find(self, run: str) -> Standing | None:
        """See ``Depot.find``."""
        return _load(self._runs / f"{run}.json", Standing) if _is_name(run) else None

    def standings(self) -> Sequence[Standing]:
        """See ``Depot.standings``."""
        return ledger.ordered(self._load_runs().values())

    def withdraw(self, run: str) -> Standing:
        """See ``Depot.withdraw``."""
        with self._deciding():
            found = ledger.withdraw(self._load_runs(), run)
            self._remove(self._runs / f"{run}.json")
            return found

    def take_over(self, node: str, now_us: int) -> Sequence[Standing]:
        """See ``Depot.take_over``."""
        with self._deciding():
            return [self._put(one) for one in ledger.take_over(self._load_runs(), node, now_us)]

    def claim(self, node: str, most: int, now_us: int) -> Sequence[Claim]:
        """See ``Depot.claim``."""
        with self._deciding():
            changed = [self._put(one) for one in ledger.claim(self._load_runs(), node, most, now_us)]
        return [Claim(one.job, one.fence) for one in changed if one.state == "owned"]

    def release(self, claim: Claim, verdict: Verdict, now_us: int) -> bool:
        """See ``Depot.release``."""
        with self._deciding():
            changed = ledger.release(self._load_runs(), claim, verdict, now_us)
            if changed is not None:
                self._put(changed)
        return changed is not None

    def settle(self, seen: Standing, verdict: Verdict, now_us: int) -> bool:
        """See ``Depot.settle``."""
        with self._deciding():
            changed = ledger.settle(self._load_runs(), seen, verdict, now_us)
            if changed is not None:
                self._put(changed)
        return changed is not None

    def forget(self, before_us: int) -> int:
        """See ``Depot.forget``."""
        with self._deciding():
            gone = ledger.forgotten(self._load_runs(), before_us)
            for name in gone:
                self._remove(self._runs / f"{name}.json")
        return len(gone)

    # The node.

    def sit(self, node: NodeFacts) -> Seat:
        """See ``Depot.sit``."""
        self._make()
        fd = open_private(self.directory / "node.lock", os.O_RDWR | os.O_CREAT)
        # A process that only asks who has the seat holds the lock for a moment.
        if not lock_within(fd, SEAT_S):
            os.close(fd)
            found = self._read_node()
            raise NodeRunningError(0 if found is None else found.pid)
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(node), 0)
        return _FileSeat(fd)

    def seated(self) -> NodeFacts | None:
        """See ``Depot.seated``."""
        try:
            fd = open_private(self.directory / "node.lock", os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._read_node()
        finally:
            os.close(fd)
        return None

    def _read_node(self) -> NodeFacts | None:
        try:
            return typed.decode((self.directory / "node.lock").read_bytes(), type=NodeFacts)
        except (OSError, msgspec.DecodeError):
            return None

    # Schedules.

    def put_schedule(self, schedule: Schedule, *, replace: bool = False) -> None:
        """See ``Depot.put_schedule``."""
        if not _is_name(schedule.name):
            raise ScheduleError(schedule.name, "a name has letters, digits, '-', '_' and '.', at most 64")
        with self._deciding():
            path = self._schedules / f"{schedule.name}.json"
            if path.exists() and not replace:
                raise ScheduleError(schedule.name, "there is a schedule of this name")
            self._write(path, schedule)

    def schedules(self) -> Sequence[Schedule]:
        """See ``Depot.schedules``."""
        found = (_load(path, Schedule) for path in sorted(self._schedules.glob("*.json")))
        return [one for one in found if one is not None]

    def advance(self, name: str, seen_us: int, schedule: Schedule) -> bool:
        """See ``Depot.advance``."""
        with self._deciding():
            path = self._schedules / f"{name}.json"
            found = _load(path, Schedule)
            if found is None or found.next_us != seen_us:
                return False
            self._write(path, schedule)
            return True

    def remove_schedule(self, name: str) -> Schedule:
        """See ``Depot.remove_schedule``."""
        with self._deciding():
            path = self._schedules / f"{name}.json"
            found = _load(path, Schedule) if _is_name(name) else None
            if found is None:
                raise ScheduleNotFoundError(name)
            self._remove(path)
            return found

    def watch(self) -> Watch:
        """See ``Depot.watch``."""
        self._make()
        return open_watch(str(self._changes))

    def nudge(self) -> None:
        """Wake the processes that watch: something has changed that is not kept here. Does nothing where there is no depot."""
        with suppress(OSError):
            os.utime(self._changes / "wake")

    # Files.

    @contextmanager
    def _deciding(self) -> Generator[None]:
        self._make()
        with hold_lock(self.directory / "lock"):
            yield

    def _make(self) -> None:
        for place in (self._runs, self._schedules, self._changes):
            make_private(place)
        check_private(self.directory)

    def _load_runs(self) -> dict[str, Standing]:
        found = (_load(path, Standing) for path in self._runs.glob("*.json"))
        return {one.job.run: one for one in found if one is not None}

    def _put(self, standing: Standing) -> Standing:
        self._write(self._runs / f"{standing.job.run}.json", standing)
        return standing

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        replace_file(path, msgspec.json.encode(_Kept(FORMAT, msgspec.Raw(msgspec.json.encode(value)))))
        self._wake()

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._wake()

    def _wake(self) -> None:
        os.close(open_private(self._changes / "wake", os.O_WRONLY | os.O_CREAT))
        os.utime(self._changes / "wake")


class _FileSeat(Closing):
    """The lock of the node; it ends with the process, too."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        kept = typed.decode(path.read_bytes(), type=_Kept)
        return typed.decode(kept.value, type=kind) if kept.format == FORMAT else None
    except (OSError, msgspec.DecodeError):
        return None


def _is_name(name: str) -> bool:
    """Whether a name is one of a file, and of nothing else."""
    return (
        0 < len(name) <= 64
        and name.isascii()
        and not name.startswith(".")
        and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    )
