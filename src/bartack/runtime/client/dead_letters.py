"""The dead letters of a run, from outside it: through its hub or, if none runs it, by owning the journal for a moment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from bartack.config.load import load_config
from bartack.config.timeouts import Timeouts
from bartack.core import RealDisk, SystemClock
from bartack.errors import BartackError, RunNotActiveError
from bartack.journal import FileBlobs
from bartack.messaging import (
    DeadLetter,
    DeadLetterQueue,
    LetterFilter,
    LetterPolicy,
    Retried,
    check_metadata,
    mailbox_of,
)
from bartack.runtime.client.connection import HubClient
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.values import encode
from bartack.runtime.rundir.find import check_not_ended, load_state, read_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.state.run_state import State

T = TypeVar("T")


def open_letters(run: RunDir) -> DeadLetterQueue:
    """The dead letters of a run."""
    return DeadLetterQueue(RunLetters(run))


class RunLetters:
    """How a queue of dead letters reaches a run."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._blobs = FileBlobs(str(run.path / "blobs"), RealDisk())

    def letters(self) -> list[DeadLetter]:
        """See ``LetterDoor.letters``."""
        return list(read_state(self._run).deliveries.letters.values())

    def now_us(self) -> int:
        """See ``LetterDoor.now_us``."""
        return SystemClock().now_us()

    def load(self, letter: DeadLetter) -> bytes:
        """See ``LetterDoor.load``."""
        if letter.ref is not None:
            return self._blobs.get(letter.ref)
        return b"null" if letter.value is None else bytes(letter.value)

    def add(self, recipient: str, message: object, reason: str, metadata: Mapping[str, object]) -> str:
        """See ``LetterDoor.add``."""
        name, data, checked = mailbox_of(recipient), encode(message), check_metadata(metadata)
        request = Request(mailbox=name, message=reason, metadata=checked)
        try:
            return msgspec.json.decode(self._ask("dead.add", request, data), type=str)
        except RunNotActiveError:
            return self._own(
                lambda core: core.letters.add(name, "", core.turn.pack_raw(data), reason, checked)
            )

    def retry(self, chosen: LetterFilter) -> list[Retried]:
        """See ``LetterDoor.retry``."""
        try:
            return msgspec.json.decode(self._ask("dead.retry", Request(letters=chosen)), type=list[Retried])
        except RunNotActiveError:
            return self._own(lambda core: _retry(core, chosen))

    def purge(self, chosen: LetterFilter) -> int:
        """See ``LetterDoor.purge``."""
        try:
            return msgspec.json.decode(self._ask("dead.purge", Request(letters=chosen)), type=int)
        except RunNotActiveError:
            return self._own(lambda core: core.letters.purge(chosen), ended=True)

    def _ask(self, do: str, request: Request, value: bytes | None = None) -> bytes:
        with HubClient(self._run) as hub:
            return hub.ask(do, request, value)

    def _own(self, act: Callable[[Core], T], *, ended: bool = False) -> T:
        """Own the journal for a moment and let the same code decide that decides in a hub.

        Raises:
            JournalLockedError: Another process is about to run it.
            RunNotActiveError: It has ended for good, so that no worker would receive anything.
            PeerRefusedError: This process belongs to a run.
        """
        check_outside(f"changing the dead letters of {self._run.id}", self._run)
        with own_journal(self._run) as journal:
            state = load_state(self._run, journal)
            if not ended:
                check_not_ended(self._run, state)
            settings = Settings(letters=self._policy(state))
            done = act(Core(state, journal, SystemClock(), Timeouts(os.environ), settings))
            journal.commit()
        return done

    def _policy(self, state: State) -> LetterPolicy:
        place = state.run.workspace if state.run is not None else ""
        with contextlib.suppress(BartackError, OSError):  # its workspace may be gone, or its settings broken
            return load_config(Path(place)).dead_letters
        return LetterPolicy()


def _retry(core: Core, chosen: LetterFilter) -> list[Retried]:
    results: list[list[Retried]] = []
    core.letters.retry(chosen, "command", results.append)
    while not results:
        core.tick()
    return results[0]
