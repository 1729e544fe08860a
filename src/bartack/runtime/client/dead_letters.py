"""The dead letters of a run, from outside it: through its hub or, if none runs it, by owning the journal for a moment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from bartack.config.load import load_config
from bartack.config.timeouts import Timeouts
from bartack.core import typed
from bartack.core.clock import SystemClock
from bartack.errors import BartackError
from bartack.messaging import DeadLetter, DeadLetterQueue, LetterFilter, LetterPolicy
from bartack.messaging.dead_letter_queue import Retried
from bartack.messaging.mailboxes import mailbox_of
from bartack.messaging.options import check_metadata
from bartack.runtime.client.carrying_out import carry_out
from bartack.runtime.client.connection import HubClient
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.requests import Asked
from bartack.runtime.protocol.requests import Request, new_request_id
from bartack.runtime.protocol.values import encode
from bartack.runtime.rundir.find import check_not_ended, load_state, read_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.state.run_state import State

Settle = Callable[[object], None]
"""Called once, with the result."""


def open_letters(run: RunDir) -> DeadLetterQueue:
    """The dead letters of a run."""
    return DeadLetterQueue(RunLetters(run))


class RunLetters:
    """How a queue of dead letters reaches a run."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._blobs = run.open_blobs()

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

        def act(core: Core, settle: Settle) -> None:
            settle(core.letters.add(name, "", core.turn.pack_raw(data), reason, checked))

        return typed.decode(self._do("dead.add", request, act, data), type=str)

    def retry(self, chosen: LetterFilter) -> list[Retried]:
        """See ``LetterDoor.retry``."""

        def act(core: Core, settle: Settle) -> None:
            core.letters.retry(chosen, "command", settle)

        done = self._do("dead.retry", Request(letters=chosen), act)
        return typed.decode(done, type=list[Retried])

    def purge(self, chosen: LetterFilter) -> int:
        """See ``LetterDoor.purge``."""

        def act(core: Core, settle: Settle) -> None:
            settle(core.letters.purge(chosen))

        return typed.decode(self._do("dead.purge", Request(letters=chosen), act), type=int)

    def _do(
        self, do: str, request: Request, act: Callable[[Core, Settle], None], value: bytes | None = None
    ) -> bytes:
        """Have the hub carry out a request; without one, do what it would do, unless it has done that before it died."""
        by_id = new_request_id()

        def by_hub() -> bytes:
            with HubClient(self._run) as hub:
                return hub.ask(do, request, value, by_id=by_id)

        return carry_out(by_hub, lambda: self._own(do, by_id, act))

    def _own(self, do: str, by_id: str, act: Callable[[Core, Settle], None]) -> bytes:
        """Own the journal for a moment and let the same code decide that decides in a hub.

        Raises:
            JournalLockedError: Another process is about to run it.
            RunNotActiveError: It has ended for good, so that no worker would receive anything.
            PeerRefusedError: This process belongs to a run.
        """
        check_outside(f"changing the dead letters of {self._run.id}", self._run)
        answers: list[bytes] = []
        with own_journal(self._run) as journal:
            state = load_state(self._run, journal)
            place = state.requests.place_of(by_id)
            if place:
                return journal.load_value(next(journal.fetch([place]))) or b"null"
            if do != "dead.purge":
                check_not_ended(self._run, state)
            settings = Settings(letters=self._policy(state))
            core = Core(state, journal, SystemClock(), Timeouts(os.environ), settings)

            def settle(result: object) -> None:
                value = core.turn.pack(result)
                core.requests.settle(Asked(by_id, do, ""), value)
                answers.append(core.turn.load(value.raw, value.ref))

            with core.turn.one_line():
                act(core, settle)
            while not answers:
                core.tick()
            journal.commit()
        return answers[0]

    def _policy(self, state: State) -> LetterPolicy:
        place = state.run.workspace if state.run is not None else ""
        with contextlib.suppress(BartackError, OSError):  # its workspace may be gone, or its settings broken
            return load_config(Path(place)).dead_letters
        return LetterPolicy()
