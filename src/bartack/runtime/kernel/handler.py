"""The contract of a kind of step: how it starts, how it is resumed, how it is cancelled.

Each kind of step has exactly one handler. ``step_table.py`` maps kinds to handlers; no other module of the kernel decides by the
kind of a step. To add a kind, write its arguments (``protocol/steps.py``), a handler here in the kernel, and a member of ``ctx``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from bartack.errors import BartackError
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.worker_state import OpenStep, WorkerState


class StepHandler(ABC):
    """Handles one kind of step."""

    turn: Turn

    @abstractmethod
    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """A worker asks for a step that is not open.

        The handler either records its outcome at once, or opens it and records the outcome later. It may raise a ``BartackError``
        before it has recorded anything: that becomes the outcome.
        """

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker asks for a step that is open, or was when the previous hub died. By default it starts again."""
        self.start(peer, worker, step)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """An open step is given up: by its worker, a deadline or a link. By default it fails at once."""
        self.turn.fail_open(worker, opened, error)


@final
class AtOnce(StepHandler):
    """A kind of step whose outcome is recorded in the turn in which it starts, so that it is never open."""

    def __init__(self, turn: Turn, start: Callable[[Peer, WorkerState, f.Step], None]) -> None:
        self.turn = turn
        self._start = start

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """See ``StepHandler.start``."""
        self._start(peer, worker, step)
