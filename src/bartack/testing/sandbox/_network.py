"""Keeping agent programs off the network: a network namespace with nothing but the model server, or a watch.

Where the system allows ``unshare -n``, programs run in a network namespace of their own. The model server stays in the process of
the test: it also listens on a socket that was opened inside the namespace, on the same port. Elsewhere on Linux the connections of
the programs are looked at every few milliseconds, and any that does not lead to the loopback interface fails the test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

Network = Literal["own", "watched", "shared"]
"""The network of programs: one of their own, or that of the test with or without a watch."""

START_S: Final = 10.0
EVERY_S: Final = 0.1
_PROGRAM: Final = Path(__file__).with_name("_lone_network.py")
_OPEN_STATES: Final = {"01", "02", "03"}
"""Established, and on the way there, in the words of ``/proc/net/tcp``."""
_LOOPBACK_4: Final = "7F"
_LOOPBACK_6: Final = {"00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


class Isolation(Protocol):
    """How programs are kept off the network."""

    def wrap(self, words: Sequence[str]) -> list[str]:
        """The words that start a program such that it is kept off."""
        ...

    def close(self) -> list[str]:
        """End it; where programs connected to and should not have."""
        ...


class LoneNetwork:
    """A network namespace that has the loopback interface only, and one listening socket."""

    def __init__(self, holder: subprocess.Popen[bytes], line: socket.socket, nsenter: str) -> None:
        self._holder = holder
        self._line = line
        self._nsenter = nsenter

    def wrap(self, words: Sequence[str]) -> list[str]:
        """Start a program inside."""
        return [self._nsenter, f"--net=/proc/{self._holder.pid}/ns/net", "--", *words]

    def close(self) -> list[str]:
        """Give the namespace up. Nothing can have left it."""
        self._line.close()
        try:
            self._holder.wait(START_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait(START_S)
        return []


def open_lone_network(port: int) -> tuple[LoneNetwork, socket.socket] | None:
    """A namespace and the socket that listens on ``port`` in it; ``None`` where the system does not allow one."""
    unshare, nsenter = shutil.which("unshare"), shutil.which("nsenter")
    if unshare is None or nsenter is None or sys.platform != "linux":
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        words = [
            unshare,
            "-n",
            "--",
            sys.executable,
            "-I",
            "-S",
            str(_PROGRAM),
            str(theirs.fileno()),
            str(port),
        ]
        holder = subprocess.Popen(  # noqa: S603 - fixed words  # bartack: allow[unsupervised_process] close ends it
            words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env={}
        )
    ours.settimeout(START_S)
    network = LoneNetwork(holder, ours, nsenter)
    try:
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    except OSError:
        descriptors = []
    if not descriptors or not _can_enter(network):
        for descriptor in descriptors:
            os.close(descriptor)
        network.close()
        return None
    return network, socket.socket(fileno=descriptors[0])


def _can_enter(network: LoneNetwork) -> bool:
    done = subprocess.run(  # noqa: S603 - fixed words
        network.wrap(["true"]), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=START_S
    )
    return done.returncode == 0


class ConnectionWatch:
    """Looks at the connections of processes again and again, from a thread of its own.

    Args:
        pids: Finds the processes.

    Attributes:
        seen: Set as soon as a connection to elsewhere was seen.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._found: set[str] = set()
        self.seen = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(  # bartack: allow[unsupervised_thread] close ends it
            target=self._run, name="connection watch", daemon=True
        )
        self._thread.start()

    def wrap(self, words: Sequence[str]) -> list[str]:
        """Programs are started as they are."""
        return list(words)

    def close(self) -> list[str]:
        """Stop looking; the addresses that are not on this machine."""
        self._stop.set()
        self._thread.join(START_S)
        return sorted(self._found)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for pid in self._pids():
                self._found.update(remote_connections(pid))
            if self._found:
                self.seen.set()


def remote_connections(pid: int) -> list[str]:
    """The ends of the connections of a process that are not on the loopback interface, as the kernel writes them."""
    inodes = set(_sockets_of(pid))
    found: list[str] = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
            found += [end for line in lines if (end := remote_end(line, inodes))]
    return found


def remote_end(line: str, inodes: set[str]) -> str:
    """The far end of a connection in a line of ``/proc/net/tcp``; empty if it is on this machine, or of another process."""
    fields = line.split()
    end, state, inode = fields[2], fields[3], fields[9]
    address = end.partition(":")[0]
    is_local = address.endswith(_LOOPBACK_4) if len(address) == 8 else address in _LOOPBACK_6
    return "" if is_local or state not in _OPEN_STATES or inode not in inodes else end


def _sockets_of(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    yield target[8:-1]
