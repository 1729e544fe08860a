"""The scripted agent as a program: stdin, stdout, signals and time around ``_side.py``."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
from types import FrameType
from typing import Final

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents.protocol.lines import BadLine, Splitter
from bartack.agents.protocol.messages import Role
from bartack.agents.scripted._script import ignored_members, load_script
from bartack.agents.scripted._side import ScriptedSide
from bartack.agents.scripted._writer import Ignored
from bartack.agents.scripted.scripted import read_script
from bartack.core import typed
from bartack.core.clock import SystemClock
from bartack.errors import ConfigError

SURVIVOR: Final = (
    "import os, sys, time\n"
    "time.sleep(float(sys.argv[1]))\n"
    "if sys.argv[2]: open(sys.argv[2], 'w').write('written later')\n"
)


def run_scripted(
    script: str,
    *,
    name: str = "",
    role: Role | None = None,
    state: str = "",
    heartbeat_s: float = 10.0,
    materialize: bool = False,
    permissions: str = "",
) -> int:
    """Run a scripted agent until the input ends; returns the exit code. ``permissions`` is what it may do, as JSON.

    Raises:
        ScriptError: The script cannot be used.
        ConfigError: The permissions cannot.
    """
    try:
        allowed = typed.decode(permissions or "{}", type=Permissions)
    except msgspec.DecodeError as error:
        raise ConfigError("--permissions", str(error)) from None
    content = load_script(script, name or "scripted")
    parsed = read_script(content, name or "scripted", script)
    for place in ignored_members(content):
        sys.stderr.write(f"{place} is ignored\n")
    program = _Program()
    side = ScriptedSide(
        parsed,
        program,
        SystemClock(),
        name=name,
        role=role,
        root=os.environ.get("BARTACK_WORKSPACE") or os.getcwd(),
        state=state,
        heartbeat_s=heartbeat_s,
        materialize=materialize,
        permissions=allowed,
    )
    return program.run(side)


class _Program:
    """What the agent does to the world, for real."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._ignores: set[Ignored] = set()
        self._code: int | None = None
        signal.signal(signal.SIGTERM, self._terminate)

    def run(self, side: ScriptedSide) -> int:
        """Serve until the input ends."""
        clock = SystemClock()
        side.begin()
        while self._code is None:
            due = side.next_due()
            wait = None if due == math.inf else max(due - clock.monotonic_ns() / 1e9, 0.0)
            wanted = [] if "stdin" in self._ignores else [0]
            ready, _, _ = select.select(wanted, [], [], 3600.0 if wait is None else wait)
            if ready:
                self._read(side)
            side.tick()
        return self._code

    def _read(self, side: ScriptedSide) -> None:
        data = os.read(0, 65_536)
        if not data:
            self._ignores.add("stdin")
            if "eof" not in self._ignores:
                self._code = 0
            return
        for line in self._splitter.feed(data):
            side.line(line.excerpt if isinstance(line, BadLine) else line)

    def write(self, data: bytes) -> None:
        """See ``Outside.write``."""
        _write_all(1, data)

    def write_stderr(self, data: bytes) -> None:
        """See ``Outside.write_stderr``."""
        _write_all(2, data)

    def die(self, code: int, by: str = "") -> None:
        """See ``Outside.die``."""
        if by:
            os.kill(os.getpid(), getattr(signal, f"SIG{by.removeprefix('SIG')}"))
        os._exit(code)

    def spawn(self, seconds: float, writes: str) -> None:
        """See ``Outside.spawn``."""
        import subprocess  # noqa: PLC0415 - few scripts start a process

        subprocess.Popen(  # noqa: S603 - our own text  # bartack: allow[unsupervised_process] it outlives the agent on purpose
            [sys.executable, "-c", SURVIVOR, str(seconds), writes],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def ignore(self, what: Ignored) -> None:
        """See ``Outside.ignore``."""
        self._ignores.add(what)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if "term" not in self._ignores:
            os._exit(0)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BrokenPipeError:
            os._exit(0)  # the reader is gone
