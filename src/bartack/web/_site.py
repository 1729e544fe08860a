"""What all requests share: the workspaces that are shown, the sessions, and the followers of watched runs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from bartack.config.load import find_workspace
from bartack.errors import RunNotFoundError
from bartack.runtime.rundir.find import find_run
from bartack.runtime.rundir.layout import RunDir
from bartack.web._peer import JudgePeer, judge_peer
from bartack.web._sessions import Sessions
from bartack.web._settings import SiteSettings
from bartack.web._threads import in_thread
from bartack.web._verify import Verifier
from bartack.web.following._follow import Followers
from bartack.web.following._runs import RunList
from bartack.web.following._shown import ShownRun

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from bartack.depot.elsewhere import Elsewhere
    from bartack.depot.showing import ShownDatabase


OWN_NAME: Final = "bartack.localhost"
"""Cookies do not know ports: under a name that other servers of this machine have, too, they would be sent our cookie."""
DEFAULT_PORT: Final = 8055
"""The lineage service has 8053, and the daemon has 8054 for hooks."""
HTTP_PORT: Final = 80
"""Browsers leave it out of the host."""


class Site:
    """What a server shows.

    Args:
        workspaces: Where the runs are.
        read_only: No action is possible.
        cache_mb: The most memory that the spans of all followed runs may take.
        name: The name in the address of its pages.
        port: The port there.
        judge_peer: Whether the process at the other end of a connection may act.
        databases: Databases with more runs.

    Attributes:
        host: What every request has to name as its host.
        origin: How the address of every page begins.
        judge_peer: Whether the process at the other end of a connection may act.
        workspaces: Where the runs are; ``add`` extends it while the server runs.
        databases: Where more runs are; ``add_database`` likewise.
        read_only: No action is possible: pages have no buttons, and every POST but entering is refused.
        sessions: The browsers that have entered.
        followers: The journals of the runs that are being watched.
        runs: The list of runs.
        settings: The settings of the workspaces.
        verifier: Compares artifacts with files.
        mark: A mark of this process, by which pages know that the server is another one.
    """

    def __init__(
        self,
        workspaces: Iterable[Path] = (),
        *,
        read_only: bool = False,
        cache_mb: int = 256,
        name: str = OWN_NAME,
        port: int = DEFAULT_PORT,
        judge_peer: JudgePeer = judge_peer,
        databases: Iterable[Elsewhere] = (),
    ) -> None:
        self.host = name if port == HTTP_PORT else f"{name}:{port}"
        self.origin = f"http://{self.host}"
        self.judge_peer = judge_peer
        self.workspaces: list[Path] = []
        self.databases: list[ShownDatabase] = []
        self.read_only = read_only
        self.sessions = Sessions()
        self.followers = Followers(cache_mb)
        self.runs = RunList(self.workspaces, self.databases)
        self.settings = SiteSettings()
        self.verifier = Verifier()
        self.mark = secrets.token_hex(8)
        self._loop: asyncio.AbstractEventLoop | None = None
        for workspace in workspaces:
            self.add(workspace)
        for database in databases:
            self.add_database(database)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """While the server runs: what is shown is followed."""
        self._loop = asyncio.get_running_loop()
        for database in self.databases:
            database.open()
        try:
            async with self.followers, self.runs:
                yield
        finally:
            self._loop = None
            for database in self.databases:
                database.close()

    def add(self, workspace: Path) -> None:
        """Show one more workspace."""
        place = find_workspace(workspace).resolve()
        if place not in self.workspaces:
            self.workspaces.append(place)

    def add_database(self, where: Elsewhere) -> None:
        """Show the runs of one more database.

        Raises:
            UsageError: It is not named as a database, or the library for it is not installed.
            DepotInsecureError: The connection would not be protected.
        """
        from bartack.depot.showing import ShownDatabase  # noqa: PLC0415 - only runs in a database need it

        if any(shown.where == where for shown in self.databases):
            return
        database = ShownDatabase(where, self._wake)
        self.databases.append(database)
        if self._loop is not None:
            database.open()

    def _wake(self) -> None:
        """A database has changed; called in its thread."""

        def look() -> None:
            self.runs.wake()
            self.followers.wake()

        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(look)

    def new_link(self, to: str = "/") -> str:
        """A link for a browser to enter with, once and within a minute; it leads to the page at ``to``.

        The code is in the fragment, which browsers send to no server: no log and no referrer has it.
        """
        return f"{self.origin}/enter#{self.sessions.new_code(to)}"

    def find_run(self, asked: str) -> RunDir:
        """The run of any workspace or database that is meant: an id, a unique beginning of one, or ``latest``. Never a path.

        Raises:
            RunNotFoundError: There is none, or more than one.
            UntrustedError: Another user can change it.
        """
        found: list[RunDir] = []
        near: tuple[str, ...] = ()
        is_id = "/" not in asked and asked not in {"", ".", ".."}
        for workspace in self.workspaces if is_id else ():
            try:
                found.append(find_run(asked, workspace))
            except RunNotFoundError as error:
                near += error.near
        for database in self.databases if is_id else ():
            found += [ShownRun(facts.id, database) for facts in database.match(asked)]
        if asked == "latest" and found:
            return max(found, key=lambda run: run.id)
        if len(found) != 1:
            raise RunNotFoundError(asked, (*near, *(run.id for run in found)))
        return found[0]

    async def look_for(self, asked: str) -> None:
        """Look into the databases if a run is not known: it may have been made just now."""
        if self.databases and asked != "latest":
            try:
                self.find_run(asked)
            except RunNotFoundError:
                for database in self.databases:
                    await in_thread(database.look)


def site_of(connection: HTTPConnection) -> Site:
    """The site that a request belongs to."""
    return cast("Site", connection.app.state.site)
