"""What Codex asks of us during a turn: approvals, calls of tools of ours, and questions to people. Each gets exactly one answer.

Nothing is allowed here: ``_approvals.py`` has the decision. The course of the call is in ``_dialect.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, cast

import msgspec

from bartack.agents._permissions import Decision, Denial
from bartack.agents._tool_permissions import Decides
from bartack.agents.codex import _messages as m
from bartack.agents.codex._approvals import METHODS, Approval, decide, read_approval
from bartack.agents.codex._thread import CodexThread, SentResult
from bartack.agents.contract import AgentAnswer, AgentQuestion, CallPermission
from bartack.agents.conversation._actions import Send
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._answers import permission_question
from bartack.agents.program._json_lines import Json, JsonRead, object_of, objects_of, text_of
from bartack.agents.program._json_rpc import NO_SUCH_METHOD, JsonRpc, RpcId, RpcRequest
from bartack.agents.program._tool_results import Store, tool_answer
from bartack.agents.protocol.messages import ToolProblem
from bartack.agents.tool_use import ToolUse

TOOL_CALL: Final = "item/tool/call"
USER_INPUT: Final = "item/tool/requestUserInput"
ENDED: Final = "this step has ended"
DENIED: Final = "not allowed by the person who was asked"
OPTIONS: Final = 32


class _Form(NamedTuple):
    """Several questions that are answered together."""

    rpc_id: RpcId
    waiting: dict[str, str]
    """The questions without an answer: ours by theirs."""
    answers: dict[str, list[str]]


class ServerRequests:
    """The requests of one process.

    Args:
        talk: The call.
        plan: What it asks of Codex.
        permissions: Decides about what Codex wants to do.
        thread: Learns the results of tools.
        store: Stores a result that is too long for the model.
        clean: Takes secrets out of what people read.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        plan: m.CodexPlan,
        permissions: Decides,
        thread: CodexThread,
        store: Store,
        clean: Callable[[bytes], bytes],
    ) -> None:
        self._clean = clean
        self.answer: object = msgspec.UNSET
        """The value that came by the tool ``answer``."""
        self._talk = talk
        self._plan = plan
        self._permissions = permissions
        self._thread = thread
        self._store = store
        self._rpc = JsonRpc()
        self._approvals: dict[str, Approval] = {}
        self._calls: dict[str, tuple[RpcId, str]] = {}
        self._forms: list[_Form] = []
        self._changes: dict[str, list[Json]] = {}

    def begin_process(self, rpc: JsonRpc) -> None:
        """Another process: nothing of the last one waits any longer."""
        self._rpc = rpc
        self._approvals.clear()
        self._calls.clear()
        self._forms.clear()
        self._changes.clear()

    def note_changes(self, item: Json) -> None:
        """A change of files is announced; the request for it names only the item."""
        self._changes[text_of(item, "id")] = objects_of(item, "changes")

    def take(self, request: RpcRequest) -> None:
        """Codex asks."""
        if request.method in METHODS:
            self._approval(request)
        elif request.method == TOOL_CALL:
            self._tool_call(request)
        elif request.method == USER_INPUT:
            self._user_input(request)
        else:
            self._send(self._rpc.refuse(request.id, NO_SUCH_METHOD, f"{request.method} is not supported"))

    # Approvals.

    def _approval(self, request: RpcRequest) -> None:
        talk = self._talk
        changes = self._changes.get(text_of(request.params, "itemId"), [])
        approval = read_approval(request.id, request.method, request.params, changes)
        if talk.state != "running":
            self._reply(request.id, approval.answer(allowed=False))
            return
        talk.watchdog.progress()
        decided = decide(approval, self._permissions)
        if decided.decision == "ask":
            self._approvals[approval.item] = approval
            talk.questions.ask(
                permission_question(approval.item, self._shown(approval), self._why(approval, decided))
            )
        elif decided.decision == "allow":
            if decided.by != "mode":
                self._report(approval, "allow", decided.by)
            self._reply(request.id, approval.answer(allowed=True))
        else:
            self._report(approval, "deny", decided.by)
            self._deny(approval, decided.reason)

    def _shown(self, approval: Approval) -> ToolUse:
        """What it wants to do, without secrets."""
        use = approval.shown
        try:
            given = cast("Json", msgspec.json.decode(self._clean(msgspec.json.encode(use.input))))
        except msgspec.DecodeError:
            given = {}
        return ToolUse(use.tool, given)

    def _why(self, approval: Approval, decided: Decision) -> str:
        said = text_of(approval.params, "reason").encode("utf-8", "replace")
        reason = self._clean(said).decode("utf-8", "replace")
        return f"{decided.reason}; the agent says: {reason[:200]}" if reason else decided.reason

    def _deny(self, approval: Approval, reason: str) -> None:
        use = self._shown(approval)
        self._talk.denials.append(Denial(use.tool, use.subject[:200], reason))
        # Its model learns only that a person has rejected the call; the reason follows as a text of its own.
        thread, turn = text_of(approval.params, "threadId"), text_of(approval.params, "turnId")
        text = f"Bartack did not allow {use.tool} {use.subject[:200]}".strip() + f": {reason}."
        if thread and turn:
            steer = m.steer_params(thread, turn, text, f"denied:{approval.item}")
            self._send(self._rpc.request("turn/steer", steer)[1])
        self._reply(approval.rpc_id, approval.answer(allowed=False))

    def _report(self, approval: Approval, decision: Literal["allow", "deny"], by: str) -> None:
        actions = self._talk.actions
        tool = approval.shown.tool
        actions.report(
            CallPermission(**actions.stamp(), id=approval.item, tool=tool, decision=decision, by=by)
        )

    # Tools of ours.

    def _tool_call(self, request: RpcRequest) -> None:
        talk = self._talk
        call_id, name = text_of(request.params, "callId"), text_of(request.params, "tool")
        arguments = object_of(request.params, "arguments")
        if talk.state != "running":
            self._reply(request.id, m.tool_reply(ENDED, success=False))
            return
        talk.watchdog.progress()
        if name == self._plan.answer_tool and self._plan.value.answer_schema is not None:
            self._take_answer(request.id, arguments)
        elif name == self._plan.ask_tool and self._plan.may_ask:
            self._calls[call_id] = (request.id, name)
            talk.questions.ask(_question(call_id, arguments))
        else:
            self._calls[call_id] = (request.id, name)
            talk.tools.call(call_id, name, arguments)

    def _take_answer(self, rpc_id: RpcId, arguments: Json) -> None:
        value, faults = self._plan.value.check(arguments)
        if not faults:
            self.answer = value
        text = "; ".join(faults) or "recorded"
        self._reply(rpc_id, m.tool_reply(text, success=not faults))

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """A tool of ours has ended."""
        waiting = self._calls.pop(call_id, None)
        if waiting is None:
            return
        rpc_id, name = waiting
        given = tool_answer(result, problem, self._store)
        self._thread.finished[call_id] = SentResult(name, given.text)
        self._reply(rpc_id, m.tool_reply(given.text, success=not given.is_error))

    # Questions.

    def _user_input(self, request: RpcRequest) -> None:
        talk = self._talk
        given = objects_of(request.params, "questions")
        if talk.state != "running" or not self._plan.may_ask or not given:
            self._send(self._rpc.refuse(request.id, NO_SUCH_METHOD, "there is no person to ask"))
            return
        item = text_of(request.params, "itemId")
        waiting = {f"{item}/{place}": text_of(one, "id") for place, one in enumerate(given)}
        self._forms.append(_Form(request.id, waiting, {}))
        for (question_id, _), one in zip(list(waiting.items()), given, strict=True):
            options = [text_of(option, "label") for option in objects_of(one, "options")][:OPTIONS]
            open_ended = bool(one.get("isOther"))
            text = text_of(one, "question") or text_of(one, "header") or "?"
            talk.questions.ask(
                AgentQuestion(id=question_id, text=text, options=[] if open_ended else options)
            )

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """A person has answered, or none can be asked."""
        approval = self._approvals.pop(question_id, None)
        if approval is not None:
            self._decided(approval, answer)
        elif question_id in self._calls:
            text = answer.refused or answer.text
            self._reply(self._calls.pop(question_id)[0], m.tool_reply(text, success=not answer.refused))
        else:
            self._fill_form(question_id, answer)

    def _decided(self, approval: Approval, answer: AgentAnswer) -> None:
        if answer.text == "allow":
            self._reply(approval.rpc_id, approval.answer(allowed=True))
        else:
            self._deny(approval, answer.refused or DENIED)

    def _fill_form(self, question_id: str, answer: AgentAnswer) -> None:
        form = next((form for form in self._forms if question_id in form.waiting), None)
        if form is None:
            return
        form.answers[form.waiting.pop(question_id)] = [] if answer.refused else [answer.text]
        if not form.waiting:
            self._forms.remove(form)
            self._reply(
                form.rpc_id, {"answers": {name: {"answers": given} for name, given in form.answers.items()}}
            )

    def _reply(self, rpc_id: RpcId, result: Json) -> None:
        self._send(self._rpc.reply(rpc_id, result))

    def _send(self, line: bytes) -> None:
        self._talk.actions.add(Send(line))


def _question(call_id: str, arguments: Json) -> AgentQuestion:
    listed = arguments.get("options")
    given = cast("list[object]", listed) if isinstance(listed, list) else []
    options = [one for one in given if isinstance(one, str)]
    text = text_of(arguments, "question") or "?"
    return AgentQuestion(
        id=call_id, text=text, options=options[:OPTIONS], default=text_of(arguments, "default")
    )
