"""No answer of an agent leaves a run that cannot be resumed: whatever is taken in can be stored, and be part of later keys.

Every field of every message that an agent can send is replaced by odd values, and what the conversation accepts is then used as the
pipeline uses it. ``make soak`` tries many more cases; ``BARTACK_FUZZ_SEED=7 pytest tests/pipeline/test_odd_answers.py`` others.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
from tests.pipeline.team import APPROVED, Reply, Team, built, order, settings, statuses, wrote

from bartack.agents import AgentRequest, AgentResult, command_key
from bartack.agents._record import AgentRecord, Link
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import ToolOutcome
from bartack.agents.conversation._actions import CallOut, Done, JudgeFiles, NeedProcess, Send
from bartack.agents.ndjson._dialect import open_line_conversation
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.lines import read_command, read_line, write_line
from bartack.agents.protocol.messages import ROLES, TERMINAL, Command, Party, Retry, ToolSpec, Version
from bartack.agents.replies import findings_of
from bartack.config.sections import PipelineConfig, SnapshotConfig, TestsConfig
from bartack.pipeline._agent_calls import plain
from bartack.pipeline._proposal import proposal_problem, read_proposal
from bartack.pipeline._task import base_inputs
from bartack.pipeline.records.records import Noted, Spent, TaskRecord, TaskResult
from bartack.runtime.context.agents import _result_reader
from bartack.runtime.protocol.steps import ThinkOutcome
from bartack.runtime.protocol.values import codec, encode
from bartack.runtime.rundir.receipts import Answered
from bartack.testing import VirtualClock

SEED: Final = int(os.environ.get("BARTACK_FUZZ_SEED", "1"))
CASES: Final = 60_000 if "BARTACK_CHAOS_SOAK" in os.environ else 1_000
RUN: Final = "run-20260301-101500-0badcafe"
NOW: Final = "2026-03-01T10:15:00.000000Z"


def nested(levels: int, kind: str = "[]") -> object:
    """A value of so many levels."""
    value: object = 1
    for _ in range(levels):
        value = [value] if kind == "[]" else {"a": value}
    return value


ODD: Final[list[object]] = [
    None, True, 0, -1, 2**53 - 1, 2**53, -(2**53), 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 2**70, 10**400, 1.5, -0.0, 1e308,
    5e-324, 1e22, "", " ", "\0", "\x1b[2J", "\u2028", "\U0001f9f5", "\udc80", "intake", "INTAKE", "result", "../x", "a\nb",
    "x" * 200_000, [], {}, [None], {"": 0}, {"a\0": 1}, ["x"] * 5_000, nested(99), nested(101), nested(200), nested(90, "{}"),
    nested(900), nested(150, "{}"), "2026-03-01T10:15:00Z", "9999-99-99T99:99:99Z", {"status": 2**64}, {"line": 2**53},
]  # fmt: skip

FINDING: Final = {
    "id": "F1",
    "severity": "major",
    "path": "a.py",
    "line": 3,
    "message": "no",
    "suggestion": "yes",
}
PAYLOADS: Final[dict[str, dict[str, object]]] = {
    "builder.completed": {
        "tests": {"status": "pass", "summary": "12 passed", "command": "make", "allowed_failures": False},
        "summary": "done",
    },
    "review.completed": {"findings": [FINDING], "summary": "see"},
    "spec.updated": {"summary": "done"},
    "spec.no_changes_needed": {"reason": "none"},
    "spec.changes_requested": {"findings": [FINDING]},
    "orchestration.proposed_tasks": {
        "plan_candidates": [{"path": "plan.md", "confidence": 0.5, "reason": "it is"}],
        "derived_tasks": [
            {"id": "one", "title": "the one", "files": ["a"], "depends_on": [], "goal": "g"},
            {"id": "two", "title": "the two", "files": ["b"], "depends_on": ["one"]},
        ],
    },
    "orchestration.needs_clarification": {"questions": ["Which one?"]},
    "orchestration.plan_conflict": {
        "conflicts": [{"paths": ["a.md", "b.md"], "reason": "two dates"}],
        "suggested_resolution": "the first",
    },
    "prompt.completed": {"result": {"a": [1]}, "text": "fine"},
    "progress": {"stage": "typing", "fraction": 0.5, "message": "half"},
    "artifact.produced": {},
    "error": {
        "code": "temporary_failure", "message": "no", "retryable": True, "retry_after_s": 1, "resets_at": NOW, "details": {},
    },
}  # fmt: skip


def _event(name: str, request: AgentRequest, correlation: str) -> dict[str, object]:
    return {
        "kind": "event", "message_id": "m-1", "correlation_id": correlation, "in_reply_to": "c-1",
        "idempotency_key": request.key, "task_id": request.task_id,
        "from": {"agent_type": request.role, "agent_id": "stub"}, "event": name,
        "status": "changes_requested" if name == "review.completed" else "done",
        "payload": copy.deepcopy(PAYLOADS[name]), "artifacts": [],
        "observed_version": {"snapshot_id": "none", "specs_hash": "sha256:0"},
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4, "turns": 1,
                  "cost_usd": 0.5},
        "replayed": False, "occurred_at": NOW,
    }  # fmt: skip


OTHERS: Final[dict[str, dict[str, object]]] = {
    "hello": {
        "kind": "hello", "protocol": [1], "agent": {"agent_type": "builder", "agent_id": "stub"}, "name": "a", "version": "1",
        "capabilities": {"dedupe": True, "dedupe_across_restarts": True, "cancel": True, "heartbeat": True, "tools": True},
    },
    "heartbeat": {
        "kind": "heartbeat", "agent": {"agent_type": "builder"}, "seq": 1, "status": "busy", "pid": 7, "ppid": 1,
        "uptime_s": 1.0, "last_activity_at": NOW, "task_id": "T-1", "stats": {"cpu_pct": 1.0, "rss_bytes": 1},
    },
    "log": {"kind": "log", "level": "warn", "message": "m", "fields": {"a": 1}, "timestamp": NOW},
    "tool_call": {
        "kind": "tool_call", "message_id": "t-1", "call_id": "c-1", "name": "look", "arguments": {"a": [1]}, "timestamp": NOW,
    },
}  # fmt: skip


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a value, that of a member that it does not have included."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        yield (*path, "surplus")
        for name, member in members.items():
            yield (*path, name)
            yield from places(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(cast("list[object]", value)):
            yield (*path, index)
            yield from places(member, (*path, index))


def put(value: Any, path: tuple[str | int, ...], odd: object) -> None:
    """Put something at a place of a value."""
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = odd


class Talk:
    """One command, and one odd line of its agent."""

    def __init__(self, action: str) -> None:
        inputs: dict[str, object] = {"goal": "x", "iteration": {"cause": "start", "findings": [], "round": 1}}
        self.request = AgentRequest(
            run_id=RUN,
            key=command_key(action, "T-1", "none", inputs),
            worker="main",
            step=1,
            action=action,
            role=ROLES.get(action, "general"),
            task_id="T-1",
            inputs=inputs,
            cwd="/nowhere",
            tools=[ToolSpec("look", "", {})] if action == "prompt" else [],
        )
        config = msgspec.convert({"kind": "ndjson", "command": "stub"}, type=NdjsonConfig)
        self.talk = open_line_conversation(
            "stub", self.request, config, ProtocolConfig(), AgentRecord("stub"), clock=VirtualClock()
        )
        self.outcome: object = None
        self.calls: list[bytes] = []
        self.correlation = ""
        self.talk.begin()
        self.perform()

    def perform(self) -> None:
        while actions := self.talk.take():
            for action in actions:
                match action:
                    case NeedProcess():
                        self.talk.attached(Link(pid=17))
                    case JudgeFiles():
                        self.talk.judged([])
                    case CallOut(call_id=call_id, arguments=arguments):
                        self.calls.append(encode(arguments))
                        self.talk.tool_ended(call_id, ToolOutcome("seen"))
                    case Done(outcome=outcome):
                        self.outcome = outcome
                    case Send(line=line):
                        assert len(line) <= 262_144
                        message = read_command(line)
                        if isinstance(message, Command):
                            self.correlation = message.correlation_id
                    case _:
                        msgspec.json.encode(msgspec.to_builtins(action))

    def hear(self, line: bytes) -> None:
        self.talk.line(read_line(line))
        self.perform()


def use(action: str, result: AgentResult, workspace: Path) -> None:
    """Use an answer as the pipeline does: store it, give it back, and make later commands of it."""
    outcome = ThinkOutcome(key="ik:0", agent="stub", result=msgspec.Raw(msgspec.json.encode(result)))
    back = _result_reader()(msgspec.json.encode(outcome))
    assert back == result
    # It may be part of the notes of a task, and what it says of its tests of a receipt and of the arguments of a gate.
    notes = [Noted(kind="result", value=msgspec.to_builtins(back))]
    codec(TaskResult).encode(TaskResult(id="T-1", status="failed", notes=notes))
    tests = back.payload.get("tests")
    if isinstance(tests, dict):
        codec(dict[str, object]).encode(cast("dict[str, object]", tests))
    many = Spent()
    for _ in range(3000):
        many += Spent(tokens=back.usage.tokens, turns=back.usage.turns or 0)
    encode(many)
    send: dict[str, object] = dict(base_inputs(TaskRecord(id="T-1", goal="g")))
    match result.event.event:
        case "review.completed" | "spec.changes_requested":
            send["iteration"] = {"findings": plain(findings_of(result.event))}
        case "orchestration.needs_clarification":
            questions = msgspec.convert(back.payload["questions"], type=list[str])
            answered = [Answered(question=question, answer="yes") for question in questions]
            send["clarifications"] = [msgspec.to_builtins(answer) for answer in answered]
        case "orchestration.proposed_tasks" if not proposal_problem(back.payload, str(workspace)):
            for task in read_proposal(back.payload).derived_tasks:
                assert task.id.casefold() not in {"intake", "result"}
                assert "\0" not in task.title
                record = TaskRecord(id=task.id, title=task.title, goal=task.goal, task_files=task.files)
                codec(TaskRecord).encode(record)
                _check_sendable(task.id, dict(base_inputs(record)))
        case _:
            pass
    if len(msgspec.json.encode(send)) < 190_000:  # else the findings go into a file
        _check_sendable("T-1", send)


def _check_sendable(task: str, inputs: dict[str, object]) -> None:
    key = command_key("implement", task, "none", inputs)
    command = Command(
        protocol=1, message_id="m", correlation_id="c", run_id=RUN, task_id=task, idempotency_key=key,
        to=Party("builder", "stub"), action="implement", inputs=inputs, expected_outputs=[], version=Version("none"),
        deadline=NOW, retry=Retry(1, 3, "first"), conversation="c", priority=5,
    )  # fmt: skip
    write_line(command)


def cases(rng: random.Random) -> Iterator[tuple[str, str, tuple[str | int, ...], object]]:
    """Action, message, place in it, and what is put there. No pair of a message and an odd value comes twice before all came."""
    messages = [(action, name) for action, names in TERMINAL.items() for name in sorted(names)]
    messages += [("implement", name) for name in ("progress", "artifact.produced", "error", *OTHERS)]
    messages += [("prompt", "tool_call")]
    while True:
        pairs = [(message, odd) for message in messages for odd in ODD]
        rng.shuffle(pairs)
        for (action, name), odd in pairs:
            base = OTHERS.get(name) or _event(name, Talk(action).request, "c")
            every = list(places(base))
            inside = [place for place in every if place[0] in {"payload", "arguments", "usage"}]
            yield action, name, rng.choice(inside if inside and rng.random() < 0.7 else every), odd


@pytest.mark.requirement("answers-can-be-stored")
def test_whatever_is_taken_in_can_be_stored_and_keyed(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("# Plan\n")
    accepted = refused = 0
    tried: set[tuple[str, str | int]] = set()
    stream = cases(random.Random(SEED))
    for _ in range(CASES):
        action, name, place, odd = next(stream)
        talk = Talk(action)
        message = copy.deepcopy(OTHERS.get(name)) or _event(name, talk.request, talk.correlation)
        message.setdefault("correlation_id", talk.correlation)
        put(message, place, odd)
        tried.add((name, place[-1]))
        try:
            talk.hear(json.dumps(message).encode("utf-8", "surrogatepass"))
            if isinstance(talk.outcome, AgentResult):
                use(action, talk.outcome, tmp_path)
        except Exception as error:
            shown = repr(odd)[:60]
            raise AssertionError(f"{action} {name}: {shown} at {place}: {error!r}") from error
        accepted += isinstance(talk.outcome, AgentResult)
        refused += talk.outcome is None

    assert accepted > CASES // 10, "the fuzz has to reach what comes after the boundary"
    assert refused > CASES // 5
    assert len({name for name, _ in tried}) == len(PAYLOADS) + len(OTHERS)


ANSWERS: Final[dict[str, tuple[str, Reply]]] = {
    "an integer over 64 bits in the tests": ("implement", built(status="pass", passed=2**70)),
    "an integer that is no double in the tests": ("implement", built(status="pass", passed=2**53)),
    "tests nested 200 deep": ("implement", built(status="pass", more=nested(200))),
    "a line beyond 2^53": ("review", {"events": [{"type": "review.completed", "status": "changes_requested", "payload": {
        "findings": [{"message": "no", "line": 2**53}]}}]}),
    "a finding nested 120 deep": ("review", {"events": [{"type": "review.completed", "status": "changes_requested", "payload": {
        "findings": [{"message": "no"}], "more": nested(120)}}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_cannot_be_kept_is_refused_and_the_run_resumes(tmp_path: Path, name: str) -> None:
    action, odd = ANSWERS[name]
    good = {"implement": wrote("src/a.py", "A = 1\n"), "review": APPROVED}[action]
    team = Team(tmp_path, {action: [odd, good]})
    with team.running(order("T-1")) as run:
        assert run.error is not None
        assert run.error.kind == "AgentReplyError", "it is refused where it comes in"

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]


def proposal(*tasks: dict[str, object]) -> dict[str, object]:
    payload = {"plan_candidates": [{"path": "plan.md"}], "derived_tasks": list(tasks)}
    return {"events": [{"type": "orchestration.proposed_tasks", "payload": payload}]}


@pytest.mark.parametrize(
    "odd",
    [
        [{"id": "intake", "title": "x"}],
        [{"id": "Result", "title": "x"}],
        [{"id": "a", "title": "x"}, {"id": "A", "title": "y"}],
        [{"id": "a", "title": "x\0y"}],
        [{"id": "a", "title": "x", "goal": "g" * 100_000}],
    ],
)
def test_a_proposal_that_could_not_be_worked_on_is_refused(
    tmp_path: Path, odd: list[dict[str, object]]
) -> None:
    using = settings(
        pipeline=PipelineConfig(on_limit="fail", review=False, spec=False),
        tests=TestsConfig(command=["make", "test"]),
        snapshot=SnapshotConfig(source="roots"),
    )
    replies = {"intake": [proposal(*odd), proposal({"id": "one", "title": "the one"})]}
    team = Team(tmp_path, replies, files={"plan.md": "# Plan\n"})
    with team.running(order(using=using, instruction="ship it", yes=True)) as run:
        if run.error is not None:
            run.resume()
            run.finish()

        assert statuses(run) == [("one", "done")]
