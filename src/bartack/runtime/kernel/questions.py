"""Questions to people: the step ``ask``. A question is asked once and answered once; the first answer counts.

``protocol/answers.py`` checks answers against what was asked for. Questions of agents have the same numbers and are answered here,
too; the rest of them is in ``agent_questions.py``.
"""

from __future__ import annotations

import msgspec

from bartack.errors import (
    NoAnswerError,
    QuestionAnsweredError,
    QuestionNotFoundError,
    QuestionTimeoutError,
)
from bartack.runtime.kernel.actions import Show, Transition
from bartack.runtime.kernel.agent_questions import AgentQuestionDesk
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.asked import ReadQuestion, read_question
from bartack.runtime.protocol.values import encode
from bartack.runtime.state.worker_state import AskedQuestion, OpenStep, Value, WorkerState


class QuestionDesk(Desk, StepHandler):
    """Asks people, and takes the first answer to each question."""

    def __init__(self, shared: Shared, of_agents: AgentQuestionDesk) -> None:
        super().__init__(shared)
        self._of_agents = of_agents
        self._policy = self.settings.questions
        self._timers: dict[str, Timer] = {}

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Ask a person."""
        args = self.decode(step.a, s.AskArgs)
        if self.settings.no_input:
            self._no_answer(worker, step, args)
            return
        number = f"q{self.state.questions_asked + 1}"
        limit = self._policy.timeout_s if args.timeout_s is None else args.timeout_s
        opened = self.open_step(
            step, question=number, timeout_s=limit or None, asked=Value(step.a), sync=True
        )
        self._watch(worker, opened)
        choices = f" ({' | '.join(args.options)})" if args.options else ""
        self.turn.after_commit(Show("note", worker.path, f"question {number}: {args.question}{choices}"))
        self.turn.after_commit(Transition())

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker waits for the same question."""
        self._watch(worker, opened)

    def _watch(self, worker: WorkerState, opened: OpenStep) -> None:
        """An open question may have a deadline."""
        left = self.left_s(opened)
        if left is None or opened.question in self._timers:
            return

        def late() -> None:
            self._timers.pop(opened.question, None)
            if self.is_open(worker, opened):
                self._time_out(worker, opened)

        self._timers[opened.question] = self.timers.after(left, late)

    def answer(self, number: str, value: msgspec.Raw, by: str) -> None:
        """Answer an open question.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It has been answered.
            TypeMismatchError: The answer is not of the kind that was asked for.
        """
        question = self._find(number)
        if question.by_agent:
            self._of_agents.answer(question, value, by)
            return
        worker = self.state.workers[question.worker]
        opened = worker.open[question.key]
        args = self.decode(self._asked(opened), s.AskArgs)
        raw = check_answer(args, value)
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        self.turn.end_open(worker, opened, Value(raw), by=by)
        self.turn.after_commit(Transition())

    def asked(self, number: str) -> ReadQuestion:
        """What an open question of a program or an agent asks.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It has been answered.
        """
        question = self._find(number)
        raw = self.turn.load(question.asked.raw, question.asked.ref)
        return read_question(raw, by_agent=question.by_agent)

    def _asked(self, opened: OpenStep) -> msgspec.Raw:
        return msgspec.Raw(self.turn.load(opened.asked.raw, opened.asked.ref))

    def _find(self, number: str) -> AskedQuestion:
        question = self.state.questions.get(number)
        if question is None:
            # Compared as text: people may type anything.
            if any(number == f"q{asked}" for asked in range(1, self.state.questions_asked + 1)):
                raise QuestionAnsweredError(number)
            raise QuestionNotFoundError(number)
        return question

    def _no_answer(self, worker: WorkerState, step: f.Step, args: s.AskArgs) -> None:
        if args.default is not None:
            self.finish_step_raw(worker, step, Value(args.default))
        else:
            self.fail_step(worker, step, NoAnswerError(args.question))

    def _time_out(self, worker: WorkerState, opened: OpenStep) -> None:
        args = self.decode(self._asked(opened), s.AskArgs)
        default = self._default(args)
        if default is not None:
            self.turn.end_open(worker, opened, Value(default), by="default")
        else:
            source = "questions.timeout_s" if args.timeout_s is None else "explicit"
            error = QuestionTimeoutError("question", opened.timeout_s or 0.0, source)
            self.turn.fail_open(worker, opened, error)
        self.turn.after_commit(Transition())

    def _default(self, args: s.AskArgs) -> msgspec.Raw | None:
        """The answer of a question that is not answered in time: that of the question itself, else that of the settings."""
        if args.default is not None or self._policy.on_timeout == "fail":
            return args.default
        return None if not args.options else check_answer(args, msgspec.Raw(encode(args.options[0])))
