"""The hub's end of the notifier: starts that process, and reports to it how far the journal is durable.

The hub decides and sends nothing. Once a second it writes one number to a pipe that never blocks. The notifier
(``notifier.py``) reads the journal up to there, so no notice is sent of an entry before its commit. The end of the pipe is the end
of the hub, whether it shut down cleanly or was killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import Config
from bartack.config.project import with_absolute_path
from bartack.core.files import open_private
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.notices import NOTIFIER, Watched

STARTS_MOST: Final = 5


class NotifierStart(msgspec.Struct, frozen=True):
    """The first line that a notifier reads.

    Attributes:
        watched: The run.
        hub: The number of the hub that started it.
    """

    watched: Watched
    hub: int


def open_feed(run: RunDir, config: Config, workspace: str, hub: int) -> NoticeFeed:
    """The feed of a hub with this number, whose settings ask for notices."""
    rule = config.redaction.rule
    watched = Watched(
        run_dir=str(run.path),
        project=config.project_name(Path(workspace)),
        config=config.notices,
        names=rule.names,
        exempt=rule.exempt,
        shortest=rule.min_length,
    )
    return NoticeFeed(run, NotifierStart(watched, hub))


class NoticeFeed:
    """A notifier, as its hub sees it.

    Args:
        run: The run.
        begin: What the notifier has to know.
    """

    def __init__(self, run: RunDir, begin: NotifierStart) -> None:
        self._run = run
        self._begin = msgspec.json.encode(begin) + b"\n"
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._known = -1
        self._spared: set[int] = set()
        self._note: Callable[[str], None] = lambda text: None

    def start(self, spared: set[int], note: Callable[[str], None]) -> None:
        """Start the notifier.

        Args:
            spared: Gets its process, which outlives the hub: it may have to send that the run has ended.
            note: Shows a text to people.
        """
        self._spared, self._note = spared, note
        self._start()

    def durable(self, seq: int) -> None:
        """The journal is durable up to this entry. Never waits; a notifier that was killed is started again."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.close()
            self._start()
        if seq == self._known or self._pipe < 0:
            return
        # If the pipe is full or broken, the next call repeats this.
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"%d\n" % seq)
            self._known = seq

    def close(self) -> None:
        """The hub is gone; the notifier looks after the rest by itself."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._process is not None and self._process.returncode is None:
            self._process.returncode = 0  # it outlives this process on purpose, and is not waited for
        self._process = None

    def _start(self) -> None:
        if self._starts == STARTS_MOST:
            self._note("notices are not sent: the notifier ended again and again")
            return
        self._starts += 1
        try:
            self._process = process = _start_process(self._run)
        except OSError as error:
            self._note(f"notices are not sent: the notifier cannot be started ({error.strerror or error})")
            return
        assert process.stdin is not None
        self._spared.add(process.pid)
        self._pipe = os.dup(process.stdin.fileno())
        process.stdin.close()
        os.set_blocking(self._pipe, False)
        # The pipe is empty and has room for far more; if not, the notifier ends because its first line is not whole.
        with contextlib.suppress(OSError):
            os.write(self._pipe, self._begin)
        self._known = -1


def _start_process(run: RunDir) -> subprocess.Popen[bytes]:
    with open(run.log, "ab", opener=open_private) as log:
        return subprocess.Popen(  # bartack: allow[unsupervised_process] it outlives the hub  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-s", "-m", NOTIFIER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=with_absolute_path(os.environ),
        )
