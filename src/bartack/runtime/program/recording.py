"""Recorded runs as they are found on a disk: the directory of a run, a bundle of one, or a directory with many of them.

A recording is only read. Nothing here opens a lock or writes a file, so a recording can be in a read-only place, can belong to
a run that is active, and can have come from another machine.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from bartack.core import typed
from bartack.errors import RecordingError
from bartack.journal import BlobRef, Blobs, Entry, JournalReader
from bartack.journal.veil import Veil
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_links

BUNDLES: Final = (".tar.gz", ".tgz")
BUNDLED_JOURNAL: Final = "journal.ndjson"
"""The name of the journal in a bundle."""
_NOT_A_BUNDLE: Final = "it is not a bundle of 'bartack bundle'"


class Recording(Protocol):
    """The journal of a run, to be read."""

    def read(self) -> Iterator[Entry]:
        """The entries, in order."""
        ...

    def put(self, content: bytes) -> BlobRef:
        """Is never called: a recording is not changed."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """A long value."""
        ...


def find_recordings(place: Path) -> list[Path]:
    """The recordings that a path stands for: itself, or every run and every bundle below a directory, sorted by name.

    Raises:
        RecordingError: There is none: a check of nothing must not succeed.
    """
    if not place.is_dir():
        if not place.is_file():
            raise RecordingError(str(place), "there is no such file or directory")
        return [place]
    found = list(_below(place))
    if not found:
        raise RecordingError(str(place), "it has no run and no bundle in it")
    return found


def _below(place: Path) -> Iterator[Path]:
    if RunDir(place).exists():
        yield place
        return
    for name in sorted(os.listdir(place)):
        inside = place / name
        if name.startswith(".") or inside.is_symlink():
            continue
        if inside.is_dir():
            yield from _below(inside)
        elif name.endswith(BUNDLES):
            yield inside


@contextmanager
def open_recording(place: Path, veil: Veil | None = None, *, checked: bool = False) -> Generator[Recording]:
    """Open the directory of a run, or a bundle. Without a veil, values have the names of secrets in their place.

    Args:
        place: The directory, or the bundle.
        veil: Puts the secrets back.
        checked: The caller's parent has checked that no link is in the directory. The user of a run that is executed as another
            user cannot list it.

    Raises:
        RecordingError: It is a bundle that cannot be replayed.
        JournalError: The journal is missing or damaged.
        UntrustedError: A symbolic link is in the place of a file of the run.
    """
    if not place.is_dir():
        yield _Bundle(place)
        return
    run = RunDir(place)
    if not checked:
        check_links(run)
    with run.open_reader(veil=veil) as reader:
        yield _Directory(reader, run.open_blobs(veil=veil))


class _Directory:
    def __init__(self, reader: JournalReader, blobs: Blobs) -> None:
        self._reader = reader
        self.get = blobs.get

    def read(self) -> Iterator[Entry]:
        return self._reader.read()

    def put(self, content: bytes) -> BlobRef:
        raise AssertionError("a recording is not changed")


class _Line(msgspec.Struct):
    """One entry in a bundle; its value is there if the bundle was made with values."""

    seq: int = 0
    commit: int = 0
    at: int = 0
    kind: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_size: int = 0
    error: str = ""
    message: str = ""


class _Bundle:
    """The journal in a bundle, which has all values in its lines."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        decode = typed.decoder(_Line).decode
        try:
            self._entries = [self._entry(decode(line)) for line in _journal_lines(file)]
        except (tarfile.TarError, zlib.error, EOFError, OSError, msgspec.DecodeError) as error:
            raise RecordingError(self._file, f"{_NOT_A_BUNDLE} ({error})") from None
        if not self._entries:
            raise RecordingError(self._file, "its journal is empty")

    def _entry(self, line: _Line) -> Entry:
        if line.error:
            raise RecordingError(self._file, f"its journal is damaged: {line.message}")
        if line.value is msgspec.UNSET and line.value_size:
            raise RecordingError(
                self._file, "it was made without values; make it with 'bartack bundle RUN --prompts'"
            )
        value = None if isinstance(line.value, msgspec.UnsetType) else line.value
        return Entry(line.seq, line.commit, line.at, line.kind, line.data, value)

    def read(self) -> Iterator[Entry]:
        return iter(self._entries)

    def put(self, content: bytes) -> BlobRef:
        raise AssertionError("a recording is not changed")

    def get(self, ref: BlobRef) -> bytes:
        raise RecordingError(self._file, f"it lacks the value {ref.sha256}")


def _journal_lines(file: Path) -> Iterator[bytes]:
    """The lines of the journal in an archive. Nothing is unpacked."""
    with tarfile.open(file, "r:gz") as archive:
        for member in archive:
            if (
                member.isfile()
                and member.name.count("/") == 1
                and member.name.endswith(f"/{BUNDLED_JOURNAL}")
            ):
                content = archive.extractfile(member)
                assert content is not None
                yield from content
                return
    raise RecordingError(str(file), _NOT_A_BUNDLE)
