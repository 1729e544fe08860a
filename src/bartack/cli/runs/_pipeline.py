"""``bartack run`` without a program: choose the tasks of the pipeline, check their requirements, create the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from bartack.cli.app._pipeline_options import PIPELINE_FILE, PipelineOptions
from bartack.cli.app._terminal import listed, printable, write_note
from bartack.cli.queued._options import DetachOptions
from bartack.config.load import Config, Reading, read_settings
from bartack.depot.elsewhere import Home
from bartack.errors import BartackError, ConfigError, UsageError
from bartack.pipeline import make_order
from bartack.pipeline.lock import hold_workspace
from bartack.pipeline.ready import find_obstacles, warn_of_conflicts
from bartack.pipeline.records.records import PipelineOrder, TaskRecord
from bartack.pipeline.records.task_state import read_progress
from bartack.pipeline.request import PROGRAM, choose_tasks
from bartack.pipeline.settings import PipelineRole, make_settings, needed_roles
from bartack.pipeline.worktree.old_worktrees import ignored_files
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.find import list_runs, summarise
from bartack.runtime.rundir.layout import RunDir


class _Prepared(NamedTuple):
    """A run of the pipeline that can be made."""

    config: Config
    request: RunRequest
    is_shared: bool
    """Its tasks have worktrees of their own."""


@contextmanager
def new_run(
    options: PipelineOptions,
    workspace: Path,
    *,
    wait: bool,
    detaching: DetachOptions,
    home: Home | None = None,
) -> Generator[tuple[RunDir, Config]]:
    """Create a run of the pipeline and hold the workspace for it. A detached run does not need the workspace before it begins.

    Raises:
        ConfigError: A requirement is missing; no run was created.
        UsageError: There are no tasks; no run was created.
        WorkspaceBusyError: Another run works in the workspace; no run was created.
    """
    made = _prepare(options, workspace, detached=detaching.detach, start_key=detaching.start_key)
    config = made.config
    held = hold_workspace(workspace, config.state_dir(workspace), wait=wait, shared=made.is_shared)
    with nullcontext() if detaching.detach else held as lock:
        run = create_run(made.request, workspace, config, options.sets, note=write_note, home=home)
        if lock is not None:
            lock.sign(run.id)
        yield run, config


def submit_run(options: PipelineOptions, workspace: Path, home: Home) -> RunDir:
    """Create a run of the pipeline for the nodes of a database.

    Raises:
        ConfigError: A requirement is missing; no run was created.
        UsageError: There are no tasks; no run was created.
        WorkspaceCarryError: Its workspace is too large to travel; no run was created.
        WorkspaceKeepError: Its workspace cannot be copied; no run was created.
    """
    made = _prepare(options, workspace, detached=True, carried=True)
    return create_run(
        made.request,
        workspace,
        made.config,
        options.sets,
        note=write_note,
        home=home,
        is_carried=True,
        is_for_nodes=True,
    )


def _prepare(
    options: PipelineOptions, workspace: Path, *, detached: bool, start_key: str = "", carried: bool = False
) -> _Prepared:
    """Choose the tasks, and check that the run can be made. Nothing is created."""
    reading = read_settings(workspace, options.sets)
    reading.check()
    config = reading.config
    if carried:
        _check_carried(config)
    tasks, instruction = _what(options, config)
    roles = needed_roles(config, workspace, intake=bool(instruction))
    _check_ready(reading, workspace, roles)
    asks = _is_answered(options, detached=detached)
    settings = make_settings(config, roles, asks=asks, workspace=workspace, carried=carried)
    order = make_order(settings, tasks, instruction=instruction, yes=options.yes)
    _warn(config)
    if not (instruction or options.tasks or options.goal is not None):
        _note_repeated([task.id for task in tasks], workspace)
    caution = warn_of_conflicts(config, roles, {task.id: task.depends_on for task in tasks})
    if caution:
        write_note(caution)
    for name, path in ignored_files(workspace, config, tasks):
        write_note(f"{name}: git ignores {path}, so the worktrees of tasks do not have it (parallel.tasks)")
    request = _run_request(order, no_input=options.no_input, start_key=start_key)
    return _Prepared(config, request, settings.parallel.tasks > 1)


def _check_carried(config: Config) -> None:
    """Raise if the workspace of a run for nodes does not travel in a way that the pipeline can work with.

    Raises:
        ConfigError: It does not.
    """
    carry = config.workspace.carry
    problem = ""
    if carry == "shared":
        problem = (
            "snapshots and receipts of the pipeline travel with copies of the workspace, and with "
            '"shared" there are none; use "auto" or "full"'
        )
    elif carry == "none" and (config.parallel.tasks > 1 or config.review.isolated):
        needs = "parallel.tasks" if config.parallel.tasks > 1 else "review.isolated"
        problem = (
            f'with "none" the workspace begins empty, and {needs} needs its repository; use "auto" or "full"'
        )
    if problem:
        raise ConfigError("workspace.carry", problem)


def _check_ready(reading: Reading, workspace: Path, roles: Sequence[PipelineRole]) -> None:
    """Raise the first obstacle of the run, before any agent is paid for."""
    found = find_obstacles(reading.config, workspace, os.environ, roles, probe=True)
    if not found:
        return
    first, *more = found
    if not isinstance(first.error, ConfigError):
        raise first.error
    blame = reading.blame
    others = [f"{blame.setting(one.setting, '').place}: {one.problem}" for one in more]
    raise ConfigError(blame.setting(first.setting, "").place, "\n".join([first.problem, *others]))


def _what(options: PipelineOptions, config: Config) -> tuple[list[TaskRecord], str]:
    if options.goal is not None and options.instruction is not None:
        raise UsageError(
            "bartack run",
            "--goal and --instruction exclude each other: a goal is one task, an instruction becomes tasks",
        )
    if options.instruction is not None:
        return [], _read_text("--instruction", options.instruction)
    goal = "" if options.goal is None else _read_text("--goal", options.goal)
    tasks = choose_tasks(config, goal, options.tasks)
    if tasks:
        return tasks, ""
    if not _is_interactive(options):
        raise UsageError(
            "bartack run",
            "there are no tasks: name a program, use --goal or --instruction, or write [[tasks]] in bartack.toml",
        )
    if not config.agents.named:  # an instruction that no agent can take is typed in vain
        raise UsageError(
            "bartack run",
            "there is no program, no task and no agent. 'bartack init' finds the agents of this machine, "
            "'bartack init --example -C DIR' shows the pipeline without a model",
        )
    return [], _read_text("the instruction", click.prompt("What should be done", err=True))


def _read_text(option: str, text: str) -> str:
    """A text, read from a file (@FILE) or from stdin (-) if given so."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = _text_of(option, text)
    if not text.strip():
        raise UsageError("bartack run", f"{option} is blank")
    return text


def _text_of(option: str, named: str) -> str:
    try:
        return Path(named[1:]).read_text("utf-8")
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError("bartack run", f"{option} {named}: {problem}") from None


def _is_answered(options: PipelineOptions, *, detached: bool) -> bool:
    """Whether a person answers questions of the run; those of a detached one are answered from any terminal."""
    return not options.no_input if detached else _is_interactive(options)


def _is_interactive(options: PipelineOptions) -> bool:
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return terminal and not options.no_input and not os.environ.get("CI")


def _warn(config: Config) -> None:
    mode = config.tests.judged_by
    if mode == "off":
        write_note("tests are off: the work is not checked (tests.mode)")
    elif mode == "report":
        write_note("tests.command is not set: the test results that the agent reports are accepted unchecked")


def _note_repeated(tasks: Sequence[str], workspace: Path) -> None:
    """Point out tasks that the newest completed run of the pipeline has done: ``bartack run`` does not skip them."""
    for run in list_runs(workspace):
        earlier = summarise(run)
        if earlier.status == "completed" and Path(earlier.program).name == PIPELINE_FILE:
            break
    else:
        return
    try:
        done = {task.id for task in read_progress(run).tasks if task.status == "done"}
    except BartackError:
        return  # a damaged run does not prevent a new one
    again = [printable(task) for task in tasks if task in done]
    if again:
        verb = "was" if len(again) == 1 else "were"
        write_note(f"{listed(again)} {verb} done by {run.id} and will be done again; --task ID chooses tasks")


def _run_request(order: PipelineOrder, *, no_input: bool, start_key: str) -> RunRequest:
    call = CallArgs([msgspec.Raw(msgspec.json.encode(order))])
    return RunRequest(program=str(PROGRAM), worker="main", call=call, no_input=no_input, start_key=start_key)
