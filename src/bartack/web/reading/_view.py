"""A run at one of its entries: what all functions of this room take."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from bartack.core.clock import SystemClock
from bartack.errors import (
    BartackError,
    BlobCorruptError,
    BlobMissingError,
    DepotUnavailableError,
    NotShownError,
)
from bartack.journal import BlobRef, Entry
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.spans.spans import Moment, Spans
from bartack.runtime.state.spans.steps import LONGEST_MESSAGE
from bartack.web._hide import Hider
from bartack.web._settings import SiteSettings
from bartack.web._threads import in_thread
from bartack.web.following._follow import Followed
from bartack.web.models._model import ErrorText, Problem, Shown
from bartack.web.models._run import RunStatus

if TYPE_CHECKING:
    from bartack.runtime.state.spans.rows import ErrorFacts


LOST: Final = (BlobMissingError, BlobCorruptError, DepotUnavailableError)
"""The file of a large value is gone, or is not what was written, or its database is away."""
LARGE: Final = 512 * 1024
"""Values with more bytes than this are read in a thread."""


class RunView:
    """A run at one of its entries.

    Attributes:
        followed: The follower of the run.
        run: The run.
        spans: Its spans.
        seq: The entry.
        is_live: Whether it is the last one, so that the present counts: the hub, the clock.
        now_us: The moment that is shown: that of the entry, or now.
        hider: Hides the secrets of its workspace.

    Args:
        followed: The follower of the run.
        at: The entry; ``None``: the last one. An entry that is not there yet is the last one, too.
        settings: The settings of workspaces.
    """

    def __init__(self, followed: Followed, at: int | None, settings: SiteSettings) -> None:
        self.followed = followed
        self.run: RunDir = followed.run
        self.spans: Spans = followed.follower.spans
        self.is_live = at is None or at >= self.spans.last_seq
        self.seq = self.spans.last_seq if at is None else max(0, min(at, self.spans.last_seq))
        self.now_us = SystemClock().now_us() if self.is_live else self.spans.time_of(self.seq)
        self._settings = settings
        self.hider: Hider = settings.hider(self.workspace)

    @property
    def is_active(self) -> bool:
        """Whether a hub runs the run at this moment, as far as that is known."""
        return self.followed.is_active if self.is_live else self.spans.past.hub_at(self.seq).number > 0

    @property
    def status(self) -> RunStatus:
        """The status of the run: as people see it now, or as the journal showed it then."""
        if self.is_live and self.spans.state.run is not None:
            return status_of(self.run, self.spans.state, active=self.is_active)
        return self.spans.status_at(self.seq)

    @cached_property
    def moment(self) -> Moment:
        """What was open after the entry."""
        return self.spans.at(self.seq)

    @cached_property
    def workspace(self) -> str:
        """Where the run works: as it was recorded, or where the run's directory is in it now."""
        created = self.spans.state.run
        if created is None:
            return str(self.run.path.parent.parent.parent)
        try:
            return self.run.workspace(self.spans.state)
        except BartackError:
            return created.workspace

    @cached_property
    def tasks(self) -> dict[str, str]:
        """The task that each worker of a run of the pipeline works on, by path."""
        return self.followed.pipeline.tasks(self.seq)

    def task_of(self, p: str) -> str:
        """The task that a path of a worker or branch belongs to; empty if it belongs to none."""
        if not self.tasks:
            return ""
        owner = self.spans.state.worker_of(p)
        return self.tasks.get(p if owner is None else owner.path, "")

    def is_alive(self, worker: str) -> bool:
        """Whether a worker was alive."""
        return any(self.spans.lives.path(row) == worker for row in self.moment.worker_rows)

    def limit_usd(self) -> float | None:
        """What the agents of the run may cost, as its settings are now; ``None`` if there is no limit, or none is known."""
        return self._settings.limit_usd(self.workspace, self.run)

    # Entries and values.

    def entry(self, seq: int) -> Entry:
        """The entry at a place that is not after the one that is shown.

        Raises:
            NotShownError: There is none.
            JournalError: The journal cannot be read there.
        """
        found = self.followed.follower.entry(seq) if seq <= self.seq else None
        if found is None:
            raise NotShownError(f"{self.run.id} has no entry {seq} here")
        return found

    def value(self, seq: int) -> bytes | None:
        """The value of an entry as encoded JSON; ``None`` if it has none. See ``entry``."""
        return self.load(self.entry(seq))

    def load(self, entry: Entry) -> bytes | None:
        """The value of an entry that was read already."""
        return self.followed.follower.load(entry)

    async def load_large(self, entry: Entry) -> bytes | None:
        """The same for a value that may be long: then a thread reads it."""
        if entry.ref is None or entry.ref.size < LARGE:
            return self.load(entry)
        return await in_thread(lambda: self.load(entry))

    # What is lost is missing from its place, and from nothing else.

    def show(self, seq: int) -> Shown | None:
        """The value of an entry without secrets; why it is not there, if its file is lost. See ``entry``."""
        return self._show(self.entry(seq))

    async def show_large(self, entry: Entry) -> Shown | None:
        """The same for an entry that was read, whose value may be long."""
        try:
            value = await self.load_large(entry)
        except LOST as error:
            return _lost(entry, error)
        return None if value is None else self.hider.show(value)

    def show_value(self, raw: msgspec.Raw | None, ref: BlobRef | None) -> Shown:
        """The same for a payload of the state."""
        found = self._show(Entry(0, 0, 0, "", msgspec.Raw(b"{}"), raw, ref))
        return self.hider.show(b"null") if found is None else found

    def _show(self, entry: Entry) -> Shown | None:
        try:
            value = self.load(entry)
        except LOST as error:
            return _lost(entry, error)
        return None if value is None else self.hider.show(value)


def _lost(entry: Entry, error: BartackError) -> Shown:
    problem = Problem(code=error.code, message=error.message, help=error.remedy)
    return Shown(size=0 if entry.ref is None else entry.ref.size, problem=problem)


def error_text(error: ErrorFacts | None) -> ErrorText | None:
    """An error in short."""
    return None if error is None else ErrorText(type=error.type, message=error.message, code=error.code)


def until(left_s: float | None, now_us: int) -> int:
    """When a wait is over, to the millisecond: the same each time that it is asked for; 0: never."""
    return 0 if left_s is None else round((now_us + left_s * 1e6) / 1000) * 1000


def short_error(error: ErrorData) -> ErrorText:
    """An error in short."""
    return ErrorText(type=error.type, message=error.message[:LONGEST_MESSAGE], code=error.code)
