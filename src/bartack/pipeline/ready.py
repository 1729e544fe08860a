"""Whether everything is there that a run of the pipeline takes, before anything is paid for. No test is started.

Each check is a function that yields obstacles: the setting to blame, and the error that the run would end with.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents.config import ScriptedConfig
from bartack.agents.doctor.doctor import check_agents
from bartack.config.load import Config
from bartack.config.sections import SnapshotConfig
from bartack.core.flaws import unknown_name
from bartack.core.paths import safe_join
from bartack.errors import BartackError, ConfigError, GitError, SnapshotReadError, UnsafePathError
from bartack.pipeline._templates import load_templates
from bartack.pipeline.settings import PipelineRole, choose_agents
from bartack.pipeline.snapshot._patterns import Patterns
from bartack.pipeline.snapshot.listing import Lister, Listing, SnapshotOptions
from bartack.pipeline.worktree.old_worktrees import check_repository

_SHELL_WORDS: Final = frozenset(
    {
        "!", ".", ":", "[", "alias", "bg", "break", "case", "cd", "command", "continue", "echo", "eval", "exec", "exit", "export",
        "false", "fg", "for", "getopts", "hash", "if", "jobs", "printf", "pwd", "read", "readonly", "return", "set", "sh",
        "shift", "test", "time", "times", "trap", "true", "type", "ulimit", "umask", "unalias", "unset", "until", "wait",
        "while", "{"
    }
)  # fmt: skip
"""First words of a command line that the shell itself understands."""
_SHELL_SIGNS: Final = frozenset("$`|&;<>()*?[]#~\\\n{}=%")
"""Characters whose meaning only a shell knows."""


class Obstacle(NamedTuple):
    """What keeps a run from being done.

    Attributes:
        setting: The setting to blame.
        problem: What is wrong.
        error: The error that the run ends with.
        near: The nearest name that there is, where a name is wrong.
        is_local: Whether the settings may be right, and only this machine lacks something: a program, or a login.
    """

    setting: str
    problem: str
    error: BartackError
    near: str = ""
    is_local: bool = False


def find_obstacles(
    config: Config,
    workspace: Path,
    environ: Mapping[str, str],
    roles: Sequence[PipelineRole],
    *,
    probe: bool = False,
) -> list[Obstacle]:
    """Everything that would stop a run of the pipeline with these settings.

    Args:
        config: The settings.
        workspace: Where the run would work.
        environ: The variables that it would have.
        roles: The roles that it may need; without any, only what is wrong for all of them is reported.
        probe: Also start the agents of these roles, to see whether they speak the line protocol.
    """
    return [
        *_in_roles(config, roles),
        *_in_agents(config, workspace, environ, roles, probe=probe),
        *_in_tasks(config),
        *_in_tests(config, workspace, environ),
        *_in_spec(config, workspace),
        *(_in_snapshot(config, workspace) if roles or _chooses_files(config, workspace) else ()),
        *_in_prompts(config, workspace),
        *_in_parallel(config, workspace, environ),
        *_in_state_dir(config, workspace),
        *_in_budget(config),
    ]


def warn_of_conflicts(
    config: Config, roles: Sequence[PipelineRole], tasks: Mapping[str, Sequence[str]]
) -> str:
    """That tasks side by side would all write to the spec, in one sentence; empty if they would not.

    Args:
        config: The settings.
        roles: The roles that the run may need.
        tasks: What each task depends on, by its id; none: they are not known yet.
    """
    waves = Counter(_depth(name, tasks, ()) for name in tasks)
    together = not tasks or max(waves.values()) > 1
    if config.parallel.tasks < 2 or "spec_maintainer" not in roles or not together:
        return ""
    return (
        f"each task updates {config.spec.file}, and updates of the same place conflict when they are merged; "
        "set pipeline.spec = false, or parallel.tasks = 1"
    )


def _depth(name: str, tasks: Mapping[str, Sequence[str]], above: tuple[str, ...]) -> int:
    """How many tasks are done one after the other until this one is; a circle is refused elsewhere."""
    below = [other for other in tasks.get(name, ()) if other not in above]
    return 1 + max((_depth(other, tasks, (*above, name)) for other in below), default=0)


def _refuse(setting: str, problem: str, near: str = "") -> Obstacle:
    return Obstacle(setting, problem, ConfigError(setting, problem), near)


def _miss(setting: str, name: str, known: Sequence[str], problem: str) -> Obstacle:
    flaw = unknown_name((), name, known, problem)
    return _refuse(setting, flaw.problem, flaw.near)


def _in_roles(config: Config, roles: Sequence[PipelineRole]) -> Iterator[Obstacle]:
    known = list(config.agents.named)
    for role, name in config.pipeline.roles.items():
        if name not in known:
            yield _miss(f"pipeline.roles.{role}", name, known, f"there is no agent {name!r}")
    if roles and not known:
        wanted = ", ".join(f'"{role}"' for role in roles)
        missing = (
            f"there is none; add [agents.claude], [agents.codex], or [agents.NAME] with command = [...], and roles = [{wanted}] "
            "to bartack.toml. 'bartack init --example -C DIR' shows the pipeline without a model"
        )
        yield _refuse("agents", missing)
        return
    for role in roles:
        try:
            choose_agents(config, [] if role in config.pipeline.roles else [role])
        except ConfigError as error:
            yield _refuse(error.setting, error.problem)


def _in_agents(
    config: Config,
    workspace: Path,
    environ: Mapping[str, str],
    roles: Sequence[PipelineRole],
    *,
    probe: bool,
) -> Iterator[Obstacle]:
    """Agents that cannot be used: those that play a role, and every script, which a run reads first of all."""
    named = config.agents.named
    needed = {name for name, agent in named.items() if isinstance(agent, ScriptedConfig)}
    for role in roles:
        chosen = config.pipeline.roles.get(role)
        needed |= {chosen} if chosen else set(config.agents.for_role(role))
    reports = check_agents(
        config.agents,
        workspace,
        environ,
        sorted(needed & set(named)),
        probe=probe,
        capped=config.budget.limits_money,
        state_dir=config.directory,
    )
    for report in reports:
        is_script = report.kind == "scripted"
        setting = f"agents.{report.name}.{'script' if is_script else 'command'}"
        for problem in report.problems:
            yield _refuse(setting, problem)._replace(is_local=not is_script)


def _in_tasks(config: Config) -> Iterator[Obstacle]:
    """Tasks that cannot be queued."""
    ids = [task.id for task in config.tasks]
    for index, task in enumerate(config.tasks):
        if task.id in ids[:index]:
            yield _refuse(f"tasks[{index}].id", f"there is another task {task.id!r}")
        for place, name in enumerate(task.depends_on):
            setting = f"tasks[{index}].depends_on[{place}]"
            if name not in ids:
                yield _miss(setting, name, list(dict.fromkeys(ids)), f"there is no task {name!r}")
    needs = {task.id: {name for name in task.depends_on if name in ids} for task in config.tasks}
    while ready := [name for name, others in needs.items() if not others]:
        for name in ready:
            del needs[name]
        needs = {name: others - set(ready) for name, others in needs.items()}
    circle = [task for task in needs if any(task in others for others in needs.values())]
    if circle:
        index = ids.index(circle[0])
        yield _refuse(f"tasks[{index}].depends_on", f"these tasks depend on each other: {', '.join(circle)}")


def _in_tests(config: Config, workspace: Path, environ: Mapping[str, str]) -> Iterator[Obstacle]:
    tests = config.tests
    if tests.mode == "command" and not tests.argv:
        yield _refuse("tests.command", 'tests.mode is "command", and there is none')
    if tests.judged_by != "command" or not tests.argv:
        return
    program = tests.argv[0] if not isinstance(tests.command, str) else _first_word(tests.command)
    path = tests.env.get("PATH", environ.get("PATH", os.defpath))
    problem = "" if program is None else _program_problem(program, workspace, path)
    if problem:
        yield _refuse("tests.command", problem)


def _first_word(line: str) -> str | None:
    """The program that a command line begins with, where that is plain to see; the shell may know what others mean."""
    try:
        words = shlex.split(line.strip().split("\n")[0])
    except ValueError:
        return None
    word = words[0] if words else ""
    plain = word and line.lstrip().startswith(word) and _SHELL_SIGNS.isdisjoint(word)
    return word if plain and word not in _SHELL_WORDS else None


def _program_problem(program: str, workspace: Path, path: str) -> str:
    """Why a program cannot be run in the workspace; empty if it can."""
    if not program:
        return "the first word is empty; give the program and its arguments"
    if "/" not in program:
        return "" if shutil.which(program, path=path) else f"{program!r} is not found in PATH"
    whole = workspace / program
    if not whole.is_file():
        return f"{program!r} is {'not a file' if whole.exists() else 'not there'}"
    return "" if os.access(whole, os.X_OK) else f"{program!r} is not executable; chmod +x makes it so"


def _in_spec(config: Config, workspace: Path) -> Iterator[Obstacle]:
    """The spec file has to be a plain file of the workspace, by its plain path: changes of any other are not noticed."""
    name = config.spec.file
    if not config.pipeline.spec:
        return
    try:
        file = safe_join(workspace, name)
    except UnsafePathError as error:
        yield _refuse("spec.file", f"{name!r} has to stay in the workspace: {error.reason}")
        return
    plain = os.path.normpath(name)
    if plain != name:
        yield _refuse("spec.file", f"write {plain!r}, as the path is seen from the workspace")
    elif file.is_symlink() or os.path.realpath(file) != os.path.join(os.path.realpath(workspace), name):
        yield _refuse("spec.file", f"{name!r} is a symbolic link, or below one; name the file itself")
    elif file.exists() and not file.is_file():
        yield _refuse("spec.file", f"{name!r} is not a file")
    elif Patterns(config.snapshot.exclude).match(os.fsencode(name)):
        yield _refuse("spec.file", f"{name!r} is left out of snapshots by snapshot.exclude")


def _chooses_files(config: Config, workspace: Path) -> bool:
    """Whether the settings choose the files of the workspace: a run of other programs must not list a home directory."""
    return config.snapshot != SnapshotConfig() or (workspace / ".git").exists()


def _in_snapshot(config: Config, workspace: Path) -> Iterator[Obstacle]:
    """Files that cannot be listed, and a spec file that is not among them."""
    chosen = config.snapshot
    if chosen.source != "git":
        for index, root in enumerate(chosen.roots):
            inside = os.path.normpath(root)
            if os.path.isabs(inside) or inside.split(os.sep)[0] == "..":
                yield _refuse(f"snapshot.roots[{index}]", f"{root!r} is not inside of the workspace")
            elif not (workspace / inside).is_dir():
                yield _refuse(f"snapshot.roots[{index}]", f"there is no directory {root!r}")
    options = SnapshotOptions(
        source=chosen.source,
        roots=tuple(root for root in chosen.roots if (workspace / root).is_dir()),
        exclude=tuple(chosen.exclude),
        include=tuple(chosen.include),
        ignore=chosen.ignore,
    )
    try:
        listing = _list_files(workspace, options)
    except SnapshotReadError as error:
        problem = error.message
        if "not a git repository" in problem:
            problem = 'it is "git", and the workspace is in no git repository'
        yield _refuse("snapshot.roots" if chosen.source == "roots" else "snapshot.source", problem)
        return
    name = config.spec.file
    there = config.pipeline.spec and (workspace / name).is_file() and os.path.normpath(name) == name
    if there and os.fsencode(name) not in listing.paths and not Path(name).is_absolute():
        how = (
            "git ignores it"
            if listing.source == "git"
            else "it is outside of snapshot.roots, or left out there"
        )
        yield _refuse("spec.file", f"{name!r} is in no snapshot ({how}); snapshot.include brings it back")


def _list_files(workspace: Path, options: SnapshotOptions) -> Listing:
    lister = Lister(str(workspace), options)
    try:
        return lister.parse(lister.raw())
    finally:
        lister.close()


def _in_prompts(config: Config, workspace: Path) -> Iterator[Obstacle]:
    named = {str(action): path for action, path in config.pipeline.prompts.items()}
    for action in named:
        try:
            load_templates(named, [action], workspace)
        except ConfigError as error:
            yield _refuse(error.setting, error.problem)


def _in_parallel(config: Config, workspace: Path, environ: Mapping[str, str]) -> Iterator[Obstacle]:
    parallel = config.parallel
    isolated = config.review.isolated and config.pipeline.review
    if parallel.tasks < 2 and not isolated:
        return
    needs = "parallel.tasks" if parallel.tasks > 1 else "review.isolated"
    try:
        check_repository(workspace, needs, str(config.state_dir(workspace)))
    except GitError as error:
        yield Obstacle(needs, error.problem, error)
    if parallel.setup:
        problem = _program_problem(parallel.setup[0], workspace, environ.get("PATH", os.defpath))
        if problem:
            yield _refuse("parallel.setup", problem)


def _in_budget(config: Config) -> Iterator[Obstacle]:
    budget = config.budget
    least = min(budget.min_reserve_usd, budget.reserve_usd)
    if budget.usd is not None and budget.usd < least:
        problem = f"no call is made with less than budget.min_reserve_usd ({least:g} USD), and it is {budget.usd:g}; raise it"
        yield _refuse("budget.usd", problem)


def _in_state_dir(config: Config, workspace: Path) -> Iterator[Obstacle]:
    place = config.state_dir(workspace)
    if os.path.realpath(place) == os.path.realpath(workspace):
        yield _refuse("state_dir", "it is the workspace itself, and every snapshot would hold the runs")
        return
    above = place
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        yield _refuse("state_dir", f"{str(above)!r} is not a directory")
