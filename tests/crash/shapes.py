"""Processes that are hard to end, for the tests of process trees: a program of its own, and an entry for a parent program.

Every process of a shape writes its number as a line to one descriptor and keeps that open, so that the reader knows everybody,
and knows by the end of the stream that nobody is left.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

GENERATIONS = 400


def say(fd: int) -> None:
    os.write(fd, b"%d\n" % os.getpid())


def hold(fd: int) -> NoReturn:
    say(fd)
    while True:
        signal.pause()


def plain(fd: int) -> None:
    hold(fd)


def quiet(fd: int) -> None:
    """Ends at once, without a word."""


def daemonize() -> bool:
    """Fork twice with a session in between; tell whether this is the grandchild."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


def double_fork(fd: int) -> None:
    daemonize()
    hold(fd)


def leaves_daemon(fd: int) -> None:
    """Ends by itself and leaves a daemon behind, which has said its number before."""
    ready, done = os.pipe()
    if daemonize():
        say(fd)
        os.write(done, b".")
        while True:
            signal.pause()
    os.read(ready, 1)


def own_session(fd: int) -> None:
    if not os.fork():
        os.setsid()
    hold(fd)


def own_group(fd: int) -> None:
    if not os.fork():
        os.setpgid(0, 0)
    hold(fd)


def ignores_signals(fd: int) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.fork()
    hold(fd)


def forks_on_term(fd: int) -> None:
    def fork(number: int, frame: FrameType | None) -> None:
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
            hold(fd)

    signal.signal(signal.SIGTERM, fork)
    hold(fd)


def runs_away(fd: int) -> None:
    """Each process forks the next and ends at once, hundreds of times."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(GENERATIONS):
        say(fd)
        if os.fork():
            os._exit(0)
    hold(fd)


def runs_away_to_sessions(fd: int) -> None:
    """The same, each in a session of its own."""
    for _ in range(GENERATIONS):
        say(fd)
        if os.fork():
            os._exit(0)
        os.setsid()
    hold(fd)


def multiplies(fd: int) -> None:
    """Keeps a handful of children, and a new one for each that dies, as often as it can."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(fd)
    for born in range(GENERATIONS):
        if not os.fork():
            hold(fd)
        if born >= 5:
            os.wait()


def forgets_everything(fd: int) -> None:
    """A daemon that also clears its environment."""
    if daemonize():
        os.dup2(fd, 1)
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "plain"], {})  # noqa: S606 - our own program
    hold(fd)


def everything(fd: int) -> None:
    """All that hold, below one process."""
    for shape in (double_fork, own_session, own_group, ignores_signals, forgets_everything):
        if not os.fork():
            shape(fd)
    hold(fd)


SHAPES: dict[str, Callable[[int], None]] = {
    shape.__name__: shape
    for shape in (
        plain,
        quiet,
        double_fork,
        leaves_daemon,
        own_session,
        own_group,
        ignores_signals,
        forks_on_term,
        runs_away,
        runs_away_to_sessions,
        multiplies,
        forgets_everything,
        everything,
    )
}


def entry(payload: bytes, fds: list[int]) -> int:
    SHAPES[payload.decode()](fds[0])
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        SHAPES[sys.argv[1]](1)
    else:
        from bartack.supervision.parent.parent import run_parent

        sys.exit(run_parent(entry))
