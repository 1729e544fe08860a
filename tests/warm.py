"""Command lines without the time that an interpreter needs to import them: ``run`` is ``subprocess.run`` for ``python -m bartack``.

Thousands of tests start the command line and look at its result. Most of the processor time of a short command is spent on imports.
``run`` asks a server for a process instead: an interpreter that has imported the commands and forks for each request (see
``tests/warm_server.py``). The command has a process of its own, with the given environment, directory and streams, in the process
group of the caller or in a session of its own. It is not a fork of the test process.

Some things only a new interpreter can show. ``run`` starts one, as ``subprocess.run`` does, if

- the command is not ``[sys.executable, "-m", MODULE, ...]``;
- a variable is given that an interpreter reads at its start, such as ``PYTHONPATH`` (a different locale gets a different server);
- a variable marks the command as part of a run, because Bartack looks for these in the environments that the kernel shows;
- a module in the working directory hides one that the server has imported;
- ``BARTACK_TEST_COLD=1`` is set, as in ``make soak``, or the system is not Linux.

Tests of starting, imports, terminals, other users and other interpreters use ``subprocess`` themselves. So do the tests in
``tests/docs``, ``tests/newcomer`` and ``tests/realcli``: they try every group of commands as people have it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import locale
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, TypeAlias, TypedDict, Unpack, overload

from tests.warm_server import Order, Request

COLD: Final = "BARTACK_TEST_COLD"
SERVER: Final = Path(__file__).with_name("warm_server.py")

_AT_START: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
"""Variables that decide how an interpreter starts. It is not known what each of them does, so a new one has to."""
_OF_A_SERVER: Final = ("LANG", "LC_", "PYTHONUNBUFFERED")
"""Those that only decide about texts and streams. There is a server for each combination of them."""
_OF_A_RUN: Final = ("BARTACK_RUN", "BARTACK_STEP")

Stream: TypeAlias = int | IO[str] | IO[bytes] | None


class Options(TypedDict, total=False):
    """The options of ``subprocess.run`` that a server can give to a process."""

    input: str | bytes | None
    stdin: Stream
    stdout: Stream
    stderr: Stream
    capture_output: bool
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    timeout: float | None
    check: bool
    start_new_session: bool


@overload
def run(
    command: Sequence[str], *, text: Literal[True], encoding: str | None = None, **options: Unpack[Options]
) -> subprocess.CompletedProcess[str]: ...


@overload
def run(
    command: Sequence[str], *, encoding: str, **options: Unpack[Options]
) -> subprocess.CompletedProcess[str]: ...


@overload
def run(command: Sequence[str], **options: Unpack[Options]) -> subprocess.CompletedProcess[bytes]: ...


def run(
    command: Sequence[str], *, text: bool = False, encoding: str | None = None, **options: Unpack[Options]
) -> subprocess.CompletedProcess[str] | subprocess.CompletedProcess[bytes]:
    """Run a command line to its end, as ``subprocess.run`` does."""
    server = _server_for(command, options)
    if server is None:
        options.setdefault("check", False)
        return subprocess.run(command, text=text, encoding=encoding, **options)  # noqa: PLW1510 - among the options
    used = encoding or locale.getencoding() if text or encoding else None
    with _Pipes(options, used) as pipes:
        code = _complete(server, command, options, pipes)
        shown = [pipes.output(1), pipes.output(2)]
    texts = shown if used is None else [_decoded(output, used) for output in shown]
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess(command, code, *texts)
    if options.get("check"):
        done.check_returncode()
    return done


def _server_for(command: Sequence[str], options: Options) -> Server | None:
    """The server that can run a command; ``None`` if it has to have an interpreter of its own."""
    given = os.environ if (chosen := options.get("env")) is None else chosen
    at_start = {name for name in given if name.startswith(_AT_START) and given[name]}
    if (
        os.environ.get(COLD)
        or sys.platform != "linux"
        or list(command[:2]) != [sys.executable, "-m"]
        or at_start - {"PYTHONUNBUFFERED"}
        or any(name.startswith(_OF_A_RUN) for name in given)
    ):
        return None
    env = {name: given[name] for name in sorted(given) if name.startswith(_OF_A_SERVER)}
    key = (
        os.getpid(),
        tuple(env.items()),
    )  # a fork of a test process does not share the socket of its parent
    with _starting:
        server = _servers.get(key) or _servers.setdefault(key, Server(env))
    return None if server.is_hidden_in(options.get("cwd") or ".") else server


class Server:
    """A server process and the socket to it.

    Args:
        env: The variables that it is started with.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        # At the end of this process the kernel closes the socket, and the server ends.
        self._loaded: set[str] = set(json.loads(self._control.recv(1 << 16)))

    def is_hidden_in(self, place: str | os.PathLike[str]) -> bool:
        """Whether a new interpreter would import something from a working directory that the server has imported elsewhere."""
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            return any(
                entry.name.partition(".")[0] in self._loaded and _is_module(entry) for entry in entries
            )
        return False

    def request(self, order: Order, place: int, streams: Sequence[int]) -> socket.socket:
        """Have a command started; returns the line on which its exit code comes."""
        line, theirs = socket.socketpair()
        file = os.memfd_create("order")
        with theirs, open(file, "w", encoding="ascii") as written:
            json.dump(order, written)
            written.flush()
            os.lseek(file, 0, os.SEEK_SET)
            socket.send_fds(self._control, [b"."], Request(theirs.fileno(), file, place, *streams))
        return line

    def close(self) -> None:
        """End the server."""
        self._control.close()
        self.process.wait()


def _is_module(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith((".py", ".so")) or os.path.exists(os.path.join(entry.path, "__init__.py"))


_servers: Final[dict[tuple[int, tuple[tuple[str, str], ...]], Server]] = {}
_starting: Final = threading.Lock()


@atexit.register
def _close_all() -> None:
    while _servers:
        _servers.popitem()[1].close()


class _Pipes:
    """The three streams of a command, and this side of those that are pipes."""

    def __init__(self, options: Options, encoding: str | None) -> None:
        given = options.get("input")
        captured = subprocess.PIPE if options.get("capture_output") else None
        self._given = memoryview(
            given.encode(encoding or "utf-8") if isinstance(given, str) else given or b""
        )
        self._theirs: list[int] = []
        self._ours: dict[int, int] = {}
        self._received: dict[int, bytearray] = {}
        stdin = self._open(0, options.get("stdin") if given is None else subprocess.PIPE)
        stdout = self._open(1, options.get("stdout", captured))
        wanted = options.get("stderr", captured)
        self.streams = (stdin, stdout, stdout if wanted == subprocess.STDOUT else self._open(2, wanted))

    def _open(self, number: int, wanted: Stream) -> int:
        """The descriptor that the command gets for a number."""
        if wanted is None:
            return number
        if not isinstance(wanted, int):
            return wanted.fileno()
        if wanted == subprocess.DEVNULL:
            self._theirs.append(os.open(os.devnull, os.O_RDWR))
        elif wanted == subprocess.PIPE:
            reading, writing = os.pipe()
            self._theirs.append(reading if number == 0 else writing)
            self._ours[writing if number == 0 else reading] = number
            self._received[number] = bytearray()
        else:
            return wanted
        return self._theirs[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave_theirs()
        while self._ours:
            os.close(self._ours.popitem()[0])

    def leave_theirs(self) -> None:
        """Close the sides that the command has by now."""
        while self._theirs:
            os.close(self._theirs.pop())

    def output(self, number: int) -> bytes | None:
        """What the command has written to a stream; ``None`` if that is not a pipe."""
        return bytes(self._received[number]) if number in self._received else None

    def communicate(self, line: socket.socket, timeout: float | None) -> None:
        """Write the input and read the output until all pipes are closed and the line has something to read.

        Raises:
            TimeoutError: The time is over.
        """
        until = None if timeout is None else time.monotonic() + timeout
        ended = False
        while self._ours or not ended:
            poll = select.poll()
            for descriptor, number in self._ours.items():
                poll.register(descriptor, select.POLLIN if number else select.POLLOUT)
            if not ended:
                poll.register(line, select.POLLIN)
            ready = {
                found for found, _ in poll.poll(None if until is None else 1000 * (until - time.monotonic()))
            }
            if until is not None and time.monotonic() > until:
                raise TimeoutError
            ended = ended or line.fileno() in ready
            for descriptor in ready & self._ours.keys():
                if not (self._read if self._ours[descriptor] else self._write)(descriptor):
                    del self._ours[descriptor]
                    os.close(descriptor)

    def _read(self, descriptor: int) -> bool:
        data = os.read(descriptor, 1 << 16)
        self._received[self._ours[descriptor]] += data
        return bool(data)

    def _write(self, descriptor: int) -> bool:
        try:
            self._given = self._given[os.write(descriptor, self._given[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            return False
        return bool(self._given)


def _complete(server: Server, command: Sequence[str], options: Options, pipes: _Pipes) -> int:
    """Have a command started and wait for its end; returns its exit code."""
    timeout = options.get("timeout")
    place = os.open(options.get("cwd") or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        line = server.request(_order(command, options), place, pipes.streams)
    finally:
        os.close(place)
    with line:
        pipes.leave_theirs()
        try:
            pipes.communicate(line, timeout)
        except TimeoutError:
            line.shutdown(socket.SHUT_WR)  # the server kills the command
            line.recv(16)
            assert timeout is not None
            raise subprocess.TimeoutExpired(command, timeout, pipes.output(1), pipes.output(2)) from None
        code = line.recv(16)
    assert code, "the server of warm commands has ended"
    return int(code)


def _order(command: Sequence[str], options: Options) -> Order:
    env = options.get("env")
    return Order(
        module=command[2],
        words=list(command[3:]),
        env=dict(os.environ if env is None else env),
        umask=_umask(),
        new_session=options.get("start_new_session", False),
    )


def _umask() -> int:
    # Asking the kernel for it means to change it, for other threads as well.
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith("Umask:")).split()[1], 8)


def _decoded(output: bytes | None, encoding: str) -> str | None:
    return None if output is None else output.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
