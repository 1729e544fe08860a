"""The questions that an agent asks people during a command, and those that wait for their answers.

How a question arrives and how its answer is written is decided by the ``Dialect`` of the agent; who is asked, by the caller.
"""

from __future__ import annotations

from typing import Literal

from bartack.agents.contract import AgentAnswer, AgentQuestion, CallPermission
from bartack.agents.conversation._actions import ActionQueue, AskOut, WithdrawOut
from bartack.agents.conversation._dialect import SendAnswer
from bartack.agents.conversation._watchdog import Watchdog


class Questions:
    """The questions of one command.

    Each one is answered at most once. The time limits of the call are paused while one is open: the agent waits for a person.
    """

    def __init__(self, actions: ActionQueue, watchdog: Watchdog, send_answer: SendAnswer) -> None:
        self._actions = actions
        self._watchdog = watchdog
        self._send_answer = send_answer
        self._open: dict[str, AgentQuestion] = {}

    @property
    def are_open(self) -> bool:
        """Whether the agent waits for a person."""
        return bool(self._open)

    def ask(self, question: AgentQuestion) -> None:
        """The agent asks; a question that is open already is not asked again."""
        if question.id in self._open:
            return
        self._open[question.id] = question
        self._watchdog.hold(question.id)
        if question.kind == "permission":
            self._report(question, "asked", "question")
        self._actions.add(AskOut(question))

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        """A person has answered; a question that is not open any longer is ignored."""
        question = self._open.pop(question_id, None)
        if question is None:
            return
        if question.kind == "permission":
            allowed = answer.text == "allow"
            by = f"question {answer.number}" if answer.number else answer.refused
            self._report(question, "allow" if allowed else "deny", by)
        self._watchdog.release(question_id)
        self._send_answer(question_id, answer)

    def withdraw(self, question_id: str) -> None:
        """The agent does not wait for the answer any longer, so people need not be asked."""
        if self._close(question_id):
            self._actions.add(WithdrawOut(question_id))

    def forget(self) -> None:
        """The attempt is over: no answer is sent any longer. The next attempt may ask the same, so people may still answer."""
        for question_id in list(self._open):
            self._close(question_id)

    def _close(self, question_id: str) -> bool:
        if self._open.pop(question_id, None) is None:
            return False
        self._watchdog.release(question_id)
        return True

    def _report(self, question: AgentQuestion, decision: Literal["allow", "deny", "asked"], by: str) -> None:
        stamp = self._actions.stamp()
        self._actions.report(
            CallPermission(**stamp, id=question.id, tool=question.tool, decision=decision, by=by)
        )
