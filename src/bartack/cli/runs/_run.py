"""``bartack run`` and ``resume``: this process becomes the hub of the run and shows its progress.

The run itself is created and driven by ``runtime/hub``; ``_live.py`` shows it while it is active.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import click
import msgspec

from bartack.cli.app._exit import Exit
from bartack.cli.app._lossy import lossy_stderr
from bartack.cli.app._options import json_option
from bartack.cli.app._terminal import (
    Colour,
    Screen,
    human_time,
    listed,
    printable,
    printable_lines,
    write_note,
)
from bartack.cli.runs._answer import expected
from bartack.cli.runs._failure import known_error, needs_update, spent_setting, write_failure
from bartack.cli.runs._live import JsonView, PlainView, TerminalView, View, put_event
from bartack.cli.runs._pipeline_options import PIPELINE, PipelineOptions, pipeline_options, set_option
from bartack.cli.runs._runs import (
    complete_run,
    load_value,
    locate,
    note_unreadable,
    open_questions,
    pretty,
    workspace_option,
)
from bartack.config.load import Config, check_resumed, kept_sets, load_config
from bartack.config.project import PATCHWORK
from bartack.errors import RunAsError, RunNotFoundError, UsageError
from bartack.journal import open_reader
from bartack.runtime.client.again import last_answer, set_aside
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.launch import EXIT_CODES, drive
from bartack.runtime.program.source import differences, pinned_files
from bartack.runtime.program.update import update_program
from bartack.runtime.protocol.frames import TOGETHER
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.find import TERMINAL, UNREADABLE, RunSummary, list_runs, read_state, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.run_as import check_run_as
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import UnknownDecision, Value

wait_option = click.option("--wait", is_flag=True, help="Keep the run active while it waits for an answer.")

run_as_option = click.option(
    "--run-as",
    metavar="USER",
    help="Execute the program, its commands and its agents as this user (root only). A resume continues as the same user.",
)


@click.command(short_help="Run a program, or tasks through the pipeline.")
@click.argument("program", metavar="[FILE[:WORKER]]", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARG...]")
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="NAME",
    help="Run this worker, like FILE:WORKER. Repeat it to run several workers of a Patchwork program together.",
)
@click.option(
    "--input", "given", metavar="JSON|@FILE", help="Pass the worker's arguments by name, as a JSON object."
)
@pipeline_options
@wait_option
@run_as_option
@workspace_option
@json_option
def run(
    program: str | None,
    args: tuple[str, ...],
    *,
    options: PipelineOptions,
    workers: tuple[str, ...],
    given: str | None,
    run_as: str | None,
    workspace: str,
    wait: bool,
    as_json: bool,
) -> Exit:
    """Run a program in Patchwork (.pw) or Python (.py): the worker 'main' of FILE, its only worker, or the named one.

    The program is checked first, as by 'bartack check': warnings are shown, and a program with errors is not run. A Patchwork
    program can also consist of statements, and NAME can be a fun, a skill or Trait.method.

    Without FILE the pipeline works on the tasks of bartack.toml, or on a goal: agents implement, test, review and update the
    spec. The command checks every agent that the run can need before it pays for the first call.

    Each ARG is an argument of the worker. Options for it follow '--': bartack run team.pw -- --name Ann.

    The output of the program, and its result unless that is null, go to stdout; everything else goes to stderr. With --json
    stdout carries events, one JSON object a line: every entry of the journal as soon as it is durable, and 'result' at the end.

    Ctrl-C interrupts the run cleanly and prints how to resume it. A second Ctrl-C terminates all processes at once; the run can
    still be resumed. Questions are asked on the terminal. Without a terminal, a run that needs an answer to continue is stopped
    (exit code 3) unless --wait is given.
    """
    place = Path(workspace).resolve()
    if program is None:
        _refuse_pipeline(run_as)
        return _run_pipeline(options, place, wait=wait, as_json=as_json)
    options.check_absent()
    config = load_config(place, options.sets)
    request = RunRequest(program=_from_here(program), worker=_together(program, workers), argv=list(args))
    request.input, request.no_input, request.run_as = _read_input(given), options.no_input, run_as or ""
    made = create_run(
        request, place, config, options.sets, note=lambda text: write_note(printable(text)), warn=_warn
    )
    view = _view(made, config, "started", wait=wait, no_input=options.no_input, as_json=as_json)
    return _drive(made, config, view, as_json=as_json)


def _warn(warnings: str) -> None:
    """Show the warnings of the program check; the program still runs."""
    write_note(warnings.rstrip())


def _refuse_pipeline(run_as: str | None) -> None:
    if run_as is not None:
        problem = "the pipeline reads and changes the workspace with the rights of the user who starts it"
        raise RunAsError(run_as, problem, "Name a program (FILE), or start the pipeline as that user.")


def _together(program: str, workers: tuple[str, ...]) -> str:
    """Return the name of the worker to run; several workers of a Patchwork program are joined into one name."""
    if len(workers) > 1 and not program.partition(":")[0].endswith(PATCHWORK):
        raise UsageError("bartack run", "several workers run together only in a Patchwork program (.pw)")
    named = "" if Path(program).is_file() else program.rpartition(":")[2] if ":" in program else ""
    if named and workers:
        raise UsageError("bartack run", f"name the worker once: {program}, or --worker {workers[0]}")
    return TOGETHER.join(workers)


def _run_pipeline(options: PipelineOptions, workspace: Path, *, wait: bool, as_json: bool) -> Exit:
    from bartack.cli.runs._pipeline import new_run  # noqa: PLC0415 - other programs start faster without it
    from bartack.pipeline import describe_run  # noqa: PLC0415 - likewise

    with new_run(options, workspace, wait=wait) as (made, config):
        view = _view(made, config, "started", wait=wait, no_input=options.no_input, as_json=as_json)
        return _drive(made, config, view, as_json=as_json, describe=describe_run(made))


def _from_here(program: str) -> str:
    """Make the path of an existing file absolute; any other name is searched in the workspace."""
    name, colon, worker = program.rpartition(":")
    if Path(program).is_file():
        return os.path.abspath(program)
    return f"{os.path.abspath(name)}:{worker}" if colon and Path(name).is_file() else program


def _read_input(given: str | None) -> dict[str, msgspec.Raw]:
    if given is None:
        return {}
    try:
        text = Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError("bartack run", f"--input {given}: {problem}") from None
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise UsageError("bartack run", f"--input is not a JSON object: {error}") from None


class _Resume(click.Command):
    """A command whose option ``--unknown done VALUE`` takes two words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        for place in range(len(args) - 2):
            if args[place : place + 2] == ["--unknown", "done"]:
                args = [*args[: place + 1], f"done {args[place + 2]}", *args[place + 3 :]]
                break
        return super().parse_args(ctx, args)


# Long because its options and its help are part of it; the functions that it calls do the work.
@click.command(cls=_Resume, short_help="Resume an interrupted or failed run.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--unknown",
    metavar="retry|done VALUE|fail",
    help="Decide about a step with an unknown outcome: execute it again, take VALUE (JSON) as its outcome, or fail it.",
)
@click.option(
    "--again",
    metavar="STEP",
    help="Set aside the recorded outcome of STEP (PATH:N, or N) and all steps that depend on it, and execute them again.",
)
@click.option(
    "--update", is_flag=True, help="Resume with the current source, if it matches the recorded steps."
)
@click.option("--program", metavar="PATH", help="Like --update, with the source in PATH.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Resume although entries of the journal are missing (BT213); the lost steps are executed again.",
)
@set_option
@wait_option
@run_as_option
@workspace_option
@json_option
def resume(
    run: str | None,
    unknown: str | None,
    again: str | None,
    program: str | None,
    sets: tuple[str, ...],
    run_as: str | None,
    workspace: str,
    *,
    accept_loss: bool,
    update: bool,
    wait: bool,
    as_json: bool,
) -> Exit:
    """Resume a run that was interrupted, killed or has failed.

    Without RUN the command resumes the newest run that is not completed, cancelled or aborted. Finished steps are not executed
    again. A failed worker continues at its failed step. For a completed run the command only reports that it is completed.

    The run executes the program that it was started with, even if the source has changed. With --update the command first
    compares the recorded steps with the steps of the changed source; if they differ, nothing is executed or changed.

    A run that fails each time because of a recorded value needs --again: the step that returned the value is executed again, and
    so are all steps that depend on it. The agent of that step is notified that its answer was refused. The journal keeps the
    outcomes that are set aside; files are not rolled back. A step is refused if its worker has exchanged messages since, or has
    executed a step that must run only once.

    A journal that has lost entries is refused with BT213 (exit code 10). --accept-loss resumes with the remaining entries: it
    first copies the journal to journal.lost-SEQ, then executes again every step whose outcome is missing.
    """
    found = locate(run, workspace) if run is not None else _newest(Path(workspace))
    check_own(found)
    state = read_state(found)
    assert state.run is not None
    decision = None if unknown is None else _decision(unknown)
    place = found.workspace(state, workspace if _is_given("workspace") else None)
    check_resumed(sets)
    if state.ended is not None and state.ended.status == "completed":
        return _report_completed(found, state, as_json=as_json)
    check_run_as(found, state.run, run_as)
    config = load_config(Path(place), [*kept_sets(found.path), *sets])
    if again is not None:
        _set_aside(found, again, accept_loss=accept_loss)
    _update(found, state, program, wanted=update, accept_loss=accept_loss)
    view = _view(found, config, "resumed", wait=wait, no_input=state.run.no_input, as_json=as_json)
    with _holding(found, state, Path(place), config, sets, wait=wait) as describe:
        drive_it = partial(_drive, found, config, view, decision, place, as_json=as_json)
        return drive_it(describe=describe, sets=sets, accept_loss=accept_loss)


def _set_aside(run: RunDir, again: str, *, accept_loss: bool) -> None:
    """Set the outcome of a finished step aside, so that the run executes it again."""
    if accept_loss:
        raise UsageError("bartack resume", "resume with --accept-loss alone first; --again comes after it")
    done = set_aside(run, again)
    more = f" and {done.steps} steps that depend on it" if done.steps else ""
    write_note(f"set aside: the outcome of {printable(done.step)}{more}; files are not rolled back")


def _update(run: RunDir, state: State, program: str | None, *, wanted: bool, accept_loss: bool) -> None:
    """Replace the recorded program by the current source, if requested and if it matches the recorded steps."""
    if not wanted and program is None:
        _warn_of_changes(run, state)
        return
    if accept_loss:
        problem = "resume with --accept-loss alone first; --update and --program come after it"
        raise UsageError("bartack resume", problem)
    checked = update_program(run, None if program is None else Path(program))
    write_note(_matches(checked))


def _matches(checked: int) -> str:
    match checked:
        case 0:
            return "the edited program replaces the recorded one; no step is recorded yet"
        case 1:
            return "the edited program matches the recorded step"
        case _:
            return f"the edited program matches all {checked} recorded steps"


def _report_completed(run: RunDir, state: State, *, as_json: bool) -> Exit:
    """Report that the run is completed already. That is a success, not an error."""
    if as_json:
        _put_result(run, state, "completed", Exit.OK)
    else:
        write_note(f"{run.id} is already completed; its steps: bartack show {run.id}")
    return Exit.OK


def _holding(
    run: RunDir, state: State, workspace: Path, config: Config, sets: tuple[str, ...], *, wait: bool
) -> AbstractContextManager[Describe | None]:
    """Hold what the run needs exclusively while it is active: a run of the pipeline owns its workspace."""
    assert state.run is not None
    if state.run.worker != PIPELINE:
        return nullcontext()
    from bartack.pipeline import owning  # noqa: PLC0415 - other runs resume faster without it

    return owning(run, workspace, config, state.hub + 1, write_note, sets, wait=wait)


def _is_given(option: str) -> bool:
    """Whether an option was given on the command line or in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not None and source is not click.core.ParameterSource.DEFAULT


def _newest(workspace: Path) -> RunDir:
    """The newest run that has not ended; an active run only if there is no other."""
    left = [(run, summarise(run)) for run in list_runs(workspace)]
    for _, found in left:
        if found.status == UNREADABLE:
            note_unreadable(found)
    open_runs = [(run, found) for run, found in left if found.status not in {*TERMINAL, UNREADABLE}]
    resumable = [
        run
        for run, found in open_runs
        if found.status in {"interrupted", "failed"} or (found.status == "waiting" and not found.pid)
    ]
    if not open_runs:
        raise _nothing_to_resume(left)
    chosen = resumable[0] if resumable else open_runs[0][0]
    newest, found = left[0]
    if found.status in TERMINAL:
        write_note(f"{newest.id}, the newest run, is {found.status}; resuming {chosen.id}")
    return chosen


def _nothing_to_resume(runs: list[tuple[RunDir, RunSummary]]) -> RunNotFoundError:
    """The error if no run can be resumed; it names the newest run and its status."""
    over = [(run, found.status) for run, found in runs if found.status in TERMINAL]
    if not over:
        return RunNotFoundError("", wanted="to resume")
    newest, status = over[0]
    error = RunNotFoundError("", wanted=f"to resume: the newest run, {newest.id}, is {status}")
    error.remedy = f"'bartack show {newest.id}' shows how it ended; 'bartack run' starts a new run."
    return error


def _decision(text: str) -> UnknownDecision:
    choice, _, value = text.partition(" ")
    if choice not in {"retry", "done", "fail"}:
        raise UsageError("bartack resume", f"--unknown is retry, done VALUE or fail, not {choice!r}")
    if choice != "done":
        return UnknownDecision(choice)
    try:
        encoded = msgspec.json.encode(msgspec.json.decode(value))
    except msgspec.DecodeError:
        raise UsageError("bartack resume", "--unknown done needs the outcome of the step, as JSON") from None
    return UnknownDecision(choice, Value(msgspec.Raw(encoded)))


def _warn_of_changes(run: RunDir, state: State) -> None:
    assert state.run is not None
    changed = differences(pinned_files(run.program), Path(state.run.root), run.program)
    if changed:
        verb = "has" if len(changed) == 1 else "have"
        names = listed(printable(name) for name in changed)
        write_note(
            f"{names} {verb} changed; the run continues with its recorded program (--update takes the changed one)"
        )


# Driving.


def _view(run: RunDir, config: Config, began: str, *, wait: bool, no_input: bool, as_json: bool) -> View:
    if as_json:
        return JsonView(run, began=began, patient=wait)
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return PlainView(run, began=began, patient=wait)
    asks = sys.stdin.isatty() and not no_input and not os.environ.get("CI")
    colour = config.transcript.color
    return TerminalView(run, began=began, patient=wait, asks=asks, colour=colour)


def _drive(
    run: RunDir,
    config: Config,
    view: View,
    decision: UnknownDecision | None = None,
    workspace: str | None = None,
    *,
    as_json: bool,
    describe: Describe | None = None,
    sets: tuple[str, ...] = (),
    accept_loss: bool = False,
) -> Exit:
    with lossy_stderr():
        try:
            status = drive(
                run, config, view, decision, workspace, describe=describe, sets=sets, accept_loss=accept_loss
            )
        finally:
            view.close()
        code = Exit(EXIT_CODES[status])
        if as_json:
            _put_result(run, view.state, status, code)
        else:
            _write_end(run, view, status, config.transcript.color)
    return code


def _put_result(run: RunDir, state: State, status: str, code: Exit) -> None:
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


def _write_end(run: RunDir, view: View, status: str, colour: Colour) -> None:
    screen = Screen(sys.stderr, colour)
    state, took = view.state, human_time(view.elapsed_s)
    match status:
        case "completed":
            _write_result(run, state)
            screen.line(f"{run.id} {screen.paint('completed', 'green')} in {took}{_unreceived(state)}")
            if state.run is not None and state.run.worker == PIPELINE:
                _write_summary(screen, run, state)
        case "failed":
            write_failure(screen, run, state)
            screen.line(f"{run.id} {screen.paint('failed', 'red')} after {took}")
            if any(worker.in_doubt for worker in state.workers.values()):
                screen.line("  find out whether that step happened, then choose:")
                screen.line(f"    bartack resume {run.id} --unknown retry | done VALUE | fail")
            elif state.failure is not None and needs_update(state.failure.error):
                screen.line(f"  fix the program, then: bartack resume {run.id} --update")
            elif state.failure is not None and (setting := spent_setting(state.failure.error)):
                screen.line(f"  to raise the budget: bartack resume {run.id} --set {setting}=AMOUNT")
            else:
                _write_hint(screen, run, "fix the cause, then")
                _suggest_again(screen, run, state)
        case "cancelled" | "aborted":
            reason = state.ended.reason if state.ended else ""
            screen.line(f"{run.id} was {status} after {took}: {printable(reason)}")
        case "waiting":
            _write_questions(screen, run, state)
            screen.line(f"{run.id} was stopped because it waits for an answer")
            _write_hint(screen, run, "answer it, then")
        case "disk" if not run.journal.exists():
            screen.line(
                f"{run.id} was stopped after {took}: its directory {run.path} was deleted or moved while it was active"
            )
            screen.line("  start a new run, or, if the directory was moved, name its new path")
        case "disk":
            screen.line(f"{run.id} was interrupted by the disk after {took}; nothing is lost")
            _write_hint(screen, run, "fix the disk, then")
        case _:
            screen.line(f"{run.id} was interrupted after {took}")
            _write_hint(screen, run, "resume with")
    screen.flush()


def _write_summary(screen: Screen, run: RunDir, state: State) -> None:
    """Write what a run of the pipeline has done, and the command that shows it."""
    from bartack.cli.runs._status import write_result  # noqa: PLC0415 - only runs of the pipeline need it
    from bartack.pipeline import read_progress  # noqa: PLC0415 - likewise

    progress = read_progress(run.path)
    done = sum(task.status == "done" for task in progress.tasks)
    counts = [
        f"{done} task{'' if done == 1 else 's'} done",
        f"{progress.files} file{'' if progress.files == 1 else 's'} changed",
        *([f"{state.spent_usd:.2f} USD"] if state.spent_usd else []),
    ]
    screen.line(f"  {', '.join(counts)}; details: bartack show {run.id}")
    write_result(screen, progress)


def _suggest_again(screen: Screen, run: RunDir, state: State) -> None:
    """Suggest --again if no step failed: the program may fail each time because of an agent's recorded answer."""
    failure = state.failure
    worker = state.workers.get(failure.worker) if failure is not None else None
    if worker is None or worker.origin_seq:
        return
    with open_reader(run.path) as reader:
        step = last_answer(state, worker.path, reader.read())
    if step:
        screen.line(
            f"  if the recorded answer of step {step} is the cause: bartack resume {run.id} --again {step}"
        )


def _write_hint(screen: Screen, run: RunDir, when: str) -> None:
    screen.line(f"  {when}: bartack resume {run.id}")


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
        screen.line(f"  bartack answer {run.id} {question.id} VALUE")
