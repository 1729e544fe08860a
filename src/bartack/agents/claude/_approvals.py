"""The decisions that Claude Code waits for: whether a tool may be used, and what people answer to its questions.

Every tool call comes here first, those of subagents included. Without a decision, and after anything unexpected, it is denied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import msgspec

from bartack.agents._permissions import Decision, Denial
from bartack.agents._tool_permissions import ToolPermissions, decide_or_deny
from bartack.agents.claude._lines import answer, decision
from bartack.agents.contract import AgentAnswer, AgentQuestion, CallPermission
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._answers import permission_question
from bartack.agents.program._json_lines import Json, JsonRead, object_of, objects_of, text_of
from bartack.agents.tool_use import ToolUse

ASK: Final = "AskUserQuestion"
"""The tool by which it asks people."""
SUBJECT: Final = 200
"""Characters of what a denied tool was to be used with."""
ENDED: Final = "this step has ended"


class _Request:
    """A request of the program that waits for people: several questions may have to be answered first."""

    def __init__(
        self, request_id: str, given: Json, questions: dict[str, str], use: ToolUse | None = None
    ) -> None:
        self.request_id = request_id
        self.use = use
        """What it wants to do, if the question is whether it may."""
        self.given = given
        self.open = questions
        """The questions without an answer: the text of each, by its id."""
        self.answers: dict[str, str] = {}


class Approvals:
    """See the module.

    Args:
        talk: The conversation.
        permissions: Decides about tools.
        asks: Whether people are asked about permissions; else what they would decide is denied.
        send: Writes a line to the program.
        clean: Takes secrets out of a line.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        permissions: ToolPermissions,
        *,
        asks: bool,
        send: Callable[[bytes], None],
        clean: Callable[[bytes], bytes],
    ) -> None:
        self._talk = talk
        self._permissions = permissions
        self._asks = asks
        self._send = send
        self._clean = clean
        self._requests: dict[str, _Request] = {}
        """By the id of each question of theirs."""

    def begin_process(self) -> None:
        """Questions of another process are not answered any longer."""
        self._requests.clear()

    def decide(self, request_id: str, given: Json) -> None:
        """The callback before a tool call."""
        call_id, use = text_of(given, "tool_use_id"), _use(text_of(given, "tool_name"), given, "tool_input")
        decided = self._decide(use)
        if decided.decision == "deny":
            self._note_denial(call_id, use, decided)
        elif decided.decision == "allow" and decided.by == "rule" and decided.reason.startswith("allow "):
            self._report(call_id, use.tool, "allow", decided.by)
        self._send(answer(request_id, decision(decided.decision, decided.reason)))

    def ask(self, request_id: str, given: Json) -> None:
        """The program itself needs a permission, or asks people."""
        use = _use(text_of(given, "tool_name"), given, "input")
        call_id = text_of(given, "tool_use_id") or request_id
        if self._talk.state != "running":
            self._refuse(request_id, ENDED)
        elif use.tool == ASK:
            self._ask_people(request_id, call_id, object_of(given, "input"))
        else:
            self._ask_permission(request_id, call_id, use, given)

    def answered(self, question_id: str, given: AgentAnswer) -> None:
        """People have answered, or cannot be asked."""
        request = self._requests.pop(question_id, None)
        if request is None:
            return
        question = request.open.pop(question_id, "")
        if given.refused:
            self._drop(request)
            self._refuse_use(request, given.refused)
        elif question:
            request.answers[question] = given.text
            if not request.open:
                self._allow(request.request_id, {**request.given, "answers": request.answers})
        elif given.text == "allow":
            self._allow(request.request_id, request.given)
        else:
            self._refuse_use(request, "A person has denied it.")

    def withdraw(self, request_id: str) -> None:
        """The program does not wait for a request any longer. One that we stop may ask the same in its next attempt."""
        if self._talk.state != "running":
            return
        for request in {id(one): one for one in self._requests.values()}.values():
            if request.request_id == request_id:
                self._drop(request)

    # Inside.

    def _decide(self, use: ToolUse) -> Decision:
        if self._talk.state not in {"running", "cancelling"}:
            return Decision("deny", "mode", ENDED)
        if use.tool == ASK:
            allowed = self._talk.request.may_ask
            return Decision(
                "allow" if allowed else "deny", "mode", "" if allowed else "no person can be asked"
            )
        return decide_or_deny(self._permissions, use)

    def _ask_permission(self, request_id: str, call_id: str, use: ToolUse, given: Json) -> None:
        decided = self._decide(use)
        reason = text_of(given, "decision_reason") or decided.reason
        if decided.decision == "deny" or not self._asks:
            self._note_denial(call_id, use, Decision("deny", decided.by, reason))
            self._refuse(request_id, reason or "it is not allowed, and no person is asked")
            return
        self._requests[call_id] = _Request(request_id, dict(use.input), {call_id: ""}, use)
        question = permission_question(call_id, ToolUse(use.tool, self._without_secrets(use.input)), reason)
        self._talk.questions.ask(question)

    def _ask_people(self, request_id: str, call_id: str, given: Json) -> None:
        texts = {f"{call_id}#{n}": one for n, one in enumerate(objects_of(given, "questions"), 1)}
        if not texts or not self._talk.request.may_ask:
            self._refuse(request_id, "no person can be asked" if texts else "there is no question in it")
            return
        request = _Request(request_id, given, {key: text_of(one, "question") for key, one in texts.items()})
        self._requests.update(dict.fromkeys(texts, request))
        for question_id, one in texts.items():
            options = [text_of(option, "label") for option in objects_of(one, "options")]
            self._talk.questions.ask(
                AgentQuestion(id=question_id, text=text_of(one, "question") or "?", options=options)
            )

    def _allow(self, request_id: str, given: Json) -> None:
        self._send(answer(request_id, {"behavior": "allow", "updatedInput": given}))

    def _refuse(self, request_id: str, reason: str) -> None:
        self._send(answer(request_id, {"behavior": "deny", "message": reason}))

    def _refuse_use(self, request: _Request, reason: str) -> None:
        if request.use is not None:
            self._talk.denials.append(self._denial(request.use, reason))
        self._refuse(request.request_id, reason)

    def _drop(self, request: _Request) -> None:
        for question_id in [key for key, one in self._requests.items() if one is request]:
            del self._requests[question_id]
            self._talk.questions.withdraw(question_id)
        for question_id in request.open:
            self._talk.questions.withdraw(question_id)

    def _note_denial(self, call_id: str, use: ToolUse, decided: Decision) -> None:
        self._talk.denials.append(self._denial(use, decided.reason))
        self._report(call_id, use.tool, "deny", decided.by)

    def _denial(self, use: ToolUse, reason: str) -> Denial:
        subject = self._clean(use.subject[:SUBJECT].encode("utf-8", "replace")).decode("utf-8", "replace")
        return Denial(use.tool, subject, reason)

    def _report(self, call_id: str, tool: str, verdict: str, by: str) -> None:
        stamp = self._talk.actions.stamp()
        event = CallPermission(
            **stamp, id=call_id, tool=tool, decision="allow" if verdict == "allow" else "deny", by=by
        )
        self._talk.actions.report(event)

    def _without_secrets(self, given: object) -> dict[str, object]:
        try:
            cleaned = msgspec.json.decode(self._clean(msgspec.json.encode(given)))
        except msgspec.DecodeError:
            return {}
        return cast("dict[str, object]", cleaned) if isinstance(cleaned, dict) else {}


def _use(tool: str, given: Json, name: str) -> ToolUse:
    return ToolUse(tool, object_of(given, name))
