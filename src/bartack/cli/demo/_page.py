"""The page beside the demo: a web server of its own, which ends before the directory of the demo is removed.

It is read-only. A run that is resumed in the browser while the demo is about to resume it would have another owner, and would
outlive the demo. If the demo is killed, its custodian (``_custodian.py``) kills the server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.cli.demo._story import HeldSignals
from bartack.cli.demo._team import Stage
from bartack.core import typed
from bartack.core.user_home import user_home
from bartack.errors import WebRefusedError
from bartack.web import ControlRequest, ask_server

COMMAND: Final = [sys.executable, "-P", "-m", "bartack"]
_END_S: Final = 5.0
"""How long the server may take to end; it takes less than a second."""


class Page(NamedTuple):
    """The server beside the demo.

    Attributes:
        link: Leads to the list of runs, once and within a minute.
        home: The state home of the server.
    """

    link: str
    home: Path

    def new_link(self, run: str) -> str:
        """A link to the page of the run; empty if the server is gone."""
        answer = ask_server(ControlRequest("link", run=run), self.home / "web.sock")
        return answer.url if answer is not None else ""


class _Facts(msgspec.Struct):
    """What ``bartack web --json`` writes."""

    url: str


@contextmanager
def open_page(stage: Stage, directory: Path) -> Generator[Page]:
    """A web server for the project of the demo, with a state home below ``directory``, until the block is left.

    Raises:
        WebRefusedError: The server does not start.
    """
    # The one of a configured agent is that of this user, whose server would keep showing the project after it is removed.
    environment = {**stage.environment, "XDG_STATE_HOME": str(directory / "web")}
    words = ["web", "--port", "0", "--read-only", "--json", "-C", str(stage.project)]
    log = directory / "web.log"
    held = HeldSignals()
    try:
        with (
            log.open("wb") as errors,
            subprocess.Popen(  # bartack: allow[unsupervised_process] the block terminates it  # noqa: S603 - Bartack itself
                [*COMMAND, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,  # its notes are not for the screen of the demo
            ) as child,
        ):
            try:
                held.release()
                assert child.stdout is not None
                line = child.stdout.readline()
                if not line:
                    raise WebRefusedError(f"the page of the demo does not start: {log.read_text().strip()}")
                yield Page(typed.decode(line, type=_Facts).url, user_home(environment))
            finally:
                _end(child)
    finally:
        held.release()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
