"""The server of ``tests/warm.py``: an interpreter that has imported the command line and becomes it when it is asked to.

A request is one message on the socket whose number is the only argument. Its descriptors are the line of the request, a file with
an ``Order`` as JSON, the working directory, and the three standard streams of the command. The server forks, and the child becomes
``python -m MODULE``. The exit code goes back through the line. If the client closes its side of the line, the command is killed.

The server opens no file and starts no thread before it forks, and its environment holds only what an interpreter reads at its
start. A child closes every descriptor that is not its own, and ``_renew`` gives back what modules keep of the time of their import.
Two things stay the same in all children of a server: the seed of ``hash()``, and the random mark of ``bartack.cli.app._edge``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from typing import Any, NamedTuple, TypedDict, cast

ALWAYS_NEEDED = ("bartack.cli.app._boundary", "bartack.core._statx")
"""Modules that commands import while they run. Those of the commands themselves import nearly everything else."""


class Order(TypedDict):
    """The part of a request that is not a descriptor."""

    module: str
    words: list[str]
    env: dict[str, str]
    umask: int
    new_session: bool


class Request(NamedTuple):
    """The descriptors of a request, in the order in which they are sent."""

    line: int
    order: int
    place: int
    stdin: int
    stdout: int
    stderr: int


class Command(NamedTuple):
    """A child that has not been waited for, with a descriptor of its process."""

    pid: int
    process: int
    line: int

    def kill(self) -> None:
        """Kill it, with its process group if it leads one."""
        leads = os.getpgid(self.pid) == self.pid
        (os.killpg if leads else os.kill)(self.pid, signal.SIGKILL)

    def report(self) -> None:
        """Wait for it and send its exit code to the client."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(OSError):  # the client may be gone
            os.write(self.line, str(code).encode())
        os.close(self.process)
        os.close(self.line)


def main(control: int) -> None:
    """Serve until the client is gone; in a child, be the command."""
    del sys.path[0]  # the directory of this file
    load_commands()
    gc.collect()
    gc.freeze()
    interrupt = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the client, which ends this server
    request = serve(socket.socket(fileno=control))
    if request is not None:
        signal.signal(signal.SIGINT, interrupt)
        become(request)


def load_commands() -> None:
    """Import the modules of all commands."""
    from bartack.cli.app._app import COMMANDS, load_command  # noqa: PLC0415 - the client imports this file as well

    for listed in COMMANDS:
        load_command(listed)
    for name in ALWAYS_NEEDED:
        importlib.import_module(name)


def serve(control: socket.socket) -> Request | None:
    """Fork for every request. Return a request in a child that is to serve it, and ``None`` when the client is gone."""
    control.send(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})).encode())
    running: list[Command] = []
    while True:
        ready = _wait_for(control.fileno(), *(number for child in running for number in child[1:]))
        for child in [child for child in running if not ready.isdisjoint(child[1:])]:
            if child.process not in ready:
                child.kill()
            child.report()
            running.remove(child)
        if control.fileno() not in ready:
            continue
        request = _receive(control)
        if request is None:
            for child in running:
                child.kill()
            return None
        pid = os.fork()
        if pid == 0:
            control.detach()  # the object would close its number again, whatever file has it then
            return request
        running.append(Command(pid, os.pidfd_open(pid), request.line))
        for descriptor in request[1:]:
            os.close(descriptor)


def _wait_for(*descriptors: int) -> set[int]:
    poll = select.poll()  # it needs no descriptor of its own
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll()}


def _receive(control: socket.socket) -> Request | None:
    message, descriptors, _, _ = socket.recv_fds(control, 1, len(Request._fields))
    return Request(*descriptors) if message else None


def become(request: Request) -> None:
    """Be the command that was asked for, in a process that looks as if it was started for it."""
    with open(request.order, encoding="ascii", closefd=False) as file:
        order: Order = json.load(file)
    os.fchdir(request.place)
    for number, descriptor in enumerate((request.stdin, request.stdout, request.stderr)):
        os.dup2(descriptor, number)
    _close_others()
    os.umask(order["umask"])
    if order["new_session"]:
        os.setsid()
    _use_environment(order["env"])
    _open_streams()
    _renew()
    sys.orig_argv[:] = [sys.executable, "-m", order["module"], *order["words"]]
    sys.argv[:] = ["-m", *order["words"]]
    with contextlib.suppress(FileNotFoundError):  # a working directory that was removed is not on the path
        sys.path.insert(0, os.getcwd())
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


def _close_others() -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one with which the list was read
                os.close(int(name))


def _use_environment(env: dict[str, str]) -> None:
    # An interpreter without a locale chooses one at its start and puts it into its environment.
    chosen = os.environ.get("LC_CTYPE")
    os.environ.clear()
    os.environ.update(env)
    if chosen is not None:
        os.environ.setdefault("LC_CTYPE", chosen)
    time.tzset()


def _open_streams() -> None:
    """Make the standard streams anew, as the interpreter makes them for the files that they have now."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, before: io.TextIOWrapper) -> io.TextIOWrapper:
    direct = before.write_through  # PYTHONUNBUFFERED is set
    mode = "w" if number else "r"
    file: Any = open(number, f"{mode}b", 0 if direct and number else -1, closefd=False)  # noqa: SIM115 - until the end
    getattr(file, "raw", file).name = before.name
    stream: Any = io.TextIOWrapper(
        file,
        before.encoding,
        before.errors,
        newline="\n",
        line_buffering=not direct and (number == 2 or file.isatty()),
        write_through=direct,
    )
    stream.mode = mode
    return cast("io.TextIOWrapper", stream)


def _renew() -> None:
    """Give modules anew what they keep of the process that has imported them. ``tests/unit/test_warm.py`` finds such modules."""
    from bartack.pipeline.worktree import _git  # noqa: PLC0415 - loaded by now

    setattr(_git, "_BEGAN", time.time())  # noqa: B010 - it is final for everything else


if __name__ == "__main__":
    main(int(sys.argv[1]))
