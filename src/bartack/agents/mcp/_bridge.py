"""The program that an agent starts as its MCP server: it connects to the hub of the run and copies bytes both ways.

It is executed as a file, by ``python -I -S``, and imports nothing but built-in modules: it is ready within a few milliseconds. It
shows the hub its token and sends nothing else before the hub has accepted it. It ends with the end of either side.
"""

import _socket
import _thread
import os
import sys

CHUNK = 65_536


def main() -> int:
    """Copy until one side ends; the argument is the path of the hub's socket."""
    token = os.environ.get("BARTACK_STEP_TOKEN", "")
    if len(sys.argv) != 2 or not token.isalnum():
        return _refuse("it is started by an agent of a run, with its token")
    hub = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        hub.connect(sys.argv[1])
        hello = b'{"k":"hello","proto":1,"role":"bridge","pid":%d,"token":"%s"}' % (
            os.getpid(),
            token.encode(),
        )
        _write(hub.fileno(), len(hello).to_bytes(4, "big") + hello)
        accepted = _read_exactly(hub.fileno(), 4)
        _read_exactly(hub.fileno(), int.from_bytes(accepted, "big"))
    except (OSError, EOFError):
        return _refuse("this step has ended")
    _thread.start_new_thread(_copy_in, (hub.fileno(),))
    _copy(hub.fileno(), 1)
    return 0


def _copy_in(hub: int) -> None:
    """From the agent to the hub. The end of the agent's input ends the process."""
    _copy(0, hub)
    os._exit(0)


def _copy(source: int, target: int) -> None:
    try:
        while data := os.read(source, CHUNK):
            _write(target, data)
    except OSError:
        return  # one side is gone, which is the end


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _read_exactly(source: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(source, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _refuse(reason: str) -> int:
    _write(2, b"bartack bridge: " + reason.encode() + b"\n")
    return 1


if __name__ == "__main__":
    status = main()
    # The other thread may be waiting for input that never comes.
    os._exit(status)
