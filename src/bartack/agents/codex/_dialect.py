"""One call of Codex, as its app server is spoken to: handshake, thread, turn, and what each answer means for the call.

    initialize ──▶ thread/start | resume | fork ──▶ turn/start ──▶ turn/completed
                          │                              ▲ repair: another turn of the same process
                          └──▶ the answer of a dead process, found in the thread: nothing is asked

What happens during a turn is in ``_turn.py``, what Codex asks of us in ``_requests.py``, the messages in ``_messages.py``. The
course of attempts is decided in ``conversation/_conversation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from bartack.agents._record import Link
from bartack.agents._tool_permissions import Decides
from bartack.agents.codex import _messages as m
from bartack.agents.codex._history import Found, client_id, find_turn, last_text
from bartack.agents.codex._outcomes import classify
from bartack.agents.codex._requests import ServerRequests
from bartack.agents.codex._thread import CodexThread
from bartack.agents.codex._turn import TurnEvents
from bartack.agents.codex._version import is_older, version_of
from bartack.agents.contract import AgentAnswer, CallNotice
from bartack.agents.conversation._actions import Send
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._answers import completed
from bartack.agents.program._bad_lines import BadLines
from bartack.agents.program._generations import GENERATIONS, generation_id
from bartack.agents.program._json_lines import Json, JsonRead, object_of, text_of
from bartack.agents.program._json_rpc import (
    JsonRpc,
    RpcFailure,
    RpcFlaw,
    RpcNotification,
    RpcReply,
    RpcRequest,
)
from bartack.agents.program._tool_results import Store
from bartack.agents.program_config import Price
from bartack.agents.protocol.codes import OWN_CODES
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Event, Reason, ToolProblem, Usage
from bartack.errors import AgentBudgetError, AgentDeadlineError, AgentExitedError

LOST: Final = "no rollout found"
"""What Codex says of a thread that it does not have."""


class CodexDialect:
    """See the module, and ``Dialect`` for what each method promises.

    Args:
        talk: The call.
        plan: What it asks of Codex.
        thread: What is known of its thread.
        permissions: Decides about what Codex wants to do.
        store: Stores a result of a tool that is too long for the model.
        prices: Those of the settings.
        min_version: An older version is refused; empty: none is.
        settle: Counts what Codex has not reported, when its process has ended.
        clean: Takes secrets out of what people read.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        *,
        plan: m.CodexPlan,
        thread: CodexThread,
        permissions: Decides,
        store: Store,
        prices: Mapping[str, Price] | None = None,
        min_version: str = "",
        settle: Callable[[], None] = lambda: None,
        clean: Callable[[bytes], bytes] = lambda data: data,
    ) -> None:
        self._settle = settle
        self.command_id = ""
        self.thread = thread
        self.credential = ""
        """The key to log in with: an app server takes none from its environment."""
        self.hint = ""
        """Where credentials were looked for."""
        self._talk = talk
        self._plan = plan
        self._min_version = min_version
        self._requests = ServerRequests(talk, plan, permissions, thread, store, clean)
        self._events = TurnEvents(talk, self._requests, thread, prices, self._fail)
        self._rpc = JsonRpc()
        self._greeted = False
        """The process of this attempt has the thread."""
        self._turn = ""
        self._turn_sent = False
        self._interrupt = False
        """The turn is to be interrupted as soon as its id is known."""
        self._refused: set[str] = set()
        """Turns whose answers do not count any longer."""
        self._has_answered = False
        self._bad_lines = BadLines(talk, clean)
        self._version = ""
        self._model = plan.model

    def begin_process(self) -> None:
        """The next attempt has a process of its own."""
        self._rpc = JsonRpc()
        self._requests.begin_process(self._rpc)
        self._bad_lines.renew()
        self._greeted = False

    # To Codex.

    def send_command(self) -> bool:
        """See ``Dialect.send_command``."""
        attempts = self._talk.attempts
        self.command_id = client_id(self._talk.request.key, attempts.number)
        self._turn, self._turn_sent, self._interrupt = "", False, False
        self._requests.answer = msgspec.UNSET
        self._events.begin_attempt(self._model)
        if self._greeted:
            self._start_turn(attempts.why[1])
        else:
            self._ask("initialize", m.initialize())
        return True

    def send_cancel(self, reason: Reason) -> None:
        """See ``Dialect.send_cancel``."""
        if not self._turn_sent and self._talk.state != "cancelling":
            return  # only this attempt ends, and there is nothing to interrupt
        if not self._turn_sent:
            self._talk.fail(AgentFailure("cancelled", "the call was given up"))
        elif self._turn:
            self._ask("turn/interrupt", {"threadId": self.thread.id, "turnId": self._turn})
        else:
            self._interrupt = True

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """See ``Dialect.send_result``."""
        self._requests.send_result(call_id, result, problem)

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """See ``Dialect.send_answer``."""
        self._requests.send_answer(question_id, answer)

    def _start_turn(self, text: str) -> None:
        self._turn_sent = True
        self._ask("turn/start", m.turn_params(self._plan, self.thread.id, text, self.command_id))

    def _ask(self, method: str, params: Json) -> None:
        self._talk.actions.add(Send(self._rpc.request(method, params)[1]))

    # From Codex.

    def read(self, link: Link, read: JsonRead) -> str:
        """See ``Dialect.read``."""
        if isinstance(read, BadLine):
            self._bad_lines.take(read)
            return read.case
        link.has_written = True
        self._talk.watchdog.message_came()
        message = self._rpc.read(read.value)
        match message:
            case RpcReply():
                self._reply(link, message)
            case RpcFailure():
                self._failure(message)
            case RpcRequest():
                self._requests.take(message)
            case RpcNotification():
                self._notification(message)
            case RpcFlaw(case=case):
                return case
        return ""

    def recover(self, read: JsonRead) -> Event | None:
        """See ``Dialect.recover``: an answer is found in the thread, once Codex has it."""
        return None

    def refuse_answers(self) -> None:
        """See ``Dialect.refuse_answers``."""
        self._refused.add(self.command_id)

    def delivered(self) -> Iterable[str]:
        """See ``Dialect.delivered``."""
        return list(self.thread.delivered) if self.thread.id else ()

    def notes(self) -> list[str]:
        """See ``Dialect.notes``."""
        return self._bad_lines.notes

    def close(self) -> None:
        """See ``Dialect.close``."""
        self._rpc.forget()
        if not self._has_answered:
            self._settle()

    # Answers.

    def _reply(self, link: Link, reply: RpcReply) -> None:
        if self._talk.state not in {"running", "cancelling"}:
            return
        match reply.method:
            case "initialize":
                self._initialized(link, reply.result)
            case m.LOGIN:
                self._open_thread()
            case "thread/start" | "thread/fork":
                self._begun(link, reply.result)
                self._start_turn(m.prompt_text(self._plan))
            case "thread/resume":
                self._begun(link, reply.result)
                thread = object_of(reply.result, "thread")
                self._resumed(find_turn(thread, self._talk.request.key, self._plan.answer_tool))
            case "turn/start":
                self._turn = text_of(reply.result, "turn", "id")
                if self._interrupt:
                    self._interrupt = False
                    self.send_cancel("user")
            case _:
                pass

    def _initialized(self, link: Link, result: Json) -> None:
        self._version = version_of(text_of(result, "userAgent"))
        link.introduction = f"codex {self._version}".strip()
        if self._min_version and is_older(self._version, self._min_version):
            problem = f"Codex {self._version} is older than {self._min_version}, which is required"
            self._talk.end_attempt("start_failed", problem)
            return
        self._talk.actions.add(Send(self._rpc.notify("initialized")))
        if self.credential:
            self._ask(m.LOGIN, m.login_params(self.credential))
        else:
            self._open_thread()

    def _open_thread(self) -> None:
        if self.thread.id:
            self._ask("thread/resume", m.resume_params(self._plan, self.thread.id))
        elif self.thread.parent:
            self._ask("thread/fork", m.fork_params(self._plan, self.thread.parent))
        else:
            self._ask("thread/start", m.start_params(self._plan))

    def _begun(self, link: Link, result: Json) -> None:
        self._greeted = True
        self.thread.id = text_of(result, "thread", "id")
        self._model = link.model = text_of(result, "model") or self._model
        self._events.begin_attempt(self._model)
        actions = self._talk.actions
        text = (
            f"{link.introduction} with {f'the model {self._model}' if self._model else 'its default model'}"
        )
        actions.report(CallNotice(**actions.stamp(), level="info", text=text))

    def _resumed(self, found: Found) -> None:
        talk = self._talk
        attempts, request = talk.attempts, talk.request
        if found.standing == "none":
            self._start_turn(m.prompt_text(self._plan))
        elif attempts.cause == "rejected":
            self._start_turn(m.REFUSED.format(why=attempts.why[1].rstrip(".")))
        elif found.standing == "completed" and self._counts(found, request.attempts_before):
            talk.answer.recovered = True
            self._take_answer(found.text, self._found_value(found), Usage())
        else:
            self._start_turn(self.thread.continuation())

    def _counts(self, found: Found, before: int) -> bool:
        """Whether the answer in a thread is one to this step, and was not refused."""
        return found.number > before and client_id(self._talk.request.key, found.number) not in self._refused

    def _found_value(self, found: Found) -> object:
        if found.answer is None or self._plan.value.answer_schema is None:
            return msgspec.UNSET
        value, faults = self._plan.value.check(found.answer)
        return msgspec.UNSET if faults else value

    def _failure(self, failure: RpcFailure) -> None:
        talk = self._talk
        if talk.state not in {"running", "cancelling"} or failure.method in {"turn/steer", "turn/interrupt"}:
            return
        if failure.method == "thread/resume" and LOST in failure.message:
            self._abandon(failure.message)
        elif failure.method == m.LOGIN:
            self._fail(AgentFailure("auth_failed", failure.message))
        elif failure.method == "turn/start":
            talk.fail(AgentFailure("bad_request", failure.message))
        else:
            version = self._version or "of unknown version"
            talk.end_attempt("start_failed", f"Codex {version} refused {failure.method}: {failure.message}")

    def _abandon(self, why: str) -> None:
        """The conversation cannot be resumed: the next attempt begins another one, unless one was lost before, by any hub."""
        talk = self._talk
        if talk.generation + 1 >= GENERATIONS:
            problem = (
                f"{GENERATIONS} conversations could not be resumed after their processes had ended: {why}"
            )
            talk.end(AgentExitedError(talk.agent, problem, "conversation_lost"), restart=True)
            return
        talk.generation += 1
        talk.conversation = generation_id(talk.request, talk.generation)
        self.thread.begin_anew()
        text = f"the conversation cannot be resumed; starting a new one: {why}"
        talk.actions.report(CallNotice(**talk.actions.stamp(), level="warn", text=text[:2048]))
        talk.attempts.excuse()
        talk.end_attempt("conversation_lost", text)

    # The turn.

    def _notification(self, message: RpcNotification) -> None:
        if self._talk.state not in {"running", "cancelling"}:
            return
        if message.method != "turn/completed":
            self._events.take(message.method, message.params)
        elif self._turn_sent and text_of(message.params, "threadId") == self.thread.id:
            self._turn_ended(object_of(message.params, "turn"))

    def _turn_ended(self, turn: Json) -> None:
        talk, status = self._talk, text_of(turn, "status")
        if self._turn and text_of(turn, "id") != self._turn:
            return
        self._turn_sent = False
        if status == "completed" and self._is_in_time():
            self._take_answer(
                last_text(turn) or self._events.text, self._requests.answer, self._events.tokens.usage
            )
        elif talk.state == "cancelling":
            talk.fail(AgentFailure("cancelled", "the turn was interrupted"))
        elif status == "interrupted":
            talk.fail(AgentFailure("temporary_failure", "the turn was interrupted, and not by Bartack"))
        else:
            self._turn_failed(object_of(turn, "error"))

    def _is_in_time(self) -> bool:
        """After a cancel an answer counts that was on its way when the time or the money was used up."""
        late = self._talk.state == "cancelling"
        return not late or isinstance(self._talk.verdict, AgentDeadlineError | AgentBudgetError)

    def _turn_failed(self, error: Json) -> None:
        failure = classify(error, self._events.quota_until)
        if failure.code in OWN_CODES:
            self._talk.end_attempt(failure.code, failure.message)
        else:
            self._fail(failure)

    def _fail(self, failure: AgentFailure) -> None:
        if failure.code == "auth_failed" and self.hint:
            failure = failure._replace(message=f"{failure.message}; {self.hint}")
        self._talk.fail(failure)

    def _take_answer(self, text: str, value: object, usage: Usage) -> None:
        talk = self._talk
        self._has_answered = True
        now_us = talk.clock.now_us()
        talk.take_answer(completed(talk.request, talk.agent, text, value, usage, now_us))
