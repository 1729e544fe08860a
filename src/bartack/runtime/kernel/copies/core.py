"""The core of a run that keeps copies of its workspace: what ends steps that may change files goes through ``CopyDesk``.

Nothing of it concerns other runs: ``hub/launch.py`` chooses the core when the hub begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bartack.config.timeouts import Timeouts
from bartack.core.clock import Clock
from bartack.errors import AgentError, JournalClosedError, JournalPoisonedError
from bartack.journal import BlobRef, Journal
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.copies.desk import CopyDesk, CopyMade
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.delegates import FinalCheck
from bartack.runtime.kernel.desk import Settings, Shared
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.kernel.workers import NOTHING_KNOWN, ProcessEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import WorkerState
from bartack.telemetry import NO_TELEMETRY, Telemetry

COPY_S: Final = 30.0


class CopyingCore(Core):
    """See ``Core`` and the module.

    Args:
        state: See there, as for the others.
        journal: See there.
        clock: See there.
        timeouts: See there.
        settings: See there.
        telemetry: See there.
        final_check: See there.
        during_s: How often a copy is made while a step takes long.
    """

    def __init__(
        self,
        state: State,
        journal: Journal,
        clock: Clock,
        timeouts: Timeouts,
        settings: Settings | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        final_check: FinalCheck = list,
        during_s: float = COPY_S,
    ) -> None:
        super().__init__(state, journal, clock, timeouts, settings, telemetry, final_check)
        self.copies = CopyDesk(Shared(self.turn, self.timers, self.timeouts, self.settings), during_s)
        self._takers_after = self._takers
        self._takers = {
            **self._takers,
            f.Result: self._take_end,
            f.Failed: self._take_end,
            f.Done: self._hold_done,
        }

    # What is held.

    def _hold_done(self, peer: Peer, worker: WorkerState, frame: f.Done) -> None:
        """A body ended in its worker."""
        step = (frame.p, frame.n)
        if self.bodies.may_change_files(worker, step):
            self.copies.hold(worker.path, step, partial(self._take_held, peer.number, frame))
        else:
            self._takers_after[f.Done](peer, worker, frame)

    def _take_end(self, peer: Peer, worker: WorkerState, frame: f.Result | f.Failed) -> None:
        """A worker ended; what is held of it comes first."""
        if not self.copies.hold_after(worker.path, partial(self._take_held, peer.number, frame)):
            self._takers_after[type(frame)](peer, worker, frame)

    def _take_held(self, number: int, frame: f.Done | f.Result | f.Failed) -> None:
        """Take a frame that was held. What was decided meanwhile counts, as if the frame had come now."""
        peer = self._peers.get(number)
        worker = None if peer is None else peer.worker
        if peer is None or worker is None:
            return
        if isinstance(frame, f.Done) and (frame.p, frame.n) in peer.known:
            return
        try:
            self._takers_after[type(frame)](peer, worker, frame)
        except (JournalPoisonedError, JournalClosedError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - see ``Core.frame``
            self._refuse(peer, frame, error)

    def process_gone(
        self,
        path: str,
        incarnation: int,
        reason: str,
        *,
        counted: bool = True,
        busy: Sequence[f.Begin] = (),
        end: ProcessEnd = NOTHING_KNOWN,
    ) -> None:
        """See ``Core.process_gone``; what is held of the worker comes first."""
        gone: Callable[[], None] = partial(
            super().process_gone, path, incarnation, reason, counted=counted, busy=busy, end=end
        )
        if not self.copies.hold_after(path, gone):
            gone()

    def shell_ended(self, token: int, end: ShellEnd) -> None:
        """See ``Core.shell_ended``; held if the command may have changed files."""
        finish = partial(super().shell_ended, token, end)
        if self.jobs.may_change_files(token):
            self.copies.hold(*self.jobs.hold(token), finish)
        else:
            finish()

    def prompt_ended(self, token: int, outcome: s.ThinkOutcome | AgentError) -> None:
        """See ``Core.prompt_ended``; held."""
        self.copies.hold(*self.jobs.hold(token), partial(super().prompt_ended, token, outcome))

    def tick(self) -> None:
        """See ``Core.tick``."""
        super().tick()
        self.copies.tick()

    # What became of a copy.

    def copy_made(self, made: CopyMade | None) -> None:
        """The files of the run were copied; ``None``: nothing has changed since the copy before."""
        self.copies.made(made)

    def copy_failed(self, problem: str) -> None:
        """The files of the run could not be copied. If that lasts, the hub stops, and the run stays resumable."""
        if self.copies.failed():
            self.interrupt("", f"it stops, because its workspace cannot be copied: {problem}", "copies")

    def copy_packed(self, copy: str, pack: Sequence[BlobRef]) -> None:
        """A copy is in one pack, which has these parts; none: it could not be put into one."""
        self.copies.packed(copy, pack)
