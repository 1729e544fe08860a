"""Followers: one for each run that is looked at, shared by its pages and streams.

Journals are read on the loop, in slices: one slice of one run between two turns of the loop, so that requests are answered while a
long journal is read. A change in the directory of a run wakes its task once. The descriptor is not in the loop again before the
change was read and shown, because a busy run makes it readable all the time.

A follower is dropped some time after its last reader left, or when all of them together take too much memory: then the run that
was looked at least recently goes first. What followers read is ``runtime/rundir/follower.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from bartack.errors import BartackError, DepotError, JournalNotFoundError, RunBeingReadError
from bartack.journal import Entry
from bartack.pipeline.report.history import PipelineHistory
from bartack.runtime.rundir.find import TERMINAL
from bartack.runtime.rundir.follower import SLICE_S, RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.web._threads import in_thread
from bartack.web.following._memory import size_of_spans
from bartack.web.following._shown import ShownRun

KEEP_S: Final = 30.0
"""How long a run is followed after its last reader left."""
FRAME_S: Final = 0.1
"""Readers are notified at most this often."""
LOOK_S: Final = 2.0
"""How often it is checked whether a run has a hub: the death of one is not a change in the directory."""
POLL_S: Final = 0.1
"""How often a directory is looked at where the system does not report changes."""
WEIGH_S: Final = 0.5
"""How often the memory of a run is measured at most."""
SHORT_S: Final = 0.002
"""How long a slice takes while requests are being answered."""
HURRY_S: Final = 0.1
"""For this long after a request others are expected."""
SOON_BYTES: Final = 8 * 1024 * 1024
"""Requests wait for a journal of which less than this is left to read: it takes a moment."""

_log = logging.getLogger("bartack.web")


class Followed:
    """A run that is followed.

    Attributes:
        run: The run.
        follower: Its spans, as far as the journal was read.
        pipeline: What it is as a run of the pipeline.
        is_active: Whether a hub runs it.
        over: Why it is not followed any longer; empty: it is.
        is_here: Whether it can be read on this machine: the copy of one in a database comes first.
    """

    def __init__(self, run: RunDir, now: float) -> None:
        self.run = run
        self.follower = RunFollower(run, each=self._take, anew=self._begin_anew)
        self.pipeline = PipelineHistory(self.follower.load)
        self.is_active = run.is_active()
        self.over = ""
        self.is_here = not isinstance(run, ShownRun)
        self.looked = now
        self.size_bytes = 0
        self.weighed = now
        self._listeners: set[asyncio.Event] = set()
        self._woken = asyncio.Event()
        self._defect: Exception | None = None
        self._seen: object = None

    def _take(self, entry: Entry) -> None:
        self.pipeline.take(entry)

    def _begin_anew(self) -> None:
        self.pipeline = PipelineHistory(self.follower.load)

    # Readers.

    @property
    def has_listeners(self) -> bool:
        """Whether a stream shows it."""
        return bool(self._listeners)

    @contextmanager
    def listen(self) -> Generator[asyncio.Event]:
        """An event that is set whenever something changed, while a stream shows the run."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)
            self.looked = max(self.looked, asyncio.get_running_loop().time())
            self._woken.set()

    def refresh(self) -> None:
        """Read what was written since, unless that is much: a page that comes after an action shows what it did."""
        if self._defect is not None:
            raise self._defect
        if self.follower.state != "building":
            self.is_active = self._look_for_hub()
            if self.follower.read():
                self._woken.set()

    async def wait_until_built(self) -> None:
        """Return when the journal was read as a whole.

        Raises:
            RunBeingReadError: It is long, and still being read.
        """
        with self.listen() as changed:
            while self.follower.state == "building" and self._defect is None:
                if self.over or self.follower.unread_bytes > SOON_BYTES:
                    raise RunBeingReadError(self.run.id, self.follower.built)
                await changed.wait()  # bartack: allow[wait_without_deadline] each slice sets it
                changed.clear()
        self.refresh()

    @property
    def trouble(self) -> BartackError | None:
        """Why what is shown may be out of date: its database could not be looked at."""
        return self.run.problem if isinstance(self.run, ShownRun) else None

    # The task that follows it.

    async def bring_here(self) -> None:
        """Have the copy of a run in a database brought up to date, and kept so.

        Raises:
            BartackError: There is none, and the database cannot be read.
        """
        if isinstance(self.run, ShownRun):
            await in_thread(self.run.begin)
            self.is_here = True

    def wake(self) -> None:
        """Something else than its directory may have changed: look."""
        self._woken.set()

    def publish(self) -> bool:
        """Notify the streams if anything changed since; returns whether it did."""
        follower = self.follower
        built = round(follower.built, 2)
        seen = (
            follower.generation,
            follower.spans.last_seq,
            follower.state,
            self.is_active,
            built,
            self.over,
            None if self.trouble is None else self.trouble.message,
            self.run.queue if isinstance(self.run, ShownRun) else None,
        )
        if seen == self._seen:
            return False
        self._seen = seen
        self.notify()
        return True

    def notify(self) -> None:
        """Let the streams look, whether anything changed or not."""
        for event in self._listeners:
            event.set()

    def fail(self, defect: Exception) -> None:
        """Something is wrong in the reading itself: readers of the run get the error."""
        self._defect = defect
        self.notify()

    def drop(self, why: str) -> None:
        """It is not followed any longer."""
        self.over = why
        self.publish()
        self._woken.set()

    def look(self) -> None:
        """Check whether a hub runs it."""
        self.is_active = self._look_for_hub()

    def _look_for_hub(self) -> bool:
        ended = self.follower.spans.state.ended
        is_over = ended is not None and ended.status in TERMINAL
        return not is_over and self.follower.state != "deleted" and self.run.is_active()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until something changes in the directory, a reader comes or leaves, or the time is over."""
        loop, descriptor = asyncio.get_running_loop(), self.follower.fileno()
        watched = self.follower.state != "deleted"
        if descriptor is None:
            await _wait(self._woken, min(timeout_s, POLL_S) if watched else timeout_s)
            self.follower.wait(0)
            return

        def readable() -> None:
            loop.remove_reader(descriptor)
            self._woken.set()

        loop.add_reader(descriptor, readable)
        try:
            await _wait(self._woken, timeout_s)
        finally:
            loop.remove_reader(descriptor)
        self.follower.wait(0)

    def close(self) -> None:
        """Close the journal and the watch."""
        self.follower.close()
        if isinstance(self.run, ShownRun) and self.is_here:
            self.run.end()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


class Followers:
    """The runs that are followed; open while the server runs.

    Args:
        cache_mb: The most memory that the spans of all of them may take.
        keep_s: How long a run is followed after its last reader left.
    """

    def __init__(self, cache_mb: int, *, keep_s: float = KEEP_S) -> None:
        self._most_bytes = cache_mb * 1024 * 1024
        self._keep_s = keep_s
        self._runs: dict[Path, Followed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._slice = asyncio.Lock()
        self._hurry_until = 0.0

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks, self._tasks = self._tasks, None
        for task in self._running:
            task.cancel()
        if tasks is not None:
            await tasks.__aexit__(None, None, None)

    def look_at(self, run: RunDir) -> Followed:
        """Follow a run, if it is not followed yet; a reader looks at it now."""
        followed = self.find(run)
        if followed is None:
            assert self._tasks is not None, "followers are open while the server runs"
            followed = self._runs[run.path] = Followed(run, self._now())
            task = self._tasks.create_task(self._follow(followed))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        followed.looked = self._now()
        self.hurry()
        return followed

    def hurry(self) -> None:
        """A request is being answered: read in short slices for a moment."""
        self._hurry_until = self._now() + HURRY_S

    def wake(self) -> None:
        """A database may have changed: look at its runs."""
        for followed in self._runs.values():
            if isinstance(followed.run, ShownRun):
                followed.look()
                followed.wake()

    def find(self, run: RunDir) -> Followed | None:
        """The follower of a run, if it is followed."""
        return self._runs.get(run.path)

    def was_there(self, asked: str) -> bool:
        """Whether a run of this id is followed, and was deleted."""
        return any(
            followed.run.id == asked and followed.follower.state == "deleted"
            for followed in self._runs.values()
        )

    @property
    def size_bytes(self) -> int:
        """What the spans of all runs take, as they were measured last."""
        return sum(followed.size_bytes for followed in self._runs.values())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _follow(self, followed: Followed) -> None:
        try:
            await followed.bring_here()
            await self._read_and_wait(followed)
        except (DepotError, JournalNotFoundError) as problem:
            followed.fail(problem)
        except Exception as defect:  # noqa: BLE001 - one run that cannot be read for a reason of ours must not end the others
            _log.exception("%s cannot be followed", followed.run.id)
            followed.fail(defect)
        finally:
            if self._runs.get(followed.run.path) is followed:
                del self._runs[followed.run.path]
            followed.close()

    async def _read_and_wait(self, followed: Followed) -> None:
        looked = self._now()
        while not followed.over:
            await self._read(followed)
            if self._now() - looked >= LOOK_S:
                looked = self._now()
                followed.look()
            if followed.publish():
                await asyncio.sleep(FRAME_S)
            self._weigh(followed)
            left = self._left_s(followed)
            if left <= 0:
                return
            await followed.wait_for_change(min(left, LOOK_S))

    async def _read(self, followed: Followed) -> None:
        """Read all that there is, one slice in a turn of the loop."""
        # Requests wait for the first slice of a journal: then it is known how long it is.
        noted = float("-inf") if followed.follower.state == "building" else self._now()
        while not followed.over:
            async with self._slice:
                more = followed.follower.read(SHORT_S if self._now() < self._hurry_until else SLICE_S)
            if not more:
                return
            if self._now() - noted >= FRAME_S:
                noted = self._now()
                followed.publish()
                self._weigh(followed)
            await asyncio.sleep(0)

    def _left_s(self, followed: Followed) -> float:
        """How long a run is still followed."""
        return LOOK_S if followed.has_listeners else self._keep_s - (self._now() - followed.looked)

    # Memory.

    def _weigh(self, followed: Followed) -> None:
        """Measure what a run takes; if all of them take too much, drop those that were looked at least recently."""
        if followed.size_bytes and self._now() - followed.weighed < WEIGH_S:
            return
        followed.weighed = self._now()
        followed.size_bytes = size_of_spans(followed.follower.spans)
        # Runs that a stream shows go last, and one run stays, whatever it takes.
        rising = sorted(self._runs.values(), key=lambda one: (one.has_listeners, one.looked))
        for one in rising[:-1]:
            if self.size_bytes <= self._most_bytes:
                return
            self._drop(one)

    def _drop(self, followed: Followed) -> None:
        del self._runs[followed.run.path]
        followed.size_bytes = 0
        followed.drop("memory")
