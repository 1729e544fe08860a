"""Which processes have one end of a connection: by what the system itself says of real ones."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

from bartack.supervision.process.holders import find_holders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")

HIDDEN = """
import ctypes, json, os, socket
from bartack.supervision.process.holders import find_holders
import encodings.ascii, encodings.idna  # another user may not be able to
if os.getuid() == 0:
    os.setuid(65534)  # root sees everything
listener = socket.create_server(("127.0.0.1", 0))
ready, done = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(done[1])
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    client = socket.create_connection(listener.getsockname())
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    os._exit(0)
os.close(ready[1])
os.read(ready[0], 1)
taken, client = listener.accept()
found = find_holders(client, taken.getsockname())
os.close(done[1])
os.waitpid(child, 0)
print(json.dumps([found.uid == os.getuid(), found.pids, child in found.hidden]))
"""


@contextmanager
def connection(address: str, asked: str | None = None) -> Generator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: the one that was made, and the one that was taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server((address, 0), family=family))
        except OSError:
            pytest.skip("this machine has no such address")
        near = stack.enter_context(socket.socket(socket.AF_INET6 if asked else family))
        near.connect((asked or address, listener.getsockname()[1]))
        yield near, stack.enter_context(listener.accept()[0])


@pytest.mark.parametrize(
    ("address", "asked"), [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "::ffff:127.0.0.1")]
)
def test_the_holder_of_a_connection_is_found(address: str, asked: str | None) -> None:
    with connection(address, asked) as (_, taken):
        found = find_holders(taken.getpeername()[:2], taken.getsockname()[:2])

    assert found is not None
    assert (found.uid, found.pids) == (os.getuid(), (os.getpid(),))


def test_every_process_that_has_it_open_is_found() -> None:
    with connection("127.0.0.1") as (near, taken):
        words = [sys.executable, "-c", "input()"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[near.fileno()]) as child:
            found = find_holders(taken.getpeername(), taken.getsockname())
            child.communicate(b"\n")

    assert found is not None
    assert set(found.pids) == {os.getpid(), child.pid}


def test_a_connection_that_no_process_has_open_has_no_holder() -> None:
    with connection("127.0.0.1") as (near, taken):
        peer = taken.getpeername()
        near.close()

        assert find_holders(peer, taken.getsockname()) is None
    assert find_holders(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_a_process_that_does_not_show_what_it_has_open_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=False, timeout=60
    )

    assert json.loads(done.stdout or "null") == [True, [], True], done.stderr
