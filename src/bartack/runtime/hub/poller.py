"""How the loop of a hub waits: for descriptors, each with a function that is called when it is ready.

It has the role of ``selectors.DefaultSelector``. On Linux it uses ``epoll`` directly, without the key objects that the selector
makes for all ready descriptors; elsewhere it is that selector.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import sys
from collections.abc import Callable
from typing import Final, Protocol

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

Call = Callable[[int], None]
"""Called with the events that are possible, of those that were registered: ``READ``, ``WRITE`` or both."""


class HasFileno(Protocol):
    """Something with a descriptor, like a socket."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Poller(Protocol):
    """The descriptors that are waited for."""

    def register(self, what: int | HasFileno, events: int, call: Call) -> None:
        """Wait for these events of a descriptor, too."""
        ...

    def modify(self, what: int | HasFileno, events: int) -> None:
        """Wait for other events of a descriptor."""
        ...

    def unregister(self, what: int | HasFileno) -> None:
        """Wait for a descriptor no longer.

        Raises:
            KeyError: It is not registered.
            ValueError: It is closed.
        """
        ...

    def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
        """Wait until a descriptor is ready or the time is over; returns what to call, and with which events."""
        ...

    def close(self) -> None:
        """Free what the system holds for it."""
        ...


def open_poller() -> Poller:
    """The fastest way to wait that this system has."""
    return _EpollPoller() if sys.platform == "linux" else _AnyPoller()


class _AnyPoller:
    """Waits with the standard library's selector."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, what: int | HasFileno, events: int, call: Call) -> None:
        self._selector.register(what, events, call)

    def modify(self, what: int | HasFileno, events: int) -> None:
        self._selector.modify(what, events, self._selector.get_key(what).data)

    def unregister(self, what: int | HasFileno) -> None:
        self._selector.unregister(what)

    def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
        return [(key.data, events) for key, events in self._selector.select(timeout_s)]

    def close(self) -> None:
        self._selector.close()


if sys.platform == "linux":

    class _EpollPoller:
        """Waits with ``epoll`` of Linux."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self._waiting: dict[int, tuple[Call, int]] = {}

        def register(self, what: int | HasFileno, events: int, call: Call) -> None:
            fd = _fd(what)
            self._epoll.register(fd, _to_epoll(events))
            self._waiting[fd] = (call, events)

        def modify(self, what: int | HasFileno, events: int) -> None:
            fd = _fd(what)
            call, _ = self._waiting[fd]
            self._epoll.modify(fd, _to_epoll(events))
            self._waiting[fd] = (call, events)

        def unregister(self, what: int | HasFileno) -> None:
            fd = _fd(what)
            del self._waiting[fd]
            with contextlib.suppress(OSError):  # closed by now: the kernel has forgotten it by itself
                self._epoll.unregister(fd)

        def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
            ready: list[tuple[Call, int]] = []
            for fd, found in self._epoll.poll(timeout_s):
                waiting = self._waiting.get(fd)
                if waiting is not None:
                    call, asked = waiting
                    ready.append((call, READ if found == select.EPOLLIN else _possible(found, asked)))
            return ready

        def close(self) -> None:
            self._epoll.close()
            self._waiting.clear()

    def _fd(what: int | HasFileno) -> int:
        """The number of a descriptor.

        Raises:
            ValueError: It is closed.
        """
        fd = what if isinstance(what, int) else what.fileno()
        if fd < 0:
            raise ValueError(f"invalid descriptor: {fd}")
        return fd

    def _to_epoll(events: int) -> int:
        return (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)

    def _possible(found: int, asked: int) -> int:
        """The registered events among those that the kernel found. A lost peer counts as ready: reading then shows the loss."""
        read = READ if found & ~select.EPOLLOUT else 0
        write = WRITE if found & ~select.EPOLLIN else 0
        return (read | write) & asked
