"""``bartack show``: the steps of a run with durations and outcomes, or one step in full."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from bartack.cli.app._database import branches_of, describe_wait, shows_database, wait_of
from bartack.cli.app._options import json_option, with_on, write_json
from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.app._runs import (
    RunFirst,
    iso,
    latest_argument,
    locate,
    locate_or_newest,
    paint_status,
    pretty,
    read_timeline,
    workspace_option,
)
from bartack.cli.app._terminal import Screen, Style, human_size, human_time, printable, usd_text
from bartack.cli.look._failure import FailureText, write_failure
from bartack.cli.look._reading import read_story_of
from bartack.core import typed
from bartack.errors import StepNotFoundError
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import ThinkOutcome
from bartack.runtime.rundir.find import status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.step_search import find_step
from bartack.runtime.state.status import is_cut_off, worker_status
from bartack.runtime.state.timeline import NoteRecord, StepRecord, Timeline

if TYPE_CHECKING:
    from bartack.pipeline.report.story import Scene, TaskStory
    from bartack.runtime.rundir.call_transcript import CallTranscript

REWINDS: Final = 64
"""How often a worker may have been set back for the call of a step without an outcome to be found."""
NEWEST: Final = 1000
"""The largest number of steps, of messages and of notes shown of a long run."""

TAIL_LINES: Final = 40
"""How many of the last lines on stderr of a crashed process are shown."""
_STYLES: Final[dict[str, Style]] = {
    "finished": "green",
    "failed": "red",
    "open": "cyan",
    "undone": "dim",
    "aborted": "yellow",
}
_VERDICTS: Final[dict[str, Style]] = {
    "approved": "green",
    "pass": "green",
    "merged": "green",
    "changes_requested": "yellow",
    "aborted": "yellow",
    "waived": "yellow",
    "conflict": "red",
    "fail": "red",
    "failed": "red",
    "refused": "red",
    "open": "cyan",
}


@click.command(cls=RunFirst, short_help="Show the steps of a run, or one step in full.")
@latest_argument
@click.argument("step", required=False)
@click.option("--worker", metavar="PATH", help="Show only this worker and the workers below it.")
@click.option("--failed", is_flag=True, help="Show only failed steps.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Show all steps, messages and notes, not only the newest {NEWEST:,}.",
)
@click.option(
    "--steps",
    "all_steps",
    is_flag=True,
    help="Show the steps of a run of the pipeline, its bookkeeping included, and not its story.",
)
@click.option("--monitors", is_flag=True, help="Show monitors instead of steps: which worker watches which.")
@click.option("--verify", is_flag=True, help="Compare the receipts of the run with the current files.")
@shows_database
@workspace_option
@json_option
def show(
    run: str,
    step: str | None,
    worker: str | None,
    workspace: str,
    *,
    failed: bool,
    everything: bool,
    all_steps: bool,
    monitors: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Show the steps of a run with their durations, and its messages, failures and notes.

    Without RUN the command shows the latest run, or STEP of it. Of a long run it shows only the newest steps and all open
    ones, unless --all, --failed, --worker or --json is given. STEP shows one step in full, with its outcome, and
    what an agent did that it asked. Name a step by its worker's path, a
    colon and its number (main/3.1:analyst:2); a number alone is a step of the first worker.

    Of a run of the pipeline it shows what happened for each task: the calls of agents by round, the tests and the verdicts.
    --steps, --all, --failed and --worker show its steps instead.
    """
    if step is not None and not (monitors or verify):
        _show_step(locate_or_newest(run, workspace), step, as_json=as_json)
        return
    found = locate(run, workspace)
    if monitors:
        _show_monitors(read_timeline(found), worker, as_json=as_json)
        return
    if verify:
        from bartack.cli.look._receipts import show_receipts  # noqa: PLC0415 - only runs of the pipeline have some

        show_receipts(found, as_json=as_json)
        return
    chosen = Chosen(worker, failed, all_steps or everything)
    newest = NEWEST if not (everything or chosen.is_part or as_json) else None
    _show_run(found, *read_story_of(found, newest), chosen, as_json=as_json)


class Chosen(msgspec.Struct, frozen=True):
    """The steps that a person wants to see.

    Attributes:
        worker: Only those of this worker and of the workers below it.
        failed: Only those that failed.
        steps: Those of a run of the pipeline, too, in place of its story.
    """

    worker: str | None = None
    failed: bool = False
    steps: bool = False

    @property
    def is_part(self) -> bool:
        """Whether some steps of a run are left out."""
        return self.failed or self.worker is not None

    def has(self, step: StepRecord) -> bool:
        """Whether a step is one of them."""
        is_there = self.worker is None or _is_below(step.p, self.worker)
        return is_there and (not self.failed or step.status == "failed")


def _show_run(
    run: RunDir, timeline: Timeline, story: list[TaskStory], chosen: Chosen, *, as_json: bool
) -> None:
    if chosen.is_part:
        story = []
    _settle(run, timeline, story)
    branches = branches_of(timeline.state, wait_of(run))
    if branches:
        timeline.notes.append(NoteRecord(timeline.state.last_at, "branches", branches))
    steps = [step for step in timeline.steps if chosen.has(step)]
    if as_json:
        tasks = {"tasks": msgspec.to_builtins(story)} if story else {}
        write_json({**_everything(run, timeline, steps), **tasks})
    else:
        _write(Screen(sys.stdout), run, timeline, steps, [] if chosen.steps else story)


def _settle(run: RunDir, timeline: Timeline, story: list[TaskStory]) -> None:
    """Give workers and tasks that have not ended, and open steps, the status that they have for people."""
    state, active = timeline.state, run.is_active()
    for worker in timeline.workers.values():
        worker.status = worker_status(state, worker.status, active=active)
    for task in story:
        task.status = worker_status(state, task.status, active=active)
    if is_cut_off(state, active=active):
        for step in timeline.steps:
            if step.status == "open":
                step.status = "aborted"


def _show_monitors(timeline: Timeline, worker: str | None, *, as_json: bool) -> None:
    registry = timeline.state.monitors
    found = [m for m in registry.monitors() if worker is None or _is_below(m.watcher, worker)]
    leaks = [
        leak for leak in timeline.state.leaks if worker is None or _is_below(leak.monitor.watcher, worker)
    ]
    stats = registry.stats()
    if as_json:
        listed = [{**m._asdict(), "created_at": iso(m.created_us)} for m in found]
        left = [{**leak.monitor._asdict(), "age_s": leak.age_us / 1e6} for leak in leaks]
        write_json({"monitors": listed, "stats": stats._asdict(), "leaks": left})
        return
    screen = Screen(sys.stdout)
    leaked = f", {stats.leaked} leaked" if stats.leaked else ""
    screen.line(f"{stats.active} active, {stats.created} created, {stats.cleaned} removed{leaked}")
    rows = [(m.ref, f"{m.watcher} watches {m.target}", m.tag, m.stack[-1] if m.stack else "") for m in found]
    rows += [
        (
            leak.monitor.ref,
            f"{leak.monitor.watcher} leaked its monitor of {leak.monitor.target}",
            leak.monitor.tag,
            leak.monitor.stack[-1],
        )
        for leak in leaks
    ]
    screen.listing([tuple(printable(cell) for cell in row) for row in rows])


def _is_below(p: str, worker: str) -> bool:
    return p == worker or p.startswith((f"{worker}/", f"{worker}."))


def _everything(run: RunDir, timeline: Timeline, steps: list[StepRecord]) -> dict[str, object]:
    state = timeline.state
    assert state.run is not None
    return {
        "run": run.id,
        "status": status_of(run, state),
        "program": state.run.program,
        "worker": state.run.name,
        "created_at": iso(state.created_at),
        "workers": msgspec.to_builtins(list(timeline.workers.values())),
        "steps": [_facts(step) for step in steps],
        "messages": msgspec.to_builtins(list(timeline.messages.values())),
        "notes": msgspec.to_builtins(timeline.notes),
        "not_copied": state.copies.left_out,
        "crashes": [{"at": iso(crash.at), **msgspec.to_builtins(crash.report)} for crash in timeline.crashes],
        "failure": msgspec.to_builtins(state.failure),
        "queue": "" if run.is_active() else describe_wait(wait_of(run)),
    }


def _facts(step: StepRecord) -> dict[str, object]:
    return {"step": step.name, **msgspec.to_builtins(step), "duration_s": step.duration_s}


# For people.


def _write(
    screen: Screen, run: RunDir, timeline: Timeline, steps: list[StepRecord], story: list[TaskStory]
) -> None:
    state = timeline.state
    assert state.run is not None
    status = status_of(run, state)
    took = human_time((state.last_at - state.created_at) / 1e6)
    name = "pipeline" if state.run.worker == PIPELINE else state.run.name
    screen.line(f"{run.id}  {paint_status(screen, status)}  {printable(name)}  {took}")
    waits = "" if run.is_active() else describe_wait(wait_of(run))
    if waits:
        screen.line(printable(waits))
    if any(msgspec.structs.astuple(timeline.left_out)):
        screen.line(screen.paint(_left_out(run, timeline), "dim"))
    if story:
        _write_story(screen, run, story, steps)
    else:
        _write_steps(screen, timeline, steps)
    _write_messages(screen, timeline)
    _write_crashes(screen, timeline)
    _write_notes(screen, timeline)
    _write_not_copied(screen, state.copies.left_out)
    if state.failure is not None and status == "failed":
        screen.line()
        write_failure(screen, run, state)


def _left_out(run: RunDir, timeline: Timeline) -> str:
    counts = msgspec.structs.asdict(timeline.left_out)
    parts = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return (
        f"only the newest are shown, without {parts}; all of them: {with_on(f'bartack show {run.id} --all')}"
    )


def _write_story(screen: Screen, run: RunDir, story: list[TaskStory], steps: list[StepRecord]) -> None:
    for task in story:
        screen.line()
        title = (
            f"{screen.paint(printable(task.id or 'the run'), 'bold')}  {paint_status(screen, task.status)}"
        )
        about = "  ".join(part for part in (task.title, task.path) if part)
        screen.line(f"{title}  {printable(about)}".rstrip())
        screen.listing([_scene_row(screen, task, scene) for scene in task.scenes])
    shown = {(scene.p, scene.n) for task in story for scene in task.scenes}
    folded = sum((step.p, step.n) not in shown for step in steps)
    if folded:
        count = f"{folded:,} other step{'' if folded == 1 else 's'}"
        screen.line()
        screen.line(screen.paint(f"{count} of the pipeline itself: bartack show {run.id} --steps", "dim"))


def _scene_row(screen: Screen, task: TaskStory, scene: Scene) -> tuple[str, ...]:
    verdict = {"open": "aborted" if task.status == "aborted" else "open", "undone": "undone"}.get(
        scene.status, scene.verdict
    )
    number = str(scene.n) if scene.p == task.path else f"{scene.p}:{scene.n}"
    cost = f" ({usd_text(scene.usd, estimated=scene.usd_estimated)})" if scene.usd else ""
    return (
        f"{printable(number):>4}",
        f"round {scene.round}" if scene.round else "",
        scene.action,
        printable(scene.agent),
        f"{'' if scene.took_s is None else human_time(scene.took_s):>11}",
        screen.paint(printable(verdict), _VERDICTS.get(verdict, "dim")),
        printable(f"{_first(scene.text)}{cost}".strip()),
    )


def _write_steps(screen: Screen, timeline: Timeline, steps: list[StepRecord]) -> None:
    groups: dict[str, list[StepRecord]] = {}
    for step in steps:
        groups.setdefault(step.p, []).append(step)
    for path, of_path in groups.items():
        worker = timeline.workers.get(path)
        status = "" if worker is None else worker.status
        screen.line()
        screen.line(f"{screen.paint(printable(path), 'bold')}  {paint_status(screen, status)}".rstrip())
        screen.listing([_step_row(screen, step) for step in of_path])


def _step_row(screen: Screen, step: StepRecord) -> tuple[str, ...]:
    took = step.duration_s
    status = "cleanup" if step.cleanup and step.status == "finished" else step.status
    return (
        f"{step.n:>4}",
        step.kind,
        screen.paint(status, _STYLES.get(step.status, "dim")),
        f"{'' if took is None else human_time(took):>11}",
        printable(_about(step)),
    )


def _about(step: StepRecord) -> str:
    parts = [step.about]
    if step.attempt > 1:
        parts.append(f"(attempt {step.attempt})")
    if step.by:
        parts.append(f"(by {step.by})")
    if step.usd:
        parts.append(f"({usd_text(step.usd, estimated=step.usd_estimated)})")
    about = " ".join(part for part in parts if part)
    if step.error is None:
        return about
    failed = f"{step.error.type.rpartition(':')[2]}: {_first(step.error.message)}"
    return f"{about}: {failed}" if about else failed


def _write_messages(screen: Screen, timeline: Timeline) -> None:
    if not timeline.messages:
        return
    screen.line()
    screen.line(screen.paint("Messages", "bold"))
    screen.listing(
        [
            (
                message.id,
                printable(message.mailbox),
                message.status,
                human_size(message.size),
                printable(f"from {message.sender or '?'}{_to(message.receiver)}{_because(message.reason)}"),
            )
            for message in timeline.messages.values()
        ]
    )


def _to(receiver: str) -> str:
    return f" to {receiver}" if receiver else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _write_crashes(screen: Screen, timeline: Timeline) -> None:
    if not timeline.crashes:
        return
    screen.line()
    screen.line(screen.paint("Crashes", "bold"))
    for at, report in timeline.crashes:
        parts = [f"up {human_time(report.uptime_s)}"]
        if report.peak_memory_bytes:
            parts.append(f"{human_size(report.peak_memory_bytes)} at most")
        if report.last_step:
            parts.append(f"at {report.last_step}")
        then = "given up" if report.decision == "escalate" else "restarted"
        about = f"{report.path}  {report.reason}  {', '.join(parts)}; {then}"
        screen.line(f"  {screen.paint(iso(at), 'dim')}  {printable(about)}")
        for line in report.stderr_tail.splitlines()[-TAIL_LINES:]:
            screen.line(f"      {printable(line)}")


def _write_notes(screen: Screen, timeline: Timeline) -> None:
    if not timeline.notes:
        return
    screen.line()
    screen.line(screen.paint("Notes", "bold"))
    screen.listing(
        [
            (screen.paint(iso(note.at), "dim"), printable(note.worker), printable(_first(note.text)))
            for note in timeline.notes
        ]
    )


def _write_not_copied(screen: Screen, left_out: Sequence[str]) -> None:
    if not left_out:
        return
    screen.line()
    screen.line(screen.paint("Not in the copy of the workspace", "bold"))
    for sentence in left_out:
        screen.line(f"  {printable(sentence)}")


def _first(text: str) -> str:
    return text.splitlines()[0] if text else ""


# One step.


def _show_step(run: RunDir, asked: str, *, as_json: bool) -> None:
    created, step, value, wanted, is_over, unused = find_step(run, asked)
    if step is None:
        raise StepNotFoundError(run.id, asked)
    if step.status == "open" and is_over:
        step.status = "aborted"
    call = _read_call(run, step, value)
    if as_json:
        values = {"asked": wanted, "value": value}
        shown = {name: msgspec.json.decode(raw) for name, raw in values.items() if raw is not None}
        more = {
            "transcript": msgspec.to_builtins(call.events) if call is not None else None,
            "tools_not_called": list(unused) or None,
        }
        known = {name: value for name, value in more.items() if value is not None}
        write_json({**_facts(step), **shown, **known})
        return
    screen = Screen(sys.stdout)
    screen.table([(screen.paint(name, "dim"), text) for name, text in _rows(screen, step)], indent=0)
    if step.error is not None:
        screen.line()
        FailureText(screen, run, created.root).write(step.error)
    if wanted is not None:
        _write_asked(screen, wanted)
    if value is not None:
        screen.line()
        if wanted is not None:
            screen.line(screen.paint("Outcome", "bold"))
        for line in pretty(value).splitlines():
            screen.line(printable(line))
    if call is not None:
        from bartack.cli.look._call import write_call  # noqa: PLC0415 - only steps that ask an agent need it

        write_call(screen, call)
    if unused:
        screen.line()
        screen.line(screen.paint("Tools", "bold"))
        yet = "" if step.seq else " yet"
        screen.listing([(f"{printable(name)}: not called{yet}",) for name in unused])


def _write_asked(screen: Screen, wanted: bytes) -> None:
    """What a prompt or a question asks: its text, then the rest."""
    facts = typed.decode(wanted, type=dict[str, object])
    name = "prompt" if "prompt" in facts else "question"
    text = facts.pop(name, "")
    screen.line()
    screen.line(screen.paint("Asked", "bold"))
    for line in str(text).splitlines():
        screen.line(printable(line))
    if facts:
        for line in pretty(msgspec.json.encode(facts)).splitlines():
            screen.line(printable(line))


def _read_call(run: RunDir, step: StepRecord, value: bytes | None) -> CallTranscript | None:
    """What happened during the call of an agent, if the step has asked one."""
    if step.kind != "think":
        return None
    from bartack.runtime.rundir.call_transcript import read_call  # noqa: PLC0415 - only steps that ask an agent need it

    call = read_call(run, _keys(run, step, value))
    return call if call.events else None


def _keys(run: RunDir, step: StepRecord, value: bytes | None) -> list[str]:
    """The keys that the call may have: that of its outcome, or those of the step."""
    if value is not None:
        try:
            return [typed.decode(value, type=ThinkOutcome).key]
        except msgspec.DecodeError:
            return []
    return [step_key(run.id, step.p, step.n, rewinds) for rewinds in range(REWINDS)]


def _rows(screen: Screen, step: StepRecord) -> Iterable[tuple[str, str]]:
    yield "step", printable(step.name)
    yield "kind", printable(f"{step.kind} {step.about}".rstrip())
    yield "status", screen.paint(step.status, _STYLES.get(step.status, "dim"))
    if step.started_at:
        yield "began", iso(step.started_at)
    if step.ended_at:
        yield "ended", iso(step.ended_at)
    if step.duration_s is not None:
        yield "took", human_time(step.duration_s)
    if step.attempt > 1:
        yield "attempt", str(step.attempt)
    if step.by:
        yield "by", printable(step.by)
    if step.usd:
        yield "cost", usd_text(step.usd, estimated=step.usd_estimated, digits=4)
    if step.seq:
        yield "entry", str(step.seq)
