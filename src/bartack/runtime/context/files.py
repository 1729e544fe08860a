"""Files and other things a worker reads and writes by itself: harmless reads, and writes that are steps.

Relative paths are below the workspace, the directory in which the run was started.
"""

from __future__ import annotations

import datetime
import glob
import os
import stat
import uuid
from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from bartack.core import RealDisk, StateDir, is_secret_name, write_file, write_in_place
from bartack.errors import BartackError, FileAccessError
from bartack.runtime.protocol.steps import AppendIntent
from bartack.runtime.protocol.values import Buffer, Codec, codec, encode
from bartack.runtime.scheduler.body import FileOp
from bartack.runtime.scheduler.entropy import Entropy
from bartack.runtime.scheduler.operations import NoteOp

T = TypeVar("T")

Path = str | os.PathLike[str]

_TEXT: Final[Codec[str]] = codec(str)
_BYTES: Final[Codec[bytes]] = codec(bytes)
_FLAG: Final[Codec[bool]] = codec(bool)
_PATHS: Final[Codec[list[str]]] = codec(list[str])
_MAYBE: Final[Codec[str | None]] = codec(str | None)
_MOMENT: Final[Codec[datetime.datetime]] = codec(datetime.datetime)
_FRACTION: Final[Codec[float]] = codec(float)
_INTEGER: Final[Codec[int]] = codec(int)
_UUID: Final[Codec[uuid.UUID]] = codec(uuid.UUID)

_NEW_FILE: Final = 0o666
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class _Recorded(msgspec.Struct):
    offset: int | None = None


_decode_offset: Final = msgspec.json.Decoder(_Recorded).decode


class Files:
    """The files of a workspace, as steps."""

    def __init__(self, workspace: str, run_dir: str = "") -> None:
        self._workspace = workspace
        self._state_dir = StateDir(run_dir, workspace)
        self._umask = _read_umask()

    # Reading.

    def read(self, path: Path) -> NoteOp[str]:
        """The text of a file."""
        name = os.fspath(path)

        def run() -> str:
            try:
                return self._load(name).decode()
            except UnicodeDecodeError:
                raise FileAccessError(name, "it is not UTF-8 text") from None

        return _note("read", name, run, _TEXT)

    def read_bytes(self, path: Path) -> NoteOp[bytes]:
        """The content of a file."""
        name = os.fspath(path)
        return _note("read_bytes", name, lambda: self._load(name), _BYTES)

    def exists(self, path: Path) -> NoteOp[bool]:
        """Whether there is a file or directory."""
        name = os.fspath(path)
        return _note("exists", name, lambda: os.path.exists(self._path(name)), _FLAG)

    def list(self, pattern: str) -> NoteOp[list[str]]:
        """The paths that match a pattern, sorted; without the directory of the runs, unless the pattern names it."""

        def run() -> list[str]:
            matched = glob.glob(pattern, root_dir=self._workspace, recursive=True)
            found = sorted(self._state_dir.without(pattern, matched))
            for name in found:
                if not name.isascii():
                    _check_name(name)
            return found

        return _note("list", pattern, run, _PATHS)

    # Writing.

    def write(self, path: Path, value: object) -> FileOp:
        """Give a file new content, all of it or nothing."""
        name, content = os.fspath(path), content_of(value)
        return FileOp("write", _written(name, content), lambda _: self._replace(name, content), about=name)

    def append(self, path: Path, value: object) -> FileOp:
        """Add to the end of a file, once."""
        name, content = os.fspath(path), content_of(value)

        intent = AppendIntent(path=name, offset=0)

        def intend() -> bytes:
            nonlocal intent
            intent = AppendIntent(path=name, offset=self._size(name))
            return msgspec.json.encode(intent)

        def perform(answer: Buffer) -> None:
            # Of an append that was begun before, the hub knows where: what was written of it is written over.
            recorded = _decode_offset(answer).offset
            self._write_at(name, intent.offset if recorded is None else recorded, content)

        return FileOp("append", _written(name, content), perform, about=name, intend=intend)

    # Inside.

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

    def _load(self, name: str) -> bytes:
        def load() -> bytes:
            with open(self._path(name), "rb") as file:
                return file.read()

        return self._access(name, load)

    def _size(self, name: str) -> int:
        try:
            return self._access(name, lambda: os.stat(self._path(name)).st_size)
        except FileAccessError:
            return 0

    def _replace(self, name: str, content: bytes) -> None:
        def replace() -> None:
            target = os.path.realpath(self._path(name))
            _make_folder(os.path.dirname(target))
            write_file(target, content, mode=_NEW_FILE & ~self._umask)

        self._access(name, replace)

    def _write_at(self, name: str, offset: int, content: bytes) -> None:
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


def _note(step: str, name: str, run: Callable[[], object], kind: Codec[T]) -> NoteOp[T]:
    return NoteOp(step, encode(name), run, kind.decode, about=name)


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Not files, but read in the same way.


def env(name: str, default: str | None) -> NoteOp[str | None]:
    """A variable of the environment. The value of a secret is not recorded: replay reads it again."""
    if is_secret_name(name):
        return NoteOp(
            "env",
            encode([name, default]),
            lambda: f"$env:{name}",
            lambda _: os.environ.get(name, default),
            about=name,
        )
    return NoteOp(
        "env", encode([name, default]), lambda: os.environ.get(name, default), _MAYBE.decode, about=name
    )


def now(entropy: Entropy) -> NoteOp[datetime.datetime]:
    """The time, in UTC."""

    def run() -> datetime.datetime:
        return _EPOCH + datetime.timedelta(microseconds=entropy.now_us())

    return NoteOp("now", b"", run, _MOMENT.decode)


def new_uuid(entropy: Entropy) -> NoteOp[uuid.UUID]:
    """A random UUID."""
    return NoteOp("uuid", b"", lambda: uuid.UUID(bytes=entropy.random_bytes(16), version=4), _UUID.decode)


def fraction(entropy: Entropy) -> NoteOp[float]:
    """A random number from 0 up to, but not including, 1."""
    return NoteOp("random", b"", lambda: _random_bits(entropy, 53) / 2**53, _FRACTION.decode)


def integer(entropy: Entropy, first: int, last: int) -> NoteOp[int]:
    """A random integer, both ends included."""
    if first > last:
        raise ValueError(f"no integer is between {first} and {last}")
    return NoteOp(
        "random",
        encode([first, last]),
        lambda: first + _random_below(entropy, last - first + 1),
        _INTEGER.decode,
    )


def _random_bits(entropy: Entropy, bits: int) -> int:
    size = (bits + 7) // 8
    return int.from_bytes(entropy.random_bytes(size), "big") >> (size * 8 - bits)


def _random_below(entropy: Entropy, limit: int) -> int:
    bits = limit.bit_length()
    while (drawn := _random_bits(entropy, bits)) >= limit:
        pass
    return drawn
