"""``bartack agents``: list and check the agents of a project, and run a scripted agent that needs no model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click
import msgspec

from bartack.agents import Role
from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, workspace_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.core import unknown_name
from bartack.errors import AgentConfigError

if TYPE_CHECKING:
    from bartack.agents import DoctorReport

NONE: Final = "No agent is configured. Name one in bartack.toml, under [agents.NAME]; 'bartack init --example' shows one."
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class _Agents(PlainGroup):
    """A group that lists the agents if it is called without a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        plain = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if plain else args)


@click.group(cls=_Agents, short_help="List and check agents, or run a scripted one.")
def agents() -> None:
    """List the agents of a project, check that they are usable, or run a scripted agent.

    Without a command, the agents are listed.
    """


@agents.command("list", short_help="List the agents of the project.")
@workspace_option
@json_option
def list_agents(workspace: str, *, as_json: bool) -> None:
    """List the agents of bartack.toml with kind, command and roles, and the default agent."""
    reports = _look(workspace, None)
    if as_json:
        write_json([_facts(report) for report in reports])
        return
    screen = Screen(sys.stdout)
    if not reports:
        screen.line(NONE)
    screen.listing([(*_row(screen, report), printable(report.command)) for report in reports])


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
    from bartack.agents import run_scripted  # noqa: PLC0415 - agents start often and have to start fast

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


def _look(workspace: str, name: str | None, *, start: bool = False, live: bool = False) -> list[DoctorReport]:
    from bartack.agents import check_agents  # noqa: PLC0415 - a scripted agent starts faster without it
    from bartack.config.load import load_config  # noqa: PLC0415 - likewise

    place = Path(workspace).resolve()
    config = load_config(place).agents
    if name is not None and name not in config.named:
        raise AgentConfigError(
            name, unknown_name((), name, list(config.named), "there is no such agent").problem
        )
    names = None if name is None else [name]
    return check_agents(config, place, os.environ, names, start=start, live=live)


def _facts(report: DoctorReport) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(report)
    return {**facts, "usable": report.usable}


def _row(screen: Screen, report: DoctorReport) -> tuple[str, str, str, str]:
    mark = "default" if report.default else ""
    return screen.paint(printable(report.name), "bold"), report.kind, mark, ", ".join(report.roles)


def _show(screen: Screen, reports: list[DoctorReport]) -> None:
    if not reports:
        screen.line(NONE)
    for report in reports:
        verdict = screen.paint("usable", "green") if report.usable else screen.paint("not usable", "red")
        screen.line(f"{screen.paint(printable(report.name), 'bold')}  {report.kind}  {verdict}")
        for label, text in (("found", report.found), ("version", report.version)):
            if text:
                screen.line(f"  {label}: {printable(text)}")
        for text in (*report.problems, *report.notes):
            screen.line(f"  {printable(text)}")
