"""The checks of ``bartack doctor`` for limits of the machine: the process table, open files, processes and memory."""

from __future__ import annotations

from typing import Final

from bartack.cli.app._terminal import human_size, printable
from bartack.cli.project.doctor._finding import Finding

FEW_WORKERS: Final = 100
MANY_FILES: Final = 1_000_000
FEW_PROCESSES: Final = 64
TOO_FEW_PROCESSES: Final = 16
"""The hub, its helpers, one worker and one command."""
LITTLE_MEMORY: Final = 512 * 1024 * 1024
TOO_LITTLE_MEMORY: Final = 64 * 1024 * 1024


def check_proc() -> Finding:
    """Whether processes can be supervised."""
    from bartack.supervision.process.system import find_flaw  # noqa: PLC0415 - the other checks need no processes

    flaw = find_flaw()
    if flaw:
        return Finding("/proc", "fail", flaw, "Mount it (mount -t proc proc /proc): runs need it.")
    return Finding("/proc", "ok", "every process of a run can be found and terminated")


def check_files() -> Finding:
    """Whether a run can open enough files."""
    from bartack.runtime.hub.machine import FILES_LEAST, workers_room  # noqa: PLC0415 - the other checks need no runtime
    from bartack.supervision.process.limits import most_files  # noqa: PLC0415 - likewise

    most, room = most_files(), workers_room(most_files())
    remedy = "Raise the hard limit: ulimit -Hn, limits.conf, LimitNOFILE of a service, or --ulimit nofile of a container."
    if most < FILES_LEAST:
        return Finding("files", "fail", f"a process can open {most}, but a run needs {FILES_LEAST}", remedy)
    if most >= MANY_FILES:
        return Finding("files", "ok", "a run can open as many as it needs")
    sentence = f"a run can open {most}, enough for {room} workers at a time"
    if room < FEW_WORKERS:
        return Finding("files", "warn", sentence, remedy)
    return Finding("files", "ok", sentence)


def check_processes() -> Finding:
    """Whether enough processes can be started."""
    from bartack.supervision.process.limits import processes_left  # noqa: PLC0415 - the other checks need no processes

    bound = processes_left()
    if bound is None:
        return Finding("processes", "ok", "the number of processes is not limited")
    sentence = printable(f"{bound.left} more processes can be started: {bound.source}")
    remedy = "Raise the limit: ulimit -u, limits.conf, TasksMax of a service, or --pids-limit of a container."
    if bound.left < TOO_FEW_PROCESSES:
        return Finding("processes", "fail", sentence, remedy)
    if bound.left < FEW_PROCESSES:
        return Finding("processes", "warn", sentence, remedy)
    return Finding("processes", "ok", sentence)


def check_memory() -> Finding:
    """Whether there is enough memory for workers."""
    from bartack.supervision.process.limits import memory_left  # noqa: PLC0415 - the other checks need no processes

    bound = memory_left()
    if bound is None:
        return Finding("memory", "ok", "the free memory is unknown on this platform")
    sentence = printable(f"{human_size(bound.left)} free: {bound.source}")
    remedy = "Stop other programs, or raise the limit: MemoryMax of a service, or --memory of a container."
    if bound.left < TOO_LITTLE_MEMORY:
        return Finding("memory", "fail", sentence, remedy)
    if bound.left < LITTLE_MEMORY:
        return Finding("memory", "warn", sentence, remedy)
    return Finding("memory", "ok", sentence)
