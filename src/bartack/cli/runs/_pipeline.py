"""``bartack run`` without a program: the pipeline. Says what is to be done, looks whether all is there, and runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from bartack.cli.app._terminal import say
from bartack.cli.runs._wish import Wish
from bartack.config.load import Config, Reading, read_settings
from bartack.errors import ConfigError, UsageError
from bartack.pipeline import (
    PROGRAM,
    PipelineOrder,
    PipelineRole,
    TaskRecord,
    choose_tasks,
    find_obstacles,
    hold_workspace,
    ignored_files,
    make_order,
    make_settings,
    needed_roles,
    warn_of_conflicts,
)
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.layout import RunDir


@contextmanager
def new_run(wish: Wish, workspace: Path, *, wait: bool) -> Generator[tuple[RunDir, Config]]:
    """Make a run of the pipeline and hold the workspace for it.

    Raises:
        ConfigError: Something that it needs is missing; no run was made.
        UsageError: There is nothing to do; no run was made.
        WorkspaceBusyError: Another run works in the workspace; no run was made.
    """
    reading = read_settings(workspace, wish.sets)
    reading.check()
    config = reading.config
    tasks, instruction = _what(wish, config)
    roles = needed_roles(config, workspace, intake=bool(instruction))
    _check_ready(reading, workspace, roles)
    settings = make_settings(config, roles, asks=_somebody_is_there(wish), workspace=workspace)
    order = make_order(settings, tasks, instruction=instruction, yes=wish.yes)
    _warn(config)
    caution = warn_of_conflicts(config, roles, {task.id: task.depends_on for task in tasks})
    if caution:
        say(caution)
    for name, path in ignored_files(workspace, config, tasks):
        say(f"{name}: {path} is ignored by git: no worktree of a task has it (parallel.tasks)")
    shared = settings.parallel.tasks > 1
    with hold_workspace(workspace, config.state_dir(workspace), wait=wait, shared=shared) as lock:
        run = create_run(_run_request(order, no_input=wish.no_input), workspace, config, wish.sets)
        lock.sign(run.id)
        yield run, config


def _check_ready(reading: Reading, workspace: Path, roles: Sequence[PipelineRole]) -> None:
    """Raise what stands first in the way of a run, before anything is paid for."""
    found = find_obstacles(reading.config, workspace, os.environ, roles, probe=True)
    if not found:
        return
    first, *more = found
    if not isinstance(first.error, ConfigError):
        raise first.error
    blame = reading.blame
    others = [f"{blame.setting(one.setting, '').place}: {one.problem}" for one in more]
    raise ConfigError(blame.setting(first.setting, "").place, "\n".join([first.problem, *others]))


def _what(wish: Wish, config: Config) -> tuple[list[TaskRecord], str]:
    if wish.goal is not None and wish.instruction is not None:
        raise UsageError("bartack run", "--goal is one task, --instruction becomes tasks: give one of them")
    if wish.instruction is not None:
        return [], _words("--instruction", wish.instruction)
    goal = "" if wish.goal is None else _words("--goal", wish.goal)
    tasks = choose_tasks(config, goal, wish.tasks)
    if tasks:
        return tasks, ""
    if not _somebody_is_there(wish):
        raise UsageError(
            "bartack run",
            "there is nothing to do: name a program, use --goal or --instruction, or write [[tasks]] in bartack.toml",
        )
    return [], _words("the instruction", click.prompt("What is to be done", err=True))


def _words(option: str, text: str) -> str:
    """A text, from a file (@FILE) or from stdin (-)."""
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


def _somebody_is_there(wish: Wish) -> bool:
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return terminal and not wish.no_input and not os.environ.get("CI")


def _warn(config: Config) -> None:
    mode = config.tests.judged_by
    if mode == "off":
        say("tests are off: nobody checks whether the work is any good (tests.mode)")
    elif mode == "report":
        say("there is no tests.command: the agent's word is taken for its tests")


def _run_request(order: PipelineOrder, *, no_input: bool) -> RunRequest:
    call = CallArgs([msgspec.Raw(msgspec.json.encode(order))])
    return RunRequest(program=str(PROGRAM), worker="main", call=call, no_input=no_input)
