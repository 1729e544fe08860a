"""The hub as a process of its own: ``python -m bartack.runtime.hub.serve RUN_DIR``. Its output goes to the run's hub.log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import Config, kept_sets, load_config, load_kept_config
from bartack.core import typed
from bartack.errors import BartackError, JournalLockedError, TreeLockedError
from bartack.runtime.hub.holding import HOLD_S
from bartack.runtime.hub.hub import Hub
from bartack.runtime.hub.launch import EXIT_CODES, drive
from bartack.runtime.hub.log import HubLog
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.hub.workspace.prepared import Prepared
from bartack.runtime.kernel.idle import Rest
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe
from bartack.runtime.rundir.secrets import open_veil_of
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Recorded, UnknownDecision, Value

SETTLED: Final = 4
"""A run rests after it has waited for this part of the time that it is going to rest at least."""
OWNED = 5
"""The exit code when another process runs the run."""


class Quiet:
    """Writes notes to the log, for a hub without a terminal."""

    listens = False
    """See ``Observer.listens``."""

    def reopened(self, how: Reopened) -> None:
        """Write what was wrong with the journal to the log."""
        for text in how.notes():
            self.show("note", "", text)

    def opened(self, hub: Hub) -> None:
        """See ``Observer.opened``."""

    def entries(self, recorded: list[Recorded]) -> None:
        """See ``Observer.entries``."""

    def show(self, channel: str, worker: str, text: str) -> None:
        """Write notes to the log; output of the program is in the transcript."""
        if channel == "note":
            sys.stderr.write(f"{worker}: {text}\n" if worker else f"{text}\n")

    def changed(self, state: State) -> None:
        """See ``Observer.changed``."""

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""


class Instructions(msgspec.Struct):
    """What a hub reads from its standard input.

    Attributes:
        report: The descriptor to which an error is written that ends it before the run is active.
        sets: Settings that are given for this run now, and hold from now on.
        rest_after_s: Stop when there is nothing to do for longer than this; negative: never.
        lease: The descriptor of a lease page that the run needs to be active; negative: it needs none.
        hold_s: How long the run stands still while that page gives no right, before it is stopped.
        link: The descriptors to the node that owns the run in a database; empty: there is none.
        fence: The number of that ownership.
        seen_us: When a hub of an earlier owner was last seen alive, by the clock of that database.
        prepared: How the workspace was prepared for this hub.
    """

    report: int = -1
    sets: list[str] = []
    rest_after_s: float = -1.0
    lease: int = -1
    hold_s: float = HOLD_S
    link: list[int] = []
    fence: int = 0
    seen_us: int | None = None
    prepared: Prepared | None = None


Around = Callable[[RunDir, Path, Config, Sequence[str]], AbstractContextManager[Describe | None]]
"""What a run needs around it while it is active; gives what describes it in run.json."""


def serve(argv: list[str], around: Around | None = None) -> int:
    """Run a run, as its starter has written to our standard input; see ``main``."""
    return main(argv, around, _read_instructions())


def main(argv: list[str], around: Around | None = None, instructions: Instructions | None = None) -> int:
    """Run a run.

    Args:
        argv: Its directory, the workspace, and perhaps a decision with its value.
        around: What it needs around it.
        instructions: What the process that started this one has written to its standard input.
    """
    given = instructions or Instructions()
    run, place = RunDir(argv[0]), Path(argv[1])
    value = Value(msgspec.Raw(argv[3].encode())) if len(argv) > 3 else Value()
    decision = UnknownDecision(argv[2], value) if len(argv) > 2 else None
    log = sys.stderr = HubLog(sys.stderr, open_veil_of(run, argv[1]))
    report = _Report(given.report)
    if given.link:
        _join_node(run, given)
    try:
        sets = [*kept_sets(run.path), *given.sets]
        # Agents edit the workspace, so on a node it has no say.
        config = load_kept_config(run.path, place, sets) if given.link else load_config(place, sets)
        context = nullcontext() if around is None else around(run, place, config, given.sets)
        with context as describe:
            status = drive(
                run,
                config,
                _Reporting(report, given.rest_after_s),
                decision,
                argv[1],
                describe=describe,
                sets=given.sets,
                lease=None if given.lease < 0 else given.lease,
                hold_s=given.hold_s,
                prepared=given.prepared,
            )
    except BartackError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        report.write(msgspec.json.encode(describe_error(error)))
        return OWNED if isinstance(error, JournalLockedError | TreeLockedError) else 1
    finally:
        report.close()
        log.finish()
    return EXIT_CODES[status]


def _join_node(run: RunDir, given: Instructions) -> None:
    """Reach the database through the node that has started this hub."""
    from bartack.depot.link import HubLink, LinkFds  # noqa: PLC0415 - only the hubs of such nodes need it

    run.link = HubLink(given.fence, LinkFds(*given.link), seen_us=given.seen_us)


def _read_instructions() -> Instructions:
    """What was written to our standard input, which is empty from then on."""
    data = sys.stdin.buffer.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return typed.decode(data, type=Instructions) if data else Instructions()


class _Report:
    """Reports to the process that started this one why it ended before the run was active."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        if fd >= 0:
            os.set_inheritable(fd, False)

    def write(self, line: bytes) -> None:
        """Write one line; an empty one means that the run is active."""
        if self._fd >= 0:
            with suppress(OSError):  # nothing waits for it any more
                os.write(self._fd, line + b"\n")
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Reporting(Quiet):
    """Reports that the run is active, and stops it when it rests.

    A run rests if a time that is more than ``rest_after_s`` away, or only a person, continues it. It has to have waited for a
    while, because to stop it and to start it again costs more than to wait for a moment.
    """

    def __init__(self, report: _Report, rest_after_s: float) -> None:
        self._report = report
        self._rest_after_s = rest_after_s
        self._hub: Hub | None = None
        self._since: float | None = None

    def opened(self, hub: Hub) -> None:
        """See ``Observer.opened``."""
        super().opened(hub)
        self._hub = hub if self._rest_after_s >= 0 else None
        self._report.write(b"")

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""
        rest = None if self._hub is None else self._hub.rest
        now = time.monotonic()
        if self._hub is None or rest is None or self._is_soon(rest, self._hub.now_us()):
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._rest_after_s / SETTLED:
            self._hub.interrupt("waiting" if state.questions else "resting", rest)

    def _is_soon(self, rest: Rest, now_us: int) -> bool:
        return 0 < rest.due_us < now_us + int(self._rest_after_s * 1e6)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
