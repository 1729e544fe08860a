"""The spool: one file per event, for when the database or the daemon cannot be reached; and the header that events travel with.

A file is written under ``spool/tmp``, synced and renamed into ``spool/new``; the next process imports it from there and removes it
after the commit. A crash between the two imports it again, and the event's id makes that harmless. The shim for hooks writes the
same format without importing this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from bartack.core import typed
from bartack.core.disk import FILE_MODE, RealDisk
from bartack.core.trust import make_private

MAGIC: Final = b"bartack-hook"
FORMAT: Final = b"1"
PATTERN_EVENT: Final = "pattern"
"""The event name of a pattern event that could not reach its database; hooks have names of their own."""


class Header(NamedTuple):
    """The first line of a spool file and of a frame to the daemon."""

    event: str
    received_ns: int
    cwd: str
    run: str = ""
    truncated: bool = False
    home: str = ""
    event_id: str = ""
    recipient: str = ""

    def encode(self) -> bytes:
        """The line, without its end."""
        words = [
            MAGIC.decode(),
            FORMAT.decode(),
            _quoted(self.event),
            str(self.received_ns),
            _quoted(self.cwd),
        ]
        named = (("run", self.run), ("dir", self.home), ("id", self.event_id), ("to", self.recipient))
        words += [f"{name}={_quoted(value)}" for name, value in named if value]
        return " ".join([*words, "truncated"] if self.truncated else words).encode("ascii")


def _quoted(text: str) -> str:
    # A path may hold any byte; an empty word would shift the others.
    return quote(os.fsencode(text), safe="/:._-") or "."


def parse_header(line: bytes) -> Header:
    """Read a header line.

    Raises:
        ValueError: It is none.
    """
    words = line.decode("ascii", "strict").split(" ")
    if len(words) < 5 or words[0].encode() != MAGIC or words[1].encode() != FORMAT:
        raise ValueError("not a header line")
    named = dict(word.split("=", 1) for word in words[5:] if "=" in word)
    return Header(
        event=_unquoted(words[2]),
        received_ns=int(words[3]),
        cwd=_unquoted(words[4]),
        run=_unquoted(named.get("run", "")),
        truncated="truncated" in words[5:],
        home=_unquoted(named.get("dir", "")),
        event_id=_unquoted(named.get("id", "")),
        recipient=_unquoted(named.get("to", "")),
    )


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def split_event(data: bytes) -> tuple[Header, bytes]:
    """Header and body of a spool file or a frame.

    Raises:
        ValueError: There is no header line, or its end is missing.
    """
    line, end, body = data.partition(b"\n")
    if not end:
        raise ValueError("the header line has no end")
    return parse_header(line), body


def hook_event_id(data: bytes) -> str:
    """The id of a hook event: of its tool call if it names one, else of its very bytes, header included."""
    header, body = split_event(data)
    call = _tool_call(body)
    named = call is not None
    basis = "\0".join((call[0], header.event, call[1])).encode("utf-8", "surrogatepass") if call else data
    digest = hashlib.sha256(b"call\0" + basis if named else b"bytes\0" + basis)
    return f"hk_{digest.hexdigest()[:32]}"


def _tool_call(body: bytes) -> tuple[str, str] | None:
    try:
        value = typed.decode(body, type=_HookIds)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    session = value.session_id or value.sessionId
    return (session, value.tool_use_id) if value.tool_use_id else None


class _HookIds(msgspec.Struct):
    session_id: str = ""
    sessionId: str = ""  # noqa: N815 - some versions of the agent spell it so
    tool_use_id: str = ""


class Spool:
    """The spool of one state home."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.home = Path(home)
        self._new = self.home / "spool" / "new"
        self._tmp = self.home / "spool" / "tmp"

    def put(self, header: Header, body: bytes) -> None:
        """Keep one event; durable when this returns.

        Raises:
            OSError: It cannot be written.
        """
        make_private(self._tmp)
        make_private(self._new)
        name = f"{header.received_ns}-{os.getpid()}-{os.urandom(4).hex()}.evt"
        temporary = self._tmp / name
        try:
            _write_synced(temporary, header.encode() + b"\n" + body)
            os.rename(temporary, self._new / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        RealDisk().sync_dir(str(self._new))

    def names(self) -> list[str]:
        """The events that wait, oldest first."""
        try:
            found = [name for name in os.listdir(self._new) if name.endswith(".evt")]
        except OSError:
            return []
        return sorted(found, key=_age_order)

    def read(self, name: str) -> bytes:
        """The content of one file."""
        return (self._new / name).read_bytes()

    def remove(self, name: str) -> None:
        """Forget an event that is in the database now."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._new / name)

    def quarantine(self, name: str) -> None:
        """Put a file aside that cannot be read."""
        put_file_aside(self.home, self._new / name)


def _age_order(name: str) -> tuple[int, str]:
    first = name.split("-", 1)[0]
    return (int(first) if first.isdigit() else 0, name)


def _write_synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        RealDisk().sync(fd)
    finally:
        os.close(fd)


def put_file_aside(home: Path, path: Path) -> None:
    """Move one unreadable file below ``quarantine``, where it blocks nothing."""
    aside = home / "quarantine"
    make_private(aside)
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside / f"{path.name[:200]}.{os.urandom(4).hex()}")
