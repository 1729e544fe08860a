"""macOS: facts from ``libproc``. The same functions as in ``_linux.py``; ``system.py`` chooses.

There is no subreaper, no death signal and no pidfd. Orphans go to the first process, so a parent has to remember who was
below it, by scans, process groups, sessions and environments. What appears and daemonizes between two scans with a cleared
environment is not found.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import select
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from bartack.supervision.process.facts import ProcessFacts

SUBREAPER: Final = False
RSS_UNIT_BYTES: Final = 1
RECEIVE_FLAGS: Final = 0

_PROC_PIDTBSDINFO: Final = 3
_BSDINFO: Final = struct.Struct("=12I16s32s5IiQQ")
_STOPPED: Final = 4
_ZOMBIE: Final = 5
_CTL_KERN: Final = 1
_KERN_ARGMAX: Final = 8
_KERN_PROCARGS2: Final = 49


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("System"), use_errno=True)


def set_subreaper() -> bool:
    """There is none."""
    return False


def hide_process() -> bool:
    """There is no such thing."""
    return False


def set_death_signal(number: int) -> bool:
    """There is none, so ``number`` is never sent."""
    del number
    return False


def find_flaw() -> str:
    """Why processes cannot be supervised here; empty if they can."""
    return ""


def fork_into(group: int) -> int:
    """There are no control groups, so there is no ``group`` to be born in."""
    raise OSError(errno.ENOSYS, f"{os.strerror(errno.ENOSYS)}: {group}")


def read_facts(pid: int) -> ProcessFacts | None:
    """What is known of process ``pid``; ``None`` if there is none, or a zombie only."""
    room = ctypes.create_string_buffer(_BSDINFO.size)
    if _libc().proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), room, _BSDINFO.size) != _BSDINFO.size:
        return None
    return parse_bsdinfo(room.raw)


def parse_bsdinfo(text: bytes) -> ProcessFacts:
    """Take one ``proc_bsdinfo`` apart."""
    field = _BSDINFO.unpack(text)
    pid = int(field[3])
    name = bytes(field[12]).rstrip(b"\0").decode("utf-8", "replace")
    started = int(field[20]) * 1_000_000 + int(field[21])
    state = {_ZOMBIE: "Z", _STOPPED: "T"}.get(field[1], "R")
    return ProcessFacts(pid, int(field[4]), int(field[15]), _session(pid), state, 1, started, name)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def iter_processes() -> Iterator[ProcessFacts]:
    """Every process this one may see, by rising number."""
    count = int(_libc().proc_listallpids(None, 0)) + 64
    room = (ctypes.c_int * count)()
    found = int(_libc().proc_listallpids(room, ctypes.sizeof(room)))
    for pid in sorted(room[:found]):
        facts = read_facts(pid)
        if facts is not None:
            yield facts


def iter_family(pid: int, *, spare: Collection[int] = ()) -> Iterator[ProcessFacts]:
    """At least every descendant of ``pid``. Those of ``spare`` are found, too: nothing lists the children of a process here."""
    del spare
    return (facts for facts in iter_processes() if facts.pid != pid)


def read_environment(pid: int) -> dict[str, str]:
    """The environment ``pid`` was started with; empty if it is gone, or is not ours to read."""
    text = _sysctl(_KERN_PROCARGS2, pid)
    return parse_arguments(text) if text else {}


def read_command(pid: int) -> list[str]:
    """The words that ``pid`` was started with; empty if it is gone, or is not ours to read."""
    text = _sysctl(_KERN_PROCARGS2, pid)
    if not text:
        return []
    count, words = _split_arguments(text)
    return [os.fsdecode(word) for word in words[:count]]


def iter_open_files(pid: int) -> Iterator[str]:
    """What ``pid`` has open is not looked at here."""
    del pid
    return iter(())


def iter_outputs(pid: int) -> Iterator[tuple[int, int]]:
    """What ``pid`` can write to is not looked at here."""
    del pid
    return iter(())


def _split_arguments(text: bytes) -> tuple[int, list[bytes]]:
    (count,) = struct.unpack_from("=i", text)
    return count, text[4:].partition(b"\0")[2].lstrip(b"\0").split(b"\0")


def parse_arguments(text: bytes) -> dict[str, str]:
    """The environment out of what the kernel keeps of a start: count, path, padding, arguments, environment."""
    count, words = _split_arguments(text)
    found: dict[str, str] = {}
    for word in words[count:]:
        if not word:
            break
        name, _, value = os.fsdecode(word).partition("=")
        found[name] = value
    return found


def _sysctl(*path: int) -> bytes:
    names = (ctypes.c_int * (len(path) + 1))(_CTL_KERN, *path)
    most = ctypes.c_int(0)
    size = ctypes.c_size_t(ctypes.sizeof(most))
    limit = (ctypes.c_int * 2)(_CTL_KERN, _KERN_ARGMAX)
    if _libc().sysctl(limit, 2, ctypes.byref(most), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return b""
    room = ctypes.create_string_buffer(most.value)
    size = ctypes.c_size_t(most.value)
    if _libc().sysctl(names, len(names), room, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return b""
    return room.raw[: size.value]


def find_slot(name: str) -> tuple[int, int] | None:
    """Other processes read a copy that the kernel keeps, so there is no room for ``name``."""
    del name
    return None


def fill_slot(slot: tuple[int, int], value: str) -> None:
    """Nothing to fill: ``find_slot`` finds none."""


def rewrite_command(words: Sequence[str]) -> None:
    """Other processes read a copy that the kernel keeps."""


def thread_count() -> int:
    """How many threads Python knows of."""
    return threading.active_count()


def open_pidfd(pid: int) -> int | None:
    """There is none, of no ``pid``."""
    del pid
    return None


def send_signal(facts: ProcessFacts, number: int) -> bool:
    """Signal the process that ``facts`` are of; return whether it was there and the signal was allowed."""
    now = read_facts(facts.pid)
    if now is None or now.id != facts.id:
        return False
    try:
        os.kill(facts.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def wait_deaths(processes: Iterable[ProcessFacts], timeout_s: float) -> None:
    """Wait ``timeout_s`` seconds; a death in between is seen by the next look."""
    del processes
    select.select([], [], [], timeout_s)
