"""The machine under a benchmark: its disk, its cores and what else it is doing."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable
from time import perf_counter
from typing import Final

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
"""File systems on which a sync does nothing, so that nothing durable can be measured."""

BENCH_DIR: Final = "BARTACK_BENCH_DIR"
SYNCS: Final = 32
KEPT_APART: Final = "/usr/lib/postgresql/*/bin"
"""Directories of programs that people do not call directly."""


class InMemoryError(Exception):
    """The directory for benchmark data is not on a disk."""

    def __init__(self, directory: str, file_system: str) -> None:
        super().__init__(
            f"{directory} is on {file_system}, where a sync costs nothing and proves nothing; "
            f"set {BENCH_DIR} to a directory on a real disk"
        )


if sys.platform == "darwin":
    import fcntl

    def sync(fd: int) -> None:
        """Return when the file would survive a power cut."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:
    sync = os.fdatasync


def data_directory(default: str) -> str:
    """An empty directory for benchmark data, below ``$BARTACK_BENCH_DIR`` or else ``default``.

    Raises:
        InMemoryError: It would not be on a disk.
    """
    root = os.path.abspath(os.environ.get(BENCH_DIR) or default)
    os.makedirs(root, exist_ok=True)
    found = file_system(root)
    if found in IN_MEMORY:
        raise InMemoryError(root, found)
    return tempfile.mkdtemp(prefix="data-", dir=root)


def find_program(name: str) -> str | None:
    """Find a program on this machine; the newest, if a distribution keeps several versions outside the path."""
    kept = sorted(
        glob.glob(f"{KEPT_APART}/{name}"), key=lambda path: [int(n) for n in re.findall(r"\d+", path)]
    )
    return shutil.which(name) or (kept[-1] if kept else None)


def file_system(path: str) -> str:
    """The type of the file system of ``path``; ``unknown`` if the system does not report it."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            return type_of_mount(os.path.realpath(path), mounts)
    except OSError:
        return "unknown"


def type_of_mount(path: str, mounts: Iterable[str]) -> str:
    """The type in the line of ``mounts`` whose directory is the nearest above ``path``."""
    best, found = "", "unknown"
    for line in mounts:
        fields = line.split()
        place = fields[1].replace("\\040", " ").rstrip("/")
        if len(place) >= len(best) and (path == place or path.startswith(place + "/")):
            best, found = place, fields[2]
    return found


def time_sync(directory: str) -> float:
    """Seconds that a short append and its sync take here, as the median of a few."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            started = perf_counter()
            file.write(b"x" * 256)
            sync(file.fileno())
            times.append(perf_counter() - started)
    return statistics.median(times)


def describe_machine(directory: str) -> dict[str, str | int]:
    """The facts that are needed to interpret the numbers, without the name of the machine."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "file_system": file_system(directory),
    }
