"""Which handler does which kind of step, and when a step that a worker asks for reaches its handler.

``handlers`` is the one table of kinds; it takes those of messages from ``mail/mailroom.py``. ``StepTable`` decides everything
about a step that does not depend on its kind: whether it is refused after a failure, is open already, was cancelled before it
began, or may have happened before. The rest is the handler's (``handler.py``). ``core.py`` passes on the frames of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bartack.errors import BartackError, OutcomeUnknownError, ReplayMismatchError, UnknownRequestError
from bartack.runtime.kernel.actions import ReadScoreboard
from bartack.runtime.kernel.bodies import BodyDesk
from bartack.runtime.kernel.commands import CommandDesk
from bartack.runtime.kernel.delegates import DelegateDesk, JoinDesk
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.failure import SessionFailure
from bartack.runtime.kernel.handler import AtOnce, StepHandler
from bartack.runtime.kernel.links import LinkDesk
from bartack.runtime.kernel.mail.mailroom import MailDesks
from bartack.runtime.kernel.monitors import MonitorDesk
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.prompts import PromptDesk
from bartack.runtime.kernel.questions import QuestionDesk
from bartack.runtime.kernel.sleeps import ScopeDesk, SleepDesk
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.steps import BODIES, CLEANUP, in_words
from bartack.runtime.state.links import Abort
from bartack.runtime.state.worker_state import OpenStep, WorkerState


class Handling(NamedTuple):
    """The desks that handle steps."""

    commands: CommandDesk
    prompts: PromptDesk
    sleeps: SleepDesk
    scopes: ScopeDesk
    bodies: BodyDesk
    questions: QuestionDesk
    delegates: DelegateDesk
    joins: JoinDesk
    failure: SessionFailure
    mail: MailDesks
    monitors: MonitorDesk
    links: LinkDesk


def handlers(turn: Turn, desks: Handling) -> dict[str, StepHandler]:
    """The handler of each kind of step. Kinds that are never open are handled ``AtOnce``."""
    at_once = {
        "budget": desks.prompts.budget,
        "left": desks.scopes.left,
        "spawn": desks.delegates.spawn,
        "stop": desks.delegates.stop,
        "restart": desks.delegates.restart,
        "fail": desks.failure.fail,
        "monitor": desks.monitors.monitor,
        "demonitor": desks.monitors.demonitor,
        "link": desks.links.link,
        "unlink": desks.links.unlink,
        "trap": desks.links.trap,
    }
    return {
        **{kind: AtOnce(turn, start) for kind, start in at_once.items()},
        "shell": desks.commands,
        "think": desks.prompts,
        "sleep": desks.sleeps,
        "timeout": desks.scopes,
        **dict.fromkeys(BODIES, desks.bodies),
        "ask": desks.questions,
        "delegate": desks.delegates,
        "join": desks.joins,
        "down": desks.monitors,
        **desks.mail.handlers(),
    }


class StepTable(Desk):
    """Passes each step on to the handler of its kind."""

    def __init__(self, shared: Shared, handlers: Mapping[str, StepHandler], failure: SessionFailure) -> None:
        super().__init__(shared)
        self._handlers = handlers
        self._failure = failure

    @property
    def kinds(self) -> list[str]:
        """The kinds of steps that there are, except those that workers only report."""
        return sorted(self._handlers)

    def take(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """A worker asks for a step."""
        key = (step.p, step.n)
        peer.awaited[key] = step.i
        known = worker.open.get(key)
        try:
            if self.state.failure is not None and self._is_refused(peer, worker, step, known):
                return
            if known is not None:
                self._take_again(peer, worker, step, known)
            elif step.cancelled or (worker.abort_next is not None and not worker.may_clean_up(step.step)):
                abort = worker.abort_next or Abort("cancelled")
                self.fail_step(worker, step, abort.error())
            elif worker.doubted.get(key) == step.fp:
                self.fail_step(worker, step, OutcomeUnknownError(f"{step.p}:{step.n}", step.about))
            else:
                handler = self._handlers.get(step.step)
                if handler is None:
                    raise UnknownRequestError(step.step)
                handler.start(peer, worker, step)
        except BartackError as error:
            self.fail_step(worker, step, error)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """An open step is given up."""
        handler = self._handlers.get(opened.step)
        if handler is None:  # a worker may begin a body of any kind
            self.turn.fail_open(worker, opened, error)
        else:
            handler.cancel(worker, opened, error)

    def worker_aborted(self, worker: WorkerState) -> None:
        """Cancel the steps of a worker that the state has marked for that."""
        for opened in worker.waits():
            # The cancellation of one step may have aborted this worker again, and the other steps with it.
            if opened.abort is not None and self.is_open(worker, opened):
                self.cancel(worker, opened, opened.abort.error())
        if worker.abort_next is not None:
            # It may be in a body that has not been recorded, and is to be stopped there.
            self.turn.after_commit(ReadScoreboard(worker.path))

    def _is_refused(self, peer: Peer, worker: WorkerState, step: f.Step, known: OpenStep | None) -> bool:
        """After a failure only clean-up works. A refusal is not an outcome: nothing is recorded.

        A step that its worker asked for before it had learned of the failure is not clean-up, whatever its kind: it does not begin.
        Its worker learns of the failure instead of an outcome, as soon as it is notified.
        """
        if step.cleanup and step.step in CLEANUP and (known is None or known.cleanup):
            return False
        if known is not None and known.is_delegate:
            # It learns of the failure like every worker that delegates: when its workers have no process any more.
            self._failure.settle()
        elif peer.knows_failure:
            del peer.awaited[step.p, step.n]
            self.turn.send(peer, f.Refusal(i=step.i, e=self._failure.describe_for(worker.path)))
        return True

    def _take_again(self, peer: Peer, worker: WorkerState, step: f.Step, known: OpenStep) -> None:
        """A restarted worker asks for a step that is open already, or was when the previous hub died."""
        if (known.step, known.fp) != (step.step, step.fp):
            recorded, asked = in_words(known.step, known.about), in_words(step.step, step.about)
            mismatch = ReplayMismatchError(worker.path, f"{step.p}:{step.n}", recorded, asked)
            self._failure.fail_session(worker, describe(mismatch, worker.path))
        elif known.abort is not None or step.cancelled:
            self.cancel(worker, known, (known.abort or Abort("cancelled")).error())
        elif known.step not in self._handlers:
            raise UnknownRequestError(known.step)
        else:
            self._handlers[known.step].resume(peer, worker, step, known)
