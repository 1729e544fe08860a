"""Which processes hold one end of a TCP connection on this machine. Only Linux says it.

Several can hold it, because descriptors are inherited and passed on. A process can keep others from looking at its descriptors (one
that changed its user does, and any process may). The caller has to judge those, too.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Final, NamedTuple

PROC: Final = "/proc"
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""How an IPv4 address begins that an IPv6 socket uses."""

End = tuple[str, int]
"""An address and a port."""


class Holders(NamedTuple):
    """Who holds a connection.

    Attributes:
        uid: The user that has made it.
        pids: The processes that have it open.
        hidden: Processes of that user that do not show what they have open.
    """

    uid: int
    pids: tuple[int, ...]
    hidden: tuple[int, ...]


def find_holders(near: End, far: End, proc: str = PROC) -> Holders | None:
    """The processes at the near end of a connection; ``None`` if no process has it open any more.

    Args:
        near: The address of the end that is asked about.
        far: The address of the other one.
        proc: Where the system describes itself.

    Raises:
        OSError: The system does not list its connections.
    """
    found = _find_socket(near, far, proc)
    if found is None:
        return None
    uid, inode = found
    pids: list[int] = []
    hidden: list[int] = []
    for name in filter(str.isdecimal, os.listdir(proc)):
        try:
            holds = _has_open(f"{proc}/{name}/fd", f"socket:[{inode}]")
        except PermissionError:
            if uid in _users_of(f"{proc}/{name}/status"):
                hidden.append(int(name))
            continue
        if holds:
            pids.append(int(name))
    return Holders(uid, tuple(pids), tuple(hidden))


def _find_socket(near: End, far: End, proc: str) -> tuple[int, str] | None:
    """The user and the inode of a socket. One that no process has open has the inode 0."""
    ends = [(_written(near, mapped=mapped), _written(far, mapped=mapped)) for mapped in (False, True)]
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{name}", encoding="ascii") as file:
                for line in file:
                    fields = line.split()
                    if (fields[1], fields[2]) in ends and fields[9] != "0":
                        return int(fields[7]), fields[9]
        except FileNotFoundError:
            if name == "tcp":
                raise
    return None


def _written(end: End, *, mapped: bool) -> str:
    """An end as the kernel writes it: words of four bytes, each as this machine reads a number."""
    host, port = end
    packed = ipaddress.ip_address(host).packed
    if mapped and len(packed) == 4:
        packed = _MAPPED + packed
    words = [int.from_bytes(packed[place : place + 4], sys.byteorder) for place in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def _has_open(folder: str, wanted: str) -> bool:
    """Raises PermissionError if the process does not show what it has open; one that has ended has nothing open."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(_target(f"{folder}/{name}") == wanted for name in names)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except (FileNotFoundError, ProcessLookupError):
        return ""  # closed meanwhile


def _users_of(status: str) -> set[int]:
    try:
        with open(status, encoding="utf-8", errors="replace") as file:
            line = next((line for line in file if line.startswith("Uid:")), "")
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return set(map(int, line.split()[1:]))
