"""A workspace in which every page has something of everything that it can show, and the addresses of all its pages."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from tests.crash.test_recorded_runs import restore
from tests.web.hostile import fill
from tests.web.journals import RUN, Writer, finished, started, written_run
from tests.web.pages import KEY, LISTS, PATTERN_PAGES, PIPELINE_PAGES, RUN_PAGES

from bartack.runtime.protocol.frames import ErrorData, Site, StackLine
from bartack.runtime.state import entries as e
from bartack.tracking import LineageStore

ASKING: Final = "run-20261118-101011-0123abcd"
BUSY: Final = "run-20261118-101012-0123abcd"
STOPPED: Final = "run-20261118-101013-0123abcd"
DECIDING: Final = "run-20261118-101014-0123abcd"
CHILD: Final = "main/2:child"
SAID: Final[list[dict[str, Any]]] = [
    {"event": "agent.started", "attempt": 1, "pid": 0, "conversation": "", "generation": 0, "model": "scripted"},
    {"event": "agent.text", "text": "I read the parser first.\n\nThen the tests."},
    {"event": "agent.tool", "id": "do_1", "tool": "read_file", "phase": "started", "input": '{"path": "a.py"}'},
    {"event": "agent.tool", "id": "do_1", "tool": "read_file", "phase": "finished", "duration_s": 0.044},
    {"event": "agent.tool", "id": "do_2", "tool": "shell", "phase": "failed", "duration_s": 1.5},
    {"event": "agent.retry", "code": "BT612", "error": "the connection was lost", "attempt": 1, "delay_s": 2.0},
    {"event": "agent.permission", "id": "do_3", "tool": "shell", "decision": "deny", "by": "rule"},
    {"event": "agent.rate_limit", "status": "limited", "resets_at": "2026-11-18T11:00:00Z"},
    {"event": "agent.notice", "level": "warn", "text": "The line could not be used."},
    {"event": "agent.usage", "usage": {"input_tokens": 30_000, "output_tokens": 1200, "turns": 3, "cost_usd": 0.5}},
    {"event": "agent.finished", "reason": "completed", "duration_s": 12.5},
]  # fmt: skip
SOURCE: Final = "one\ntwo\nthree = int(word)\nfour\nfive\nsix\nseven\neight = delegate(child)\n"


def track(store: LineageStore, pattern: str, *parents: str, **members: object) -> None:
    """Record a pattern."""
    code = {"code": f"def {pattern}():\n    return 1\n"}
    event = {"event_type": "pattern_created", "pattern_id": pattern, "pattern_name": f"name of {pattern}"}
    store.track({**event, "parent_pattern_ids": list(parents), "pattern_data": code, **members})


def track_patterns(database: Path, name: str = "name of bottom") -> None:
    """Record patterns: a parent of which only the name is known, its child, and two versions of the child's child."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with LineageStore(database) as store:
        track(store, "top", "lost/one")
        track(store, "bottom", "top", pattern_name=name)
        later = {
            "pattern_version": "1.1.0",
            "parent_versions": ["1.0.0"],
            "pattern_data": {"code": "def bottom():\n    return 2\n"},
        }
        track(store, "bottom", "bottom", event_type="pattern_modified", **later)


def say(run: Writer, *lines: dict[str, Any], key: str = KEY, first: int = 1) -> None:
    """Write lines to the transcript of an agent."""
    folder = run.run.agents / "ann"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "transcript.ndjson").open("a", encoding="utf-8") as file:
        for number, line in enumerate(lines, first):
            file.write(json.dumps({"key": key, "n": number, "at": "2026-11-18T10:10:10Z", **line}) + "\n")


def call(run: Writer, n: int, key: str = KEY) -> None:
    """A call of an agent that is over."""
    asked = {
        "prompt": "Review the parser.",
        "name": "review",
        "agent": "ann",
        "system": "You are careful.",
        "command": {"action": "review", "task_id": "weeks", "inputs": {"depth": 2}},
        "tools": [{"name": "read_file"}],
        "schema": {"type": "object"},
    }
    run.write(started(n, step="think", about="Review the parser"), value=asked)
    usage = {"input_tokens": 30, "output_tokens": 12, "turns": 3}
    replied = {
        "key": key,
        "agent": "ann",
        "text": "Words are not numbers.",
        "usd": 0.5,
        "tokens": 42,
        "usage": usage,
    }
    run.write(finished(n, step="think", usd=0.5, used={"tokens": 42}), value=replied)


def send(run: Writer) -> None:
    """Messages: one received, one queued, one from outside, one scheduled; a mailbox with topics that is closed."""
    for number, sender in enumerate(("main", CHILD, "")):
        sent = e.MessageSent(mailbox="findings", id=f"m{number}", size=20, sender=sender, topic="weeks")
        run.write(sent, value={"line": number})
    run.write(e.MessageTaken(mailbox="findings", id="m0", p=CHILD, n=4, fp="f"), value={"line": 0})
    run.write(e.MailboxChanged(mailbox="findings", subscribe="weeks.*"))


def fill_run(run: Writer) -> None:
    """A run that waits for answers of every type, with messages, a call that cost something, a dead letter, a crash and output."""
    run.begin()
    call(run, 5)
    say(run, *SAID)
    letter = e.LetterAdded(
        message="m-9", mailbox="results", reason="timeout", error="it was late", metadata={"round": 2}
    )
    run.write(letter, value={"word": "two"})
    run.write(started(1, about="git status"))
    outcome = {"argv": ["git"], "status": 0, "stdout": "\x1b[31mred\x1b[0m", "stderr": "\x1b[1mbold\x1b[0m"}
    run.write(finished(1, took_us=250_000), value=outcome)
    spawned = e.WorkerSpawned(
        path=CHILD, worker="team:child", p="main", n=2, site=Site(file="team.py", line=8)
    )
    run.write(spawned, value={"args": ["b3"]})
    run.write(started(1, CHILD, about="pytest -q"))
    run.write(started(3, step="ask", question="q1"), value={"question": "Publish it?", "type": "bool"})
    run.write(e.OutputWritten(p="main", n=4, channel="print"), value="weeks: 53")


def ask_more(run: Writer) -> None:
    """A question of each further type."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    questions: list[dict[str, Any]] = [
        {"type": "int", "default": 3},
        {"type": "str"},
        {"type": "json", "schema": schema},
        {"type": "str", "options": ["red", "blue", "a colour with a longer name"]},
    ]
    for number, asked in enumerate(questions, 2):
        run.write(
            started(10 + number, step="ask", question=f"q{number}"), value={"question": "Which?", **asked}
        )


def fail(run: Writer) -> None:
    """A failure that goes through a worker, with its source, a cause, one that came after it, and a crash."""
    run.run.program.mkdir(exist_ok=True)
    (run.run.program / "team.py").write_text(SOURCE)
    (run.run.path.parents[2] / "team.py").write_text(SOURCE.replace("four", "four and more"))
    crash = e.WorkerCrashed(
        path=CHILD, incarnation=1, reason="killed by SIGKILL", stderr_tail="\x1b[31mred\x1b[0m"
    )
    run.write(crash)
    run.write(e.HubStarted(hub=2))
    place = str(run.run.program / "team.py")
    error = ErrorData(
        type="builtins:ValueError",
        message="not a number",
        stack=[
            StackLine(file=place, line=1, function="main", text=""),
            StackLine(file=place, line=3, function="parse", text="", column=9, width=3),
        ],
        cause=ErrorData(type="builtins:KeyError", message="the cause"),
    )
    run.write(e.StepFailed(p=CHILD, n=2, step="shell", fp="f", error=error, about="int"))
    run.write(e.FailureRecorded(worker=CHILD, error=error, p=CHILD, n=2))
    later = ErrorData(type="m:Later", message="came after it")
    run.write(e.FailureRecorded(worker="main", error=later, suppressed=True))
    run.write(e.RunEnded(status="failed"))


def prompt_three(run: Writer) -> None:
    """A run with a worker for each of three prompts, one command, and a first worker that waits for all."""
    run.begin()
    run.write(started(1, step="delegate"))
    for number in range(3):
        path = f"main/1.{number}:child"
        run.write(e.WorkerSpawned(path=path, worker="team:child", p="main", n=1), value={"args": [number]})
        run.write(started(1, path, step="think", about="Review the parser"))
    run.write(started(2, "main/1.0:child", about="pytest -q"))


def ask_one(run: Writer) -> None:
    """A run that asks whether to go on."""
    run.begin()
    run.write(
        started(1, step="ask", question="q1"), value={"question": "Publish version 1.4?", "type": "bool"}
    )


class Showcase:
    """A workspace with a failed run that has everything, one that asks, active ones, and recorded ones, one of the pipeline.

    While it is open, its active runs have a process that runs them; it is that of the test, and answers nothing.

    Args:
        place: Where it is made.

    Attributes:
        workspace: Where the runs are.
        state: The state home, where patterns are.
        pages: The addresses of all pages, by name.
    """

    def __init__(self, place: Path) -> None:
        self.workspace, self.state = place / "work", place / "state"
        self.workspace.mkdir()
        track_patterns(self.state / "bartack" / "lineage.db")
        pipeline = restore("pipeline", self.workspace)
        failed = restore("failed", self.workspace)
        with (self.workspace / "bartack.toml").open("a", encoding="utf-8") as file:
            file.write("\n[budget]\nusd = 10.0\n")
        with written_run(self.workspace, ASKING) as run:
            fill(run, "plain words")
            ask_more(run)
            run.mirror()
        with written_run(self.workspace) as run:
            fill_run(run)
            send(run)
            fail(run)
            run.mirror()
            last = run.seq
        self._stack = ExitStack()
        for name, fill_it, is_active in (
            (BUSY, prompt_three, True),
            (DECIDING, ask_one, True),
            (STOPPED, prompt_three, False),
        ):
            with written_run(self.workspace, name) as run:
                fill_it(run)
                run.mirror(active=is_active)
            if is_active:
                self._stack.enter_context(run.run.socket.listen())
        self.pages = LISTS | PATTERN_PAGES | {"enter": "/enter"}
        self.pages |= {name: f"/r/{RUN}{path}" for name, path in RUN_PAGES.items()}
        self.pages |= {name: f"/r/{pipeline.id}{path}" for name, path in PIPELINE_PAGES.items()}
        self.pages |= {
            "overview in the past": f"/r/{RUN}?at={last // 2}",
            "call in the past": f"/r/{RUN}/talk/{KEY}?at={last - 1}",
            "overview with questions": f"/r/{ASKING}",
            "step with a tool": f"/r/{ASKING}/step?p=main&n=2",
            "recorded failure": f"/r/{failed.id}/failure",
            "overview of an active run": f"/r/{BUSY}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
