"""What the loop of a hub waits with: descriptors, and what is called when one of them is ready.

It has the role of ``selectors.DefaultSelector``, without the keys that one makes of everybody who is ready: on Linux it asks the
kernel itself. Everywhere else it is that selector.
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
"""Gets what is possible, of what was asked for: ``READ``, ``WRITE`` or both."""


class HasFileno(Protocol):
    """Something with a descriptor, like a socket."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Poller(Protocol):
    """Who is waited for."""

    def register(self, what: int | HasFileno, events: int, call: Call) -> None:
        """Wait for these events of somebody, too."""
        ...

    def modify(self, what: int | HasFileno, events: int) -> None:
        """Wait for other events of somebody."""
        ...

    def unregister(self, what: int | HasFileno) -> None:
        """Wait for somebody no longer.

        Raises:
            KeyError: Nobody waits for him.
            ValueError: He has no descriptor any more.
        """
        ...

    def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
        """Whom to call, and with what: those who are ready now or, if there is nobody, as soon as somebody is."""
        ...

    def close(self) -> None:
        """Wait for nobody any more."""
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
        """The descriptor of somebody.

        Raises:
            ValueError: He has none any more.
        """
        fd = what if isinstance(what, int) else what.fileno()
        if fd < 0:
            raise ValueError(f"invalid descriptor: {fd}")
        return fd

    def _to_epoll(events: int) -> int:
        return (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)

    def _possible(found: int, asked: int) -> int:
        """What the kernel has found, of what was asked for. A peer that is gone can be read and written: that tells it."""
        read = READ if found & ~select.EPOLLOUT else 0
        write = WRITE if found & ~select.EPOLLIN else 0
        return (read | write) & asked
