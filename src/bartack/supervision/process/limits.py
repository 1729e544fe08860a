"""What the system lets this process have: open files, processes and memory. Read without a cost worth mentioning, and never raises.

A hub raises its own limit of files as far as it may; every program that it starts gets the one that the person has set.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

ORIGINAL: Final = "BARTACK_FILES_LIMIT"
"""The variable in which a parent program is given the limit of files for its children."""

_CGROUPS: Final = "/sys/fs/cgroup"
_OWN: Final = "/proc/self/cgroup"
_MEMORY: Final = "/proc/meminfo"
_UNLIMITED: Final = 1 << 60
"""The kernel writes a number beyond this where nothing is limited."""
_KNOWN_MOST: Final = (65536, 10240)
"""What is tried where the hard limit itself is refused: macOS has a lower one that it does not report."""


def raise_files() -> int:
    """Let this process open as many files as it may; returns how many it could open before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_KNOWN_MOST):
        if soft == wanted or (hard != resource.RLIM_INFINITY and wanted > hard):
            continue
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return soft


def restore_files(soft: int) -> None:
    """Set the limit back to what ``raise_files`` returned."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def files_limit() -> int:
    """How many files this process may have open now."""
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def most_files() -> int:
    """How many files this process may let itself have open."""
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _finite(limit: int) -> int:
    return _UNLIMITED if limit == resource.RLIM_INFINITY or limit < 0 else limit


class Bound(NamedTuple):
    """A limit that is the nearest one of its kind: what is left of it, and what sets it."""

    left: int
    source: str


def processes_left(
    own: str = _OWN, cgroups: str = _CGROUPS, *, count_below: int = _UNLIMITED
) -> Bound | None:
    """How many more processes this user, or the control group of this process, may start; ``None`` if nothing limits them.

    Args:
        own: Where the groups of this process are named.
        cgroups: Where control groups are mounted.
        count_below: A limit of the user that is not below this is taken for none: to count all processes takes time.
    """
    found = list(_group_bounds(own, cgroups, "pids", ("pids.max", "pids.current")))
    limit = _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    if limit < count_below and os.geteuid() != 0:
        found.append(
            Bound(max(limit - _count_own(), 0), f"the limit of processes of this user, {limit} (ulimit -u)")
        )
    return min(found, default=None)


def memory_left(own: str = _OWN, cgroups: str = _CGROUPS, meminfo: str = _MEMORY) -> Bound | None:
    """How many bytes of memory are left for new processes; ``None`` if that is not known."""
    found = list(_group_bounds(own, cgroups, "memory", ("memory.max", "memory.current")))
    available = _read_available(meminfo)
    if available is not None:
        found.append(Bound(available, "the memory of the machine"))
    return min(found, default=None)


def _count_own() -> int:
    """How many processes of this user there are; threads count for the limit too, and are left out here."""
    user, count = os.getuid(), 0
    with suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                count += entry.name.isdigit() and entry.stat().st_uid == user
    return count


_FIRST_VERSION: Final = {
    "pids": ("pids.max", "pids.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def _group_bounds(own: str, cgroups: str, controller: str, files: tuple[str, str]) -> Iterator[Bound]:
    """What is left in each control group from ours upwards that limits something."""
    for folder, names in _group_folders(own, cgroups, controller, files):
        limit, used = (_read_number(os.path.join(folder, name)) for name in names)
        if limit is not None and used is not None and limit < _UNLIMITED:
            yield Bound(max(limit - used, 0), f"{names[0]} = {limit} of the control group {folder}")


def _group_folders(
    own: str, cgroups: str, controller: str, files: tuple[str, str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    try:
        with open(own, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            top, names = cgroups, files
        elif controller in controllers.split(","):
            top, names = f"{cgroups}/{controller}", _FIRST_VERSION[controller]
        else:
            continue
        # Inside a container the group may be visible only as the top of what is mounted.
        parts = [part for part in path.split("/") if part not in {"", "..", "."}]
        for depth in range(len(parts), -1, -1):
            yield os.path.join(top, *parts[:depth]), names


def _read_number(path: str) -> int | None:
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    return None


def _read_available(path: str) -> int | None:
    with suppress(OSError, ValueError), open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
