"""What every service on this machine does: listen where no other machine can reach it, check the Host header, stop on a signal.

A web page can make a browser send requests to this machine, also under a name of its own that it lets point here (DNS rebinding).
Such a request says so in its ``Host``, so a service answers only to the names it knows.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from bartack.errors import ConfigError, UnsafeBindError

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names of this machine that mean the same on every machine."""

_BACKLOG: Final = 2048


def open_listener(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket that listens on this machine only; port 0 takes a free one.

    Raises:
        UnsafeBindError: Other machines could reach it.
        ConfigError: The port is taken.
    """
    address = _loopback(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # The protocol is named because asyncio looks at it: without, answers wait 40 ms for a reader's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError("port", f"cannot listen on {host} port {port}: {error}") from error
    return listener


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise UnsafeBindError(host) from None
    if not address.is_loopback:
        raise UnsafeBindError(host)
    return address


def names_service(hosts: Sequence[str], names: Collection[str] = LOOPBACK_NAMES) -> bool:
    """Whether a request means this service: it has exactly one Host header, and that is one of ``names``, with any port."""
    return len(hosts) == 1 and host_name(hosts[0]) in names


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call ``stop`` for SIGINT and SIGTERM meanwhile; only the main thread can.

    A server has handlers of its own while it runs, and repeats the signal that ended it. Both ends are covered: a signal before it
    runs stops it, and the repeated one does no harm.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
