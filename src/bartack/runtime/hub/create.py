"""Making a run: from a program and its arguments to a directory with a journal. Nothing runs yet.

A run exists from the moment its journal has a name, and the entries that identify the run are in the journal before it has one.
Everything that a resume needs is durable before that: the program, the settings that were given, and the directories. So a power
cut leaves a whole run or none. ``launch.py`` runs it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents.config import ScriptedConfig
from bartack.config.load import Config, keep_settings, write_sets
from bartack.config.project import project_root
from bartack.core.accounts import Account
from bartack.core.batch import Batch
from bartack.core.disk import Disk
from bartack.core.flaws import unknown_name
from bartack.core.git_shield import shield
from bartack.core.trust import check_private
from bartack.depot import FileRuns, Workspace, user_workspaces
from bartack.depot.elsewhere import Home, write_elsewhere
from bartack.depot.taken import KeyKnownError, Queueing
from bartack.errors import AgentConfigError, ScriptError
from bartack.journal import Draft, Durability
from bartack.runtime.hub.launch import check_telemetry
from bartack.runtime.hub.machine import check_machine
from bartack.runtime.program.check import check_sources
from bartack.runtime.program.environment import Rule, labels_of, read_lock
from bartack.runtime.program.inspect import probe
from bartack.runtime.program.pin import pin, read_sources
from bartack.runtime.program.source import find_program
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.protocol.source_places import is_own
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.inside import find_enclosing
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.rundir.run_as import check_account, open_account, share_run
from bartack.runtime.rundir.secrets import open_veil
from bartack.runtime.state import entries as e


class RunRequest(msgspec.Struct, kw_only=True):
    """What to run."""

    program: str
    worker: str = ""
    argv: list[str] = []
    input: dict[str, msgspec.Raw] = {}
    call: CallArgs | None = None
    no_input: bool = False
    module: str = ""
    """The name that the program's file is imported under, where that is known."""
    run_as: str = ""
    """The user that its processes are executed as, where that is not this one."""
    start_key: str = ""
    """What the start is recognised by if it is repeated; see ``RunCreated.start_key``."""


DATABASE_DECIDES: Final = (
    'durability = "process" has no effect on this run: '
    "what survives a power cut is decided by its database (synchronous_commit)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A run that can be made: its program can be executed with its arguments.

    Attributes:
        sources: The files of the program.
        created: The first entry, but for the run's id and its place.
        arguments: Of its first worker.
        state_dir: Where runs are kept.
        durability: What an acknowledged entry survives.
        sets: Settings that were given for this run.
        config: The settings of the workspace, which name the secrets.
        notes: What a person should know of the program.
        warnings: Findings of the check of the program that do not keep it from running.
        home: The database that keeps the run; ``None``: its directory does.
        is_carried: Its workspace travels with it, as the settings say.
    """

    sources: dict[str, bytes]
    created: e.RunCreated
    arguments: bytes
    state_dir: Path
    durability: Durability
    sets: Sequence[str]
    config: Config = field(default_factory=Config)
    notes: Sequence[str] = ()
    warnings: str = ""
    home: Home | None = None
    is_carried: bool = False


def create_run(
    request: RunRequest,
    workspace: Path,
    config: Config,
    sets: Sequence[str] = (),
    note: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
    home: Home | None = None,
    *,
    is_carried: bool = False,
    is_for_nodes: bool = False,
) -> RunDir:
    """Make a run: look at its program, keep it, and write the first entries. Nothing runs yet.

    Args:
        request: What to run.
        workspace: Where its commands and relative paths are.
        config: The settings of the workspace.
        sets: Settings in ``config`` that were given for this run; a resume has them, too.
        note: Called with what a person should know of the program before it runs.
        warn: Called with the findings of the check of the program, if there are any.
        home: The database that keeps the run; ``None``: its directory does.
        is_carried: Its workspace travels with it, as the settings say.
        is_for_nodes: Its agents are those of another machine.

    Raises:
        ProgramImportError: The program cannot run; no run was made.
        ProgramFaultError: The program has errors; no run was made.
        UsageError: The arguments do not match the worker; no run was made.
        AgentConfigError: An agent that it may ask cannot be used; no run was made.
        ScriptError: The script of a scripted agent cannot be used; no run was made.
        UntrustedError: Another user can change what is in the state directory; no run was made.
        RunAsError: Its processes cannot be executed as the user that is wanted; no run was made.
        ConfigError: Nodes are to make its environment, and its project has no lock file for that; no run was made.
        WorkspaceCarryError: Its workspace is too large to travel; no run was made.
        WorkspaceKeepError: Its workspace cannot be copied; no run was made.
    """
    plan = plan_run(request, workspace, config, sets, is_for_nodes=is_for_nodes)
    if home is not None:
        home = home._replace(team=home.team or config.run.team)
    plan = replace(plan, home=home, is_carried=is_carried)
    if note is not None:
        for text in plan.notes:
            note(text)
        if home is not None and plan.durability == "process":
            note(DATABASE_DECIDES)
    if warn is not None and plan.warnings:
        warn(plan.warnings)
    return make_run(plan)


def plan_run(
    request: RunRequest,
    workspace: Path,
    config: Config,
    sets: Sequence[str] = (),
    *,
    is_for_nodes: bool = False,
) -> Plan:
    """Find out everything that can keep a run from being made. See ``create_run``.

    Raises:
        MachineError: This machine lacks something that every run needs.
    """
    check_machine(str(workspace.resolve()), str(config.state_dir(workspace)))
    account = _account(request, workspace, config)
    file, named = find_program(request.program, workspace)
    root = project_root(file, workspace, request.module)
    finding = probe(_ask_about(request, file, root, named), workspace, account)
    sources = read_sources(finding.files, root, account)
    warnings = check_sources(sources, root) or finding.warnings
    needs = _check_agents(finding.agents, config, workspace, is_for_nodes=is_for_nodes)
    rule = _rule_of(file, config)
    check_telemetry(config)
    inside = find_enclosing(os.getpid())
    created = e.RunCreated(
        run="",
        worker=finding.worker,
        name=finding.name,
        program=str(file),
        workspace=str(workspace.resolve()),
        root=str(root),
        seed=secrets.randbelow(2**32),
        no_input=request.no_input,
        environment=finding.environment,
        environment_rule=rule,
        argv=request.argv,
        project=config.project_name(workspace),
        inside="" if inside is None else inside.run,
        from_runs=config.questions.from_runs,
        synced=config.durability == "power",
        run_as="" if account is None else account.name,
        run_uid=0 if account is None else account.uid,
        paths=finding.paths,
        start_key=request.start_key,
        needs=[*needs, *(labels_of(rule, finding.environment) if is_for_nodes else ())],
    )
    return Plan(
        sources=sources | read_lock(created.environment_rule, root, account),
        created=created,
        arguments=msgspec.json.encode(finding.call or CallArgs()),
        state_dir=config.state_dir(workspace).absolute(),
        durability=config.durability,
        sets=sets,
        config=config,
        notes=[
            f"the data files of {one.path} are not kept with the run: {one.reason}"
            for one in finding.left_out
        ],
        warnings=warnings,
    )


def _rule_of(file: Path, config: Config) -> Rule:
    """What the versions of a run are for: nodes do not run the pipeline, and its program does not belong to the project."""
    rule = config.run.environment
    return "same" if rule == "uv" and is_own(str(file)) else rule


def _account(request: RunRequest, workspace: Path, config: Config) -> Account | None:
    if not request.run_as:
        return None
    account = open_account(request.run_as)
    check_account(account, workspace.resolve(), config.state_dir(workspace))
    return account


def make_run(plan: Plan, disk: Disk | None = None) -> RunDir:
    """Make the directory of a run with everything that a resume needs, and last its journal.

    Raises:
        UntrustedError: Another user can change what is in the state directory; no run was made.
        KeyKnownError: The database has a run of its key.
    """
    batch = Batch(disk, synced=plan.durability == "power")
    runs = plan.state_dir / "runs"
    if disk is None:
        check_private(plan.state_dir)
        check_private(runs)
    batch.make_dirs(str(runs))
    if disk is None:
        shield(str(plan.state_dir))
    # The process that made these may have died before it synced them.
    batch.include_dir(str(plan.state_dir))
    batch.include_dir(str(plan.state_dir.parent))
    run = RunDir(FileRuns(runs, disk).claim(batch), disk)
    run.make(batch)
    pin(plan.sources, run.program, batch)
    write_sets(run.path, plan.sets, batch)
    # The journal makes the name of its directory durable together with its own.
    batch.settle(leaving=(str(runs),))
    if plan.created.run_as:
        share_run(run, open_account(plan.created.run_as))
    place = os.path.relpath(run.path, plan.created.workspace)
    origin = mark_of(run) if disk is None else ""
    created = msgspec.structs.replace(plan.created, run=run.id, place=place, origin=origin)
    spawned = e.WorkerSpawned(path=created.name, worker=created.worker)
    first = [e.draft(created), e.draft(spawned, plan.arguments)]
    if plan.is_carried:
        first += _carry(run, plan)
    if plan.home is not None:
        write_elsewhere(run.path, plan.home.where)
        keep_settings(run.path, Path(created.workspace))
        run.team, run.key = plan.home.team, plan.home.key
        run.queueing = _queueing(plan.home, created)
    veil = open_veil(plan.config, str(run.path), created.workspace, created.root, created.program)
    try:
        run.create([first], durability=plan.durability, veil=veil)
    except KeyKnownError:
        shutil.rmtree(run.path)
        raise
    if disk is None:
        user_workspaces().add(Workspace(created.workspace, str(plan.state_dir)))
    return run


def _queueing(home: Home, created: e.RunCreated) -> Queueing | None:
    """How a run is queued for the nodes of its database: these also need the labels of what it uses."""
    if home.queueing is None:
        return None
    return home.queueing._replace(needs=[*dict.fromkeys((*(home.queueing.needs or ()), *created.needs))])


def _carry(run: RunDir, plan: Plan) -> list[Draft]:
    """The entries of the first copy of the workspace.

    Raises:
        WorkspaceCarryError: It is too large.
        WorkspaceKeepError: It cannot be copied.
    """
    from bartack.runtime.hub.carried import carry_workspace  # noqa: PLC0415 - other runs start faster without it

    try:
        carried = carry_workspace(run, Path(plan.created.workspace), plan.config.workspace)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return carried.drafts()


def _ask_about(request: RunRequest, file: Path, root: Path, named: str) -> ProbeRequest:
    """What is asked of a program before its run is made."""
    return ProbeRequest(
        str(file),
        str(root),
        request.worker or named,
        request.argv,
        request.input,
        request.call,
        request.module,
    )


def _check_agents(wanted: list[str], config: Config, workspace: Path, *, is_for_nodes: bool) -> list[str]:
    """Check the agents of a program before the run can cost anything; returns the labels that a node must have for them."""
    names = {name or config.default_agent for name in wanted} - {""}
    # Scripts are read when the run begins, asked or not.
    scripted = {name for name, agent in config.agents.named.items() if isinstance(agent, ScriptedConfig)}
    if not names | scripted:
        return []
    from bartack.agents.doctor.doctor import check_agents  # noqa: PLC0415 - a run without agents starts faster without it
    from bartack.agents.labels import needed_labels  # noqa: PLC0415 - likewise

    known = config.agents.named
    unknown = sorted(names - set(known))
    if unknown:
        flaw = unknown_name((), unknown[0], list(known), "there is no such agent")
        raise AgentConfigError(unknown[0], flaw.problem)
    reports = check_agents(
        config.agents,
        workspace,
        os.environ,
        sorted(scripted if is_for_nodes else names | scripted),
        probe=True,
        capped=config.budget.limits_money,
        state_dir=config.directory,
    )
    for report in reports:
        if not report.usable:
            kind = ScriptError if report.name in scripted else AgentConfigError
            raise kind(report.name, "; ".join(report.problems))
    return needed_labels(config.agents, names) if is_for_nodes else []
