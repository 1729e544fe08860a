"""The notifier: a process beside a hub that sends the notices of its run (``python -m bartack.runtime.hub.notifier``).

It reads from its standard input what to do (``NotifierStart``), then how far the journal is durable, until the hub is gone. Then
it keeps the rest, sends what is due soon, and leaves what has to wait longer, for a receiver that is away or for the end of quiet
hours, to the daemon. It can be killed at any moment: the hub starts it again, and the outbox has everything that was observed.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.user_home import user_home
from bartack.errors import BartackError, ResilienceError
from bartack.notices import Delivery, open_outbox
from bartack.resilience import Outbox, load_settings
from bartack.resilience.link import DaemonLink
from bartack.runtime.hub.notices import NotifierStart
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.notices import REST, FactReader, look_after_lost, look_at, unwatch, watch

LINGER_S: Final = 60.0
"""A notice that is due within this time after the end of the hub is sent by the notifier, later ones by the daemon."""
_IDLE_S: Final = 3600.0
_RETRY_S: Final = 5.0
_GONE_S: Final = 3.0
"""How long the socket of a hub that was killed may still be open."""
_SOONEST_S: Final = 0.05
_LINE_MOST: Final = 1024 * 1024


def main() -> int:
    """Send the notices of the run that standard input names, or those that are left of any."""
    if sys.argv[1:] == [REST]:
        return send_rest()
    lines = HubLines(sys.stdin.fileno())
    first = lines.first()
    if first is None:
        return 1
    outbox = open_outbox()
    try:
        with FactReader(first.watched, outbox) as facts:
            return Notifier(first, outbox, facts, lines).run()
    except BartackError as error:
        sys.stderr.write(f"notices: error[{error.code}]: {error}\n")
        return 1


class HubLines:
    """What the hub writes to the notifier."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = b""
        self.durable = 0
        """The last entry that is durable."""
        self.is_over = False
        """Whether the hub is gone."""

    def first(self) -> NotifierStart | None:
        """The first line; ``None`` if it is not whole."""
        while b"\n" not in self._data and not self.is_over and len(self._data) < _LINE_MOST:
            self._read()
        line, _, self._data = self._data.partition(b"\n")
        try:
            return typed.decode(line, type=NotifierStart)
        except msgspec.MsgspecError:
            return None

    def wait(self, seconds: float) -> None:
        """Wait for news of the hub, at most this long."""
        if self.is_over:
            select.select([], [], [], seconds)
        elif select.select([self._descriptor], [], [], seconds)[0]:
            self._read()
        *numbers, self._data = self._data.split(b"\n")
        self.durable = max([self.durable, *(int(number) for number in numbers if number.isdigit())])

    def _read(self) -> None:
        more = os.read(self._descriptor, 65_536)
        self._data += more
        self.is_over = not more


class Notifier:
    """The work of one notifier.

    Args:
        begin: The run, and the hub that it belongs to.
        outbox: Where notices are kept.
        facts: Reads the run.
        lines: What the hub writes.
    """

    def __init__(self, begin: NotifierStart, outbox: Outbox, facts: FactReader, lines: HubLines) -> None:
        self._begin = begin
        self._outbox = outbox
        self._facts = facts
        self._lines = lines
        self._delivery = Delivery(outbox, look_at)
        self._watch = ""
        self._complained = False

    def run(self) -> int:
        """Work until the hub is gone and nothing is due soon."""
        while not self._lines.is_over:
            self._lines.wait(self._round())
        self._await_end()
        limit = time.monotonic() + LINGER_S
        while (wait_s := self._round()) <= limit - time.monotonic():
            self._lines.wait(wait_s)
        if self._delivery.next_due_s() is not None:
            leave_to_daemon()
        return 0

    def _round(self) -> float:
        """Keep what is new and send what is due; returns how long nothing has to be done."""
        try:
            if not self._watch:
                look_after_lost(self._outbox)
                self._watch = watch(self._outbox, self._begin.watched, self._begin.hub)
            if self._lines.is_over:
                self._keep_rest()
            else:
                self._facts.read(self._lines.durable)
            self._delivery.deliver_due()
            due = self._delivery.next_due_s()
        except ResilienceError as error:
            if not self._complained:
                sys.stderr.write(f"notices: error[{error.code}]: {error}; tried again later\n")
            self._complained = True
            return _RETRY_S
        return _IDLE_S if due is None else due

    def _keep_rest(self) -> None:
        """The hub is gone: keep all facts that are left. If another hub runs the run, its notifier does that."""
        if not RunDir(self._begin.watched.run_dir).is_active():
            self._facts.hub_is_gone(time.time_ns() // 1000)
        unwatch(self._outbox, self._watch)

    def _await_end(self) -> None:
        """Wait until the system has closed the socket of the hub, too."""
        limit = time.monotonic() + _GONE_S
        while RunDir(self._begin.watched.run_dir).is_active() and time.monotonic() < limit:
            self._lines.wait(0.05)


def send_rest() -> int:
    """Send the notices that are due soon and that no notifier of a run looks after; leave the others to the daemon."""
    outbox = open_outbox()
    delivery = Delivery(outbox, look_at)
    limit = time.monotonic() + LINGER_S
    try:
        look_after_lost(outbox)
        delivery.deliver_due()
        while (wait_s := delivery.next_due_s()) is not None and wait_s <= limit - time.monotonic():
            select.select([], [], [], max(wait_s, _SOONEST_S))
            delivery.deliver_due()
    except ResilienceError as error:
        sys.stderr.write(f"notices: error[{error.code}]: {error}\n")
        return 1
    if wait_s is not None:
        leave_to_daemon()
    return 0


def leave_to_daemon() -> None:
    """Have the daemon look at the outbox; it is started if none runs and the settings allow it."""
    home = user_home()
    if (
        DaemonLink().notify(home)
        or not load_settings(start=home).autostart
        or (home / "autostart-off").exists()
    ):
        return
    subprocess.Popen(  # bartack: allow[unsupervised_process] the daemon outlives us
        [sys.executable, "-I", "-m", "bartack", "daemon", "run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    ).returncode = 0  # it outlives this process on purpose, and is not waited for


if __name__ == "__main__":
    sys.exit(main())
