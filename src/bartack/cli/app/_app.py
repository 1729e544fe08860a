"""The table of commands. A command's module is imported only when the command is called.

To add a command, write its module, add a line to ``COMMANDS`` and regenerate the reference (``_reference.py``).
"""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple

import click

from bartack._version import __version__


class Listed(NamedTuple):
    """One line of the table: the heading of a command, its name, its module and function, and its short help."""

    group: str
    name: str
    target: str
    help: str


GROUPS: Final = ("run", "overnight", "look", "write", "operate", "track")
"""The headings of ``bartack --help``, in their order."""

COMMANDS: Final = (
    Listed("run", "run", "runs._run:run", "Run a program, or tasks through the pipeline."),
    Listed("run", "resume", "runs._run:resume", "Resume an interrupted or failed run."),
    Listed("run", "answer", "live._answer:answer", "List the open questions of a run, or answer one."),
    Listed("run", "cancel", "runs._steer:cancel", "Cancel a run for good."),
    Listed("run", "fail", "runs._steer:fail", "Fail a run; it can be resumed."),
    Listed("run", "fork", "runs._steer:fork", "Create a run from the first part of another."),
    Listed("run", "demo", "demo._demo:demo", "Watch work survive kill -9, with proof."),
    Listed("overnight", "attach", "live._watch:attach", "Show a run of the node live; like watch."),
    Listed("overnight", "detach", "nodes._detach:detach", "Hand an active run over to the node."),
    Listed("overnight", "queue", "nodes._queue:queue", "List and change what the node has to run."),
    Listed("overnight", "schedule", "nodes._schedule:schedule", "Start runs at fixed times."),
    Listed("overnight", "node", "nodes._node:node", "Run what is queued, without a terminal."),
    Listed("look", "watch", "live._watch:watch", "Show a run live, from any terminal."),
    Listed("look", "status", "look._status:status", "List the runs, or show the state of one."),
    Listed("look", "show", "look._show:show", "Show the steps of a run, or one step in full."),
    Listed(
        "look",
        "report",
        "look._report:report",
        "Report what a run has done, and how to take its work over.",
    ),
    Listed("look", "diff", "look._diff:diff", "Show the changes of a run, or of one of its tasks."),
    Listed("look", "log", "look._log:log", "Print the output, log lines and notes of a run."),
    Listed("look", "ps", "look._ps:ps", "Show the processes of a run as a tree."),
    Listed("look", "web", "look._web:web", "Show runs in a browser, and act on them."),
    Listed("look", "journal", "look._journal:journal", "Read, check and export the journal of a run."),
    Listed("write", "check", "project.check._check:check", "Check programs and settings."),
    Listed(
        "write", "replay", "runs._replay:replay", "Check that a program still does what recorded runs did."
    ),
    Listed("write", "fmt", "project._fmt:fmt", "Format Patchwork programs."),
    Listed(
        "write", "compile", "project._compile:compile_", "Show a Patchwork program as Python, tree or plugin."
    ),
    Listed(
        "write",
        "plugin",
        "plugin._plugin:plugin",
        "Make a plugin for Claude Code of a program, and install it.",
    ),
    Listed(
        "operate",
        "init",
        "project._init:init",
        "Write a commented bartack.toml, or an example that runs at once.",
    ),
    Listed("operate", "snapshot", "look._snapshot:snapshot", "Compute the snapshot id of the workspace."),
    Listed("operate", "agents", "project._agents:agents", "List and check agents, or run a scripted one."),
    Listed("operate", "mailbox", "runs._mailbox:mailbox", "Inspect mailboxes, send and receive messages."),
    Listed("operate", "dlq", "runs._dlq:dlq", "Inspect, retry, remove or export dead letters."),
    Listed("operate", "notices", "nodes._notices:notices", "List notices, or test how they are sent."),
    Listed("operate", "mcp", "project._mcp:mcp", "Serve runs as tools of an MCP client."),
    Listed("operate", "db", "nodes._db:db", "Prepare and check a database that keeps runs."),
    Listed("operate", "nodes", "nodes._fleet:nodes", "List and drain the nodes of a database."),
    Listed("operate", "teams", "nodes._teams:teams", "List and limit the teams of a database."),
    Listed(
        "operate",
        "schedules",
        "nodes._timetable:schedules",
        "Start runs at fixed times on the nodes of a database.",
    ),
    Listed("operate", "move", "nodes._db:move", "Keep a run in a database from now on."),
    Listed("operate", "pull", "nodes._db:pull", "Bring the files of a run here, or the whole run."),
    Listed("operate", "clean", "runs._clean:clean", "Delete runs that have ended."),
    Listed("operate", "bundle", "look._bundle:bundle", "Pack a run for a bug report, without its secrets."),
    Listed(
        "operate",
        "doctor",
        "project.doctor._doctor:doctor",
        "Check that this machine has what Bartack needs.",
    ),
    Listed("operate", "trust", "project._trust:trust", "Trust the settings and runs of a directory."),
    Listed("operate", "schema", "project._schema:schemas", "Print the JSON Schemas of messages and files."),
    Listed("operate", "explain", "app._explain:explain", "Explain an error code and what to do about it."),
    Listed("operate", "completion", "app._completion:completion", "Print the completion script for a shell."),
    Listed("track", "track", "tracking._track:track", "Track patterns, and inspect the outbox."),
    Listed("track", "hook", "tracking._hook:hook", "Record and guard what a coding agent does."),
    Listed(
        "track",
        "daemon",
        "tracking._daemon:daemon",
        "Deliver the events that hooks and programs have recorded.",
    ),
    Listed(
        "track",
        "lineage",
        "tracking._lineage:lineage",
        "Show where code came from, and serve the lineage graph.",
    ),
)


class PlainGroup(click.Group):
    """A group that shows its help when it is called without a command, and its commands in the order of the code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which the commands were added."""
        return list(self.commands)


class DefaultGroup(PlainGroup):
    """A group one of whose commands is meant where options come first."""

    default: str
    """The name of that command."""
    is_bare = False
    """Whether it is meant without any option, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        is_option = bool(args) and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)
        is_meant = is_option or (self.is_bare and not args)
        return super().parse_args(ctx, [self.default, *args] if is_meant else args)


class LazyGroup(PlainGroup):
    """The group whose commands are the lines of the table."""

    table: tuple[Listed, ...] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return [listed.name for listed in self.table]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command."""
        for listed in self.table:
            if listed.name == cmd_name:
                return load_command(listed)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See ``click.Group.resolve_command``; the error for an unknown name suggests similar ones."""
        if not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            ctx.fail(f"no such command {args[0]!r}{self._near(ctx, args[0])}")
        return super().resolve_command(ctx, args)

    def _near(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

        near = get_close_matches(name, self.list_commands(ctx))
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table under its headings, without importing a command."""
        width = max(len(listed.name) for listed in self.table)
        for group in GROUPS:
            rows = [(listed.name.ljust(width), listed.help) for listed in self.table if listed.group == group]
            if rows:
                with formatter.section(group.capitalize()):
                    formatter.write_dl(rows)


def load_command(listed: Listed) -> click.Command:
    """Import the command of a line of the table."""
    module, _, attribute = listed.target.partition(":")
    command = getattr(importlib.import_module(f"bartack.cli.{module}"), attribute)
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'bartack COMMAND --help' describes a command, 'bartack explain CODE' an error.",
)
@click.version_option(__version__, prog_name="bartack", message="%(prog)s %(version)s")
def app() -> None:
    """Run teams of AI coding agents that never lose work."""
