"""A program that looks for the secret of its node in everything that a process can read.

It looks from the command that prepares its workspace, a worker, a command and an agent.

All but the worker start this file as a script, which writes what it has found and tried as JSON. The secret is given backwards, so
that no command line has it, and with it the places with files to search.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bartack import Context, step, worker

LARGEST = 1 << 22


class Report(NamedTuple):
    """What came of it.

    Attributes:
        users: The real, effective and saved user of this process.
        groups: All groups of this process.
        found: Where the secret is.
        read: Of which kinds something could be read.
        refused: What the system did not let this process do, with the process that it was about.
    """

    users: list[int]
    groups: list[int]
    found: list[str]
    read: list[str]
    refused: list[str]


class Spy:
    """One look; see the module."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._report = Report([*os.getresuid()], sorted({*os.getresgid(), *os.getgroups()}), [], [], [])

    def look(self, places: list[str]) -> Report:
        """Look everywhere."""
        self._judge("variables", os.environb)
        for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
            for kind in ("environ", "cmdline", "maps", "stack"):
                self._take(kind, f"/proc/{pid}/{kind}", pid)
            self._attempt(f"fd {pid}", partial(self._judge_links, pid))
            self._attempt(f"mem {pid}", partial(self._open_memory, pid))
            self._attempt(f"kill {pid}", partial(os.kill, pid, 0))
        self._look_at_descriptors()
        for place in places:
            for path in self._files(place):
                self._take("file", path, 0)
        return self._report

    def _take(self, kind: str, path: str, pid: int) -> None:
        def read() -> None:
            with open(path, "rb") as file:
                self._judge(path, file.read(LARGEST))

        self._attempt(f"{kind} {pid or path}", read)

    def _attempt(self, name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except PermissionError:
            self._report.refused.append(name)
        except OSError:
            return
        else:
            self._report.read.append(name)

    def _judge(self, place: str, content: object) -> None:
        if self._secret in (content if isinstance(content, bytes) else repr(content).encode()):
            self._report.found.append(place)

    def _judge_links(self, pid: int) -> None:
        fds = os.listdir(f"/proc/{pid}/fd")
        self._judge(f"descriptors of {pid}", [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in fds])

    @staticmethod
    def _open_memory(pid: int) -> None:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))

    def _look_at_descriptors(self) -> None:
        """What the own descriptors lead to: the content of files, and where sockets are connected to."""
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                mode = os.fstat(fd).st_mode
                if stat.S_ISREG(mode):
                    self._judge(f"descriptor {fd}", os.pread(fd, LARGEST, 0))
                elif stat.S_ISSOCK(mode):
                    with socket.socket(fileno=os.dup(fd)) as end:
                        self._report.read.append(f"socket to {end.getpeername()!r}")

    @staticmethod
    def _files(place: str) -> Iterator[str]:
        if not Path(place).is_dir():
            yield place
        for folder, _, names in os.walk(place):
            yield from (os.path.join(folder, name) for name in names)


def look(backwards: str, *places: str) -> dict[str, object]:
    """Look for a secret, which is given backwards."""
    return Spy(backwards[::-1].encode()).look([*places])._asdict()


@step
def body(backwards: str, places: list[str]) -> dict[str, object]:
    return look(backwards, *places)


@worker
async def main(ctx: Context, backwards: str, *places: str) -> dict[str, object]:
    """All look at the same places, and at the directories of the node that runs this."""
    seat = os.path.dirname(os.path.dirname(os.environ["BARTACK_RUN_DIR"]))
    everywhere = [*places, seat]
    said = await ctx.shell(sys.executable, "spy.py", backwards, *everywhere)
    await ctx.think("Look.")
    of_agent = await ctx.shell("cat", "agent.json")
    of_setup = await ctx.shell("cat", "setup.json")
    return {
        "worker": await body(backwards, everywhere),
        "command": json.loads(said.stdout),
        "agent": json.loads(of_agent.stdout),
        "setup": json.loads(of_setup.stdout),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(*sys.argv[1:])))
