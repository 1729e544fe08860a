"""Export of journal entries as JSON lines, and output files that appear only when they are complete."""

from __future__ import annotations

import base64
import os
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import msgspec

from bartack.core import typed
from bartack.core.disk import RealDisk
from bartack.core.files import naming
from bartack.errors import UsageError
from bartack.journal import Entry

_as_raw = typed.decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct, omit_defaults=True):
    seq: int
    commit: int
    at: int
    kind: str
    data: msgspec.Raw
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    blob: object = None


def encode_entry(entry: Entry, value: bytes | None) -> bytes:
    """Encode one entry as a line of JSON.

    The payload is the field ``value``, or ``value_base64`` if it is not JSON. A blob that was not loaded is the field ``blob``:
    its checksum and size.
    """
    line = _Line(entry.seq, entry.commit, entry.at, entry.kind, entry.raw)
    if value is not None:
        _put_value(line, value)
    elif entry.ref is not None:
        line.blob = entry.ref
    return _encode(line) + b"\n"


def _put_value(line: _Line, value: bytes) -> None:
    try:
        # A blob can be JSON with line breaks, which a line must not contain.
        line.value = _as_raw(msgspec.json.format(value, indent=-1) if b"\n" in value else value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        line.value_base64 = base64.b64encode(value).decode()


@contextmanager
def open_output(path: str | None, *, beside: str) -> Generator[BinaryIO]:
    """Open the destination of an export: stdout, a device or pipe, or a file that appears, durably, when it is complete.

    Args:
        path: The file; ``None`` or ``-`` means stdout.
        beside: The exported journal, which must not be overwritten.
    """
    if path is None or path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if os.path.exists(path):
        if os.path.samefile(path, beside):
            raise UsageError("bartack journal export", f"{path} is the journal itself")
        if not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "wb") as stream:
                yield stream
            return
    with _replacing(path) as stream:
        yield stream


@contextmanager
def _replacing(path: str) -> Generator[BinaryIO]:
    directory = os.path.dirname(os.path.realpath(path))
    disk = RealDisk()
    with naming(path):
        fd, temporary = tempfile.mkstemp(dir=directory, prefix=".export-", suffix=".tmp")
    try:
        with open(fd, "wb") as stream:
            yield stream
            stream.flush()
            disk.sync(stream.fileno())
        disk.rename(temporary, os.path.realpath(path))
    except BaseException:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.sync_dir(directory)
