"""Linux: facts from ``/proc``, ``prctl``, pidfds. The same functions as in ``_darwin.py``; ``system.py`` chooses."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from bartack.supervision.process.facts import ProcessFacts

assert sys.platform == "linux"

SUBREAPER: Final = True
"""Whether orphans of a subreaper's descendants come to it instead of to the first process."""

RSS_UNIT_BYTES: Final = 1024
"""What one unit of ``ru_maxrss`` is."""

RECEIVE_FLAGS: Final = int(socket.MSG_CMSG_CLOEXEC)
"""How to receive descriptors so that no program started meanwhile gets them."""

PROC: Final = "/proc"

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_TID_ADDRESS: Final = 40
_STAT_BYTES: Final = 1024
_CLONE3: Final = 435
_CLONE_FLAGS: Final = 0x2_0120_0000
"""Born in a control group; its number is written where the C library keeps it, as the fork of the C library does."""
_ROBUST_LIST: Final = {"x86_64": (274, 273), "aarch64": (100, 99)}
"""How the list of locks that do not outlive their thread is asked for and set. The child of a fork has none until it is set."""

_WIDE: Final = sys.maxsize > 1 << 32
"""Whether this Python counts system calls as the machine does. A narrow one has numbers of its own."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_prctl.restype = ctypes.c_int

# It does not release the interpreter around a call, so that a child of such a call has it too.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_before_fork, _after_fork_child, _after_fork_parent = (
    getattr(ctypes.pythonapi, f"PyOS_{name}", None)
    for name in ("BeforeFork", "AfterFork_Child", "AfterFork_Parent")
)
_get_robust_list, _set_robust_list = _ROBUST_LIST.get(os.uname().machine, (0, 0)) if _WIDE else (0, 0)


def set_subreaper() -> bool:
    """Become the parent of every descendant whose own parent dies; return whether the system can do that."""
    return bool(_prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def hide_process() -> bool:
    """Keep other processes of this user from the memory, environment and descriptors of this one; return whether that worked."""
    return bool(_prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def set_death_signal(number: int) -> bool:
    """Ask for a signal when the thread that forked this process ends; return whether the system can do that.

    The parent may be dead already: compare ``getppid`` afterwards.
    """
    return bool(_prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)


def find_flaw(proc: str = PROC) -> str:
    """Why processes cannot be supervised here; empty if they can."""
    if read_facts(os.getpid(), proc) is None:
        return f"{proc} is not mounted, or does not show this process"
    return ""


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


def fork_into(group: int) -> int:
    """Fork a child that is in the control group whose directory is open as ``group`` from the first moment on.

    It is a fork like any other for Python and for the C library, except that what C libraries have registered with
    ``pthread_atfork`` is not called. The caller has one thread.

    Raises:
        OSError: The kernel does not do that, or not for this group; there is no child.
    """
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    known = _tid_address()
    # Not every Python lets others fork.
    if (
        not _before_fork
        or not _after_fork_child
        or not _after_fork_parent
        or not _get_robust_list
        or not known
    ):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _syscall(_get_robust_list, 0, ctypes.byref(head), ctypes.byref(size))
    arguments = _CloneArguments(flags=_CLONE_FLAGS, child_tid=known, exit_signal=signal.SIGCHLD, cgroup=group)
    _before_fork()
    pid = int(_syscall(_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)))
    if pid == 0:
        _syscall(_set_robust_list, head, size)
        _after_fork_child()
        return 0
    number = ctypes.get_errno()
    _after_fork_parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def _tid_address() -> int:
    """Where the C library keeps the number of its first thread, which this has to be; 0 if it does that elsewhere."""
    address = ctypes.c_void_p()
    if _prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(address), 0, 0, 0) != 0 or not address.value:
        return 0
    return address.value if ctypes.c_int.from_address(address.value).value == os.getpid() else 0


def read_facts(pid: int, proc: str = PROC) -> ProcessFacts | None:
    """What is known of process ``pid``; ``None`` if there is none."""
    try:
        fd = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, _STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    return parse_stat(pid, text)


def parse_stat(pid: int, text: bytes) -> ProcessFacts:
    """Take one ``stat`` file apart. The name may hold anything, brackets and blanks too; the last bracket ends it."""
    end = text.rfind(b")")
    field = text[end + 2 :].split(b" ", 20)
    name = text[text.find(b"(") + 1 : end].decode("utf-8", "replace")
    return ProcessFacts(
        pid,
        int(field[1]),
        int(field[2]),
        int(field[3]),
        chr(field[0][0]),
        int(field[17]),
        int(field[19]),
        name,
    )


def iter_processes(proc: str = PROC) -> Iterator[ProcessFacts]:
    """Every process this one may see, by rising number. One that starts meanwhile may be missed."""
    for name in os.listdir(proc):
        if name.isdigit():
            facts = read_facts(int(name), proc)
            if facts is not None:
                yield facts


def iter_family(pid: int, proc: str = PROC, spare: Collection[int] = ()) -> Iterator[ProcessFacts]:
    """At least every descendant of ``pid``, parents before their children as far as the system lists them so.

    Where the kernel lists the children of a thread, only these are looked at, and nothing of the trees of ``spare``. Such a list
    is exact for a process that alone reaps its children, so ``pid`` has to be the caller itself.
    """
    if not os.path.exists(f"{proc}/{pid}/task/{pid}/children"):
        yield from iter_processes(proc)
        return
    waiting = [child for child in _children(pid, proc) if child not in spare]
    while waiting:
        facts = read_facts(waiting.pop(), proc)
        if facts is not None:
            yield facts
            waiting.extend(_children(facts.pid, proc))


def _children(pid: int, proc: str) -> list[int]:
    found: list[int] = []
    # It, or one of its threads, may end meanwhile; its children are found below another process then.
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with (
                suppress(FileNotFoundError, ProcessLookupError),
                open(f"{proc}/{pid}/task/{thread}/children", "rb") as file,
            ):
                found.extend(map(int, file.read().split()))
    return found


def read_environment(pid: int) -> dict[str, str]:
    """The environment ``pid`` was started with; empty if it is gone, or is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read()
    except OSError:
        return {}
    pairs = (os.fsdecode(line).partition("=") for line in text.split(b"\0") if line)
    return {name: value for name, _, value in pairs}


def read_command(pid: int, proc: str = PROC) -> list[str]:
    """The words that ``pid`` was started with; empty if it is gone or hides them. A process can change its own."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            text = file.read()
    except OSError:
        return []
    # One that has changed its words (``rewrite_command``) may have left room after them.
    return [os.fsdecode(word) for word in text.rstrip(b"\0").split(b"\0")] if text else []


def iter_open_files(pid: int, proc: str = PROC) -> Iterator[str]:
    """The names of what ``pid`` has open; nothing if it is gone, or belongs to another user."""
    with suppress(OSError):
        for number in os.listdir(f"{proc}/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                yield os.readlink(f"{proc}/{pid}/fd/{number}")


def iter_outputs(pid: int, proc: str = PROC) -> Iterator[tuple[int, int]]:
    """Device and inode of the files that ``pid`` has open for writing; nothing if it is gone, or belongs to another user."""
    with suppress(OSError):
        for number in os.listdir(f"{proc}/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found = os.stat(f"{proc}/{pid}/fd/{number}")
                if stat.S_ISREG(found.st_mode) and _is_output(f"{proc}/{pid}/fdinfo/{number}"):
                    yield found.st_dev, found.st_ino


def _is_output(facts: str) -> bool:
    with open(facts, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return bool(int(line.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return False


def find_slot(name: str) -> tuple[int, int] | None:
    """Where the value of ``name`` lies in this process's first environment, as address and size.

    That memory is what others read as our environment; a fork that never calls exec can say there who it is.
    """
    with open("/proc/self/stat", "rb") as file:
        field = file.read().rpartition(b")")[2].split()
    with open("/proc/self/environ", "rb") as file:
        text = b"\0" + file.read()
    start = int(field[47])
    found = text.find(f"\0{name}=".encode())
    if not start or found < 0:
        return None
    first = found + len(name) + 2
    return start + first - 1, text.find(b"\0", first) - first


def fill_slot(slot: tuple[int, int], value: str) -> None:
    """Put ``value`` where ``find_slot`` found room; one that is too long is left out."""
    address, size = slot
    text = os.fsencode(value)
    if len(text) <= size:
        ctypes.memmove(address, text.ljust(size, b"\0"), size)


def rewrite_command(words: Sequence[str]) -> None:
    """Have others read these words as the command of this process; what exceeds the room of its first command is cut off."""
    with open("/proc/self/stat", "rb") as file:
        field = file.read().rpartition(b")")[2].split()
    start, end = int(field[45]), int(field[46])
    if not 0 < start < end:
        return  # the kernel does not say where
    text = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def thread_count() -> int:
    """How many threads this process has, those of libraries included."""
    return len(os.listdir("/proc/self/task"))


def open_pidfd(pid: int) -> int | None:
    """A descriptor of process ``pid``, readable once it is dead; ``None`` if there is no such process or no such thing."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def send_signal(facts: ProcessFacts, number: int) -> bool:
    """Signal exactly the process that ``facts`` are of; return whether it was there and the signal was allowed."""
    pidfd = open_pidfd(facts.pid)
    try:
        # The descriptor is opened before the comparison, so it belongs to what was compared or to nothing.
        now = read_facts(facts.pid)
        if now is None or now.id != facts.id:
            return False
        if pidfd is None:
            os.kill(facts.pid, number)
        else:
            signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return True


def wait_deaths(processes: Iterable[ProcessFacts], timeout_s: float) -> None:
    """Wait until one of the processes is dead, at most ``timeout_s`` seconds."""
    poll = select.poll()
    opened = [pidfd for facts in processes if (pidfd := open_pidfd(facts.pid)) is not None]
    for pidfd in opened:
        poll.register(pidfd, select.POLLIN)
    poll.poll(timeout_s * 1000)
    for pidfd in opened:
        os.close(pidfd)
