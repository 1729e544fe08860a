"""How a run has ended or was stopped, and what to type next: what stays on the terminal when the live view is gone."""

from __future__ import annotations

import sys

import msgspec

from bartack.cli.app._exit import Exit
from bartack.cli.app._options import with_on
from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.app._runs import describe_rest, iso, load_value, open_questions, pretty
from bartack.cli.app._terminal import Colour, Screen, human_time, printable, printable_lines, usd_text
from bartack.cli.live._answer import expected
from bartack.cli.live._views import put_event
from bartack.cli.look._failure import write_decision, write_failure
from bartack.errors import BartackError
from bartack.runtime.client.again import last_answer
from bartack.runtime.protocol.remedies import known_error
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State


def put_result(run: RunDir, state: State, status: str, code: Exit) -> None:
    """Write how a run has ended, as the last event."""
    event: dict[str, object] = {"event": "result", "run": run.id, "status": status, "exit_code": int(code)}
    if status == "completed":
        event["value"] = msgspec.Raw(load_value(run, state.result))
    if status == "failed" and state.failure is not None:
        event["worker"] = state.failure.worker
        event["error"] = msgspec.to_builtins(state.failure.error)
        known = known_error(state.failure.error)
        if known is not None:
            event["help"] = known.remedy
    if status == "waiting":
        event["questions"] = msgspec.to_builtins(open_questions(run, state))
    put_event(event)


def write_end(
    run: RunDir, state: State, elapsed_s: float, status: str, colour: Colour, *, quiet: bool = False
) -> None:
    """Write how a run has ended or was stopped, and what to do next.

    Args:
        run: The run.
        state: What its journal adds up to.
        elapsed_s: How long it was active.
        status: How it has ended.
        colour: Whether styles become colours.
        quiet: Write of a completed run only its result.
    """
    screen = Screen(sys.stderr, colour)
    took = human_time(elapsed_s)
    match status:
        case "completed" if quiet:
            _write_result(run, state)
        case "completed":
            _write_result(run, state)
            done = f"{run.id} {screen.paint('completed', 'green')} in {took}"
            screen.line(f"{done}{_counts(state)}{_unreceived(state)}")
            _write_details(screen, run, state)
        case "failed":
            _write_failed(screen, run, state, took)
        case "cancelled" | "aborted":
            reason = state.ended.reason if state.ended else ""
            by = f" (by {printable(state.ended.by)})" if state.ended and state.ended.by else ""
            screen.line(f"{run.id} was {status} after {took}: {printable(reason)}{by}")
        case "waiting":
            _write_questions(screen, run, state)
            if run.is_for_nodes():
                screen.line(f"{run.id} waits for an answer; with it a node continues the run")
            else:
                screen.line(f"{run.id} was stopped because it waits for an answer")
                _write_hint(screen, run, "answer it, then")
        case "resting":
            rest = describe_rest(iso(state.rests_until), state.rests_for)
            screen.line(f"{run.id} {rest}; the node resumes it then")
        case "disk" if not run.exists():
            screen.line(
                f"{run.id} was stopped after {took}: its directory {run.path} was deleted or moved while it was active"
            )
            screen.line("  start a new run, or, if the directory was moved, name its new path")
        case "disk":
            screen.line(f"{run.id} was interrupted by the disk after {took}; nothing is lost")
            _write_hint(screen, run, "fix the disk, then")
        case _:
            screen.line(f"{run.id} was interrupted after {took}{_counts(state)}")
            _write_hint(screen, run, "resume with")
    screen.flush()


def _write_failed(screen: Screen, run: RunDir, state: State, took: str) -> None:
    """Write why a run failed, and what to do about it."""
    write_failure(screen, run, state)
    screen.line(f"{run.id} {screen.paint('failed', 'red')} after {took}{_counts(state)}")
    _write_kept(screen, state)
    if state.run is not None and state.run.worker == PIPELINE:
        _write_report(screen, run)
    if not write_decision(screen, run.id, state):
        _write_hint(screen, run, "fix the cause, then")
        _suggest_again(screen, run, state)


def _write_summary(screen: Screen, run: RunDir) -> None:
    """Write what a run of the pipeline has done, and the command that shows it."""
    from bartack.cli.look._status import write_result  # noqa: PLC0415 - only runs of the pipeline need it
    from bartack.pipeline.records.task_state import read_progress  # noqa: PLC0415 - likewise

    progress = read_progress(run)
    done = sum(task.status == "done" for task in progress.tasks)
    counts = [
        f"{done} task{'' if done == 1 else 's'} done",
        f"{progress.files} file{'' if progress.files == 1 else 's'} changed",
    ]
    screen.line(f"  {', '.join(counts)}; details: bartack show {run.id}")
    write_result(screen, progress)
    _write_report(screen, run)


def _write_report(screen: Screen, run: RunDir) -> None:
    """Write the report of a run of the pipeline in short."""
    from bartack.cli.look._report import write_short  # noqa: PLC0415 - only runs of the pipeline need it
    from bartack.pipeline.report.read import read_report  # noqa: PLC0415 - likewise

    try:
        write_short(screen, read_report(run))
    except BartackError as error:
        # The run is over and its end is reported: what cannot be looked at now must not change that.
        screen.line(f"  no report: {printable(error.message.partition(chr(10))[0])}")


def _suggest_again(screen: Screen, run: RunDir, state: State) -> None:
    """Suggest --again if no step failed: the program may fail each time because of an agent's recorded answer."""
    failure = state.failure
    worker = state.workers.get(failure.worker) if failure is not None else None
    if worker is None or worker.origin_seq:
        return
    with run.open_reader() as reader:
        step = last_answer(state, worker.path, reader.read())
    if step:
        again = with_on(f"bartack resume {run.id} --again {step}")
        screen.line(f"  if the recorded answer of step {step} is the cause: {again}")


def _counts(state: State) -> str:
    """How many steps a run has done, and what its agents have cost."""
    steps = sum(len(worker.history) for worker in state.workers.values())
    cost = f", {usd_text(state.spent_usd, estimated=state.usd_estimated)}" if state.spent_usd else ""
    return f", {steps:,} step{'' if steps == 1 else 's'}{cost}"


def _write_details(screen: Screen, run: RunDir, state: State) -> None:
    """Write what a completed run has done; on a terminal also the command that shows it."""
    _write_kept(screen, state)
    if state.run is not None and state.run.worker == PIPELINE:
        _write_summary(screen, run)
    elif screen.width is not None:
        screen.line(f"  details: {with_on(f'bartack show {run.id}')}, or {with_on('bartack web')}")


def _write_kept(screen: Screen, state: State) -> None:
    """Write what a resume did not pay again."""
    answers = state.kept_answers
    if state.hub > 1 and answers:
        cost = f" ({state.kept_usd:.2f} USD)" if state.kept_usd else ""
        which = "1 recorded answer" if answers == 1 else f"{answers:,} recorded answers"
        screen.line(f"  {which}{cost} {'was' if answers == 1 else 'were'} not paid again")


def _write_hint(screen: Screen, run: RunDir, when: str) -> None:
    screen.line(f"  {when}: {with_on(f'bartack resume {run.id}')}")


def _write_result(run: RunDir, state: State) -> None:
    encoded = load_value(run, state.result)
    if encoded != b"null":
        sys.stdout.write(pretty(encoded) + "\n")
        sys.stdout.flush()


def _unreceived(state: State) -> str:
    left = [f"{len(box)} in {name}" for name, box in state.mailboxes.items() if len(box)]
    return f"; messages not received: {', '.join(left)}" if left else ""


def _write_questions(screen: Screen, run: RunDir, state: State) -> None:
    for question in open_questions(run, state):
        wanted = expected(AskArgs(question="", type=question.type, options=question.options))
        screen.line(f"? {printable_lines(f'{question.question} ({wanted})', 2)}")
        if question.use:
            screen.line(f"  {printable(question.use)} (asked by {printable(question.asker)})")
        screen.line("  " + with_on(f"bartack answer {run.id} {question.id} {question.hint}"))
