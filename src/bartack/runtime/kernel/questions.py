"""The question desk of the hub: questions to people are asked once, answered once, by whoever is first."""

from __future__ import annotations

import msgspec

from bartack.errors import (
    NoAnswerError,
    QuestionAnsweredError,
    QuestionNotFoundError,
    QuestionTimeoutError,
)
from bartack.runtime.kernel.actions import Show, Transition
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.values import encode
from bartack.runtime.state.worker_state import OpenStep, Value, Worker


class QuestionDesk(Desk):
    """Questions to people: asked once, answered once, by whoever is first."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._timers: dict[str, Timer] = {}

    def ask(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Put a question to a person."""
        args = self.decode(step.a, s.AskArgs)
        if self.settings.no_input:
            self._no_answer(worker, step, args)
            return
        number = f"q{self.state.questions_asked + 1}"
        limit = self.settings.questions.timeout_s if args.timeout_s is None else args.timeout_s
        opened = self.open_step(
            step, question=number, timeout_s=limit or None, asked=Value(step.a), sync=True
        )
        self.watch(worker, opened)
        choices = f" ({' | '.join(args.options)})" if args.options else ""
        self.turn.after_commit(Show("note", worker.path, f"question {number}: {args.question}{choices}"))
        self.turn.after_commit(Transition())

    def watch(self, worker: Worker, opened: OpenStep) -> None:
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
            QuestionAnsweredError: Somebody was first.
            TypeMismatchError: The answer is not of the kind that was asked for.
        """
        worker, opened = self._find(number)
        args = self.decode(self._asked(opened), s.AskArgs)
        raw = check_answer(args, value)
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        self.turn.end_open(worker, opened, Value(raw), by=by)
        self.turn.after_commit(Transition())

    def asked(self, number: str) -> tuple[s.AskArgs, OpenStep, Worker]:
        """An open question."""
        worker, opened = self._find(number)
        return self.decode(self._asked(opened), s.AskArgs), opened, worker

    def _asked(self, opened: OpenStep) -> msgspec.Raw:
        return msgspec.Raw(self.turn.load(opened.asked.raw, opened.asked.ref))

    def _find(self, number: str) -> tuple[Worker, OpenStep]:
        place = self.state.questions.get(number)
        if place is None:
            # Compared as text: whatever people type, it need not be a number.
            if any(number == f"q{asked}" for asked in range(1, self.state.questions_asked + 1)):
                raise QuestionAnsweredError(number)
            raise QuestionNotFoundError(number)
        path, p, n = place
        worker = self.state.workers[path]
        return worker, worker.open[p, n]

    def _no_answer(self, worker: Worker, step: f.Step, args: s.AskArgs) -> None:
        if args.default is not None:
            self.finish_step_raw(worker, step, Value(args.default))
        else:
            self.fail_step(worker, step, NoAnswerError(args.question))

    def _time_out(self, worker: Worker, opened: OpenStep) -> None:
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
        """The answer that counts if nobody gives one in time: what the question says, else what the settings say."""
        if args.default is not None or self.settings.questions.on_timeout == "fail":
            return args.default
        return None if not args.options else check_answer(args, msgspec.Raw(encode(args.options[0])))
