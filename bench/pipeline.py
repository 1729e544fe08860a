"""What Bartack costs per agent step of a pipeline, with an agent that answers at once; the start of its process apart.

Run with ``python -m bench.pipeline [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from bartack.agents import command_key
from bartack.config.load import load_config
from bartack.journal import open_reader
from bartack.pipeline import make_order
from bartack.pipeline.records.records import TaskRecord
from bartack.pipeline.request import PROGRAM
from bartack.pipeline.settings import make_settings
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.launch import drive
from bartack.runtime.hub.serve import Quiet
from bartack.runtime.protocol.steps import CallArgs
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

SETTINGS: Final = """\
[pipeline]
max_rounds = 1000
max_review_rounds = 1000
[snapshot]
source = "roots"
[agents.team]
kind = "scripted"
script = "team.json"
roles = ["builder", "reviewer", "spec_maintainer"]
"""
PASS: Final = {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}}


def overhead(directory: str, size: int, *, durability: str) -> Sample:
    """Milliseconds between the answer to one agent step and the command of the next; the start of the agent is apart."""
    workspace = Path(directory)
    _prepare(workspace, size, durability)
    config = load_config(workspace)
    settings = make_settings(config, ["builder", "reviewer", "spec_maintainer"], asks=False)
    order = make_order(settings, [TaskRecord(id="T", goal="go")])
    call = CallArgs([msgspec.Raw(msgspec.json.encode(order))])
    run = create_run(RunRequest(program=str(PROGRAM), worker="main", call=call), workspace, config)
    status = drive(run, config, Quiet())
    assert status == "completed", status
    spans = _spans(run.path)
    assert len(spans) == size, spans
    # The first command waits for the agent's process to start.
    start_ms = spans[0][1] - spans[0][0]
    calls_ms = sum(end - began for began, end in spans[1:])
    whole_ms = spans[-1][1] - spans[0][1]
    steps = len(spans) - 1
    facts = {
        "steps": str(len(spans)),
        "first step with the start of its process": f"{start_ms:.0f} ms",
        "with what is done within a call": f"{(whole_ms - _agent_ms(run.path)) / steps:.2f} ms",
        "a whole step": f"{whole_ms / steps:.2f} ms",
    }
    return Sample(value=(whole_ms - calls_ms) / steps, facts=facts)


def _prepare(workspace: Path, size: int, durability: str) -> None:
    """A script whose reviewer requests changes until the number of agent steps is reached; the spec makes it odd."""
    wants = {
        "type": "review.completed",
        "status": "changes_requested",
        "payload": {"findings": [{"message": "more"}]},
    }
    approves = {"events": [{"type": "review.completed", "status": "approved"}]}
    rounds = size // 2 - 1
    responses = {
        "implement": {"events": [PASS]},
        "implement_changes": {"events": [PASS]},
        "review": [{"times": rounds, "events": [wants]}, approves] if rounds else approves,
        "update_spec": {"events": [{"type": "spec.no_changes_needed"}]},
    }
    (workspace / "team.json").write_text(json.dumps({"version": 1, "responses": responses}))
    (workspace / "bartack.toml").write_text(f'durability = "{durability}"\n{SETTINGS}')
    if size % 2:
        (workspace / "SPEC.md").write_text("# Spec\n")


def _spans(run: Path) -> list[tuple[float, float]]:
    """When each command began and when its answer was journaled, in milliseconds."""
    began: dict[tuple[object, object], int] = {}
    spans: list[tuple[float, float]] = []
    with open_reader(run) as reader:
        for entry in reader.read():
            data = entry.data
            place = (data.get("p"), data.get("n"))
            if entry.kind == "step.started" and data.get("step") == "think":
                began[place] = entry.at
            elif entry.kind == "step.finished" and place in began:
                spans.append((began[place] / 1000, entry.at / 1000))
    return spans


def _agent_ms(run: Path) -> float:
    """How long the agent had the commands, from the line that went out to the line that came in; without the first."""
    took: list[tuple[float, float]] = []
    for file in run.glob("agents/team/*/stream.ndjson"):
        copies = [json.loads(line) for line in file.read_text().splitlines()]
        out, *_, answer = [
            datetime.fromisoformat(copy["at"]).timestamp() * 1000
            for copy in copies
            if copy["line"]["kind"] in {"command", "event"}
        ]
        took.append((out, answer - out))
    return sum(ms for _, ms in sorted(took)[1:])


def key_time(directory: str, size: int) -> Sample:
    """Microseconds to make a key of ordinary inputs."""
    inputs: dict[str, object] = {
        "goal": "x" * 500,
        "task_files": [f"src/module{number}.py" for number in range(20)],
        "iteration": {"round": 2, "cause": "review", "findings": [{"message": "m" * 200}] * 10},
    }
    began = perf_counter()
    for number in range(size):
        command_key("implement", f"T-{number}", "snap-7e991e837a4d", inputs)
    return Sample(value=(perf_counter() - began) / size * 1e6)


def _race(steps: int, durability: str = "power") -> Race:
    measure = partial(overhead, durability=durability)
    ours = Contestant(key=OURS, label="bartack", measure=measure, size=steps, quick_size=steps, every=3)
    unsynced = "" if durability == "power" else ", without syncs"
    return Race(
        key=f"steps{steps}" if durability == "power" else f"unsynced{steps}",
        title=f"overhead per agent step, {steps} steps{unsynced}",
        unit="ms",
        better="lower",
        contestants=(ours,),
    )


BENCH: Final = Bench(
    name="pipeline",
    title="The pipeline",
    races=(
        _race(3),
        _race(100),
        _race(100, "process"),
        Race(
            key="key",
            title="a key of a command",
            unit="µs",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=key_time, size=2000),),
        ),
    ),
    goals=(
        Goal(race="steps3", title="overhead, 3 steps", bound="at most", target=5.0, stretch=3.0),
        Goal(race="steps100", title="overhead, 100 steps", bound="at most", target=5.0, stretch=3.0),
        Goal(race="key", title="a key", bound="at most", target=1000.0, stretch=200.0),
    ),
)

if __name__ == "__main__":
    os.environ.setdefault("BARTACK_PIPELINE_ON_LIMIT", "fail")
    sys.exit(main(BENCH))
