"""``bartack run`` and ``resume``: this process becomes the hub of the run and shows its progress.

The run itself is created and driven by ``runtime/hub``; a view (``live/_choose.py``) shows it while it is active, and
``live/_end.py`` reports how it ended.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from bartack.cli.app._database import (
    DatabaseOptions,
    SubmitOptions,
    database_options,
    open_team,
    submit_options,
)
from bartack.cli.app._exit import Exit
from bartack.cli.app._lossy import lossy_stderr
from bartack.cli.app._options import is_given, json_option
from bartack.cli.app._pipeline_options import PIPELINE, PipelineOptions, pipeline_options, set_option
from bartack.cli.app._runs import complete_run, locate, note_unreadable, workspace_option
from bartack.cli.app._terminal import human_time, listed, printable, write_note
from bartack.cli.live._choose import ViewName, choose_view, open_view, view_option
from bartack.cli.live._end import put_result, write_end
from bartack.cli.live._views import QuietView, View, put_event
from bartack.cli.queued._options import AllOptions, DetachOptions, all_options, detach_options
from bartack.config.load import Config, check_resumed, keep_sets, kept_sets, load_config, load_kept_config
from bartack.config.project import PATCHWORK
from bartack.config.sections import RunConfig
from bartack.core import typed
from bartack.depot.elsewhere import Elsewhere, Home
from bartack.depot.taken import KeyKnownError, Queueing
from bartack.errors import RunAsError, RunNotFoundError, UsageError
from bartack.runtime.client.again import set_aside
from bartack.runtime.client.deciding import Decisions, record_decisions
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.launch import EXIT_CODES, check_resumable, drive
from bartack.runtime.program.source import differences, pinned_files
from bartack.runtime.program.update import SourceWorkspace, update_program
from bartack.runtime.protocol.frames import TOGETHER
from bartack.runtime.rundir.find import (
    TERMINAL,
    UNREADABLE,
    RunSummary,
    list_runs,
    read_state,
    runs_dir,
    summarise,
)
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.run_as import check_run_as
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import UnknownDecision, Value

wait_option = click.option("--wait", is_flag=True, help="Keep the run active while it waits for an answer.")

carry_option = click.option(
    "--carry",
    type=click.Choice(["auto", "full", "remote", "none", "shared"]),
    help="With --on: how the workspace comes to the node: as a copy (auto; full: with its whole history; remote: with what its "
    "remote lacks of that), begun empty (none), or at the same path (shared).",
)

run_as_option = click.option(
    "--run-as",
    metavar="USER",
    help="Execute the program, its commands and its agents as this user (root only). A resume continues as the same user.",
)


# Long because its options and its help are part of it; the functions that it calls do the work.
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
@detach_options
@database_options
@carry_option
@submit_options
@wait_option
@run_as_option
@view_option
@workspace_option
@json_option
def run(
    program: str | None,
    args: tuple[str, ...],
    *,
    options: PipelineOptions,
    detaching: DetachOptions,
    kept: DatabaseOptions,
    carry: str | None,
    submitted: SubmitOptions,
    workers: tuple[str, ...],
    given: str | None,
    run_as: str | None,
    view: str | None,
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

    With --detach the node of this user runs it, and the command returns when it runs or is queued. Questions are answered with
    'bartack answer' or in 'bartack attach'.

    With --on DATABASE the journal, the large values and the program of the run are kept in that database. A node of it runs the
    run ('bartack node --on DATABASE'), in a copy of the workspace on its machine; if the node dies, another one continues
    with the files as they were. 'bartack pull' brings them here. The command shows the run; Ctrl-C leaves it running. With --here
    this machine runs it, in this workspace.
    """
    place = Path(workspace).resolve()
    kept = submitted.complete(kept, carry)
    detaching.check(is_for_nodes=kept.is_for_nodes)
    home = submitted.home(kept.where("bartack run"), is_for_nodes=kept.is_for_nodes)
    options = _carried(options, carry, kept)
    shown = Shown(choose_view(view, "bartack run", as_json=as_json), wait)
    with _repeatable(detaching, place, options) as earlier:
        if earlier is not None:
            return _detach(
                earlier, load_config(place, kept_sets(earlier.path)), detaching, as_json=shown.as_json
            )
        if program is None:
            _refuse_pipeline(run_as)
            if home is not None and kept.is_for_nodes:
                return _submit_pipeline(options, place, detaching, shown, kept, home, submitted.begins)
            return _run_pipeline(options, place, detaching, shown, home)
        options.check_absent()
        request = make_request(program, args, workers, given)
        request.no_input, request.run_as = options.no_input, run_as or ""
        request.start_key = detaching.start_key
        if home is not None and kept.is_for_nodes:
            return _submit_program(request, options, place, detaching, shown, kept, home, submitted.begins)
        return _run_program(request, options, place, detaching, shown, home)


def make_request(
    program: str, args: Sequence[str], workers: tuple[str, ...], given: str | None
) -> RunRequest:
    """What is to be run, from the arguments of the command.

    Raises:
        UsageError: They do not go together.
    """
    request = RunRequest(program=_from_here(program), worker=_together(program, workers), argv=list(args))
    request.input = _read_input(given)
    return request


class Shown(NamedTuple):
    """How a run is shown.

    Attributes:
        view: In which view.
        wait: Whether it stays active while it waits for an answer.
    """

    view: ViewName
    wait: bool

    @property
    def as_json(self) -> bool:
        """Whether all that is written is JSON."""
        return self.view == "json"

    def open(self, run: RunDir, config: Config, began: str, *, no_input: bool) -> View:
        """Make the view."""
        return open_view(self.view, run, config, began, patient=self.wait, no_input=no_input)


def _repeatable(
    detaching: DetachOptions, workspace: Path, options: PipelineOptions
) -> AbstractContextManager[RunDir | None]:
    """Wait for other starts with the same key; the run that one of them has made, if there is one."""
    if not detaching.start_key:
        return nullcontext()
    from bartack.cli.runs._repeated import repeated_start  # noqa: PLC0415 - other runs start faster without it

    return repeated_start(workspace, load_config(workspace, options.sets), detaching.start_key)


def _carried(options: PipelineOptions, carry: str | None, kept: DatabaseOptions) -> PipelineOptions:
    """The options with ``--carry`` as the setting that it is."""
    if carry is None:
        return options
    if not kept.is_for_nodes:
        raise UsageError(
            "bartack run", "--carry brings a workspace to a node: add --on DATABASE, without --here"
        )
    return msgspec.structs.replace(options, sets=(*options.sets, f"workspace.carry={carry}"))


def _run_program(
    request: RunRequest,
    options: PipelineOptions,
    place: Path,
    detaching: DetachOptions,
    shown: Shown,
    home: Home | None,
) -> Exit:
    config = load_config(place, options.sets)
    _check_team(home, config)
    made = _create(request, options, place, config, home)
    if detaching.detach:
        return _detach(made, config, detaching, as_json=shown.as_json)
    view = shown.open(made, config, "started", no_input=options.no_input)
    return _left(made, config, view, _drive(made, config, view, as_json=shown.as_json))


def _check_team(home: Home | None, config: Config) -> None:
    """Raise unless the team of a run is there.

    Raises:
        UsageError: It is not.
    """
    if home is not None:
        open_team(home.where).check_team(home.team or config.run.team)


def _create(
    request: RunRequest,
    options: PipelineOptions,
    place: Path,
    config: Config,
    home: Home | None,
    *,
    is_carried: bool = False,
    is_for_nodes: bool = False,
) -> RunDir:
    def note(text: str) -> None:
        write_note(printable(text))

    return create_run(
        request,
        place,
        config,
        options.sets,
        note=note,
        warn=_warn,
        home=home,
        is_carried=is_carried,
        is_for_nodes=is_for_nodes,
    )


def _submit_program(
    request: RunRequest,
    options: PipelineOptions,
    place: Path,
    detaching: DetachOptions,
    shown: Shown,
    kept: DatabaseOptions,
    home: Home,
    begins: datetime | None,
) -> Exit:
    config = load_config(place, options.sets)
    is_carried = config.workspace.carry != "shared"
    if request.run_as and is_carried:
        problem = "the files of a run on a node belong to the user of that node"
        remedy = "Leave out --run-as, and give it to the nodes: 'bartack node --on DATABASE --run-as USER'."
        raise RunAsError(request.run_as, problem, remedy)

    def make(home: Home) -> RunDir:
        return _create(request, options, place, config, home, is_carried=is_carried, is_for_nodes=True)

    return _submit(make, config, place, detaching, shown, kept, home, begins)


def _submit_pipeline(
    options: PipelineOptions,
    place: Path,
    detaching: DetachOptions,
    shown: Shown,
    kept: DatabaseOptions,
    home: Home,
    begins: datetime | None,
) -> Exit:
    from bartack.cli.runs._pipeline import submit_run  # noqa: PLC0415 - other programs start faster without it

    make = partial(submit_run, options, place)
    return _submit(make, load_config(place, options.sets), place, detaching, shown, kept, home, begins)


def _submit(
    make: Callable[[Home], RunDir],
    config: Config,
    place: Path,
    detaching: DetachOptions,
    shown: Shown,
    kept: DatabaseOptions,
    home: Home,
    begins: datetime | None,
) -> Exit:
    """Make a run for the nodes of a database, unless there is one of its key, and show it."""
    from bartack.cli.runs._fleet import (  # noqa: PLC0415 - other runs start faster without it
        find_known,
        finish_submission,
        follow_queued,
        note_queued,
    )

    runs = config.state_dir(place) / "runs"
    queueing = _queueing(config.run, kept, detaching, begins)
    home = home._replace(team=home.team or config.run.team, queueing=queueing)
    found = find_known(home, runs)
    if found is None:
        try:
            made = make(home)
        except KeyKnownError:  # another process has made it meanwhile
            found = find_known(home, runs)
            assert found is not None
        else:
            note_queued(made, home.where, queueing)
            return follow_queued(made, shown.view, detach=detaching.detach)
    write_note(f"there is a run of the key {printable(home.key)}: {found.id}")
    finish_submission(found, home.where, queueing)
    return follow_queued(found, shown.view, detach=detaching.detach)


def _queueing(
    chosen: RunConfig, kept: DatabaseOptions, detaching: DetachOptions, begins: datetime | None
) -> Queueing:
    """How a run is queued for nodes: as the options say, and else the settings."""
    return Queueing(
        kept.pool or chosen.pool,
        chosen.priority if detaching.priority is None else detaching.priority,
        kept.needs or tuple(chosen.needs),
        begins,
    )


def _give_to_nodes(
    run: RunDir, where: Elsewhere, kept: DatabaseOptions, shown: Shown, *, detach: bool
) -> Exit:
    """Queue a run for the nodes of its database again, and show it unless it is to be left alone."""
    from bartack.cli.runs._fleet import follow_queued, queue_for_nodes  # noqa: PLC0415 - other runs start faster without it

    queue_for_nodes(run, where, Queueing(kept.pool, needs=kept.needs))
    return follow_queued(run, shown.view, detach=detach)


def _left(run: RunDir, config: Config, view: View, code: Exit) -> Exit:
    """Let the node continue a run that a person has detached from its view."""
    return _detach(run, config, DetachOptions(detach=True), as_json=False) if view.detached else code


def _detach(run: RunDir, config: Config, options: DetachOptions, *, as_json: bool) -> Exit:
    from bartack.cli.queued._queueing import queue_run  # noqa: PLC0415 - other runs start faster without it

    return queue_run(run, config, options, as_json=as_json)


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


def _run_pipeline(
    options: PipelineOptions, workspace: Path, detaching: DetachOptions, shown: Shown, home: Home | None
) -> Exit:
    from bartack.cli.runs._pipeline import new_run  # noqa: PLC0415 - other programs start faster without it
    from bartack.pipeline.resume import describe_run  # noqa: PLC0415 - likewise

    _check_team(home, load_config(workspace, options.sets))
    made_by = new_run(options, workspace, wait=shown.wait, detaching=detaching, home=home)
    with made_by as (made, config):
        if not detaching.detach:
            view = shown.open(made, config, "started", no_input=options.no_input)
            code = _drive(made, config, view, as_json=shown.as_json, describe=describe_run(made))
            if not view.detached:
                return code
    # The process that runs it holds the workspace from now on.
    return _detach(made, config, detaching, as_json=shown.as_json)


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
        return typed.decode(text, type=dict[str, msgspec.Raw])
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
@click.option("-d", "--detach", is_flag=True, help="Let the node resume it: it survives this terminal.")
@all_options
@database_options
@wait_option
@run_as_option
@view_option
@workspace_option
@json_option
def resume(
    run: str | None,
    unknown: str | None,
    again: str | None,
    program: str | None,
    sets: tuple[str, ...],
    run_as: str | None,
    view: str | None,
    workspace: str,
    *,
    accept_loss: bool,
    update: bool,
    detach: bool,
    every: AllOptions,
    kept: DatabaseOptions,
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

    With --all the command queues the interrupted runs of all your workspaces for the node, also those that Ctrl-C has stopped, and
    those that wait with a stored answer. It lists the runs first and asks. A cancelled run is never resumed.

    With --on DATABASE the command gives a run of that database back to its nodes, also one that is held. What the options decide is
    recorded first, on any machine. With --here it resumes the run on this machine, in this workspace, wherever it ran before. A run
    for nodes that was submitted here needs no --on.
    """
    every.check()
    shown = Shown(choose_view(view, "bartack resume", as_json=as_json), wait)
    if every.everywhere:
        return _resume_all(every, workspace, as_json=as_json)
    found, kept = _find(run, Path(workspace), kept)
    where = kept.where("bartack resume")
    if found is None:
        assert where is not None
        found = _fetch(where, run, Path(workspace))
    elif where is not None:
        found.bring_here()
    check_own(found)
    state = read_state(found)
    assert state.run is not None
    decision = None if unknown is None else _decision(unknown)
    place = found.workspace(state, workspace if is_given("workspace") or where is not None else None)
    check_resumed(sets)
    if state.ended is not None and state.ended.status == "completed":
        return _report_completed(found, state, as_json=shown.as_json)
    check_run_as(found, state.run, run_as)
    is_here = where is None or not kept.is_for_nodes
    place, config = _bring(found, state, place, sets) if is_here else (place, load_config(Path(place)))
    if again is not None:
        _set_aside(found, again, accept_loss=accept_loss)
    sources = None if is_here else place
    _update(found, state, program, sources, wanted=update, accept_loss=accept_loss)
    if where is not None and kept.is_for_nodes:
        _record(found, Decisions(unknown=decision, sets=sets, accept_loss=accept_loss), as_json=shown.as_json)
        check_resumable(found, read_state(found) if again is not None else state, decision)
        return _give_to_nodes(found, where, kept, shown, detach=detach)
    if detach:
        if decision is not None or accept_loss:
            raise UsageError(
                "bartack resume", "--unknown and --accept-loss are decided in a terminal, without --detach"
            )
        keep_sets(found.path, sets)
        return _detach(found, config, DetachOptions(detach=True), as_json=shown.as_json)
    opened = shown.open(found, config, "resumed", no_input=state.run.no_input)
    with _holding(found, state, Path(place), config, sets, wait=wait) as describe:
        drive_it = partial(_drive, found, config, opened, decision, place, as_json=shown.as_json)
        code = drive_it(describe=describe, sets=sets, accept_loss=accept_loss)
    return _left(found, config, opened, code)


def _record(run: RunDir, decisions: Decisions, *, as_json: bool) -> None:
    """Record what was decided for the node that continues the run, and report what it continues without."""
    lost = record_decisions(run, decisions)
    if lost is None:
        return
    for event in lost.events() if as_json else ():
        put_event(event)
    for note in lost.notes() if not as_json else ():
        write_note(printable(note))


def _bring(run: RunDir, state: State, place: str, sets: Sequence[str]) -> tuple[str, Config]:
    """Where the workspace of a run is that is continued here, and its settings: a run that keeps copies has its own."""
    given = [*kept_sets(run.path), *sets]
    if state.copies.latest is None or run.is_active():
        return place, load_config(Path(place), given)
    from bartack.runtime.hub.carried import bring_workspace  # noqa: PLC0415 - only runs of nodes need it
    from bartack.runtime.hub.workspace.preparation import Terms, prepare_workspace  # noqa: PLC0415 - likewise

    top = run.own_workspace
    place = bring_workspace(run, state.copies, top, run.open_blobs().get)
    config = load_kept_config(run.path, Path(place), given)
    done = prepare_workspace(run, state, top, place, config.workspace, Terms(os.environ))
    if done is not None:
        write_note(f"prepared by {printable(shlex.join(done.words))}, {human_time(done.took_us / 1e6)}")
    return place, config


def _find(run: str | None, workspace: Path, kept: DatabaseOptions) -> tuple[RunDir | None, DatabaseOptions]:
    """Find the run to resume on this machine, unless a database is named.

    A run that is for the nodes of its database stays theirs, as if that database were named: otherwise this machine would take it.
    """
    if kept.on:
        return None, kept
    try:
        found = locate(run, str(workspace)) if run is not None else _newest(workspace)
    except RunNotFoundError:
        if kept.database:
            return None, kept
        raise
    if found.is_for_nodes() and found.where is not None:
        return found, msgspec.structs.replace(kept, on=found.where.on, insecure=found.where.insecure)
    return (None if kept.database else found), kept


def _fetch(where: Elsewhere, run: str | None, workspace: Path) -> RunDir:
    """Fetch a run of a database into the workspace."""
    team = open_team(where)
    return RunDir(team.fetch(team.find(run or "latest"), runs_dir(workspace)))


def _resume_all(options: AllOptions, workspace: str, *, as_json: bool) -> Exit:
    from bartack.cli.runs._resume_all import resume_all  # noqa: PLC0415 - one run is resumed faster without it

    return resume_all(options, Path(workspace), as_json=as_json)


def _set_aside(run: RunDir, again: str, *, accept_loss: bool) -> None:
    """Set the outcome of a finished step aside, so that the run executes it again."""
    if accept_loss:
        raise UsageError("bartack resume", "resume with --accept-loss alone first; --again comes after it")
    done = set_aside(run, again)
    more = f" and {done.steps} steps that depend on it" if done.steps else ""
    write_note(f"set aside: the outcome of {printable(done.step)}{more}; files are not rolled back")


def _update(
    run: RunDir, state: State, program: str | None, sources: str | None, *, wanted: bool, accept_loss: bool
) -> None:
    """Replace the recorded program by the current source, if requested and if it matches the recorded steps.

    Args:
        run: The run.
        state: What its journal adds up to.
        program: Where the source is, if it is not where it was.
        sources: The workspace on this machine that has the source, if a node continues the run in another one.
        wanted: Whether that is requested, also without a ``program``.
        accept_loss: Whether the loss of entries is accepted, too.
    """
    if not wanted and program is None:
        _warn_of_changes(run, state, sources)
        return
    if accept_loss:
        problem = "resume with --accept-loss alone first; --update and --program come after it"
        raise UsageError("bartack resume", problem)
    checked = update_program(run, None if program is None else Path(program), sources)
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
        put_result(run, state, "completed", Exit.OK)
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
    from bartack.pipeline.resume import owning  # noqa: PLC0415 - other runs resume faster without it

    return owning(run, workspace, config, state.hub + 1, write_note, sets, wait=wait)


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
        return RunNotFoundError("latest", wanted="to resume")
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


def _warn_of_changes(run: RunDir, state: State, sources: str | None) -> None:
    assert state.run is not None
    root, files = Path(state.run.root), pinned_files(run.program)
    if sources is not None:
        root = SourceWorkspace(Path(sources), state.run.workspace).find(state.run.root)
        if not any((root / name).exists() for name in files):
            return  # the person who resumes it has no sources of it here
    changed = differences(files, root, run.program)
    if changed:
        verb = "has" if len(changed) == 1 else "have"
        names = listed(printable(name) for name in changed)
        write_note(
            f"{names} {verb} changed; the run continues with its recorded program (--update takes the changed one)"
        )


# Driving.


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
            put_result(run, view.state, status, code)
        elif not view.detached:
            quiet = isinstance(view, QuietView)
            write_end(run, view.state, view.elapsed_s, status, config.transcript.color, quiet=quiet)
    return code
