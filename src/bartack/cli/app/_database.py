"""Options of commands that work with runs in a database: ``--on``, ``--here``, ``--insecure``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import click
import msgspec

from bartack.cli.app._grouped import grouped
from bartack.cli.app._options import ON, ON_GIVEN, TOTAL, name_database
from bartack.cli.app._terminal import printable, write_note
from bartack.errors import DepotError, RunNotFoundError, UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from bartack.depot.elsewhere import Elsewhere, Home
    from bartack.depot.team import Team
    from bartack.depot.upkeep import Wait
    from bartack.runtime.rundir.layout import RunDir
    from bartack.runtime.state.run_state import State

ON_HELP: Final = "a PostgreSQL database (postgresql://… or service:NAME)"
INSECURE_HELP: Final = (
    "With --on: connect also where the connection is not encrypted or the server not checked."
)
_INSECURE_GIVEN: Final = "bartack.insecure"
_ASKS_OWN: Final = "bartack.asks_own"
"""In the context of a command: it can show runs of a database, and none was named."""
_IN_QUEUE: Final = frozenset({"queued", "held"})
"""States of a run that nodes of a database are to run, in which none has it."""
_AWAITED: Final = _IN_QUEUE | {"owned"}
"""The same, and that in which its node has not begun it yet, or has died."""


class DatabaseOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options of ``bartack run`` and ``resume``."""

    on: str = ""
    here: bool = False
    insecure: bool = False
    pool: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def database(self) -> str:
        """The database that was named, or the user's own if another option needs one."""
        needs_one = self.here or self.pool is not None or bool(self.needs)
        return self.on or (own_database() or "" if needs_one else "")

    @property
    def is_for_nodes(self) -> bool:
        """Whether a node of the database is to run it, and not this machine."""
        return bool(self.database) and not self.here

    def where(self, command: str) -> Elsewhere | None:
        """The database that was named, after a look at whether it can keep runs; ``None`` if none was.

        Raises:
            UsageError: The options do not go together.
            DepotError: It cannot keep runs.
        """
        if not self.database:
            if self.here or self.insecure or self.pool is not None or self.needs:
                raise UsageError(
                    command,
                    "--here, --pool, --need and --insecure are for runs in a database: add --on DATABASE",
                )
            return None
        if self.here and (self.pool is not None or self.needs):
            raise UsageError(command, "--pool and --need choose nodes, and --here chooses this machine")
        from bartack.config.load import load_elsewhere  # noqa: PLC0415 - other runs start faster without it

        where = load_elsewhere(self.database, insecure=self.insecure)
        open_team(where).check()
        return where


database_options = grouped(
    "kept",
    DatabaseOptions,
    (
        click.option("--on", default="", metavar="DATABASE", help=f"Keep the run in {ON_HELP}."),
        click.option(
            "--here",
            is_flag=True,
            help="With --on: run it on this machine, and not on a node of the database.",
        ),
        click.option("--pool", metavar="NAME", help="With --on: only nodes of this pool take it."),
        click.option(
            "--need",
            "needs",
            multiple=True,
            metavar="LABEL",
            help="With --on: only nodes with this label take it.",
        ),
        click.option("--insecure", is_flag=True, help=INSECURE_HELP),
    ),
)
"""Adds the options to a command; it receives them together, as ``kept``."""


class SubmitOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options of ``bartack run`` that say whose run it is in a database."""

    team: str = ""
    key: str = ""
    at: str = ""

    def complete(self, kept: DatabaseOptions, carry: str | None) -> DatabaseOptions:
        """The options that name a database, with the user's own one if another option needs one."""
        needs_one = bool(self.team or self.key or self.at or carry is not None)
        return msgspec.structs.replace(kept, on=kept.on or (own_database() or "" if needs_one else ""))

    def home(self, where: Elsewhere | None, *, is_for_nodes: bool) -> Home | None:
        """Where the run is to be kept; without a team, that of the settings is meant.

        Raises:
            UsageError: The options do not go together.
        """
        if (self.key or self.at) and not is_for_nodes:
            problem = (
                "--key and --at are for runs on the nodes of a database: add --on DATABASE, without --here"
            )
            raise UsageError("bartack run", problem)
        if where is None:
            if self.team:
                raise UsageError("bartack run", "--team is for runs in a database: add --on DATABASE")
            return None
        from bartack.depot.elsewhere import Home  # noqa: PLC0415 - other runs start faster without it

        return Home(where, self.team, self.key)

    @property
    def begins(self) -> datetime | None:
        """When a node may take it; ``None``: at once.

        Raises:
            UsageError: That is not a time, or it has passed.
        """
        if not self.at:
            return None
        from bartack.cli.app._moment import parse_moment  # noqa: PLC0415 - few runs begin later

        return parse_moment(self.at)


submit_options = grouped(
    "submitted",
    SubmitOptions,
    (
        click.option(
            "--team", default="", metavar="NAME", help="With --on: the team whose run it is (run.team)."
        ),
        click.option(
            "--key",
            default="",
            metavar="KEY",
            help="With --on: if the team has a run of this key, show that run and make none.",
        ),
        click.option(
            "--at",
            default="",
            metavar="TIME",
            help="With --on: no node takes it before this time: 2026-01-31T22:00, with +01:00 for another zone than this "
            "machine's, or 22:00 for the next time that it is so late.",
        ),
    ),
)
"""Adds the options to a command; it receives them together, as ``submitted``."""


def own_database(environ: Mapping[str, str] = os.environ) -> str | None:
    """The database of the user, for commands that need one: ``BARTACK_ON``, or ``depot.on`` in the user's own settings.

    Raises:
        ConfigError: A setting has an unusable value.
    """
    from bartack.config.load import load_own_depot  # noqa: PLC0415 - only commands for runs in a database need it

    return environ.get("BARTACK_ON") or load_own_depot(environ).on or None


def _check_named(context: click.Context, parameter: click.Parameter, given: str | None) -> str:
    if not given:
        raise click.MissingParameter(ctx=context, param=parameter)
    return given


on_option = click.option(
    "--on",
    required=True,
    default=own_database,
    callback=_check_named,
    metavar="DATABASE",
    help=f"The database: {ON_HELP}.",
)
"""For commands that are about a database as a whole."""


def open_team(where: Elsewhere) -> Team:
    """The runs of a database."""
    from bartack.depot.team import Team  # noqa: PLC0415 - only these commands need it

    return Team(where)


def open_named(on: str, *, insecure: bool) -> Team:
    """The runs of a database as it was named, with the object store of the user's own settings.

    Raises:
        ConfigError: A setting has an unusable value.
    """
    from bartack.config.load import load_elsewhere  # noqa: PLC0415 - only these commands need it

    return open_team(load_elsewhere(on, insecure=insecure))


def wait_of(run: RunDir) -> Wait | None:
    """Why a run in a database is not active; ``None`` if it is not one of nodes, or the database does not answer."""
    return waits_of([run]).get(run.id)


def waits_of(runs: Iterable[RunDir]) -> dict[str, Wait]:
    """The same for several runs, by their ids; those that are not for nodes, or whose database does not answer, are left out."""
    asked: dict[Elsewhere, list[str]] = {}
    for run in runs:
        if run.is_kept_elsewhere and not run.is_of_node and run.where is not None:
            asked.setdefault(msgspec.structs.replace(run.where, mark=""), []).append(run.id)
    found: dict[str, Wait] = {}
    for where, ids in asked.items():
        from bartack.depot.upkeep import Upkeep  # noqa: PLC0415 - other runs are shown faster without it

        team = open_team(where)
        with team.database, suppress(DepotError):
            found |= Upkeep(team).waits_of(ids)
    return found


def describe_wait(wait: Wait | None) -> str:
    """What a run waits for in the queue of nodes, with what a person can do about it; empty if it is not there."""
    if wait is None or (wait.is_given and wait.state not in _AWAITED):
        return ""
    return wait.text if wait.problem is None else f"{wait.text}. {wait.problem.remedy} [{wait.problem.code}]"


def reason_in_queue(wait: Wait | None) -> str:
    """The same for a list, which has the state beside it."""
    if wait is None or (wait.is_given and wait.state not in _AWAITED):
        return ""
    return wait.text.removeprefix(f"{wait.state}: ")


def state_in_queue(wait: Wait | None) -> str:
    """The state of a run in the queue of nodes; empty if they were not given it."""
    return "" if wait is None or not wait.is_given else wait.state


def status_in_queue(status: str, state: str) -> str:
    """The status of a run for people: its state in the queue of nodes if that says more."""
    return state if state in _IN_QUEUE else status


def branches_of(state: State, wait: Wait | None) -> str:
    """What became of the branches that nodes push at the end of a run; empty if none do, or it is not known."""
    if state.copies.first is None or not state.copies.first.push:
        return ""
    return wait.text if wait is not None and wait.state == "over" else ""


def _note_on(context: click.Context, parameter: click.Parameter, given: str) -> None:
    if given:
        context.meta[ON] = partial(show_runs_of, context, given)
    context.meta[_ASKS_OWN] = not given


def _note_insecure(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    context.meta[_INSECURE_GIVEN] = given


def shows_database(command: click.decorators.FC) -> click.decorators.FC:
    """Add ``--on`` and ``--insecure`` to a command for runs: it is for those of a database then."""
    on = click.option(
        "--on",
        default="",
        metavar="DATABASE",
        is_eager=True,
        expose_value=False,
        callback=_note_on,
        help=f"Use the runs of {ON_HELP}.",
    )
    insecure = click.option(
        "--insecure",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_note_insecure,
        help=INSECURE_HELP,
    )
    return on(insecure(command))


def show_runs_of(context: click.Context, on: str) -> str:
    """The directory in which a command finds the runs of the database that ``--on`` names, instead of a workspace.

    If the command names runs, only these have a directory there when this returns, and it gets their whole ids.
    """
    from bartack.config.load import load_elsewhere  # noqa: PLC0415 - only these commands need it
    from bartack.depot.shown import shown_place, shown_runs  # noqa: PLC0415 - likewise
    from bartack.depot.team import listed  # noqa: PLC0415 - likewise

    where = load_elsewhere(on, insecure=bool(context.meta.get(_INSECURE_GIVEN)))
    team = open_team(where)
    runs = shown_runs(where)
    context.meta[ON_GIVEN] = on
    for name in ("run", "path", "runs"):
        match context.params.get(name):
            case str(asked) if os.sep not in asked:
                context.params[name] = team.show(team.find(asked), runs).name
                return str(shown_place(where))
            case (_, *_) as asked:
                context.params[name] = tuple(team.show(team.find(one), runs).name for one in asked)
                return str(shown_place(where))
            case _:
                pass
    if "limit" in context.params:
        listed(team, runs, context.params["limit"] or 0)
        context.meta[TOTAL] = team.count()
    else:
        listed(team, runs)
    return str(shown_place(where))


def find_in_own_database(missing: RunNotFoundError) -> RunDir | None:
    """Find a run that a person has named, and that is not on this machine, in the user's own database.

    Args:
        missing: The error of the search on this machine.

    Returns:
        ``None`` if it is not there either, or the command is not for runs of databases.
    """
    context = click.get_current_context(silent=True)
    asked = missing.asked
    if (
        context is None
        or not context.meta.get(_ASKS_OWN)
        or missing.near
        or asked in {"", "latest", ".", ".."}
    ):
        return None
    on = "" if os.sep in asked else own_database()
    if not on:
        return None
    from bartack.runtime.client.databases import find_run_on  # noqa: PLC0415 - most runs are on this machine

    try:
        found = find_run_on(on, asked, insecure=bool(context.meta.get(_INSECURE_GIVEN)))
    except RunNotFoundError:
        return None
    except DepotError as error:
        write_note(f"your database was not searched: {printable(error.message)}")
        return None
    name_database(on)
    return found
