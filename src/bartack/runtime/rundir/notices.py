"""The facts of a run that are not in the outbox yet: reads the journal on from where the last reader came to.

``notices.json`` in the directory of the run says how far that was. It is written after the notices are durable in the outbox of
the user. A process that is killed in between leaves an older number in it, and the next one keeps the same notices under the same
ids, which changes nothing. So no fact is lost, and none becomes two notices.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from bartack.config.notices import NoticesConfig
from bartack.config.project import with_absolute_path
from bartack.core import typed
from bartack.core.closing import Closing
from bartack.core.files import replace_file
from bartack.core.redact import Redactor, SecretRule
from bartack.depot import Placement, user_depot
from bartack.errors import BartackError
from bartack.notices import WATCH, Fact, RunNow, Subject, put_facts
from bartack.resilience import NewEvent, Outbox
from bartack.resilience.outbox.row import Claim, Verdict
from bartack.runtime.rundir.find import TERMINAL, read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import decode_entry
from bartack.runtime.state.notable import Notable

NOTICES_FILE: Final = "notices.json"
NOTIFIER: Final = "bartack.runtime.hub.notifier"
"""The program that sends notices."""
REST: Final = "--rest"
"""Its argument if it is to send what is left, of whichever run."""
_LOOK_AGAIN_S: Final = 60.0


class NoticesFile(msgspec.Struct, frozen=True):
    """The content of notices.json.

    Attributes:
        seq: The last entry whose facts are in the outbox.
        lost_hub: The last hub of which it is there that it was lost.
    """

    seq: int = 0
    lost_hub: int = 0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and how its facts are to be sent. Kept in the outbox while a process looks after it.

    Attributes:
        run_dir: The directory of the run.
        project: What people call the project.
        config: The settings.
        names: Variables that are secrets although their names do not show it.
        exempt: Variables that are not.
        shortest: Shorter values are not secrets.
    """

    run_dir: str
    project: str
    config: NoticesConfig
    names: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()
    shortest: int = 8


class FactReader(Closing):
    """Reads the facts of one run and keeps their notices.

    Args:
        watched: The run.
        outbox: Where notices are kept.

    Raises:
        JournalNotFoundError: There is no such run.
    """

    def __init__(self, watched: Watched, outbox: Outbox) -> None:
        self._run = RunDir(watched.run_dir)
        self._watched = watched
        self._outbox = outbox
        rule = SecretRule(watched.names, watched.exempt, watched.shortest)
        self._hide = _hider(Redactor(os.environ, rule))
        self._notable = Notable()
        self._kept = _read_file(self._run)
        self._facts: list[tuple[Fact, int]] = []
        self._seq = 0
        """The last entry that was read."""
        self._ahead: deque[tuple[int, Fact, int]] = deque()
        """Facts whose entries are perhaps not durable yet: each with its entry and hub."""
        self._reader = self._run.open_reader()

    def read(self, durable: int | None = None) -> None:
        """Keep the notices of all facts that are durable.

        Args:
            durable: The last entry that the hub knows to be durable; by default all that are there, if no hub is alive.

        Raises:
            StoreUnavailableError: The outbox cannot be written; the next call keeps them.
            JournalError: The journal cannot be read.
        """
        for entry in self._reader.read_on():
            self._seq = entry.seq
            if entry.kind not in self._notable.kinds:
                continue
            data = decode_entry(entry.kind, entry.raw)
            fact = None if data is None else self._notable.add(data, entry.seq, entry.at)
            if fact is not None and entry.seq > self._kept.seq:
                self._ahead.append((entry.seq, fact, self._notable.hub))
        until = self._seq if durable is None else min(durable, self._seq)
        while self._ahead and self._ahead[0][0] <= until:
            _, fact, hub = self._ahead.popleft()
            self._facts.append((fact, hub))
        if self._facts:
            self._keep(NoticesFile(until, self._kept.lost_hub))

    def hub_is_gone(self, at: int) -> None:
        """No hub runs the run: keep what is left, and a notice if the last hub did not shut down cleanly.

        The notice of a run that the node has waits a while: the node resumes the run at once, and then nothing is sent.

        Args:
            at: When that was noticed, in microseconds since 1970.

        Raises:
            StoreUnavailableError: The outbox cannot be written.
            JournalError: The journal cannot be read.
        """
        self.read()
        lost = self._notable.lost_hub(at, is_of_node=_placement(self._run) in {"owned", "queued"})
        if lost is not None and self._kept.lost_hub < self._notable.hub:
            self._facts.append((lost, self._notable.hub))
            self._keep(NoticesFile(self._seq, self._notable.hub))

    @property
    def is_left(self) -> bool:
        """Whether the last hub that was seen shut down cleanly."""
        return self._notable.is_left

    @property
    def hub(self) -> int:
        """The number of the last hub that was seen."""
        return self._notable.hub

    def close(self) -> None:
        """Close the journal."""
        self._reader.close()

    def _keep(self, kept: NoticesFile) -> None:
        subject = Subject(run=self._run.id, run_dir=self._watched.run_dir, project=self._watched.project)
        put_facts(self._outbox, self._watched.config, subject, self._facts, self._hide)
        self._facts.clear()
        self._kept = kept
        replace_file(self._run.path / NOTICES_FILE, msgspec.json.encode(kept))


def _hider(redactor: Redactor) -> Callable[[str], str]:
    def hide(text: str) -> str:
        return redactor.hide_lines(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    return hide


def _read_file(run: RunDir) -> NoticesFile:
    try:
        return typed.decode((run.path / NOTICES_FILE).read_bytes(), type=NoticesFile)
    except (OSError, msgspec.MsgspecError):
        return NoticesFile()


def look_at(run_dir: str) -> RunNow | None:
    """What matters of a run when a notice of it is about to be sent; ``None`` if it cannot be read."""
    try:
        state = read_state(RunDir(run_dir))
    except (BartackError, OSError):
        return None
    is_over = state.ended is not None and state.ended.status in TERMINAL
    questions = frozenset[str]() if is_over else frozenset(state.questions)
    return RunNow(questions, state.hub, _placement(RunDir(run_dir)) == "held")


def _placement(run: RunDir) -> Placement | None:
    """Where the queue of the user has a run; ``None`` if it is not in the queue."""
    try:
        found = user_depot().find(run.id)
    except (BartackError, OSError):
        return None
    return None if found is None or RunDir(found.job.path).path != run.path else found.state


# Runs whose hub and notifier are both gone.


def watch(outbox: Outbox, watched: Watched, hub: int) -> str:
    """Keep a row that names a run whose facts this process looks after, until ``unwatch``; returns its id.

    If the machine stops, another process finds the row and looks after the facts that nothing was sent of.
    """
    event_id = f"{os.path.basename(watched.run_dir)}:hub{hub}:watch"
    outbox.put([NewEvent(event_id, WATCH, watched.run_dir, msgspec.json.encode(watched))])
    return event_id


def unwatch(outbox: Outbox, event_id: str) -> None:
    """All facts of the run are in the outbox."""
    outbox.purge([event_id])


def look_after_lost(outbox: Outbox) -> None:
    """Keep the notices of runs that no hub and no notifier looks after any more.

    Raises:
        StoreUnavailableError: The outbox cannot be written.
    """
    while claims := outbox.claim(kind=WATCH, limit=1):
        outbox.settle([(claims[0], _look_after(outbox, claims[0]))])


def _look_after(outbox: Outbox, claim: Claim) -> Verdict:
    try:
        watched = typed.decode(claim.payload, type=Watched)
        if RunDir(watched.run_dir).is_active():
            return Verdict("released", wait_s=_LOOK_AGAIN_S)
        with FactReader(watched, outbox) as facts:
            facts.hub_is_gone(time.time_ns() // 1000)
    except (BartackError, OSError, msgspec.MsgspecError) as error:
        return Verdict("dead", type(error).__name__)
    return Verdict("delivered")


def start_rest_sender() -> subprocess.Popen[bytes]:
    """Start a notifier that sends what is due and what no other one looks after. Its problems go to our standard error."""
    return subprocess.Popen(  # bartack: allow[unsupervised_process] it ends by itself  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-s", "-m", NOTIFIER, REST],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=with_absolute_path(os.environ),
    )
