"""The hub's side of a parent program: start it, send it commands, receive its events.

No thread and no event loop: the hub waits for ``fileno()`` in whichever way it likes and calls ``read_events``. Nothing here
blocks but ``close``.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from bartack.core.accounts import Account, user_of_children
from bartack.core.closing import Closing
from bartack.supervision.parent._spawn import SLOT
from bartack.supervision.parent.guardian import GRACE_S, guarded
from bartack.supervision.parent.wire import (
    EVENTS,
    Bye,
    Channel,
    Exec,
    Fork,
    Kill,
    ParentDied,
    ParentEvent,
    ParentReady,
    Signal,
    Started,
    Stop,
    Sweep,
)
from bartack.supervision.process._encoding import encode_word
from bartack.supervision.process.limits import ORIGINAL
from bartack.supervision.process.system import system
from bartack.supervision.process.tree import KILL_TIMEOUT_S

if TYPE_CHECKING:
    import subprocess

KEEPER: Final = "bartack.supervision.forms._keeper"
"""The module of the parent program that only executes programs."""

_SLOT_BYTES: Final = 1024
"""How long the name of a forked child may be to be readable in its environment from outside."""


class ParentClient(Closing):
    """A running parent program, and the only connection to it.

    Tokens are the caller's numbers for its children. For each, ``Started``, ``Exited`` and ``Gone`` come in this order, or
    ``StartFailed`` alone. After ``ParentDied`` nothing comes any more.
    """

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process = process
        self._channel = Channel(sock, EVENTS)
        self._reported = False
        self._program_pid = 0

    @classmethod
    def start(
        cls,
        module: str,
        lock_tree: str,
        env: Mapping[str, str],
        cwd: str,
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        account: Account | None = None,
        files: int | None = None,
        lease: int | None = None,
    ) -> ParentClient:
        """Start a parent program in a session of its own, with an environment of its own.

        The session has no terminal: nothing below can type into that of the person, or read what is typed there.

        Args:
            module: The module to run; it calls ``run_parent``.
            lock_tree: The file whose shared lock it holds; empty for none. The caller must not hold the exclusive one.
            env: The whole environment of the program, and the start of that of the children it forks.
            cwd: Its working directory.
            stdout: Where its output and that of forked children goes; inherited without it. Its input is empty.
            stderr: The same for errors.
            account: The user that it runs as, with all that it starts; the caller must be root then.
            files: How many files its children may open, if the caller has raised that for itself.
            lease: The descriptor of a lease page: everything below the program stands still while its time is over.

        Raises:
            OSError: The system has no process or no descriptor left for it.
        """
        import subprocess  # noqa: PLC0415 - parent programs import this package too, and fork faster without it

        ours, theirs = socket.socketpair()
        fds = [theirs.fileno(), *([] if lease is None else [lease])]
        command = guarded("parent", lock_tree, module, *map(str, fds))
        with ExitStack() as on_failure, theirs:
            on_failure.callback(ours.close)
            process = subprocess.Popen(  # bartack: allow[unsupervised_process] it ends when its socket does  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**env, SLOT: " " * _SLOT_BYTES, **({} if files is None else {ORIGINAL: str(files)})},
                cwd=cwd,
                pass_fds=fds,
                start_new_session=True,
                user=user_of_children() if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else account.groups,
            )
            on_failure.pop_all()
        return cls(process, ours)

    @property
    def pid(self) -> int:
        """The process that stands for the whole tree: the program's guardian, or the program where it has none."""
        return self._process.pid

    @property
    def program_pid(self) -> int:
        """The program's own process; 0 before it is ready."""
        return self._program_pid

    @property
    def wants_write(self) -> bool:
        """Whether frames wait for the socket to take more; call ``flush`` when it is writable."""
        return self._channel.wants_write

    def fileno(self) -> int:
        """Readable when ``read_events`` has something to return."""
        return self._channel.fileno()

    def fork(self, token: int, payload: bytes, fds: Sequence[int], env: Mapping[str, str]) -> None:
        """Fork a child that gets ``payload`` and copies of ``fds``; ``env`` is added to the program's environment."""
        self._channel.send(Fork(token, payload, _encode(env)), fds)

    def exec(
        self,
        token: int,
        pipeline: Sequence[Sequence[str]],
        cwd: str,
        env: Mapping[str, str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        relayed: bool = False,
    ) -> None:
        """Start commands, the output of each being the input of the next; ``env`` is all the environment they get.

        The words are given to the programs as they are. A program without a slash is looked for in the ``PATH`` of ``env``.
        What is not given of the descriptors is the null device. If the output is ``relayed``, the commands write to a pipe, and
        the parent program copies whole lines to ``stdout``, which is a file: some programs cannot write to one.

        Raises:
            OSError: A word, a variable or the directory cannot be given to a program, or no descriptor is left.
        """
        words = [[encode_word(word) for word in argv] for argv in pipeline]
        given = [fd for fd in (stdin, stdout, stderr) if fd is not None]
        places = iter(range(len(given)))
        first, second, third = (-1 if fd is None else next(places) for fd in (stdin, stdout, stderr))
        stdio = (first, second, third)
        self._channel.send(Exec(token, words, encode_word(cwd), _encode(env), stdio, relayed), given)

    def signal(self, token: int, number: int) -> None:
        """Signal the child's own processes, not what they have started."""
        self._channel.send(Signal(token, number))

    def stop(self, token: int, grace_s: float) -> None:
        """Ask every process of the child's tree to end, and kill what is left of it after ``grace_s`` seconds."""
        self._channel.send(Stop(token, grace_s))

    def kill(self, token: int) -> None:
        """Kill every process of the child's tree."""
        self._channel.send(Kill(token))

    def sweep(self, token: int) -> None:
        """Kill orphans in the child's tree: what its own processes have started and left. These continue."""
        self._channel.send(Sweep(token))

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        self._channel.flush()

    def read_events(self) -> list[ParentEvent]:
        """What has happened since the last call; never waits. Descriptors in a ``Started`` belong to the caller."""
        self._channel.flush()
        events: list[ParentEvent] = []
        for event, fds in self._channel.receive():
            if isinstance(event, ParentReady):
                self._program_pid = event.pid
            events.append(msgspec.structs.replace(event, pidfds=fds) if isinstance(event, Started) else event)
        if not self._channel.alive and not self._reported:
            self._reported = True
            events.append(ParentDied())
        return events

    def close(self, timeout_s: float = KILL_TIMEOUT_S + 1) -> int:
        """End the program and everything below it, or reap it if it is dead; return its exit status.

        One that has not ended after ``timeout_s`` seconds is killed; end what it leaves with ``kill_descendants``. Where it has a
        guardian, that ends what a killed program leaves, within the same time.
        """
        until = time.monotonic() + timeout_s
        if self._channel.alive:
            self._channel.send(Bye())
            self._wait_end(timeout_s)
        self._reported = True
        if self._channel.alive:
            self._process.terminate()
            until = time.monotonic() + GRACE_S + 1
        if not self._is_over(until):
            self._process.kill()
        self._channel.close()
        return self._process.wait()  # bartack: allow[wait_without_deadline] it has ended, or was killed

    def _is_over(self, until: float) -> bool:
        """Whether the process has ended, now or by then."""
        pidfd = system.open_pidfd(self._process.pid)
        if pidfd is None:
            return self._process.poll() is not None
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
        os.close(pidfd)
        return ended

    def _wait_end(self, timeout_s: float) -> None:
        """Read the program's last events until it ends."""
        until = time.monotonic() + timeout_s
        while self._channel.alive and (left := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self, select.POLLIN | (select.POLLOUT if self.wants_write else 0))
            poll.poll(left * 1000)
            self._channel.flush()
            for _, fds in self._channel.receive():
                for fd in fds:
                    os.close(fd)


def _encode(env: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(encode_word(name), encode_word(value)) for name, value in env.items()]
