"""What an agent wants to do and asks its client for: permissions for its own tools, and text files.

Everything is decided by ``ToolPermissions``; a person is asked where that says so. Anything unexpected is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol, cast

import msgspec

from bartack.agents._permissions import Decision, Denial
from bartack.agents._tool_permissions import ToolPermissions, decide_or_deny
from bartack.agents.acp._messages import ASK_PERMISSION, NOT_FOUND, READ_FILE, chosen, request_name
from bartack.agents.acp._tools import ToolReport, option_for, tool_use
from bartack.agents.acp._wire import Wire
from bartack.agents.contract import AgentAnswer, CallPermission
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._answers import permission_question
from bartack.agents.program._json_lines import Json, JsonRead, objects_of, text_of
from bartack.agents.program._json_rpc import INTERNAL_ERROR, WRONG_PARAMS, RpcRequest
from bartack.agents.tool_use import ToolUse

SHOWN: Final = 200
"""Characters of what was denied, for people."""


class TextFiles(Protocol):
    """Where text files are read and written; see ``_text_files.py``."""

    def resolve(self, path: str) -> str:
        """A path with all links resolved."""
        ...

    def read_text(self, path: str, line: int = 0, limit: int | None = None) -> str:
        """Some lines of a text file."""
        ...

    def write_text(self, path: str, text: str) -> None:
        """Replace a text file."""
        ...


class _Pending(NamedTuple):
    """A request of the agent that waits for a person."""

    use: ToolUse
    allow: Callable[[], None]
    deny: Callable[[str], None]
    cancel: Callable[[], None]


class AgentWishes:
    """The requests of one call that need a decision."""

    def __init__(
        self,
        talk: Conversation[JsonRead],
        permissions: ToolPermissions,
        files: TextFiles,
        wire: Wire,
        redact: Callable[[bytes], bytes],
    ) -> None:
        self._wire = wire
        self._talk = talk
        self._permissions = permissions
        self._files = files
        self._redact = redact
        self._pending: dict[str, _Pending] = {}

    def permission(self, request: RpcRequest, report: ToolReport, *, own: bool) -> None:
        """The agent asks whether it may use a tool; tools of ours are always allowed."""
        options = objects_of(request.params, "options")

        def answer(option: str) -> None:
            self._wire.reply(request.id, chosen(option))

        def deny(reason: str) -> None:
            reply = {**chosen(option_for(options, allowed=False)), "_meta": {"bartack": {"reason": reason}}}
            self._wire.reply(request.id, reply)

        allow = option_for(options, allowed=True)
        if own:
            answer(allow)
            return
        wanted = _Pending(tool_use(report), lambda: answer(allow), deny, lambda: answer(""))
        self._decide(report.id or request_name(request.id), wanted)

    def file(self, request: RpcRequest) -> None:
        """The agent wants to read or write a text file."""
        path = text_of(request.params, "path")
        problem = _path_problem(path) or _content_problem(request)
        if problem:
            self._wire.refuse(request.id, WRONG_PARAMS, problem)
            return

        def deny(reason: str) -> None:
            self._wire.refuse(request.id, INTERNAL_ERROR, f"not allowed: {reason}")

        real = self._files.resolve(path)
        tool = "Read" if request.method == READ_FILE else "Write"
        use = ToolUse.of_paths(tool, list(dict.fromkeys((path, real))))
        wanted = _Pending(use, lambda: self._access(request, real), deny, lambda: deny("the call is over"))
        self._decide(f"file-{request_name(request.id)}", wanted)

    def refuse(self, request: RpcRequest) -> None:
        """The agent wants something although no prompt is open."""
        if request.method == ASK_PERMISSION:
            self._wire.reply(request.id, chosen(""))
        else:
            self._wire.refuse(request.id, NOT_FOUND, "there is no prompt that this is part of")

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        """A person has decided, or none can be asked."""
        wanted = self._pending.pop(question_id, None)
        if wanted is None:
            return
        if answer.text == "allow":
            wanted.allow()
            return
        reason = answer.refused or f"refused by {answer.by or 'a person'}"
        self._note_denial(wanted.use, reason)
        wanted.deny(reason)

    def cancel(self) -> None:
        """The turn is cancelled: nothing waits for a person any longer."""
        pending, self._pending = self._pending, {}
        self._talk.questions.forget()
        for wanted in pending.values():
            wanted.cancel()

    def forget(self) -> None:
        """The process is gone."""
        self._pending.clear()

    def _decide(self, wish_id: str, wanted: _Pending) -> None:
        decided = decide_or_deny(self._permissions, wanted.use)
        if decided.decision == "ask":
            self._ask(wish_id, wanted, decided.reason)
            return
        allowed = decided.decision == "allow"
        if not allowed:
            self._note_denial(wanted.use, decided.reason)
        if not allowed or decided.by != "mode":
            self._report(wish_id, wanted.use.tool, decided)
        if allowed:
            wanted.allow()
        else:
            wanted.deny(decided.reason)

    def _ask(self, wish_id: str, wanted: _Pending, reason: str) -> None:
        if wish_id in self._pending:
            wanted.cancel()
            return
        self._pending[wish_id] = wanted
        use = ToolUse(wanted.use.tool, self._shown(wanted.use.input))
        self._talk.questions.ask(permission_question(wish_id, use, reason))

    def _shown(self, given: object) -> Json:
        """What a tool is used with, without secrets."""
        try:
            return cast("Json", msgspec.json.decode(self._redact(msgspec.json.encode(given))))
        except (msgspec.DecodeError, msgspec.EncodeError):
            return {}

    def _report(self, wish_id: str, tool: str, decided: Decision) -> None:
        decision: Literal["allow", "deny"] = "allow" if decided.decision == "allow" else "deny"
        actions = self._talk.actions
        actions.report(
            CallPermission(**actions.stamp(), id=wish_id, tool=tool, decision=decision, by=decided.by)
        )

    def _note_denial(self, use: ToolUse, reason: str) -> None:
        subject = self._redact(use.subject.encode("utf-8", "replace")).decode("utf-8", "replace")
        self._talk.denials.append(Denial(use.tool, subject[:SHOWN], reason))

    def _access(self, request: RpcRequest, path: str) -> None:
        try:
            result = self._read_or_write(request, path)
        except FileNotFoundError:
            self._wire.refuse(request.id, NOT_FOUND, f"there is no file {path}")
        except OSError as error:
            self._wire.refuse(request.id, INTERNAL_ERROR, f"{path}: {error.strerror or error}")
        except ValueError as error:
            self._wire.refuse(request.id, INTERNAL_ERROR, f"{path}: {error}")
        else:
            self._wire.reply(request.id, result)

    def _read_or_write(self, request: RpcRequest, path: str) -> Json:
        if request.method != READ_FILE:
            self._files.write_text(path, text_of(request.params, "content"))
            return {}
        line, limit = request.params.get("line"), request.params.get("limit")
        first = line if isinstance(line, int) and line > 0 else 0
        most = limit if isinstance(limit, int) and limit >= 0 else None
        return {"content": self._files.read_text(path, first, most)}


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return "path has to be absolute"
    return "path has a NUL character in it" if "\0" in path else ""


def _content_problem(request: RpcRequest) -> str:
    if request.method == READ_FILE or isinstance(request.params.get("content"), str):
        return ""
    return "content has to be a text"
