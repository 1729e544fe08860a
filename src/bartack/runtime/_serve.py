"""The hub as a process of its own: ``python -m bartack.runtime._serve RUN_DIR``. Its output goes to the run's hub.log."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bartack.errors import BartackError, JournalLockedError, TreeLockedError
from bartack.runtime._config import kept_sets, load_config
from bartack.runtime._core import UnknownDecision
from bartack.runtime._hub import Hub
from bartack.runtime._hub_log import HubLog
from bartack.runtime._launch import EXIT_CODES, drive
from bartack.runtime._layout import RunDir
from bartack.runtime._ledger import Recorded
from bartack.runtime._reopened import Reopened
from bartack.runtime._state import State
from bartack.runtime._veils import open_veil_of
from bartack.runtime._worker_state import Value

OWNED = 5
"""The exit code when another process runs the run."""


class Quiet:
    """Nobody watches."""

    listens = False
    """See ``Observer.listens``."""

    def reopened(self, how: Reopened) -> None:
        """What was wrong with the journal goes to the log."""
        for text in how.notes():
            self.show("note", "", text)

    def opened(self, hub: Hub) -> None:
        """See ``Observer.opened``."""

    def entries(self, recorded: list[Recorded]) -> None:
        """See ``Observer.entries``."""

    def show(self, channel: str, worker: str, text: str) -> None:
        """What happened goes to the log; what the program says is in the transcript."""
        if channel == "note":
            sys.stderr.write(f"{worker}: {text}\n" if worker else f"{text}\n")

    def changed(self, state: State) -> None:
        """See ``Observer.changed``."""

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""


def main(argv: list[str]) -> int:
    """Run a run; the arguments are its directory, the workspace, and perhaps a decision with its value."""
    run = RunDir(argv[0])
    value = Value(msgspec.Raw(argv[3].encode())) if len(argv) > 3 else Value()
    decision = UnknownDecision(argv[2], value) if len(argv) > 2 else None
    log = sys.stderr = HubLog(sys.stderr, open_veil_of(run, argv[1]))
    try:
        status = drive(run, load_config(Path(argv[1]), kept_sets(run.path)), Quiet(), decision, argv[1])
    except BartackError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return OWNED if isinstance(error, JournalLockedError | TreeLockedError) else 1
    finally:
        log.finish()
    return EXIT_CODES[status]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
