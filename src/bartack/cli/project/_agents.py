"""``bartack agents``: list and check the agents of a project, and run a scripted agent that needs no model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click
import msgspec

from bartack.agents.protocol.messages import Role
from bartack.cli.app._app import DefaultGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import is_given, json_option, workspace_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.core.flaws import unknown_name
from bartack.errors import AgentConfigError, RunNotFoundError

if TYPE_CHECKING:
    from bartack.agents.doctor.doctor import DoctorReport
    from bartack.runtime.rundir.layout import RunDir

NONE: Final = "No agent is configured. Name one in bartack.toml, under [agents.NAME]; 'bartack init --example' shows one."
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class _Agents(DefaultGroup):
    """Without a command the agents are listed."""

    default = "list"
    is_bare = True


@click.group(cls=_Agents, short_help="List and check agents, or run a scripted one.")
def agents() -> None:
    """List the agents of a project, check that they are usable, or run a scripted agent.

    Without a command, the agents are listed.
    """


@agents.command("list", short_help="List the agents of the project.")
@workspace_option
@json_option
def list_agents(workspace: str, *, as_json: bool) -> None:
    """List the agents of bartack.toml with kind, version, command and roles, and the default agent.

    The version is what a claude or codex that you have installed prints for --version; nothing of the project is started.
    """
    reports = _look(workspace, None, versions=True)
    if as_json:
        write_json([_facts(report) for report in reports])
        return
    screen = Screen(sys.stdout)
    if not reports:
        screen.line(NONE)
    with_version = any(report.version for report in reports)
    screen.listing([_row(screen, report, with_version=with_version) for report in reports])


@agents.command("doctor", short_help="Check that agents are usable.")
@click.argument("name", required=False)
@click.option(
    "--live", is_flag=True, help="Also send each agent a one-word prompt. This can cost up to 0.05 USD."
)
@workspace_option
@json_option
def check(name: str | None, workspace: str, *, live: bool, as_json: bool) -> int:
    """Check that agents are usable: all agents of the project, or the agent NAME.

    The command starts each agent program and waits for its 'hello'; it reads and checks scripts. Without --live it sends no
    prompt, so it costs nothing. The exit code is 1 if an agent is not usable.
    """
    reports = _look(workspace, name, start=True, live=live)
    if as_json:
        write_json([_facts(report) for report in reports])
    else:
        _show(Screen(sys.stdout), reports)
    return Exit.OK if all(report.usable for report in reports) else Exit.FAILED


@agents.command("scripted", short_help="Run a scripted agent on stdin and stdout.")
@click.option("--script", required=True, metavar="FILE", help="Answer from this script, JSON or TOML.")
@click.option("--role", type=click.Choice(ROLES), help="Role to report (default: the role of each command).")
@click.option(
    "--id",
    "name",
    default="",
    metavar="NAME",
    help="Name to report (default: BARTACK_AGENT, or the name in each command).",
)
@click.option(
    "--state", default="", metavar="FILE", help="Keep calls and answers in this file across restarts."
)
@click.option(
    "--heartbeat-s", type=float, metavar="N", help="Send a heartbeat every N seconds; 0 sends none."
)
@click.option(
    "--permissions",
    default="",
    metavar="JSON",
    help="Restrict its changes of files, like agents.NAME.permissions.",
)
@click.option("--materialize", is_flag=True, help="Create files that it names and that are missing.")
def scripted(
    script: str,
    role: Role | None,
    name: str,
    state: str,
    heartbeat_s: float | None,
    permissions: str,
    *,
    materialize: bool,
) -> int:
    """Run a scripted agent that speaks the line protocol on stdin and stdout.

    It is for experiments and tests: it needs no model, always gives the same answers, and produces every fault that its script
    requests.
    """
    from bartack.agents.scripted.program import run_scripted  # noqa: PLC0415 - agents start often and have to start fast

    beat = heartbeat_s if heartbeat_s is not None else float(os.environ.get("BARTACK_HEARTBEAT_S", "10"))
    name = name or os.environ.get("BARTACK_AGENT", "")
    return run_scripted(
        script,
        name=name,
        role=role,
        state=state,
        heartbeat_s=beat,
        materialize=materialize,
        permissions=permissions,
    )


@agents.command("record", short_help="Write a script of what agents replied in a run.")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", required=True, metavar="FILE", help="Write the script to this file, as JSON.")
@click.option("--agent", default="", metavar="NAME", help="Record only the replies of this agent.")
@workspace_option
@json_option
def record(run: str, output: str, agent: str, workspace: str, *, as_json: bool) -> None:
    """Write a script that answers prompts as the agents of RUN did.

    An agent with kind = "scripted" and this script repeats the replies and tool calls without a model and without cost: for tests,
    and for reports of faults. Answers to the actions of the pipeline are not recorded.
    """
    from bartack.core.files import write_file  # noqa: PLC0415 - a scripted agent starts faster without it
    from bartack.runtime.rundir.recorded_prompts import recorded_prompts  # noqa: PLC0415 - likewise

    found = _find_run(run, workspace)
    rules = recorded_prompts(found, agent)
    script = {"version": 1, "comment": f"Recorded from {found.id}.", "strict": True, "prompts": rules}
    write_file(output, msgspec.json.format(msgspec.json.encode(script), indent=2) + b"\n")
    if as_json:
        write_json({"run": found.id, "prompts": len(rules), "file": output})
    else:
        Screen(sys.stdout).line(f"Wrote {len(rules)} replies of {found.id} to {printable(output)}.")


def _find_run(asked: str, workspace: str) -> RunDir:
    """Find a run in the workspace, or in all of them if none was named."""
    from bartack.runtime.client.everywhere import find_elsewhere  # noqa: PLC0415 - see above
    from bartack.runtime.rundir.find import find_run  # noqa: PLC0415 - likewise

    try:
        return find_run(asked, Path(workspace))
    except RunNotFoundError as missing:
        if is_given("workspace"):
            raise
        return find_elsewhere(missing).run


def _look(
    workspace: str, name: str | None, *, start: bool = False, live: bool = False, versions: bool = False
) -> list[DoctorReport]:
    from bartack.agents.doctor.doctor import add_versions, check_agents  # noqa: PLC0415 - a scripted agent starts faster without it
    from bartack.config.load import load_config  # noqa: PLC0415 - likewise

    place = Path(workspace).resolve()
    settings = load_config(place)
    config = settings.agents
    if name is not None and name not in config.named:
        raise AgentConfigError(
            name, unknown_name((), name, list(config.named), "there is no such agent").problem
        )
    names = None if name is None else [name]
    reports = check_agents(
        config,
        place,
        os.environ,
        names,
        start=start,
        live=live,
        capped=settings.budget.limits_money,
        state_dir=settings.directory,
    )
    if versions:
        add_versions(reports, config, place, os.environ)
    return reports


def _facts(report: DoctorReport) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(report)
    return {**facts, "usable": report.usable}


def _row(screen: Screen, report: DoctorReport, *, with_version: bool) -> list[str]:
    name, mark = screen.paint(printable(report.name), "bold"), "default" if report.default else ""
    version = [printable(report.version)] if with_version else []
    return [name, report.kind, *version, mark, ", ".join(report.roles), printable(report.command)]


def _show(screen: Screen, reports: list[DoctorReport]) -> None:
    if not reports:
        screen.line(NONE)
    for report in reports:
        verdict = screen.paint("usable", "green") if report.usable else screen.paint("not usable", "red")
        screen.line(f"{screen.paint(printable(report.name), 'bold')}  {report.kind}  {verdict}")
        facts = (("found", report.found), ("version", report.version), ("credential", report.credential))
        for label, text in facts:
            if text:
                screen.line(f"  {label}: {printable(text)}")
        for text in (*report.problems, *report.notes):
            screen.line(f"  {printable(text)}")
