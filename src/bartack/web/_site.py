"""What all requests share: the workspaces that are shown, the sessions, and the followers of watched runs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from bartack.config.load import find_workspace
from bartack.errors import RunNotFoundError
from bartack.runtime.rundir.find import find_run
from bartack.runtime.rundir.layout import RunDir
from bartack.web._peer import JudgePeer, judge_peer
from bartack.web._sessions import Sessions
from bartack.web._settings import SiteSettings
from bartack.web._verify import Verifier
from bartack.web.following._follow import Followers
from bartack.web.following._runs import RunList

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


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

    Attributes:
        host: What every request has to name as its host.
        origin: How the address of every page begins.
        judge_peer: Whether the process at the other end of a connection may act.
        workspaces: Where the runs are; ``add`` extends it while the server runs.
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
    ) -> None:
        self.host = name if port == HTTP_PORT else f"{name}:{port}"
        self.origin = f"http://{self.host}"
        self.judge_peer = judge_peer
        self.workspaces: list[Path] = []
        self.read_only = read_only
        self.sessions = Sessions()
        self.followers = Followers(cache_mb)
        self.runs = RunList(self.workspaces)
        self.settings = SiteSettings()
        self.verifier = Verifier()
        self.mark = secrets.token_hex(8)
        for workspace in workspaces:
            self.add(workspace)

    def add(self, workspace: Path) -> None:
        """Show one more workspace."""
        place = find_workspace(workspace).resolve()
        if place not in self.workspaces:
            self.workspaces.append(place)

    def new_link(self, to: str = "/") -> str:
        """A link for a browser to enter with, once and within a minute; it leads to the page at ``to``.

        The code is in the fragment, which browsers send to no server: no log and no referrer has it.
        """
        return f"{self.origin}/enter#{self.sessions.new_code(to)}"

    def find_run(self, asked: str) -> RunDir:
        """The run of any workspace that is meant: an id, a unique beginning of one, or ``latest``. Never a path.

        Raises:
            RunNotFoundError: There is none, or more than one.
            UntrustedError: Another user can change it.
        """
        found: list[RunDir] = []
        near: tuple[str, ...] = ()
        for workspace in self.workspaces if "/" not in asked and asked not in {"", ".", ".."} else ():
            try:
                found.append(find_run(asked, workspace))
            except RunNotFoundError as error:
                near += error.near
        if asked == "latest" and found:
            return max(found, key=lambda run: run.id)
        if len(found) != 1:
            raise RunNotFoundError(asked, (*near, *(run.id for run in found)))
        return found[0]


def site_of(connection: HTTPConnection) -> Site:
    """The site that a request belongs to."""
    return cast("Site", connection.app.state.site)
