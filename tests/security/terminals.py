"""A terminal for attacks, and what must not arrive there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

HOSTILE = (
    "\x1b]0;title\x07"  # sets the title of the window
    "\x1b]52;c;ZXZpbA==\x07"  # fills the clipboard
    "\x1b[2J\x1b[H"  # clears the screen
    "\x1b[8mhidden\x1b[41m"  # hides text; a colour, which programs may choose
    "\x1bP$q\x1b\\"  # asks the terminal to type
    "\x9b2J\x9d0;x\x9c"  # the same in C1
    "line\rover\x08\x7f\x0c\x0e"
    "\u202egnp.exe\u2066\u200f\u2028"
)
"""Text that steers a terminal; no part of it may arrive as it is."""

OURS = re.compile(
    r"\x1b\[(?:0|1|2|31|32|33|36|1;3[1346])m"  # styles
    r"|\x1b\[41m"  # a colour in HOSTILE: programs may choose colours
    r"|\x1b\[\?2026[hl]|\r?\x1b\[\d+A(?:\x1b\[J|\r)?|\r\x1b\[J|\x1b\[\d+[BLM]\r?|\x1b\[K|\x1b[78D]"  # the live view
)
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
)
PATIENCE_S = 120.0


class Seen(NamedTuple):
    """What a command line left on a terminal."""

    code: int
    text: str

    @property
    def steering(self) -> list[str]:
        """What a terminal would have obeyed, each with what stands around it, except what is ours."""
        plain = OURS.sub("", self.text)
        return [plain[max(found.start() - 20, 0) : found.end() + 20] for found in STEERING.finditer(plain)]


def on_terminal(*args: str, cwd: Path, typed: str = "", **env: str) -> Seen:
    """Run a command line on a terminal until it ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "bartack", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        start_new_session=True,
        # CI asks no questions, whatever it runs on.
        env={name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "xterm"} | env,
    )
    os.close(theirs)
    parts: list[bytes] = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
            if typed and b"> " in part:
                os.write(ours, typed.encode())
    except OSError:
        pass  # the end of a terminal
    finally:
        code = process.wait(PATIENCE_S)
        os.close(ours)
    return Seen(code, b"".join(parts).decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
