"""The members of ``ctx`` for files and variables of the environment: harmless reads, and writes that are steps.

Relative paths are below the workspace, the directory in which the run was started. ``scheduler/bodies.py`` performs the writes.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from bartack.core import typed
from bartack.core.disk import RealDisk
from bartack.core.files import write_file, write_in_place
from bartack.core.redact import is_secret_name
from bartack.core.state_dir import StateDir
from bartack.errors import BartackError, FileAccessError
from bartack.runtime.context.part import Members
from bartack.runtime.protocol.steps import AppendIntent
from bartack.runtime.protocol.values import Buffer, Codec, codec, encode
from bartack.runtime.scheduler.body import FileOp
from bartack.runtime.scheduler.operations import NoteOp
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")

Path = str | os.PathLike[str]

_TEXT: Final[Codec[str]] = codec(str)
_BYTES: Final[Codec[bytes]] = codec(bytes)
_FLAG: Final[Codec[bool]] = codec(bool)
_PATHS: Final[Codec[list[str]]] = codec(list[str])
_MAYBE: Final[Codec[str | None]] = codec(str | None)

_NEW_FILE: Final = 0o666


class _Recorded(msgspec.Struct):
    offset: int | None = None


_decode_offset: Final = typed.decoder(_Recorded).decode


class FileMembers(Members):
    """Files and variables of the environment."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._files = _Workspace(scheduler.facts.workspace, scheduler.facts.run_dir)

    def read(self, path: Path) -> NoteOp[str]:
        """The text of a file.

        Raises:
            FileAccessError: It cannot be read, or is not UTF-8 text.
        """
        name = os.fspath(path)

        def run() -> str:
            try:
                return self._files.load(name).decode()
            except UnicodeDecodeError:
                raise FileAccessError(name, "it is not UTF-8 text") from None

        return self._note("read", name, run, _TEXT)

    def read_bytes(self, path: Path) -> NoteOp[bytes]:
        """The content of a file.

        Raises:
            FileAccessError: It cannot be read.
        """
        name = os.fspath(path)
        return self._note("read_bytes", name, lambda: self._files.load(name), _BYTES)

    def exists(self, path: Path) -> NoteOp[bool]:
        """Whether there is a file or directory."""
        name = os.fspath(path)
        return self._note("exists", name, lambda: self._files.exists(name), _FLAG)

    def list(self, pattern: str) -> NoteOp[list[str]]:
        """The paths that match a pattern, sorted; ``**`` matches any number of directories.

        The directory of the runs is left out, unless the pattern names it.
        """
        return self._note("list", pattern, lambda: self._files.list(pattern), _PATHS)

    def env(self, name: str, default: str | None = None) -> NoteOp[str | None]:
        """A variable of the environment. The value of a secret is never recorded: replay reads it again."""
        self._scheduler.check_here("ctx.env")
        written = encode([name, default])
        if is_secret_name(name):
            return NoteOp(
                "env", written, lambda: f"$env:{name}", lambda _: os.environ.get(name, default), about=name
            )
        return NoteOp("env", written, lambda: os.environ.get(name, default), _MAYBE.decode, about=name)

    def write(self, path: Path, value: object) -> FileOp:
        """Give a file new content: text and bytes as they are, other values as JSON. All of it is there, or nothing.

        Raises:
            FileAccessError: It cannot be written.
        """
        self._scheduler.check_here("ctx.write")
        name, content = os.fspath(path), content_of(value)
        return FileOp(
            "write", _written(name, content), lambda _: self._files.replace(name, content), about=name
        )

    def append(self, path: Path, value: object) -> FileOp:
        """Add to the end of a file, once, whatever happens.

        Raises:
            FileAccessError: It cannot be written.
        """
        self._scheduler.check_here("ctx.append")
        name, content = os.fspath(path), content_of(value)

        intent = AppendIntent(path=name, offset=0)

        def intend() -> bytes:
            nonlocal intent
            intent = AppendIntent(path=name, offset=self._files.size(name))
            return msgspec.json.encode(intent)

        def perform(answer: Buffer) -> None:
            # The hub knows where an append was begun before: what was written of it is written over.
            recorded = _decode_offset(answer).offset
            self._files.write_at(name, intent.offset if recorded is None else recorded, content)

        return FileOp("append", _written(name, content), perform, about=name, intend=intend)

    def _note(self, step: str, name: str, run: Callable[[], object], kind: Codec[T]) -> NoteOp[T]:
        self._scheduler.check_here(f"ctx.{step}")
        return NoteOp(step, encode(name), run, kind.decode, about=name)


class _Workspace:
    """Reads and writes the files of a workspace."""

    def __init__(self, workspace: str, run_dir: str) -> None:
        self._workspace = workspace
        self._state_dir = StateDir(run_dir, workspace)
        self._umask = _read_umask()

    def exists(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def list(self, pattern: str) -> list[str]:
        matched = glob.glob(pattern, root_dir=self._workspace, recursive=True)
        found = sorted(self._state_dir.without(pattern, matched))
        for name in found:
            if not name.isascii():
                _check_name(name)
        return found

    def _path(self, name: str) -> str:
        return os.path.join(self._workspace, name)

    def _access(self, name: str, do: Callable[[], T]) -> T:
        if "\0" in name:  # the message differs between versions of Python
            raise FileAccessError(name, "its name has a NUL character in it")
        try:
            return do()
        except (OSError, ValueError) as error:
            if isinstance(error, BartackError):
                raise
            reason = getattr(error, "strerror", None) or str(error)
            raise FileAccessError(name, reason + self._state_dir.note(name)) from None

    def load(self, name: str) -> bytes:
        def load() -> bytes:
            with open(self._path(name), "rb") as file:
                return file.read()

        return self._access(name, load)

    def size(self, name: str) -> int:
        try:
            return self._access(name, lambda: os.stat(self._path(name)).st_size)
        except FileAccessError:
            return 0

    def replace(self, name: str, content: bytes) -> None:
        def replace() -> None:
            target = os.path.realpath(self._path(name))
            _make_folder(os.path.dirname(target))
            write_file(target, content, mode=_NEW_FILE & ~self._umask)

        self._access(name, replace)

    def write_at(self, name: str, offset: int, content: bytes) -> None:
        target = self._path(name)

        def write() -> None:
            _make_folder(os.path.dirname(target))
            if not _is_regular(target):
                write_in_place(target, content)
                return
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _NEW_FILE)
            try:
                _write_all(fd, content, offset)
                os.fsync(fd)
            finally:
                os.close(fd)
            if not offset:
                # It may be new, and then its name is not durable yet.
                RealDisk().sync_dir(os.path.dirname(target))

        self._access(name, write)


def _is_regular(path: str) -> bool:
    """Whether a path is a regular file, or will be one once it is made."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


def _make_folder(path: str) -> None:
    """Make a directory and the missing ones above it, as durable as the file that will be in it."""
    missing = path
    made: list[str] = []
    while missing and not os.path.lexists(missing):
        missing = os.path.dirname(missing)
        made.append(missing)
    if made:
        os.makedirs(path, exist_ok=True)
        for parent in made:
            RealDisk().sync_dir(parent)


def _write_all(fd: int, content: bytes, offset: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(fd, content[written:], offset + written)


def content_of(value: object) -> bytes:
    """What a file gets: text and bytes as they are, anything else as readable JSON.

    Raises:
        MessageValueError: The value cannot be written.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def _check_name(name: str) -> None:
    """Refuse the name of a file that cannot be passed to a program."""
    shown = os.fsencode(name).decode(errors="replace")
    if shown != name:
        raise FileAccessError(shown, "its name is not UTF-8")


def _written(name: str, content: bytes) -> bytes:
    return encode([name, sha256(content).hexdigest()])


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
