"""Links and sessions: who has entered. They live in the memory of the server only, as hashes, and end with it.

A link carries a code that works once and for a minute. A browser exchanges it for a session, which its cookie stands for.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from bartack.errors import WebEnterError, WebRefusedError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

COOKIE: Final = "__Host-bartack"
CODE_S: Final = 60.0
"""How long a link works."""
SESSION_LIMIT: Final = 32
"""Sessions at a time; one more ends the one that was not used for longest."""
CODE_LIMIT: Final = 32
"""Links at a time that are not used yet; one more ends the oldest."""
STREAM_LIMIT: Final = 16
"""Streams of events that one session may have open."""
WRONG_LIMIT: Final = 20
"""Wrong codes within ``WRONG_S``; then no code is taken until the first of them is older."""
WRONG_S: Final = 60.0

_SESSION: Final = "bartack.session"
_CODE_BYTES: Final = 16
_TOKEN_BYTES: Final = 32


class Session:
    """A browser that has entered.

    Attributes:
        csrf: What every POST of this session has to carry, as the form field ``csrf`` or the header ``X-CSRF-Token``.
        ended: Set when the browser has signed out or the server stops: streams of events end then.
    """

    def __init__(self) -> None:
        self.csrf = secrets.token_urlsafe(_CODE_BYTES)
        self.ended = asyncio.Event()
        self._streams = 0

    @contextmanager
    def stream(self) -> Generator[None]:
        """One of the session's streams of events, while it is open.

        Raises:
            WebRefusedError: It has too many already.
        """
        if self._streams >= STREAM_LIMIT:
            raise WebRefusedError(f"{STREAM_LIMIT} streams of this session are open already", status=503)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


class Entered(NamedTuple):
    """What a browser gets for a link: the value of its cookie, and the address of the first page."""

    token: str
    to: str


class _Code(NamedTuple):
    until: float
    to: str


class Sessions:
    """The links and sessions of a server.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Code] = {}
        self._sessions: dict[str, Session] = {}
        self._wrong: deque[float] = deque()

    def new_code(self, to: str = "/") -> str:
        """A code for a link that leads to this address."""
        now = self._clock()
        self._codes = {digest: code for digest, code in self._codes.items() if code.until > now}
        while len(self._codes) >= CODE_LIMIT:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(_CODE_BYTES)
        self._codes[_digest(code)] = _Code(now + CODE_S, to)
        return code

    def enter(self, code: str) -> Entered:
        """Exchange a code for a session.

        Raises:
            WebEnterError: The code is wrong, was used or is too old.
            WebRefusedError: Too many wrong ones were tried.
        """
        now = self._clock()
        while self._wrong and self._wrong[0] <= now - WRONG_S:
            self._wrong.popleft()
        if len(self._wrong) >= WRONG_LIMIT:
            raise WebRefusedError("too many wrong links were tried; wait a minute", status=503)
        found = self._codes.pop(_digest(code), None)
        if found is None or found.until <= now:
            self._wrong.append(now)
            raise WebEnterError("the link was used already, is older than a minute, or is not complete")
        while len(self._sessions) >= SESSION_LIMIT:
            self._end(next(iter(self._sessions)))
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_digest(token)] = Session()
        return Entered(token, found.to)

    def find(self, token: str) -> Session | None:
        """The session that a cookie stands for; it counts as used."""
        digest = _digest(token)
        session = self._sessions.pop(digest, None)
        if session is not None:
            self._sessions[digest] = session
        return session

    def leave(self, token: str) -> None:
        """End the session that a cookie stands for, and its streams."""
        self._end(_digest(token))

    def close(self) -> None:
        """End all sessions."""
        for digest in list(self._sessions):
            self._end(digest)

    def _end(self, digest: str) -> None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            session.ended.set()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def session_of(connection: HTTPConnection) -> Session:
    """The session that a request belongs to; the guard has found it by its cookie."""
    session = find_session(connection)
    assert session is not None, "the guard lets nothing pass without a session that needs one"
    return session


def find_session(connection: HTTPConnection) -> Session | None:
    """The session that a request belongs to, where it may have none: the page to enter, and refusals."""
    return cast("Session | None", connection.scope.get(_SESSION))


def keep_session(connection: HTTPConnection, session: Session) -> None:
    """Let ``session_of`` find the session of a request."""
    connection.scope[_SESSION] = session
