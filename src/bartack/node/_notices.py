"""What a person learns from the node: that it holds a run, and that a schedule started none.

A held run is found in the depot at every look, so a node that is killed just then leaves the notice to the next one. The id of a
notice is made of the moment at which the run was held, and the outbox keeps each id once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bartack.config.load import load_config, load_own_notices
from bartack.config.notices import NoticesConfig
from bartack.core.closing import Closing
from bartack.core.redact import Redactor
from bartack.core.user_home import user_home
from bartack.depot import Depot, Schedule, Standing
from bartack.errors import BartackError
from bartack.notices import NOTICE, WATCH, Fact, Subject, open_outbox, put_facts
from bartack.resilience import StateStore
from bartack.runtime.rundir.notices import look_at, start_rest_sender

RECENT_US: Final = 5 * 24 * 3600 * 1_000_000
"""What was held longer ago was reported then. The outbox knows ids for a week."""

Say = Callable[[str], object]


class NodeNotices(Closing):
    """Keeps notices of the node and has them sent; problems with that stop nothing.

    Args:
        depot: Where the runs are queued.
        say: Takes a line about a problem.
        start_sender: Starts a process that sends what is kept.
    """

    def __init__(
        self,
        depot: Depot,
        say: Say,
        start_sender: Callable[[], subprocess.Popen[bytes]] = start_rest_sender,
    ) -> None:
        self._depot = depot
        self._say = say
        self._start_sender = start_sender
        self._known: set[tuple[str, int]] = set()
        """Held runs that are in the outbox, each with the time at which it was held."""
        self._sender: subprocess.Popen[bytes] | None = None
        self._is_unsent = False
        """Something was kept while a sender was at its work, and the sender has perhaps not seen it."""
        self._is_first = True
        self._complained = ""

    def look(self, now_us: int) -> None:
        """Keep what is new. At the first look, have everything sent that an earlier boot has left."""
        if self._sender is not None and self._sender.poll() is not None:
            self._sender = None
            if self._is_unsent:
                self._try(self._send)
        self._try(lambda: self._look(now_us))

    def schedule_failed(self, schedule: Schedule, problem: str) -> None:
        """A schedule started no run: one notice until the reason is another one, or until it has started a run."""
        reason = problem.rpartition(" was skipped: ")[2]
        digest = hashlib.sha256(reason.encode()).hexdigest()[:12]
        subject = Subject(project=Path(schedule.workspace).name, schedule=schedule.name)
        fact = Fact(kind="failed", place=f"{schedule.last_us}-{digest}", at=schedule.next_us, text=problem)
        self._try(lambda: self._keep(schedule.workspace, subject, fact, 0))

    def close(self) -> None:
        """The node ends; what is being sent is sent."""
        if self._sender is not None and self._sender.returncode is None:
            self._sender.returncode = 0  # it ends by itself, and is not waited for

    def _look(self, now_us: int) -> None:
        is_first, self._is_first = self._is_first, False
        if is_first and _has_left():
            self._send()
        for one in self._depot.standings():
            held = (one.job.run, one.changed_us)
            if one.state == "held" and held not in self._known and one.changed_us > now_us - RECENT_US:
                self._keep_held(one)
                self._known.add(held)

    def _keep_held(self, one: Standing) -> None:
        job, found = one.job, look_at(one.job.path)
        subject = Subject(run=job.run, run_dir=job.path, project=Path(job.workspace).name)
        place = f"held{one.changed_us}"
        fact = Fact(kind="failed", place=place, at=one.changed_us, text=one.reason, status="held")
        self._keep(job.workspace, subject, fact, 0 if found is None else found.hub)

    def _keep(self, workspace: str, subject: Subject, fact: Fact, hub: int) -> None:
        config = _load_notices(workspace)
        if not config.has_ways:
            return
        hide = Redactor(os.environ).redact_text
        with StateStore(user_home()) as store:
            new = put_facts(open_outbox(store), config, subject, [(fact, hub)], hide)
        if new:
            self._send()

    def _send(self) -> None:
        self._is_unsent = self._sender is not None
        if self._sender is None:
            self._sender = self._start_sender()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (BartackError, OSError) as error:
            if str(error) != self._complained:
                self._say(f"notices cannot be kept: {error}")
            self._complained = str(error)


def _load_notices(workspace: str) -> NoticesConfig:
    """How the person wants to be notified of what happens in a workspace; its settings may be gone or damaged."""
    try:
        return load_config(Path(workspace)).notices
    except (BartackError, OSError):
        return load_own_notices()


def _has_left() -> bool:
    """Whether notices wait for a process that sends them."""
    with StateStore(user_home()) as store:
        if not store.path.exists():
            return False
        outbox = open_outbox(store)
        return any(outbox.count(kind)["pending"] for kind in (NOTICE, WATCH))
