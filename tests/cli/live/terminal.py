"""A command line on a real terminal, and what a person sees there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pyte
from tests.cli.live.screens import CuttingScreen

PATIENCE_S = 60.0
LEFT_OUT = {"CI", "NO_COLOR", "COLUMNS", "LINES"}


class Terminal:
    """A command line on a terminal, and the screen of that terminal."""

    def __init__(self, *args: str, columns: int = 100, rows: int = 30, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        self._screen = CuttingScreen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self._set_size(columns, rows)
        kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bartack", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**kept, "TERM": "xterm", **env},
        )
        os.close(theirs)

    def wait_for(self, *texts: str) -> None:
        """Read until all of the texts are to be seen at once."""
        self.wait_until(lambda screen: all(text in screen for text in texts), f"{texts} were not shown")

    def wait_until(self, is_right: Callable[[str], bool], problem: str = "it did not come") -> None:
        """Read until the screen is right."""
        until = time.monotonic() + PATIENCE_S
        while not is_right(self.screen()):
            ready, _, _ = select.select([self._ours], [], [], max(until - time.monotonic(), 0.0))
            assert ready, f"{problem} in time; the screen is\n{self.screen()}"
            assert self._read(), f"the process ended, and {problem}; the screen is\n{self.screen()}"

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """The window has another size."""
        self._screen.set_size(columns, rows)
        self._set_size(columns, rows)

    def end(self) -> int:
        """Read everything that is left; return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def screen(self) -> str:
        """What is to be seen, with what has scrolled away."""
        return "\n".join(self._screen.all_texts())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)

    def modes(self) -> list[object]:
        """The settings of the terminal."""
        return list(termios.tcgetattr(self._ours))

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:
            return False
        self.written += part
        self._stream.feed(part)
        return bool(part)
