"""The agent's side of the line protocol, played from a script. Reads lines, wants lines written; touches only its own files.

The reference for everybody who writes an agent, and the attacker in our tests. Lines and the clock come in through ``line`` and
``tick``; what it does to the world goes through ``Outside``. ``_program.py`` makes a program of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final, Literal, Protocol, cast

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents.protocol._ids import moment, new_message_id
from bartack.agents.protocol._lines import MAX_LINE, read_command, write_line
from bartack.agents.protocol._messages import (
    ENDING,
    Abilities,
    Artifact,
    Cancel,
    Command,
    Event,
    FromAgent,
    Heartbeat,
    Hello,
    Log,
    Role,
    Source,
    ToolCall,
    ToolResult,
    Usage,
    Version,
)
from bartack.agents.scripted._script import ArtifactSpec, ErrorSpec, EventSpec, Inject, Reply, apply_write
from bartack.agents.scripted._scripted import Prompt, Script, ScriptedAgent, ScriptedCall, ScriptedReply
from bartack.core import Clock, checksum_file, replace_file, safe_join
from bartack.errors import AgentError, ScriptError, UnsafePathError

Ignored = Literal["stdin", "eof", "term"]

HANG: Final = math.inf
_FAILURES: Final = {
    "transient": "temporary_failure",
    "rate_limited": "rate_limited",
    "terminal": "invalid_inputs",
    "cancelled": "cancelled",
}
_EXTRA: Final = frozenset(
    {"oversize", "malformed", "null", "not_utf8", "blank", "torn", "unknown_kind", "unknown_event"}
    | {"wrong_key", "wrong_correlation", "wrong_sender", "wrong_task", "wrong_version"}
)
"""Faults that are a line beside the answer, or instead of it."""
_IGNORED: Final[dict[str, Ignored]] = {"stop_reading": "stdin", "ignore_eof": "eof", "ignore_term": "term"}


class Outside(Protocol):
    """What the agent can do to the world."""

    def write(self, data: bytes) -> None:
        """Write to stdout."""
        ...

    def complain(self, data: bytes) -> None:
        """Write to stderr."""
        ...

    def die(self, code: int, by: str = "") -> None:
        """End, or die by a signal; nothing is done afterwards."""
        ...

    def spawn(self, seconds: float, writes: str) -> None:
        """Leave a process behind that writes a file later."""
        ...

    def ignore(self, what: Ignored) -> None:
        """Stop reading, or do not end when asked to."""
        ...


class Memory(msgspec.Struct):
    """What the agent remembers: in memory, or in a file over its own death."""

    calls: dict[str, int] = {}
    uses: dict[str, int] = {}
    chosen: dict[str, int] = {}
    answers: dict[str, msgspec.Raw] = {}


class ScriptedSide:
    """See the module.

    Args:
        script: What to do and to say.
        outside: The world.
        clock: What time it is.
        name: Its name; else it takes the one it is called by.
        role: Its role; else it takes the one it is called in.
        root: The directory it works in.
        state: A file for its memory.
        heartbeat_s: How often it shows that it lives; 0: never.
        materialize: Files that it names and that are not there are made.
        permissions: What it may do to files; everything, where no mode is said.
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
        self._outside = outside
        self._clock = clock
        self._name = name
        self._role: Role | None = role
        self._root = root
        self._state = state
        self._memory = _recall(state)
        self._prompts = ScriptedAgent.of(
            msgspec.structs.replace(script, strict=True),
            name=name or "scripted",
            memory=f"{state}.prompts" if state else None,
            permissions=permissions,
        )
        self._materialize = materialize or script.materialize
        self._heartbeat_s = heartbeat_s
        self._beat_at = HANG
        self._beats = 0
        self._frozen: int | None = None
        self._active_us = clock.now_us()
        self._began_us = clock.now_us()
        self._command: Command | None = None
        self._work: Iterator[float] | None = None
        self._wake_at = HANG
        self._hangs = False
        self._queue: list[Command] = []
        self._tool = ""
        """The call of a tool whose result is waited for."""
        self._told: dict[str, ToolResult] = {}
        self._held: list[tuple[float, bytes]] = []
        """Lines to send again when the next command has come, each after a while."""
        self._late: list[tuple[float, bytes]] = []
        self._dead = False

    @property
    def source(self) -> Source:
        """How it signs."""
        if self._command is None:
            return Source(self._role if self._role is not None else "general", self._name or None)
        to = self._command.to
        return Source(self._role if self._role is not None else to.agent_type, self._name or to.agent_id)

    def begin(self) -> None:
        """Introduce itself."""
        able = Abilities(
            dedupe=self._script.dedupe,
            dedupe_across_restarts=self._script.dedupe and bool(self._state),
            cancel=True,
            heartbeat=self._heartbeat_s > 0,
            tools=True,
        )
        self._send(Hello(protocol=[1], agent=self.source, name="scripted", version="1", capabilities=able))
        if self._heartbeat_s:
            self._beat_at = self._now()
            self._beat()

    def line(self, line: bytes) -> None:
        """A line came."""
        try:
            message = read_command(line)
        except ValueError as error:
            self._log("error", f"a line cannot be read: {error}")
            return
        if isinstance(message, Command):
            self._take(message)
        elif isinstance(message, Cancel):
            self._cancel(message)
        elif isinstance(message, ToolResult):
            self._take_result(message)

    def next_due(self) -> float:
        """When ``tick`` is to be called at the latest, in seconds of the monotonic clock."""
        return min(self._beat_at, self._wake_at, *(at for at, _ in self._late), HANG)

    def tick(self) -> None:
        """Time has passed."""
        now = self._now()
        if now >= self._beat_at and not self._dead:
            self._beat()
        due = [line for at, line in self._late if at <= now]
        self._late = [(at, line) for at, line in self._late if at > now]
        for line in due:
            self._outside.write(line)
        if now >= self._wake_at:
            self._go_on()

    # Commands.

    def _take(self, command: Command) -> None:
        self._late += [(self._now() + wait, line) for wait, line in self._held]
        self._held = []
        if self._work is not None and self._command is not None:
            if command.idempotency_key == self._command.idempotency_key:
                self._command = command  # the same work: it is answered once, to whoever asked last
            else:
                self._queue.append(command)
            return
        self._command = command
        self._touch()
        self._work = self._perform(command)
        self._go_on()

    def _cancel(self, cancel: Cancel) -> None:
        command = self._command
        if command is None or self._work is None or cancel.correlation_id != command.correlation_id:
            return
        if not self._hangs:
            self._finish_work()
            self._send(self._event("error", {"code": "cancelled", "message": cancel.reason}))
            self._next()

    def _take_result(self, result: ToolResult) -> None:
        command = self._command
        if command is None or result.correlation_id != command.correlation_id:
            return
        if result.call_id == self._tool:
            self._tool = ""
            self._told[result.call_id] = result
            self._go_on()

    def _go_on(self) -> None:
        while self._work is not None and not self._dead:
            wait = next(self._work, None)
            if wait is None:
                self._finish_work()
                self._next()
                return
            if wait > 0:
                self._wake_at = self._now() + wait
                return

    def _finish_work(self) -> None:
        self._work = None
        self._hangs = False
        self._tool = ""
        self._wake_at = HANG

    def _next(self) -> None:
        if self._queue and self._work is None:
            self._take(self._queue.pop(0))

    def _perform(self, command: Command) -> Iterator[float]:
        """Do and say what the script has for a command; yields how long to wait."""
        key = f"{command.run_id} {command.idempotency_key}"
        answer = self._memory.answers.get(key)
        if self._script.dedupe and command.retry.cause == "resend" and answer is not None:
            known = msgspec.json.decode(answer, type=Event)
            self._send(self._again(known, replayed=True))
            return
        if command.action == "prompt":
            reply = yield from self._prompt_reply(command)
            place = "prompt"
        else:
            reply, place = self._choose(command, key)
        if isinstance(reply, ErrorSpec):
            yield from self._say(EventSpec(type="error", payload=_plain(reply)), key, [])
        elif reply is None:
            yield from self._hang()
        else:
            yield from self._do(reply, key, place)

    def _do(self, reply: Reply, key: str, place: str) -> Iterator[float]:
        injects = self._armed(reply, place)
        yield from self._inject(injects, "start")
        yield reply.wait_s or self._script.defaults.delay_s
        try:
            for write in reply.write:
                denied = self._permissions.refuse("Write", write.path)
                if denied is None:
                    apply_write(self._root, write)
                else:
                    self._log("warn", str(denied))
        except (OSError, UnsafePathError) as error:
            spec = ErrorSpec("artifact_write_failed", str(error))
            yield from self._say(EventSpec(type="error", payload=_plain(spec)), key, [])
            return
        if reply.logs is not None:
            self._flood(reply.logs.count, reply.logs.level, reply.logs.bytes)
        yield from self._inject(injects, "before")
        if reply.error is not None:
            error_ = ErrorSpec(reply.error) if isinstance(reply.error, str) else reply.error
            events = [*reply.events, EventSpec(type="error", payload=_plain(error_))]
        else:
            events = reply.events
        for event in events:
            yield from self._say(event, key, injects)
            if event.name in ENDING:
                return

    def _say(self, spec: EventSpec, key: str, injects: list[Inject]) -> Iterator[float]:
        yield spec.delay_s
        ends = spec.name in ENDING
        event = self._made(spec)
        if ends:
            yield from self._inject(injects, "before_terminal")
            if self._dead:
                return
            if spec.name != "error":
                self._memory.answers[key] = msgspec.Raw(msgspec.json.encode(event))
                self._remember()
            if self._is_replaced(injects, event):
                return
        self._send(event)
        if ends:
            self._repeat(injects, event)
            yield from self._inject(injects, "after_terminal")

    def _is_replaced(self, injects: list[Inject], event: Event) -> bool:
        """Write the bad lines that go with an answer; tell whether one of them stands for it."""
        extras = [inject for inject in injects if inject.do in _EXTRA]
        for inject in extras:
            self._extra(inject, event)
        return self._dead or any(_is_instead(inject) for inject in extras)

    def _hang(self) -> Iterator[float]:
        self._hangs = True
        yield HANG

    # Choosing.

    def _prompt_reply(self, command: Command) -> Generator[float, None, Reply | ErrorSpec | None]:
        """What the script says to a prompt, once the tools are called that it wants called first."""
        try:
            found = self._prompts.reply(self._prompt(command))
        except ScriptError as error:
            return self._unmatched(command, error.problem)
        except AgentError as error:
            return ErrorSpec("artifact_write_failed", error.problem)
        for denied in found.denials:
            self._log("warn", str(denied))
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
            timestamp=moment(self._clock.now_us()),
        )
        self._send(wanted)
        while call_id not in self._told:
            yield HANG
        return self._told.pop(call_id)

    def _unmatched(self, command: Command, problem: str) -> Reply | ErrorSpec | None:
        """No rule is for a prompt: there may be a reply to all of them."""
        if "prompt" in self._script.responses:
            return self._choose(command, f"{command.run_id} {command.idempotency_key}")[0]
        if self._script.strict:
            return ErrorSpec("invalid_inputs", problem, retryable=False)
        return Reply(events=[EventSpec(type="prompt.completed", payload={"result": "", "text": ""})])

    def _choose(self, command: Command, key: str) -> tuple[Reply | ErrorSpec | None, str]:
        given = self._script.responses.get(command.action)
        if given is None:
            return ErrorSpec("unsupported_action", f"the script has no {command.action}"), command.action
        alone = isinstance(given, Reply)
        replies = [given] if isinstance(given, Reply) else given
        index = self._memory.chosen.get(key) if command.retry.cause == "resend" else None
        if index is None:
            self._memory.calls[command.action] = self._memory.calls.get(command.action, 0) + 1
            index = self._pick(command, replies, alone=alone)
            if 0 <= index < len(replies):
                place = f"{command.action} {index}"
                self._memory.uses[place] = self._memory.uses.get(place, 0) + 1
                self._memory.chosen[key] = index
            self._remember()
        if 0 <= index < len(replies):
            return replies[index], f"{command.action} {index}"
        exhausted = ErrorSpec("script_exhausted", f"no reply is left for {command.action}", retryable=False)
        return (None if index == -1 else exhausted), command.action

    def _pick(self, command: Command, replies: list[Reply], *, alone: bool) -> int:
        """Which reply is next; -1: hang, -2: none is left."""
        fitting = [
            index for index, reply in enumerate(replies) if reply.when is None or _holds(reply, command)
        ]
        for index in fitting:
            most = replies[index].times if replies[index].times is not None else (0 if alone else 1)
            if not most or self._memory.uses.get(f"{command.action} {index}", 0) < most:
                return index
        match self._script.defaults.on_exhausted:
            case "hang":
                return -1
            case "error":
                return -2
            case "cycle" if fitting:
                return min(fitting, key=lambda index: self._memory.uses.get(f"{command.action} {index}", 0))
            case _:
                return fitting[-1] if fitting else -2

    def _armed(self, reply: Reply, place: str) -> list[Inject]:
        """The faults of a reply that are not used up; they are used by this."""
        armed: list[Inject] = []
        for number, inject in enumerate(reply.inject):
            name = f"{place} inject {number}"
            used = self._memory.uses.get(name, 0)
            if not inject.times or used < inject.times:
                self._memory.uses[name] = used + 1
                armed.append(inject)
        if armed:
            self._remember()
        return armed

    # Faults.

    def _inject(self, injects: list[Inject], at: str) -> Iterator[float]:
        for inject in injects:
            if inject.at == at and inject.do not in _EXTRA and not self._dead:
                yield from self._fault(inject)

    def _fault(self, inject: Inject) -> Iterator[float]:
        if inject.do in {"hang", "slow_heartbeats", "frozen_activity"}:
            self._disturb_heartbeats(inject)
            yield from self._hang()
            return
        match inject.do:
            case "exit":
                self._die(inject.code)
            case "crash":
                self._die(1, inject.signal)
            case "no_heartbeats":
                self._beat_at = HANG
            case "log_flood":
                self._flood(inject.count, "info", inject.bytes)
            case "stderr_flood":
                self._complain_much(inject.bytes)
            case "spawn":
                self._outside.spawn(inject.seconds, inject.writes)
            case "stop_reading" | "ignore_eof" | "ignore_term":
                self._outside.ignore(_IGNORED[inject.do])
            case _:
                return

    def _disturb_heartbeats(self, inject: Inject) -> None:
        if inject.do == "slow_heartbeats":
            self._heartbeat_s = inject.every_s
            self._beat_at = self._now() + inject.every_s
        elif inject.do == "frozen_activity":
            self._frozen = self._active_us
        elif not inject.heartbeats:
            self._beat_at = HANG

    def _die(self, code: int, signal: str = "") -> None:
        self._dead = True
        self._outside.die(code, signal)

    def _repeat(self, injects: list[Inject], event: Event) -> None:
        line = write_line(event)
        for inject in injects:
            if inject.do == "duplicate":
                for _ in range(inject.count):
                    self._outside.write(line)
            elif inject.do == "late":
                self._held.append((inject.s, line))

    def _extra(self, inject: Inject, event: Event) -> None:
        replace = msgspec.structs.replace
        fresh = replace(event, message_id=new_message_id())
        source = event.sender
        match inject.do:
            case "wrong_key":
                self._send(replace(fresh, idempotency_key="ik:" + "0" * 64))
            case "wrong_correlation":
                self._send(replace(fresh, correlation_id="corr-nobody-knows-0"))
            case "wrong_sender":
                other = Source("general" if source.agent_type != "general" else "builder", "somebody")
                self._send(replace(fresh, sender=other))
            case "wrong_task":
                self._send(replace(fresh, task_id="another-task"))
            case "wrong_version":
                self._send(replace(fresh, observed_version=Version("snap-000000000000")))
            case "unknown_event":
                self._send(replace(fresh, event="agent.pondered"))
            case "torn":
                self._outside.write(write_line(event)[: inject.bytes or 40])
                if inject.then == "exit":
                    self._die(0)
                else:
                    self._outside.write(b"\n")
            case _:
                self._outside.write(_bad_line(inject))

    def _flood(self, count: int, level: Literal["debug", "info", "warn", "error"], size: int) -> None:
        for number in range(count):
            self._log(level, f"line {number + 1} of {count}".ljust(size, "."))

    def _complain_much(self, size: int) -> None:
        chunk = (b"x" * 127 + b"\n") * 512
        while size > 0:
            self._outside.complain(chunk[:size])
            size -= len(chunk)

    # Saying.

    def _send(self, message: FromAgent) -> None:
        self._outside.write(write_line(message))
        if not isinstance(message, Heartbeat):
            self._touch()

    def _log(self, level: Literal["debug", "info", "warn", "error"], text: str) -> None:
        self._send(Log(level=level, message=text, timestamp=moment(self._clock.now_us())))

    def _beat(self) -> None:
        self._beat_at = self._now() + self._heartbeat_s
        self._beats += 1
        now = self._clock.now_us()
        active = (
            self._frozen if self._frozen is not None else (now if self._work is not None else self._active_us)
        )
        beat = Heartbeat(
            agent=self.source,
            seq=self._beats,
            status="busy" if self._work is not None else "ready",
            pid=os.getpid(),
            uptime_s=max((now - self._began_us) / 1e6, 0.0),
            last_activity_at=moment(active),
        )
        self._send(beat)

    def _made(self, spec: EventSpec) -> Event:
        event = self._event(spec.name, spec.said)
        artifacts = None if spec.artifacts is None else [self._artifact(wanted) for wanted in spec.artifacts]
        version = spec.observed_version
        if version == "echo":
            seen = None if self._command is None or spec.name not in ENDING else self._command.version
        else:
            seen = None if isinstance(version, str) else version
        return msgspec.structs.replace(
            event, status=spec.status, artifacts=artifacts, usage=spec.usage, observed_version=seen
        )

    def _artifact(self, wanted: ArtifactSpec) -> Artifact:
        sha256, size = wanted.sha256, wanted.size
        path = os.path.join(self._root, wanted.path)
        if self._materialize:
            path = str(safe_join(self._root, wanted.path))
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"{wanted.path}\n")
            sha256 = size = None
        if os.path.isfile(path):
            sha256 = sha256 or checksum_file(path)
            size = os.path.getsize(path) if size is None else size
        return Artifact(wanted.path, sha256 or "sha256:" + "0" * 64, size or 0)

    def _event(self, name: str, payload: dict[str, object] | None) -> Event:
        command = self._command
        assert command is not None
        return Event(
            message_id=new_message_id(),
            correlation_id=command.correlation_id,
            in_reply_to=command.message_id,
            idempotency_key=command.idempotency_key,
            task_id=command.task_id,
            sender=self.source,
            event=name,
            payload=payload,
            occurred_at=moment(self._clock.now_us()),
        )

    def _again(self, known: Event, *, replayed: bool) -> Event:
        command = self._command
        assert command is not None
        return msgspec.structs.replace(
            known, message_id=new_message_id(), in_reply_to=command.message_id, replayed=replayed
        )

    def _touch(self) -> None:
        self._active_us = self._clock.now_us()

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _remember(self) -> None:
        if self._state:
            # It outlives the agent, not the machine.
            replace_file(self._state, msgspec.json.encode(self._memory), synced=False)


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


def _is_instead(inject: Inject) -> bool:
    return inject.do == "torn" if inject.instead is None else inject.instead


def _bad_line(inject: Inject) -> bytes:
    match inject.do:
        case "oversize":
            size = inject.bytes or MAX_LINE + 1
            head, tail = b'{"kind":"event","pad":"', b'"}\n'
            return head + b"x" * (size - len(head) - len(tail)) + tail
        case "null":
            return b"null\n"
        case "not_utf8":
            return b'{"kind":"\xff\xfe"}\n'
        case "blank":
            return b"   \n"
        case "unknown_kind":
            return b'{"kind":"thought","text":"hm"}\n'
        case _:
            return inject.text.encode() + b"\n"


def _holds(reply: Reply, command: Command) -> bool:
    when = reply.when
    if when is None:
        return True
    iteration = command.inputs.get("iteration")
    facts = cast("dict[str, object]", iteration) if isinstance(iteration, dict) else {}
    return (
        when.task in {None, command.task_id}
        and (when.cause is None or when.cause == facts.get("cause"))
        and (when.round is None or when.round == facts.get("round"))
        and when.attempt in {None, command.retry.attempt}
        and all(command.inputs.get(name) == value for name, value in when.input.items())
    )


def _plain(error: ErrorSpec) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(error)
    return {"message": error.code, **plain}


def _recall(state: str) -> Memory:
    if not state or not os.path.exists(state):
        return Memory()
    with open(state, "rb") as file:
        return msgspec.json.decode(file.read() or b"{}", type=Memory)
