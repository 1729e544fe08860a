"""The process that forks hubs: it has imported what a hub needs, so a hub is there in milliseconds. ``_warm.py`` is its client.

    node ──a word and four descriptors──▶ fork server ──fork──▶ hub
         ◀──────────its process──────────

Started as ``python -m bartack.node._fork_server SOCKET ROOM``. It has one thread, no descriptor but its socket, and never sees an
order: the child reads it. A child is in every respect what a new interpreter would be. It has a session, an environment, a working
directory and a command of its own, and it ends as an interpreter ends. It begins only when the node has noted its number: if one of
the two is killed before, the child ends, and no hub is there that no node knows of.

The server ends when its node does, after ``IDLE_S`` without a hub, and when a file that it has imported was changed. A hub
outlives it.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import socket
import sys
import time
from typing import Final, NamedTuple

from bartack.node._fork_wire import GO, LOG, ORDER, PID, REPORT, ForkOrder, decode_order
from bartack.runtime.client.start_hub import SERVER, SERVERS
from bartack.runtime.hub.serve import Instructions
from bartack.supervision.process.system import open_pidfd, rewrite_command, thread_count

IDLE_S: Final = 60.0
"""How long the server stays without a hub."""
MOST_WORD: Final = 256
_MODULES: Final = frozenset({SERVER, *SERVERS.values()})
_DESCRIPTORS: Final = 1 << 16
"""More than this process can have open."""


class Forked(NamedTuple):
    """What a child has to do."""

    module: str
    fds: list[int]


def serve_forks(sock: socket.socket) -> Forked | None:
    """Fork hubs. Returns in each child with what it has to do, and in the server, with nothing, when it is to end."""
    hubs: dict[int, int] = {}
    seen = _look_at_files()
    while True:
        ready = _wait(sock.fileno(), hubs)
        if not ready and not hubs:
            return None
        if sock.fileno() not in ready:
            continue
        forked = _receive(sock)
        if forked is None:
            return None  # the node is gone
        importlib.import_module(forked.module)
        current = _look_at_files()
        seen = {**current, **seen}
        if seen != current or thread_count() != 1:
            return None
        pid = os.fork()  # bartack: allow[unsupervised_process] a hub outlives us
        if not pid:
            os.close(sock.detach())
            return forked
        _note(sock, pid, hubs)
        for fd in forked.fds:
            os.close(fd)


def _wait(request: int, hubs: dict[int, int]) -> set[int]:
    """Wait for a request or the end of a hub, and collect the hubs that have ended."""
    poller = select.poll()
    for fd in (request, *hubs):
        poller.register(fd, select.POLLIN)
    ready = {fd for fd, _ in poller.poll(None if hubs else IDLE_S * 1000)}
    for fd in ready & hubs.keys():
        os.waitpid(hubs.pop(fd), 0)
        os.close(fd)
    return ready


def _receive(sock: socket.socket) -> Forked | None:
    try:
        word, fds, _, _ = socket.recv_fds(sock, MOST_WORD, GO + 1)
    except OSError:
        return None
    module = word.decode("ascii", "replace")
    return Forked(module, list(fds)) if module in _MODULES and len(fds) == GO + 1 else None


def _note(sock: socket.socket, pid: int, hubs: dict[int, int]) -> None:
    """Wait for the end of a hub from now on, and report its number to the node."""
    fd = open_pidfd(pid)
    assert fd is not None  # see ``main``
    hubs[fd] = pid
    try:
        sock.send(PID.pack(pid))
    except OSError:
        return  # the node is gone: the next look finds out, and the hub does not begin


def _look_at_files() -> dict[str, tuple[int, int, int]]:
    """What distinguishes the files of all modules from later versions of them."""
    paths = {sys.executable, *(getattr(module, "__file__", None) or "" for module in sys.modules.values())}
    found: dict[str, tuple[int, int, int]] = {}
    for path in paths:
        try:
            facts = os.stat(path)
        except OSError:
            continue
        found[path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def be_hub(forked: Forked) -> int:
    """Be a hub, in a child: as a new interpreter would be. Returns its exit code."""
    order = _become(forked)
    imported = importlib.import_module(forked.module)
    instructions = Instructions(report=forked.fds[REPORT], sets=order.sets, rest_after_s=order.rest_after_s)
    code: int = imported.main(sys.argv[1:], instructions=instructions)
    return code


def _become(forked: Forked) -> ForkOrder:
    os.setsid()
    fds = forked.fds
    order = decode_order(fds[ORDER])
    os.dup2(fds[LOG], 1)
    os.dup2(fds[LOG], 2)
    if not os.read(fds[GO], 1):
        os._exit(0)
    os.closerange(3, fds[REPORT])
    os.closerange(fds[REPORT] + 1, _DESCRIPTORS)
    os.chdir(order.workspace)
    os.environb.clear()
    os.environb.update(order.environ)
    time.tzset()
    words = [os.fsdecode(word) for word in order.words]
    rewrite_command([sys.executable, "-P", "-s", "-m", forked.module, *words])
    path = sys.modules[forked.module].__file__
    sys.argv[:] = [path or forked.module, *words]
    gc.enable()
    return order


def main() -> int:
    """Serve, and be a hub in each child."""
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    rewrite_command([sys.executable, *sys.orig_argv[1:-1]])
    if open_pidfd(os.getpid()) is None:
        return 1  # the end of a hub could not be waited for
    importlib.import_module(SERVER)
    gc.collect()
    gc.freeze()
    gc.disable()
    forked = serve_forks(socket.socket(fileno=fd))
    return 0 if forked is None else be_hub(forked)


if __name__ == "__main__":
    sys.exit(main())
