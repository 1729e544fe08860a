"""Makes the picture of a run for ``draw`` (``_draw.py``) from its state: that of the hub, or that of a follower.

It is called ten times a second at most, in the loop of the hub: names are kept, and of many workers that have ended only the last
are looked at.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.app._runs import load_value, program_name
from bartack.cli.app._terminal import cells, printable
from bartack.cli.live._draw import NAMES, UTF8, Asked, Box, Doing, Picture, Row, Signs, clock
from bartack.cli.live._names import TaskFacts, name_of, place_of, planned_tasks
from bartack.core import typed
from bartack.errors import BartackError
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import WAITS
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import name_deadlock
from bartack.runtime.state.worker_state import OpenStep, StepKey, WorkerState

if TYPE_CHECKING:
    from bartack.cli.live._calls import Call, Calls

ENDED: Final = 20
"""The largest number of workers that have ended and are shown."""
PROMPTS: Final = 512
"""The largest number of prompts that are kept decoded."""
STEP: Final = 4
"""The column of names becomes wider by this many columns at a time."""


class _CommandFacts(msgspec.Struct):
    action: str = ""
    key: str = ""


class _PromptFacts(msgspec.Struct):
    """What is shown of a prompt."""

    agent: str = ""
    command: _CommandFacts | None = None


class _Prompt(NamedTuple):
    """An open prompt: what it is called, whom it asks, and the keys that its call can have."""

    verb: str
    agent: str
    keys: tuple[str, ...]


class Pictures:
    """Makes the pictures of one run, one after the other.

    Args:
        run: The run.
        limit_usd: What its agents may cost.
        signs: The signs of the terminal.
    """

    def __init__(self, run: RunDir, *, limit_usd: float | None = None, signs: Signs = UTF8) -> None:
        self._run = run
        self._limit_usd = limit_usd
        self._signs = signs
        self._names: dict[str, tuple[int, str]] = {}
        self._width = 0
        self._paid = False
        self._prompts: dict[tuple[StepKey, int], _Prompt] = {}
        self._receipts: dict[str, int] = {}
        self._calls: Calls | None = None
        self._tasks: Sequence[TaskFacts] | None = None

    # Long because it names every part of a picture once.
    def make(
        self,
        state: State,
        now_us: int,
        bodies: Callable[[str], Sequence[str]],
        *,
        deadlock: Sequence[str] = (),
        hint: str = "",
        asked: Asked | None = None,
        status: str = "",
    ) -> Picture:
        """The picture of a run now.

        Args:
            state: What its journal adds up to.
            now_us: What time it is: microseconds since 1970, UTC.
            bodies: Returns the bodies that a worker runs.
            deadlock: What each worker waits for, if all wait for each other.
            hint: What can be typed.
            asked: The question that is asked.
            status: The status of the run; without it, what the journal shows.
        """
        made = _Rows(self, state, now_us, bodies)
        rows = made.rows()
        self._paid = self._paid or made.has_prompts or bool(state.spent_usd or state.spent)
        widest = max((min(row.depth, 4) + cells(row.name) for row in rows), default=0)
        if widest > self._width:
            self._width = min(-(-widest // STEP) * STEP, NAMES)
        letters = sum(letter.state == "waiting" for letter in state.deliveries.letters.values())
        return Picture(
            title=self._title(state),
            run=self._run.id,
            status=status or ("failing" if state.failure is not None else state.status),
            elapsed_s=(now_us - state.created_at - state.dead_us) / 1e6,
            steps=sum(len(worker.history) for worker in state.workers.values()),
            usd=state.spent_usd + made.usd,
            limit_usd=self._limit_usd,
            estimated=state.usd_estimated,
            tokens=state.spent.tokens + made.tokens,
            rows=rows,
            hidden=made.hidden,
            names=self._width,
            paid=self._paid,
            boxes=_boxes(state, now_us),
            letters=letters,
            warning=name_deadlock(deadlock) if deadlock else "",
            hint=hint,
            asked=asked,
            signs=self._signs,
        )

    def close(self) -> None:
        """Close the transcripts of agents."""
        if self._calls is not None:
            self._calls.close()

    # For the rows.

    def name(self, worker: WorkerState) -> str:
        """The name of a worker."""
        known = self._names.get(worker.path)
        if known is None or known[0] != worker.seq:
            known = self._names[worker.path] = worker.seq, name_of(worker)
        return known[1]

    def look_at_calls(self) -> None:
        """Read what agents said since."""
        if self._calls is None:
            from bartack.cli.live._calls import Calls  # noqa: PLC0415 - runs without agents start faster without it

            self._calls = Calls(self._run.agents)
        self._calls.look()

    def call(self, state: State, worker: WorkerState, step: OpenStep) -> tuple[_Prompt, Call | None]:
        """An open prompt, and what its agent is doing."""
        known = self._prompts.get((step.key, step.seq))
        if known is None:
            if len(self._prompts) >= PROMPTS:
                self._prompts.clear()
            known = self._prompts[step.key, step.seq] = self._read_prompt(state, worker, step)
        return known, None if self._calls is None else self._calls.find(*known.keys)

    def receipts(self, task: str) -> int:
        """How many receipts a task that is done has."""
        if task not in self._receipts:
            found: list[str] = []
            with suppress(OSError):
                found = os.listdir(self._run.path / "receipts" / task)
            self._receipts[task] = sum(name.endswith(".json") for name in found)
        return self._receipts[task]

    def planned(self, state: State) -> Sequence[TaskFacts]:
        """The tasks that the run was started with."""
        if self._tasks is None and state.workers:
            self._tasks = planned_tasks(state)
        return self._tasks or ()

    def _read_prompt(self, state: State, worker: WorkerState, step: OpenStep) -> _Prompt:
        own = step_key(state.run_id, step.p, step.n, worker.rewinds)
        facts = _PromptFacts()
        with suppress(BartackError, OSError, msgspec.DecodeError):
            facts = typed.decode(load_value(self._run, step.asked), type=_PromptFacts | None) or facts
        if facts.command is None:
            return _Prompt("think", facts.agent, (own,))
        verb = facts.command.action.replace("_", " ")
        return _Prompt(verb, facts.agent, (own, facts.command.key))

    def _title(self, state: State) -> str:
        run = state.run
        if run is None:
            return ""
        name = program_name(run.program)
        if run.worker != PIPELINE and run.name != "main":
            name = f"{name}:{run.name}"
        project = run.project or (os.path.basename(run.workspace) if run.worker == PIPELINE else "")
        return printable(f"{project} {self._signs.dot} {name}" if project else name)


class _Rows:
    """The rows of one picture."""

    def __init__(
        self, pictures: Pictures, state: State, now_us: int, bodies: Callable[[str], Sequence[str]]
    ) -> None:
        self._pictures = pictures
        self._state = state
        self._now_us = now_us
        self._bodies = bodies
        self._is_pipeline = state.run is not None and state.run.worker == PIPELINE
        self.has_prompts = False
        self.usd = 0.0
        self.tokens = 0
        self.hidden = 0

    def rows(self) -> list[Row]:
        """The workers, each below its parent; then the tasks that have none."""
        workers = self._chosen()
        self.has_prompts = any(step.is_prompt for worker in workers for step in worker.open.values())
        if self.has_prompts:
            self._pictures.look_at_calls()
        known = {worker.path for worker in workers}
        below: dict[str, list[WorkerState]] = {}
        for worker in workers:
            above = self._state.worker_of(worker.parent[0]) if worker.parent[0] else None
            below.setdefault(above.path if above is not None and above.path in known else "", []).append(
                worker
            )
        rows: list[Row] = []
        self._add(below, "", 0, rows)
        return [*rows, *self._waiting_tasks()]

    def _chosen(self) -> list[WorkerState]:
        """The workers that have not ended, with those above them, and the last of the others."""
        alive, ended = list[WorkerState](), list[WorkerState]()
        for worker in self._state.workers.values():
            (ended if worker.ended and not worker.error else alive).append(worker)
        self.hidden = max(len(ended) - ENDED, 0)
        if not ended:
            return alive
        kept = {worker.path for worker in (*alive, *ended[-ENDED:])}
        return [worker for worker in self._state.workers.values() if worker.path in kept]

    def _add(self, below: dict[str, list[WorkerState]], path: str, depth: int, rows: list[Row]) -> None:
        workers = below.get(path, [])
        names = Counter(map(self._pictures.name, workers))
        for worker in workers:
            name = self._pictures.name(worker)
            place = place_of(worker) if names[name] > 1 else ""
            rows.append(self._row(worker, f"{name} {place}" if place else name, depth))
            if worker.path in below:
                self._add(below, worker.path, depth + 1, rows)

    def _row(self, worker: WorkerState, name: str, depth: int) -> Row:
        if worker.ended:
            return self._ended(worker, name, depth)
        steps = worker.waits()
        if not steps:
            return self._without_step(worker, name, depth)
        prompts = [step for step in steps if step.is_prompt]
        newest = max(prompts or steps, key=lambda step: step.at)
        more = f" (+{len(steps) - 1})" if len(steps) > 1 else ""
        if newest.is_prompt:
            return self._prompt(worker, newest, name, depth, more)
        doing, kind, verb, text = self._describe(newest)
        return Row(
            name=name,
            depth=depth,
            doing=doing,
            kind=kind,
            verb=verb,
            text=printable(f"{text}{more}".strip()),
            usd=worker.spent_usd or None,
            since_s=self._since_s(newest),
        )

    def _since_s(self, step: OpenStep) -> float:
        """How long a step has been open while a hub was alive."""
        return (self._now_us - step.at - (self._state.dead_us - step.dead_us)) / 1e6

    def _describe(self, step: OpenStep) -> tuple[Doing, str, str, str]:
        """What a worker does in a step: whether it waits, its kind, and how it is described."""
        again = f", attempt {step.attempt}" if step.attempt > 1 else ""
        if step.is_delegate:
            made = len(self._state.children.get(step.key, ()))
            several = f"{made} {'tasks' if self._is_pipeline else 'workers'}" if made > 1 else step.about
            return "none", "delegate", "delegate", several
        if step.step == "ask":
            return "waits", "ask", "asks", f"{step.question}: {step.about}"
        if step.step in WAITS:
            mailbox = step.step in {"receive", "drain"}
            return "waits", f"{step.step} {step.about}" if mailbox else step.step, step.step, step.about
        if step.step == "shell" and self._is_pipeline:
            return "busy", "tests", "tests", f"{step.about}{again}"
        verb = "step" if step.step == "body" else step.step
        return "busy", verb, verb, f"{step.about}{again}"

    def _prompt(self, worker: WorkerState, step: OpenStep, name: str, depth: int, more: str) -> Row:
        asked, call = self._pictures.call(self._state, worker, step)
        usd, turn, said = worker.spent_usd, 0, ""
        agent = asked.agent
        if call is not None:
            agent, said, turn = call.agent, call.last, call.turn
            usd += call.usd or 0.0
            self.usd += call.usd or 0.0
            self.tokens += call.tokens
        doing: Doing = "agent"
        waits = self._state.waits_for(step)
        if waits:
            doing, said = "waits", waits
        elif step.due > self._now_us:
            doing, said = "waits", f"is called again in {clock((step.due - self._now_us) / 1e6)}"
        verb = f"{asked.verb} {agent}".rstrip()
        return Row(
            name=name,
            depth=depth,
            doing=doing,
            kind=asked.verb,
            verb=printable(verb),
            text=printable(f"{said}{more}".strip()),
            turn=turn,
            usd=usd or None,
            since_s=self._since_s(step),
        )

    def _without_step(self, worker: WorkerState, name: str, depth: int) -> Row:
        """A worker that is between two steps, or in one that is not recorded yet."""
        running = [name for name in self._bodies(worker.path) if name]
        doing: Doing = "busy"
        if running:
            verb, text = "step", ", ".join(running)
        elif len(worker.history):
            verb, text = "running", ""
        else:
            doing, verb, text = "waits", "starting", ""
        usd = worker.spent_usd or None
        return Row(name=name, depth=depth, doing=doing, kind=verb, verb=verb, text=printable(text), usd=usd)

    def _ended(self, worker: WorkerState, name: str, depth: int) -> Row:
        took_s = (worker.ended_us - worker.began_us) / 1e6
        doing: Doing = "done"
        verb, text = "done", ""
        if worker.error is not None:
            doing, verb = "failed", "failed"
            text = worker.error.message.partition("\n")[0]
        elif self._is_pipeline and (receipts := self._pictures.receipts(name)):
            verb = f"done, {receipts} receipt{'' if receipts == 1 else 's'}"
        usd = worker.spent_usd or None
        return Row(
            name=name,
            depth=depth,
            doing=doing,
            kind="failed" if worker.error is not None else "done",
            verb=verb,
            text=printable(text),
            usd=usd,
            since_s=took_s,
        )

    def _waiting_tasks(self) -> list[Row]:
        """Tasks of the pipeline that have not begun."""
        if not self._is_pipeline:
            return []
        begun = {self._pictures.name(worker) for worker in self._state.workers.values()}
        rows: list[Row] = []
        for task in self._pictures.planned(self._state):
            if task.id not in begun:
                verb = f"waits for {', '.join(task.depends_on)}" if task.depends_on else "waits"
                rows.append(
                    Row(name=printable(task.id), depth=1, doing="waits", kind="waits", verb=printable(verb))
                )
        return rows


def _boxes(state: State, now_us: int) -> list[Box]:
    """The mailboxes of programs, those with messages first."""
    full, empty = list[Box](), list[Box]()
    for name, mailbox in state.mailboxes.items():
        oldest = mailbox.oldest()
        if oldest is not None:
            full.append(Box(printable(name), len(mailbox), (now_us - oldest.at) / 1e6))
        elif name[:1] not in {"@", "$"}:
            empty.append(Box(printable(name), 0))
    return full + empty
