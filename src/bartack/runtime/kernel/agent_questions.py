"""Questions of agents to people, during a prompt: what an agent wants to know, and whether it may use one of its tools.

A question is durable before a person sees it, and its answer is durable before the agent gets it. If the agent is called again
because the hub or its own process died, the question stays open, and an answer is kept. The agent gets the answer when it asks the
same again, once in each attempt. If it asks something else first, what was asked and answered before is over; so is a question
that it withdraws. ``questions.py`` has the questions of programs, and passes on the answers to those of agents; ``prompts.py``
decides about the prompts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.agents import AgentAnswer, AgentQuestion
from bartack.runtime.kernel.actions import AnswerQuestion, Show, Transition
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.protocol.asked import (
    DENY,
    AgentAsk,
    ask_of,
    check_agent_answer,
    fingerprint_of,
    one_line,
)
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, AskedQuestion, OpenStep, StepKey, Value, WorkerState

ENDED: Final = "this step has ended"
NO_INPUT: Final = "the run takes no input, so no person can be asked"
ABOUT: Final = 200
"""Characters of a question that lists and notes show."""
_DEFAULT: Final = "default"


class _Talk:
    """The questions of one attempt of an agent at a prompt."""

    def __init__(self, token: int, worker: WorkerState, step: OpenStep, agent: str) -> None:
        self.token = token
        self.worker = worker
        self.step = step
        self.agent = agent
        self.waiting: dict[str, str] = {}
        """The open questions that the agent waits for, by number: its own ids of them."""
        self.used: set[str] = set()
        """The questions that it has asked in this attempt."""
        self.waited_ns = 0
        """How long it has waited for people."""
        self.since_ns: int | None = None
        """Since when it waits."""


class AgentQuestionDesk(Desk):
    """Asks people for agents, and passes the answers on."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._policy = self.settings.questions
        self._talks: dict[int, _Talk] = {}
        self._timers: dict[str, Timer] = {}

    # The life of a prompt.

    def open(self, token: int, worker: WorkerState, step: OpenStep, agent: str) -> None:
        """An agent is about to be called."""
        self._talks[token] = _Talk(token, worker, step, agent)

    def begin_again(self, token: int) -> None:
        """The agent is called once more: what it has asked stays open until it asks the same, or something else."""
        talk = self._talks.get(token)
        if talk is not None:
            talk.waiting.clear()
            talk.used.clear()
            self._count(talk)

    def close(self, token: int) -> None:
        """An agent has ended: it gets no more answers."""
        self._talks.pop(token, None)

    def supersede(self, step: OpenStep) -> None:
        """A prompt is about to have its outcome: its questions are over."""
        over = self._superseded(step.key, frozenset())
        if over:
            self.turn.record(*over)
            self.turn.after_commit(Transition())

    def take_time_s(self, token: int) -> float:
        """How long an agent has waited for people since this was asked last: its prompt's time stands still meanwhile."""
        talk = self._talks.get(token)
        if talk is None:
            return 0.0
        self._count(talk)
        taken, talk.waited_ns = talk.waited_ns, 0
        return taken / 1e9

    def is_waiting(self, step: StepKey) -> bool:
        """Whether the agent of a prompt waits for a person."""
        return any(talk.step.key == step and talk.waiting for talk in self._talks.values())

    # Asking.

    def asked(self, token: int, question: AgentQuestion) -> None:
        """An agent asks a person."""
        talk = self._talks.get(token)
        if talk is None or not self.is_open(talk.worker, talk.step):
            self._reply(token, question.id, AgentAnswer(refused=ENDED))
            return
        if question.id in talk.waiting.values():
            return  # it repeats itself
        try:
            fp = fingerprint_of(question)
        except ValueError as error:
            self._reply(token, question.id, AgentAnswer(refused=f"the question is not valid JSON: {error}"))
            return
        known = self._find(talk, fp)
        if known is not None:
            self._ask_again(talk, known, question.id)
        elif self.settings.no_input:
            self._refuse(talk, question)
        else:
            self._ask(talk, question, fp)

    def withdrawn(self, token: int, own_id: str) -> None:
        """An agent does not wait for an answer any longer: the question is over."""
        talk = self._talks.get(token)
        waiting = {} if talk is None else talk.waiting
        for number in [known for known, own in waiting.items() if own == own_id]:
            self._settle(self.state.questions[number], e.QuestionSettled(id=number, how="superseded"))

    def _find(self, talk: _Talk, fp: str) -> AskedQuestion | None:
        """The same question of this prompt, if the agent has not asked it in this attempt."""
        found = [question for question in self._of_step(talk.step.key) if question.id not in talk.used]
        return next((question for question in found if question.fp == fp), None)

    def _of_step(self, step: StepKey) -> list[AskedQuestion]:
        known = (*self.state.answers.values(), *self.state.questions.values())
        return [question for question in known if question.key == step and question.by_agent]

    def _ask_again(self, talk: _Talk, question: AskedQuestion, own_id: str) -> None:
        talk.used.add(question.id)
        if question.settled is None:
            self._wait(talk, question, own_id)
        else:
            self._reply(talk.token, own_id, self._answer_of(question, question.settled))

    def _refuse(self, talk: _Talk, question: AgentQuestion) -> None:
        """The run takes no input: a question gets its default, everything else is refused."""
        default = question.default if question.kind == "ask" else ""
        answer = AgentAnswer(text=default, by=_DEFAULT) if default else AgentAnswer(refused=NO_INPUT)
        self._reply(talk.token, question.id, answer)
        asked = f"agent {talk.agent} asked: {_describe(question)}"
        self.turn.after_commit(Show("note", talk.worker.path, f"{asked}: {answer.text or NO_INPUT}"))

    def _ask(self, talk: _Talk, question: AgentQuestion, fp: str) -> None:
        step, number = talk.step, f"q{self.state.questions_asked + 1}"
        answers = self.state.answers.values()
        data = e.QuestionAsked(
            p=step.p,
            n=step.n,
            id=number,
            ask=question.kind,
            agent=talk.agent,
            tool=one_line(question.tool, ABOUT),
            fp=fp,
            about=one_line(question.text, ABOUT),
            timeout_s=self._policy.timeout_s or None,
            drops=[known.id for known in answers if known.key == step.key and known.id not in talk.used],
        )
        over = self._superseded(step.key, talk.used)
        self.turn.record(*over, (data, self.turn.pack(ask_of(question))))
        talk.used.add(number)
        self._wait(talk, self.state.questions[number], question.id)
        choices = ask_of(question).options
        listed = f" ({' | '.join(choices)})" if choices else ""
        text = f"question {number}: agent {talk.agent} asks: {_describe(question)}{listed}"
        self.turn.after_commit(Show("note", talk.worker.path, text))
        self.turn.after_commit(Transition())

    def _superseded(self, step: StepKey, kept: set[str] | frozenset[str]) -> list[tuple[e.EntryData, Value]]:
        """The entries that end the open questions of a prompt, but for those that are kept."""
        over = [
            question.id
            for question in self._of_step(step)
            if question.settled is None and question.id not in kept
        ]
        for number in over:
            self._cancel_timer(number)
        return [(e.QuestionSettled(id=number, how="superseded"), NO_VALUE) for number in over]

    def _wait(self, talk: _Talk, question: AskedQuestion, own_id: str) -> None:
        talk.waiting[question.id] = own_id
        self._count(talk)
        if question.timeout_s is None or question.id in self._timers:
            return
        dead_since = self.state.dead_us - question.dead_us
        waited_s = max(self.now_us() - question.at - dead_since, 0) / 1e6
        left_s = max(question.timeout_s - waited_s, 0.0)
        self._timers[question.id] = self.timers.after(left_s, lambda: self._time_out(question))

    # Answering.

    def answer(self, question: AskedQuestion, value: msgspec.Raw, by: str) -> None:
        """A person answers an open question.

        Raises:
            TypeMismatchError: The answer is not a text, none of the options, or too long.
        """
        text = check_agent_answer(self._load(question), value)
        self._settle(question, e.QuestionSettled(id=question.id, answer=text, by=by))

    def _time_out(self, question: AskedQuestion) -> None:
        if question.id in self.state.questions:
            answer = self._answer_in_time(question)
            self._settle(question, e.QuestionSettled(id=question.id, answer=answer, how="timeout"))

    def _answer_in_time(self, question: AskedQuestion) -> str:
        """What counts if no person has answered in time; empty: nothing. A permission is denied."""
        if question.kind == "permission":
            return DENY
        asked = self._load(question)
        if asked.default or self._policy.on_timeout == "fail" or not asked.options:
            return asked.default
        return asked.options[0]

    def _settle(self, question: AskedQuestion, settled: e.QuestionSettled) -> None:
        self._cancel_timer(question.id)
        self.turn.record((settled, NO_VALUE))
        for talk in self._talks.values():
            own_id = talk.waiting.pop(question.id, None)
            if own_id is not None:
                self._count(talk)
            if own_id is not None and settled.how != "superseded":
                self._reply(talk.token, own_id, self._answer_of(question, settled))
        self.turn.after_commit(Transition())

    def _answer_of(self, question: AskedQuestion, settled: e.QuestionSettled) -> AgentAnswer:
        if settled.how == "timeout" and not settled.answer:
            refused = f"no person answered within {question.timeout_s or 0.0:g} s"
            return AgentAnswer(number=question.id, refused=refused)
        by = "timeout" if settled.how == "timeout" else settled.by
        return AgentAnswer(text=settled.answer, number=question.id, by=by)

    def _reply(self, token: int, own_id: str, answer: AgentAnswer) -> None:
        self.turn.after_commit(AnswerQuestion(token, own_id, answer))

    # Inside.

    def _load(self, question: AskedQuestion) -> AgentAsk:
        raw = self.turn.load(question.asked.raw, question.asked.ref)
        return self.decode(msgspec.Raw(raw), AgentAsk)

    def _cancel_timer(self, number: str) -> None:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()

    def _count(self, talk: _Talk) -> None:
        """Add up how long an agent has waited for people, up to now."""
        now = self.timers.alive_ns()
        if talk.since_ns is not None:
            talk.waited_ns += now - talk.since_ns
        talk.since_ns = now if talk.waiting else None


def _describe(question: AgentQuestion) -> str:
    """A question in one line; with a permission, also what the tool is to be used with."""
    text = one_line(question.text, ABOUT)
    if question.kind == "ask":
        return text
    return f"{text} [{one_line(f'{question.tool} {ask_of(question).shown_input}', ABOUT)}]"
