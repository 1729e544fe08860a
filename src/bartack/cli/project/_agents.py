"""``bartack agents``: which agents there are, whether they can be used, and one that needs no model."""

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
    """Without a command the agents are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        plain = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if plain else args)


@click.group(cls=_Agents, short_help="List and check agents, or be a scripted one.")
def agents() -> None:
    """List the agents of a project, check that they can be used, or be one that answers from a script.

    Without a command, the agents are listed.
    """


@agents.command("list", short_help="List the agents of the project.")
@workspace_option
@json_option
def list_agents(workspace: str, *, as_json: bool) -> None:
    """List the agents that bartack.toml names: kind, command, roles, and which one is asked by default."""
    reports = _look(workspace, None)
    if as_json:
        write_json([_facts(report) for report in reports])
        return
    screen = Screen(sys.stdout)
    if not reports:
        screen.line(NONE)
    screen.listing([(*_row(screen, report), printable(report.command)) for report in reports])


@agents.command("doctor", short_help="Check that agents can be used.")
@click.argument("name", required=False)
@click.option("--live", is_flag=True, help="Also ask each program for a word. That may cost up to 0.05 USD.")
@workspace_option
@json_option
def check(name: str | None, workspace: str, *, live: bool, as_json: bool) -> int:
    """Check that agents can be used: all of the project, or the one called NAME.

    Programs are found, started and heard out until they introduce themselves; scripts are read. Without --live nothing is asked of
    an agent, so nothing costs money. Ends with 1 if an agent cannot be used.
    """
    reports = _look(workspace, name, start=True, live=live)
    if as_json:
        write_json([_facts(report) for report in reports])
    else:
        _show(Screen(sys.stdout), reports)
    return Exit.OK if all(report.usable for report in reports) else Exit.FAILED


@agents.command("scripted", short_help="Be an agent that answers from a script.")
@click.option("--script", required=True, metavar="FILE", help="What to do and to say: JSON or TOML.")
@click.option("--role", type=click.Choice(ROLES), help="The role it signs with; else the one it is asked in.")
@click.option(
    "--id",
    "name",
    default="",
    metavar="NAME",
    help="Its name; else BARTACK_AGENT, or the one it is asked by.",
)
@click.option(
    "--state", default="", metavar="FILE", help="Remember calls and answers here, over its own death."
)
@click.option("--heartbeat-s", type=float, metavar="N", help="Seconds between heartbeats; 0: none.")
@click.option(
    "--permissions", default="", metavar="JSON", help="What it may do to files, like agents.NAME.permissions."
)
@click.option("--materialize", is_flag=True, help="Make files that it names and that are not there.")
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
    """Be an agent that speaks the line protocol on stdin and stdout, and answers from a script.

    For trying things out and for tests: it needs no model, answers the same every time, and shows every fault that its script asks
    for.
    """
    from bartack.agents import run_scripted  # noqa: PLC0415 - agents are started often, and have to start fast

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
