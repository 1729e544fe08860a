"""``bartack show``: the steps of a run with durations and outcomes, or one step in full."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import click
import msgspec

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, Style, human_size, human_time, printable
from bartack.cli.runs._failure import FailureText, write_failure
from bartack.cli.runs._runs import (
    iso,
    latest_argument,
    locate,
    paint_status,
    pretty,
    read_timeline,
    workspace_option,
)
from bartack.errors import StepNotFoundError
from bartack.runtime.rundir.find import status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.step_search import find_step
from bartack.runtime.state.timeline import StepRecord, Timeline

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


@click.command(short_help="Show the steps of a run, or one step in full.")
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
@click.option("--monitors", is_flag=True, help="Show monitors instead of steps: which worker watches which.")
@click.option("--verify", is_flag=True, help="Compare the receipts of the run with the current files.")
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
    monitors: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Show the steps of a run with their durations, and its messages, failures and notes.

    Without RUN the command shows the latest run. Of a long run it shows only the newest steps and all open ones, unless --all,
    --failed, --worker or --json is given. STEP shows one step in full, with its outcome. Name a step by its worker's path, a
    colon and its number (main/3.1:analyst:2); a number alone is a step of the first worker.
    """
    found = locate(run, workspace)
    if step is not None and not (monitors or verify):
        _show_step(found, step, as_json=as_json)
        return
    whole = everything or failed or worker is not None or as_json
    timeline = read_timeline(found, None if whole else NEWEST)
    if monitors:
        _show_monitors(timeline, worker, as_json=as_json)
        return
    if verify:
        from bartack.cli.runs._receipts import show_receipts  # noqa: PLC0415 - only runs of the pipeline have some

        show_receipts(found, found.workspace(timeline.state), as_json=as_json)
        return
    steps = [
        record
        for record in timeline.steps
        if (worker is None or _is_below(record.p, worker)) and (not failed or record.status == "failed")
    ]
    if as_json:
        write_json(_everything(found, timeline, steps))
    else:
        _write(Screen(sys.stdout), found, timeline, steps)


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
        "crashes": [{"at": iso(crash.at), **msgspec.to_builtins(crash.report)} for crash in timeline.crashes],
        "failure": msgspec.to_builtins(state.failure),
    }


def _facts(step: StepRecord) -> dict[str, object]:
    return {"step": step.name, **msgspec.to_builtins(step), "duration_s": step.duration_s}


# For people.


def _write(screen: Screen, run: RunDir, timeline: Timeline, steps: list[StepRecord]) -> None:
    state = timeline.state
    assert state.run is not None
    status = status_of(run, state)
    took = human_time((state.last_at - state.created_at) / 1e6)
    screen.line(f"{run.id}  {paint_status(screen, status)}  {printable(state.run.name)}  {took}")
    if any(msgspec.structs.astuple(timeline.left_out)):
        screen.line(screen.paint(_left_out(run, timeline), "dim"))
    _write_steps(screen, timeline, steps, active=status in {"running", "waiting"} and not state.stopped)
    _write_messages(screen, timeline)
    _write_crashes(screen, timeline)
    _write_notes(screen, timeline)
    if state.failure is not None and status == "failed":
        screen.line()
        write_failure(screen, run, state)


def _left_out(run: RunDir, timeline: Timeline) -> str:
    counts = msgspec.structs.asdict(timeline.left_out)
    parts = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"only the newest are shown, without {parts}; all of them: bartack show {run.id} --all"


def _write_steps(screen: Screen, timeline: Timeline, steps: list[StepRecord], *, active: bool) -> None:
    groups: dict[str, list[StepRecord]] = {}
    for step in steps:
        groups.setdefault(step.p, []).append(step)
    for path, of_path in groups.items():
        worker = timeline.workers.get(path)
        status = "" if worker is None else worker.status
        if status == "waiting":
            status = "running" if active else "interrupted"
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
        parts.append(f"({step.usd:.2f} USD)")
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
                printable(f"from {message.sender or '?'}" + _to(message.receiver)),
            )
            for message in timeline.messages.values()
        ]
    )


def _to(receiver: str) -> str:
    return f" to {receiver}" if receiver else ""


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


def _first(text: str) -> str:
    return text.splitlines()[0] if text else ""


# One step.


def _show_step(run: RunDir, asked: str, *, as_json: bool) -> None:
    created, step, value = find_step(run, asked)
    if step is None:
        raise StepNotFoundError(run.id, asked)
    if as_json:
        shown = _facts(step)
        if value is not None:
            shown["value"] = msgspec.json.decode(value)
        write_json(shown)
        return
    screen = Screen(sys.stdout)
    screen.table([(screen.paint(name, "dim"), text) for name, text in _rows(screen, step)], indent=0)
    if step.error is not None:
        screen.line()
        FailureText(screen, run, created.root).write(step.error)
    if value is not None:
        screen.line()
        for line in pretty(value).splitlines():
            screen.line(printable(line))


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
        yield "cost", f"{step.usd:.4f} USD"
    if step.seq:
        yield "entry", str(step.seq)
