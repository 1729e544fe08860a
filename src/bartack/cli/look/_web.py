"""``bartack web``: runs in a browser on this machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bartack._version import __version__
from bartack.cli.app._database import INSECURE_HELP, ON_HELP, open_team
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import find_workspace_of, is_given, json_option, write_json
from bartack.cli.app._runs import complete_run
from bartack.cli.app._terminal import printable, write_note
from bartack.config.load import load_web_config
from bartack.errors import RunNotFoundError, UsageError
from bartack.runtime.rundir.find import find_run

if TYPE_CHECKING:
    from bartack.config.sections import WebConfig
    from bartack.depot.elsewhere import Elsewhere
    from bartack.web import ControlAnswer, WebRequest

LINK: Final = "link"
STOP: Final = "stop"
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
"""Variables of a session in which a browser can be shown."""


def _find_workspaces(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(find_workspace_of(one, named=True) for one in given) or (
        find_workspace_of(".", named=False),
    )


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    words = [word for word in (LINK, STOP) if word.startswith(incomplete)]
    return [*words, *complete_run(context, parameter, incomplete)]


# Long because its options and its help are part of it; the functions that it calls do the work.
@click.command(short_help="Show runs in a browser, and act on them.")
@click.argument("run", metavar="[RUN|link|stop]", required=False, shell_complete=_complete)
@click.option(
    "-C",
    "--workspace",
    "workspaces",
    multiple=True,
    metavar="DIR",
    callback=_find_workspaces,
    help="Show this workspace, or several (default: the nearest directory upwards with a bartack.toml, else the current one).",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Listen on this port; 0 takes a free one (default: 8055)."
)
@click.option(
    "--on",
    "on",
    default="",
    metavar="DATABASE",
    help=f"Show the runs of {ON_HELP}; workspaces only if --workspace names them.",
)
@click.option("--insecure", is_flag=True, help=INSECURE_HELP)
@click.option("--no-open", is_flag=True, help="Print the link and open no browser.")
@click.option("--read-only", is_flag=True, help="Show runs, and take no action.")
@click.option(
    "--name",
    default="bartack.localhost",
    show_default=True,
    help="Name in the address of the pages. With 127.0.0.1 or localhost, runs are shown read-only.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="With --name 127.0.0.1: take actions, although other servers of this machine get the cookie, too.",
)
@json_option
def web(
    run: str | None,
    workspaces: tuple[str, ...],
    port: int | None,
    name: str,
    on: str,
    *,
    insecure: bool,
    no_open: bool,
    read_only: bool,
    allow_actions: bool,
    as_json: bool,
) -> Exit:
    """Show runs in a browser on this machine: the list of runs, or RUN. Questions can be answered there, and runs steered.

    The command prints a link, opens it, and serves pages until Ctrl-C. Runs do not depend on it. A link works once and within a
    minute. There is one server per user: if one is running, the command adds the workspace to it and prints a link into it.

    With --on the runs of a database are shown, with what keeps each of them waiting. Requests go to its nodes through the
    database; the connection stays in the server, and no page has it.

    'bartack web link' prints another link, for another browser. 'bartack web stop' stops the server.
    """
    if run == STOP:
        return _stop(as_json=as_json)
    if insecure and not on:
        raise UsageError("bartack web", "--insecure is for runs in a database: add --on DATABASE")
    if run == LINK:
        return _link(workspaces, _databases(on, insecure=insecure), as_json=as_json)
    from bartack.web import serve_web  # noqa: PLC0415 - help does not need it

    settings = load_web_config(Path(workspaces[0]))
    databases = _databases(on, insecure=insecure)
    shown = workspaces if not databases or is_given("workspaces") else ()
    first, more = _first_page(run, workspaces, databases)
    request = make_request(
        settings,
        (*shown, *more),
        run=first,
        port=port,
        name=name,
        read_only=read_only,
        allow_actions=allow_actions,
        databases=databases,
    )

    def ready(server: ControlAnswer) -> None:
        _announce(server, as_json=as_json)
        if settings.open and not no_open and has_display(os.environ):
            _open(server.url)

    serve_web(request, ready)
    return Exit.OK


def make_request(
    settings: WebConfig,
    workspaces: tuple[str, ...],
    *,
    run: str = "",
    port: int | None = None,
    name: str = "bartack.localhost",
    read_only: bool = False,
    allow_actions: bool = False,
    databases: tuple[Elsewhere, ...] = (),
) -> WebRequest:
    """What to show, by the settings of the first workspace and what was given on the command line."""
    from bartack.web import WebRequest  # noqa: PLC0415 - help does not need it

    named = settings.workspaces if workspaces else ()
    more = [os.path.join(workspaces[0], os.path.expanduser(one)) for one in named]
    return WebRequest(
        workspaces=tuple(map(Path, (*workspaces, *more))),
        run=run,
        port=settings.port if port is None else port,
        name=name,
        read_only=read_only or settings.read_only,
        allow_actions=allow_actions,
        cache_mb=settings.cache_mb,
        databases=databases,
    )


def _databases(on: str, *, insecure: bool) -> tuple[Elsewhere, ...]:
    if not on:
        return ()
    from bartack.config.load import load_elsewhere  # noqa: PLC0415 - other runs are shown faster without it

    return (load_elsewhere(on, insecure=insecure),)


def _first_page(
    run: str | None, workspaces: tuple[str, ...], databases: tuple[Elsewhere, ...]
) -> tuple[str, tuple[str, ...]]:
    """The id of the run that the first page shows, if one is meant, and its workspace if that is another one."""
    if databases:
        return _find_on(databases[0], run), ()
    return ("", ()) if run is None else _locate(run, workspaces)


def _find_on(where: Elsewhere, run: str | None) -> str:
    """The id of the run of a database that is meant, after a look at whether the database can be used."""
    team = open_team(where)
    with team.database:
        if run is not None:
            return team.find(run)
        team.check()
    return ""


def _locate(run: str, workspaces: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The id of the run that is meant, and its workspace if that is another one."""
    missing = RunNotFoundError(run)
    for workspace in workspaces:
        try:
            return find_run(run, Path(workspace)).id, ()
        except RunNotFoundError as error:
            missing = error
    if is_given("workspaces"):
        raise missing
    from bartack.runtime.client.everywhere import find_elsewhere  # noqa: PLC0415 - most runs are in the workspace

    placed = find_elsewhere(missing)
    return placed.run.id, (placed.workspace,)


def _announce(server: ControlAnswer, *, as_json: bool) -> None:
    if as_json:
        write_json({"url": server.url, "pid": server.pid, "read_only": server.read_only})
    else:
        sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    if server.version != __version__:
        write_note(f"the server has version {printable(server.version)}, this command {__version__}")
    if server.pid == os.getpid():
        write_note("the link works once, for a minute; Ctrl-C stops the server, and no run")
    else:
        write_note(f"the link works once, for a minute; the server is process {server.pid}")
    if server.read_only:
        write_note("it is read-only: it shows runs, and takes no action")


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether a browser can be shown in this session."""
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in environ
    return any(environ.get(name) for name in _DISPLAYS)


def _open(url: str) -> None:
    # Some browsers keep the process that starts them waiting until they are closed.
    threading.Thread(  # bartack: allow[unsupervised_thread] it ends with the browser, or with us
        target=webbrowser.open, args=(url,), name="bartack browser", daemon=True
    ).start()


def _link(workspaces: tuple[str, ...], databases: tuple[Elsewhere, ...], *, as_json: bool) -> Exit:
    from bartack.web import ControlRequest, ask_server  # noqa: PLC0415 - help does not need it

    named = [os.path.realpath(one) for one in workspaces] if is_given("workspaces") else []
    server = ask_server(ControlRequest(LINK, named, databases=list(databases)))
    if server is None:
        return _none_runs()
    _announce(server, as_json=as_json)
    return Exit.OK


def _stop(*, as_json: bool) -> Exit:
    from bartack.web import ControlRequest, ask_server  # noqa: PLC0415 - help does not need it

    server = ask_server(ControlRequest(STOP))
    if as_json:
        write_json({"stopped": server is not None})
    else:
        sys.stdout.write("stopped\n" if server is not None else "the server was not running\n")
    return Exit.OK


def _none_runs() -> Exit:
    write_note("the server is not running; start it with: bartack web")
    return Exit.NOT_ACTIVE
