"""Forking children of a parent program, and what happens in them before they become another program.

Everything that can be looked up, checked or refused is done before the fork, so that little can go wrong after it. A child
dies with its parent (as far as the system can), leads a process group of its own, and keeps no descriptor but 0 to 2 and those
it was given.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import stat
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

from bartack.supervision.process.cgroup import Cgroup
from bartack.supervision.process.limits import ORIGINAL, raise_files
from bartack.supervision.process.system import system

Entry = Callable[[bytes, list[int]], int]
"""What a forked child does with its payload and descriptors; it returns the exit code."""

SLOT: Final = "BARTACK_WORKER"
"""The variable that a forked child rewrites in the environment other processes see of it."""

EXIT_INTERNAL: Final = 70
EXIT_NO_EXEC: Final = 127

OWN_SIGNALS: Final = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""The signals a parent program treats in its own way; they are held back around a fork."""

FAILURE: Final = struct.Struct("=ii")
"""What a child that cannot exec says of it: its place in the pipeline, and the errno."""


class StartError(Exception):
    """A child cannot be started: why, and which command of a pipeline it is."""

    def __init__(self, number: int, problem: str, index: int = 0) -> None:
        super().__init__(problem)
        self.errno = number
        self.problem = problem
        self.index = index


class ParentSetup(NamedTuple):
    """What a child has to know of the parent program it comes from."""

    pid: int
    soft_limit: int
    """How many descriptors a process could open before the hub or the parent program raised the limit for itself."""
    slot: tuple[int, int] | None
    ignored: tuple[int, ...]
    """The signals the parent program ignores; a program it executes must not ignore them."""


class Plan(NamedTuple):
    """One command of a pipeline, ready to be executed."""

    path: bytes
    argv: list[bytes]


def prepare_parent() -> ParentSetup:
    """Take note of what children need, and raise the limit of descriptors for this process."""
    given = os.environ.pop(ORIGINAL, "")
    soft = raise_files()
    ignored = tuple(number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN)
    return ParentSetup(os.getpid(), int(given) if given.isdigit() else soft, system.find_slot(SLOT), ignored)


def check_single_thread() -> None:
    """A fork copies one thread only, and locks that the others held are never released in the child."""
    count = system.thread_count()
    if count != 1:
        raise StartError(errno.EDEADLK, f"the parent program has {count} threads and cannot fork safely")


def fork_entry(
    setup: ParentSetup,
    entry: Entry,
    payload: bytes,
    fds: list[int],
    env: Mapping[str, str],
    cgroup: Cgroup | None = None,
) -> int:
    """Fork a child that calls ``entry`` and ends with its result; return its pid."""
    pid = _fork(cgroup)
    if pid:
        return _settle(pid, pid)
    code = EXIT_INTERNAL
    try:
        _leave(setup, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _close_others(fds)
        for name, value in env.items():
            os.environ[name] = value
        if setup.slot is not None and SLOT in env:
            system.fill_slot(setup.slot, env[SLOT])
        gc.enable()
        code = entry(payload, fds)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of the child: no caller could report it
        traceback.print_exc()
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # the reader is gone
    os._exit(code & 0xFF)


def plan_pipeline(pipeline: Sequence[Sequence[bytes]], cwd: bytes, env: Mapping[bytes, bytes]) -> list[Plan]:
    """Find the program of every command before any of them starts.

    Raises:
        StartError: A command, a word or a variable cannot be given to a program.
    """
    if not pipeline:
        raise StartError(errno.EINVAL, "a pipeline needs a command")
    for name, value in env.items():
        if not name or b"=" in name or b"\0" in name + value:
            raise StartError(errno.EINVAL, f"no program can be given the variable {os.fsdecode(name)!r}")
    if not os.path.isdir(cwd):
        raise StartError(errno.ENOENT, f"the working directory {os.fsdecode(cwd)!r} is not there")
    return [plan_command(argv, cwd, env, index) for index, argv in enumerate(pipeline)]


def plan_command(argv: Sequence[bytes], cwd: bytes, env: Mapping[bytes, bytes], index: int = 0) -> Plan:
    """Find the program of one command; ``cwd`` may be empty for the directory of this process.

    Raises:
        StartError: There is none, or it cannot be given these words.
    """
    if not argv or not argv[0]:
        raise StartError(errno.EINVAL, "a command needs a program", index)
    if any(b"\0" in word for word in argv):
        raise StartError(errno.EINVAL, "no program can be given a word that contains NUL", index)
    name = argv[0]
    places = [b""] if b"/" in name else env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    problem = errno.ENOENT
    for place in places:
        path = os.path.join(place, name)
        found = _check_program(os.path.join(cwd, path))
        if not found:
            return Plan(path, list(argv))
        problem = found if found == errno.EACCES else problem
    reason = "is not executable" if problem == errno.EACCES else "was not found"
    raise StartError(problem, f"the program {os.fsdecode(name)!r} {reason}", index)


def _check_program(path: bytes) -> int:
    try:
        found = os.stat(path)
    except OSError as error:
        return errno.EACCES if error.errno == errno.EACCES else errno.ENOENT
    return 0 if stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK) else errno.EACCES


class Streams(NamedTuple):
    """The descriptors of a pipeline's ends, and of the commands' errors."""

    stdin: int
    stdout: int
    stderr: int


def fork_pipeline(
    setup: ParentSetup,
    plans: Sequence[Plan],
    cwd: bytes,
    env: Mapping[bytes, bytes],
    streams: Streams,
    pids: list[int],
    cgroup: Cgroup | None = None,
) -> int:
    """Fork one child per command, connected by pipes, in one process group; their pids are appended to ``pids``.

    Returns a descriptor that ends when every child has become its program, and says before what failed.
    """
    report, failing = os.pipe()
    os.set_blocking(report, False)
    feed = streams.stdin
    try:
        for index, plan in enumerate(plans):
            last = index == len(plans) - 1
            following, out = (-1, streams.stdout) if last else os.pipe()
            try:
                group = pids[0] if pids else 0
                pid = _fork(cgroup)
                if not pid:
                    _become(setup, plan, cwd, env, Streams(feed, out, streams.stderr), group, index, failing)
                pids.append(_settle(pid, group or pid))
            finally:
                if not last:
                    os.close(out)
                if feed != streams.stdin:
                    os.close(feed)
                feed = following
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(failing)
        if feed not in {-1, streams.stdin}:
            os.close(feed)
    return report


def _become(
    setup: ParentSetup,
    plan: Plan,
    cwd: bytes,
    env: Mapping[bytes, bytes],
    streams: Streams,
    group: int,
    index: int,
    failing: int,
) -> NoReturn:
    """Turn the forked child into its program, or say why not."""
    problem = errno.EINVAL
    try:
        _leave(setup, group)
        for number in setup.ignored:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(cwd)
        for target, source in enumerate(streams):
            os.dup2(source, target)
        _close_others([failing])
        os.execve(plan.path, plan.argv, env)  # noqa: S606 - a program and its words, never a shell
    except OSError as error:
        problem = error.errno or problem
    finally:
        os.write(failing, FAILURE.pack(index, problem))
        os._exit(EXIT_NO_EXEC)


def _fork(cgroup: Cgroup | None) -> int:
    """Fork with our own signals held back; the child lets them through when it has put its handlers in order.

    It is born in ``cgroup`` if that can be, and else where we are.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OWN_SIGNALS)
    pid = -1
    try:
        if cgroup is not None:
            pid = _fork_into(cgroup)
        if pid < 0:
            pid = os.fork()  # bartack: allow[unsupervised_process] this is where supervision begins
    except OSError as error:
        raise StartError(error.errno or errno.EAGAIN, f"no process can be forked: {error.strerror}") from None
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _fork_into(cgroup: Cgroup) -> int:
    try:
        return system.fork_into(cgroup.fd)
    except OSError as error:
        cgroup.problem = error.errno or errno.EIO
        return -1


def _settle(pid: int, group: int) -> int:
    """Put the child into its group from our side too: the first of the two wins."""
    # It may have done so itself and be another program by now, or have ended.
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, group)
    return pid


def _leave(setup: ParentSetup, group: int) -> None:
    """The first things in a child: die with the parent, lead a group, answer no signal in the parent's way."""
    system.set_death_signal(signal.SIGKILL)
    if os.getppid() != setup.pid:
        os._exit(EXIT_INTERNAL)
    os.setpgid(0, group)
    signal.set_wakeup_fd(-1)
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (setup.soft_limit, limit))


def _close_others(kept: Sequence[int]) -> None:
    # The names also hold the descriptor of the listing itself, which is closed by now.
    for name in os.listdir("/dev/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
