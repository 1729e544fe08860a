"""The ledger of a run: what was commanded, what was answered and what was decided, as messages of the line protocol.

A projection of the journal: two exports are the same bytes. Ids that the journal does not hold are made from the run and the place
of the entry.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

import msgspec

from bartack.agents import AgentResult, command_key
from bartack.agents.protocol.ids import conversation_id, correlation_id, moment
from bartack.agents.protocol.lines import MAX_LINE
from bartack.agents.protocol.messages import (
    ROLES,
    TERMINAL,
    Cause,
    Command,
    Event,
    ExpectedOutput,
    Party,
    Retry,
    Source,
    Version,
)
from bartack.core import typed
from bartack.errors import CanonicalJsonError
from bartack.pipeline.records.facts import Fact, read_facts
from bartack.pipeline.records.records import Decision, Gate, PipelineOrder, Shot
from bartack.runtime.protocol.steps import AskArgs, ThinkArgs
from bartack.runtime.state.entries import RunCreated, RunEnded

LedgerLine = Command | Event

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:bartack:ledger")
_SYSTEM: Final = Source("system", "bartack")


def export_ledger(run_dir: str | os.PathLike[str]) -> Iterator[bytes]:
    """The ledger of a run, line by line."""
    for message in iter_ledger(read_facts(run_dir)):
        yield msgspec.json.encode(message) + b"\n"


def iter_ledger(facts: Iterable[Fact]) -> Iterator[LedgerLine]:
    """The messages that facts add up to."""
    ledger = _Ledger()
    for fact in facts:
        message = ledger.message(fact)
        if message is not None:
            yield message


class _Ledger:
    def __init__(self) -> None:
        self._run = ""
        self._instruction = ""
        self._attempts: dict[tuple[str, int], int] = {}

    def message(self, fact: Fact) -> LedgerLine | None:
        value = fact.value
        if isinstance(value, RunCreated):
            self._run = value.run
            return self._event(fact, "run_started", payload={"program": "pipeline"})
        if isinstance(value, PipelineOrder):
            self._instruction = value.instruction
            return None
        if isinstance(value, ThinkArgs):
            return self._command(fact, value)
        if isinstance(value, AgentResult):
            return value.event
        return self._system(fact)

    def _command(self, fact: Fact, args: ThinkArgs) -> Command | None:
        asked = args.command
        if asked is None:
            return None
        attempt = self._attempts[fact.p, fact.n] = self._attempts.get((fact.p, fact.n), 0) + 1
        cause: Cause = "first" if attempt == 1 else "resend"
        if asked.rejected and attempt == 1:
            cause = "rejected"
        return Command(
            protocol=1,
            message_id=self._id(fact),
            correlation_id=correlation_id(self._run, asked.task_id, asked.action, fact.p, 0, fact.n),
            run_id=self._run,
            task_id=asked.task_id,
            idempotency_key=asked.key,
            to=Party(ROLES.get(asked.action, "general"), args.agent or "agent"),
            action=asked.action,
            inputs=asked.inputs,
            expected_outputs=[
                ExpectedOutput(output.path, output.required, output.description or None)
                for output in asked.expected_outputs
            ],
            version=Version(asked.snapshot_id, asked.specs_hash or None),
            deadline=moment(fact.at + int((args.timeout_s or 0) * 1e6)),
            retry=Retry(attempt, max(attempt, 3), cause, asked.rejected or None),
            conversation=conversation_id(self._run, asked.key),
            priority=5,
        )

    def _system(self, fact: Fact) -> Event | None:
        made: Event | None = None
        match fact.kind, fact.value:
            case "snapshot", Shot(snapshot_id=id_, files=files):
                made = self._event(fact, "snapshot", payload={"snapshot_id": id_, "count": files})
            case "gate", Gate() as gate:
                shown = msgspec.structs.replace(gate, after=None)  # that has a message of its own
                payload = cast("dict[str, object]", msgspec.to_builtins(shown))
                made = self._event(fact, "tests", gate.task_id, status=gate.verdict, payload=payload)
            case "limit", _:
                made = self._event(fact, "limit", status="reached", payload=_problem(fact))
            case "granted", _:
                made = self._event(fact, "limit", status="granted")
            case "attempt_failed", _:
                made = self._event(fact, "attempt_failed", payload=_problem(fact))
            case "question", (str() as number, AskArgs() as asked):
                payload = dict[str, object](id=number, text=asked.question, options=asked.options or [])
                made = self._event(fact, "question", payload=payload)
            case "decision", Decision() as decision:
                made = self._event(
                    fact, "user_decision", status=decision.status, payload=self._decided(decision)
                )
            case "ended", RunEnded(status=status):
                made = self._event(fact, "run_ended", status=status)
            case _:
                pass
        return made

    def _decided(self, decision: Decision) -> dict[str, object]:
        return {
            "prompt": self._instruction,
            "approved_plan": decision.plan,
            "approved_tasks": [task.id for task in decision.tasks],
            "reason": decision.reason,
        }

    def _event(
        self,
        fact: Fact,
        name: str,
        task_id: str = "",
        *,
        status: str | None = None,
        payload: dict[str, object] | None = None,
    ) -> Event:
        return Event(
            message_id=self._id(fact),
            correlation_id=f"{self._run}-{fact.seq}",
            task_id=task_id,
            sender=_SYSTEM,
            event=f"system.{name}",
            status=status,
            payload=payload,
            occurred_at=moment(fact.at),
        )

    def _id(self, fact: Fact) -> str:
        place = f"{fact.seq}:{fact.part}" if fact.part else str(fact.seq)
        return str(uuid.uuid5(_NAMESPACE, f"{self._run}:{place}"))


def _problem(fact: Fact) -> dict[str, object]:
    error = fact.error
    if error is None:
        return {}
    facts = error.facts.get("reason") or error.code
    return {"code": facts, "class": error.type.rpartition(":")[2], "message": error.message}


# Checking.

_ENDS: Final = frozenset({"error"}).union(*TERMINAL.values())


class LedgerProblem(msgspec.Struct, frozen=True):
    """Something that is wrong with a line; line 0: with the whole."""

    line: int
    problem: str


def check_ledger(path: Path) -> list[LedgerProblem]:
    """Everything that is wrong with a file of protocol messages. A bad line does not hide the next one."""
    problems: list[LedgerProblem] = []
    open_commands: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        problem = _check_line(line, number, open_commands)
        if problem:
            problems.append(LedgerProblem(number, problem))
    problems += [
        LedgerProblem(number, f"the command {correlation} has no answer")
        for correlation, number in open_commands.items()
    ]
    return sorted(problems, key=lambda found: found.line)


class _Kind(msgspec.Struct):
    kind: str


def _check_line(line: bytes, number: int, open_commands: dict[str, int]) -> str:
    if len(line) >= MAX_LINE:
        return f"it has {len(line)} bytes; a line has less than {MAX_LINE}"
    try:
        kind = typed.decode(line, type=_Kind).kind
        if kind == "command":
            command = typed.decode(line, type=Command)
            open_commands[command.correlation_id] = number
            return _check_key(command)
        if kind == "event":
            event = typed.decode(line, type=Event)
            if event.event in _ENDS:
                open_commands.pop(event.correlation_id, None)
            return ""
    except msgspec.MsgspecError as error:
        return str(error)
    return f"it is of the unknown kind {kind!r}"


def _check_key(command: Command) -> str:
    outputs = [cast("dict[str, object]", msgspec.to_builtins(output)) for output in command.expected_outputs]
    try:
        key = command_key(
            command.action, command.task_id, command.version.snapshot_id, command.inputs, outputs
        )
    except (CanonicalJsonError, ValueError) as error:
        return f"it has no key: {error}"
    return "" if key == command.idempotency_key else f"its key is {command.idempotency_key}, not {key}"
