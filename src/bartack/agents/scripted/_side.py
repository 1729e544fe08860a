"""The agent's side of the line protocol, played from a script. Reads lines, wants lines written; touches only its own files.

The reference for authors of agents, and the attacker in our tests. Lines and the clock come in through ``line`` and ``tick``;
what it does to the world goes through ``Outside``. This file owns the commands and what is done for each: ``_choices.py`` chooses
replies, ``_writer.py`` writes messages, ``_faults.py`` breaks them. ``program.py`` makes a program of it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final, cast

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents.protocol.ids import new_message_id
from bartack.agents.protocol.lines import read_command
from bartack.agents.protocol.messages import (
    ENDING,
    Abilities,
    Cancel,
    Command,
    Role,
    ToolCall,
    ToolResult,
    Usage,
)
from bartack.agents.scripted._choices import Choices
from bartack.agents.scripted._faults import FaultInjector
from bartack.agents.scripted._script import ErrorSpec, EventSpec, Inject, Reply, apply_write
from bartack.agents.scripted._writer import HANG, MessageWriter, Outside
from bartack.agents.scripted.scripted import Prompt, Script, ScriptedAgent, ScriptedCall, ScriptedReply
from bartack.core.clock import Clock
from bartack.errors import AgentError, ScriptError, UnsafePathError

_FAILURES: Final = {
    "transient": "temporary_failure",
    "rate_limited": "rate_limited",
    "terminal": "invalid_inputs",
    "cancelled": "cancelled",
}


class ScriptedSide:
    """See the module.

    Args:
        script: What to do and to say.
        outside: The world.
        clock: What time it is.
        name: Its name; without one it takes the name it is called by.
        role: Its role; without one it takes the role it is called in.
        root: The directory it works in.
        state: A file for its memory.
        heartbeat_s: How often it sends a heartbeat; 0: never.
        materialize: Make files that it names and that are missing.
        permissions: What it may do to files; everything, where no mode is given.
    """

    def __init__(
        self,
        script: Script,
        outside: Outside,
        clock: Clock,
        *,
        name: str = "",
        role: Role | None = None,
        root: str = ".",
        state: str = "",
        heartbeat_s: float = 10.0,
        materialize: bool = False,
        permissions: Permissions | None = None,
    ) -> None:
        self._script = script
        self._permissions = permissions or Permissions()
        self._root = root
        self._state = state
        self._choices = Choices(script, state)
        self._prompts = ScriptedAgent.of(
            msgspec.structs.replace(script, strict=True),
            name=name or "scripted",
            memory=f"{state}.prompts" if state else None,
            permissions=permissions,
        )
        self.writer = MessageWriter(
            outside,
            clock,
            name=name,
            role=role,
            root=root,
            materialize=materialize or script.materialize,
            heartbeat_s=heartbeat_s,
        )
        self._faults = FaultInjector(outside, self.writer)
        self._work: Iterator[float] | None = None
        self._wake_at = HANG
        self._queue: list[Command] = []
        self._tool = ""
        """The call of a tool whose result is waited for."""
        self._results: dict[str, ToolResult] = {}

    def begin(self) -> None:
        """Introduce itself."""
        abilities = Abilities(
            dedupe=self._script.dedupe,
            dedupe_across_restarts=self._script.dedupe and bool(self._state),
            cancel=True,
            heartbeat=self.writer.heartbeat_s > 0,
            tools=True,
        )
        self.writer.introduce(abilities)

    def line(self, line: bytes) -> None:
        """A line came."""
        try:
            message = read_command(line)
        except ValueError as error:
            self.writer.log("error", f"a line cannot be read: {error}")
            return
        if isinstance(message, Command):
            self._take(message)
        elif isinstance(message, Cancel):
            self._cancel(message)
        elif isinstance(message, ToolResult):
            self._take_result(message)

    def next_due(self) -> float:
        """When ``tick`` is to be called at the latest, in seconds of the monotonic clock."""
        return min(self.writer.beat_at, self._wake_at, self._faults.next_due())

    def tick(self) -> None:
        """Time has passed."""
        now = self.writer.now()
        if now >= self.writer.beat_at and not self._faults.is_dead:
            self.writer.beat()
        self._faults.write_late(now)
        if now >= self._wake_at:
            self._continue()

    # Commands.

    def _take(self, command: Command) -> None:
        self._faults.command_came()
        current = self.writer.command
        if self._work is not None and current is not None:
            if command.idempotency_key == current.idempotency_key:
                self.writer.command = command  # the same work: it is answered once, to the last command
            else:
                self._queue.append(command)
            return
        self.writer.command = command
        self.writer.touch()
        self.writer.is_busy = True
        self._work = self._perform(command)
        self._continue()

    def _cancel(self, cancel: Cancel) -> None:
        command = self.writer.command
        if command is None or self._work is None or cancel.correlation_id != command.correlation_id:
            return
        if not self._faults.hangs:
            self._finish_work()
            self.writer.send(self.writer.event("error", {"code": "cancelled", "message": cancel.reason}))
            self._next()

    def _take_result(self, result: ToolResult) -> None:
        command = self.writer.command
        if command is None or result.correlation_id != command.correlation_id:
            return
        if result.call_id == self._tool:
            self._tool = ""
            self._results[result.call_id] = result
            self._continue()

    def _continue(self) -> None:
        while self._work is not None and not self._faults.is_dead:
            wait = next(self._work, None)
            if wait is None:
                self._finish_work()
                self._next()
                return
            if wait > 0:
                self._wake_at = self.writer.now() + wait
                return

    def _finish_work(self) -> None:
        self._work = None
        self.writer.is_busy = False
        self._faults.hangs = False
        self._tool = ""
        self._wake_at = HANG

    def _next(self) -> None:
        if self._queue and self._work is None:
            self._take(self._queue.pop(0))

    def _perform(self, command: Command) -> Iterator[float]:
        """Do and say what the script has for a command; yields how long to wait."""
        known = self._choices.known_answer(command)
        if known is not None:
            self.writer.send(self.writer.replay(known))
            return
        if command.action == "prompt":
            reply = yield from self._prompt_reply(command)
            place = "prompt"
        else:
            reply, place = self._choices.choose(command)
        if isinstance(reply, ErrorSpec):
            yield from self._say(_error_event(reply), command, [])
        elif reply is None:
            yield from self._faults.hang()
        else:
            yield from self._do(reply, command, place)

    def _do(self, reply: Reply, command: Command, place: str) -> Iterator[float]:
        injects = self._choices.arm(reply, place)
        yield from self._faults.inject(injects, "start")
        if reply.says:
            self.writer.send(self.writer.make(EventSpec(type="progress", payload={"message": reply.says})))
        yield reply.wait_s or self._script.defaults.delay_s
        try:
            for write in reply.write:
                denied = self._permissions.refuse("Write", write.path)
                if denied is None:
                    apply_write(self._root, write)
                else:
                    self.writer.log("warn", str(denied))
        except (OSError, UnsafePathError) as error:
            failed = _error_event(ErrorSpec("artifact_write_failed", str(error)))
            yield from self._say(failed, command, [])
            return
        if reply.logs is not None:
            self.writer.flood(reply.logs.count, reply.logs.level, reply.logs.bytes)
        yield from self._faults.inject(injects, "before")
        events = reply.events
        if reply.error is not None:
            spec = ErrorSpec(reply.error) if isinstance(reply.error, str) else reply.error
            events = [*events, _error_event(spec)]
        for event in events:
            yield from self._say(event, command, injects)
            if event.name in ENDING:
                return

    def _say(self, spec: EventSpec, command: Command, injects: list[Inject]) -> Iterator[float]:
        yield spec.delay_s
        event = self.writer.make(spec)
        if spec.name not in ENDING:
            self.writer.send(event)
            return
        yield from self._faults.inject(injects, "before_terminal")
        if self._faults.is_dead:
            return
        if spec.name != "error":
            self._choices.remember_answer(command, event)
        if self._faults.replaces(injects, event):
            return
        self.writer.send(event)
        self._faults.repeat(injects, event)
        yield from self._faults.inject(injects, "after_terminal")

    # Prompts.

    def _prompt_reply(self, command: Command) -> Generator[float, None, Reply | ErrorSpec | None]:
        """What the script says to a prompt, once the tools are called that it wants called first."""
        try:
            found = self._prompts.reply(self._prompt(command))
        except ScriptError as error:
            return self._unmatched(command, error.problem)
        except AgentError as error:
            return ErrorSpec("artifact_write_failed", error.problem)
        for denied in found.denials:
            self.writer.log("warn", str(denied))
        for number, call in enumerate(found.calls, 1):
            result = yield from self._call(command, call, call.id or f"call-{number}")
            problem = _unexpected(call, result)
            if problem:
                return ErrorSpec("invalid_inputs", problem, retryable=False)
        return _as_reply(found, wants_value="result_schema" in command.inputs)

    def _prompt(self, command: Command) -> Prompt:
        """A prompt as rules see it. One whose reply was refused is another one: it says what is wrong with the reply."""
        context = command.inputs.get("context")
        known = cast("dict[str, object]", context).get("name") if isinstance(context, dict) else None
        name = known if isinstance(known, str) else command.task_id
        key, retry = command.idempotency_key, command.retry
        first = self._prompts.recall(key)
        if retry.cause == "rejected" and retry.code == "invalid_reply" and first and not first.exact:
            repair = Prompt(f"{key}:repair", name, retry.message or "", self._root)
            if self._prompts.matches(repair):
                return repair
        return Prompt(key, name, str(command.inputs.get("text", "")), self._root)

    def _call(self, command: Command, call: ScriptedCall, call_id: str) -> Generator[float, None, ToolResult]:
        """Call a tool, and wait for what it returns."""
        self._tool = call_id
        wanted = ToolCall(
            message_id=new_message_id(),
            correlation_id=command.correlation_id,
            call_id=call_id,
            name=call.tool,
            arguments=call.arguments,
            timestamp=self.writer.timestamp(),
        )
        self.writer.send(wanted)
        while call_id not in self._results:
            yield HANG
        return self._results.pop(call_id)

    def _unmatched(self, command: Command, problem: str) -> Reply | ErrorSpec | None:
        """No rule is for a prompt: there may be a reply to all of them."""
        if "prompt" in self._script.responses:
            return self._choices.choose(command)[0]
        if self._script.strict:
            return ErrorSpec("invalid_inputs", problem, retryable=False)
        return Reply(events=[EventSpec(type="prompt.completed", payload={"result": "", "text": ""})])


def _as_reply(found: ScriptedReply, *, wants_value: bool) -> Reply | ErrorSpec | None:
    """What a rule for prompts says, as a reply to a command; ``None``: nothing, for ever."""
    if found.outcome == "die":
        return Reply(inject=[Inject(do="crash", at="start", times=0)])
    if found.outcome == "stalled":
        return None
    if found.failure:
        return ErrorSpec(_FAILURES.get(found.outcome, "internal_error"), found.failure)
    used = found.tokens or found.usd
    usage = Usage(output_tokens=found.tokens or None, cost_usd=found.usd or None) if used else None
    payload: dict[str, object] = {"result": found.text, "text": found.text}
    if wants_value:
        with suppress(msgspec.DecodeError):
            payload["result"] = msgspec.json.decode(found.text)
    return Reply(
        delay_s=found.delay_s, events=[EventSpec(type="prompt.completed", payload=payload, usage=usage)]
    )


def _unexpected(call: ScriptedCall, result: ToolResult) -> str:
    """What a tool returned that is not what the script expects, if it says."""
    if call.expect is msgspec.UNSET:
        return ""
    found = result.result if result.error is None else result.error.message
    return "" if found == call.expect else f"{call.tool} returned {found!r}, and {call.expect!r} was expected"


def _error_event(error: ErrorSpec) -> EventSpec:
    plain: dict[str, object] = msgspec.to_builtins(error)
    return EventSpec(type="error", payload={"message": error.code, **plain})
