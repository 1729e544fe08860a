"""Readable copies of waiting events: ``pending_<event id>.json`` beside the database.

The row is the truth; a copy is written after the commit and may be missing after a crash. A file without a row is an event that
another program has put there: it is imported, never ignored. Failing to write a copy is not worth failing anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import quote

import msgspec

from bartack.core.disk import FILE_MODE

_log = logging.getLogger("bartack.resilience")
_PREFIX: Final = "pending_"
_SUFFIX: Final = ".json"
_LONGEST: Final = 200


class Mirrored(NamedTuple):
    """What a readable copy says."""

    event_id: str
    created_at: float
    event: dict[str, object]
    retry_count: int = 0
    last_retry: float | None = None


class Mirror:
    """The readable copies in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, event_id: str) -> Path:
        """Where the copy of an event is."""
        return self.directory / f"{_PREFIX}{file_name(event_id)}{_SUFFIX}"

    def write(self, mirrored: Mirrored) -> None:
        """Write or replace a copy."""
        path = self.path(mirrored.event_id)
        temporary = self.directory / f".{os.urandom(8).hex()}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with open(fd, "wb") as file:
                file.write(_encode(mirrored))
            os.rename(temporary, path)
        except OSError as error:
            _log.debug("no readable copy of %s: %s", mirrored.event_id, error)
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def remove(self, event_id: str) -> None:
        """Remove a copy; there may be none."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(event_id))

    def paths(self, directory: Path | None = None) -> Iterator[Path]:
        """Every copy, in the order of their names."""
        folder = directory or self.directory
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                    yield folder / name


def read_mirrored(path: Path) -> Mirrored:
    """Read a copy; its age is the greater of what it says and what the file system says.

    Raises:
        ValueError: It is not what such a file holds.
        OSError: It cannot be read.
    """
    written = path.stat().st_mtime
    value = parse_object(path.read_bytes())
    if value is None:
        raise ValueError("no JSON object")
    event = value.get("event_data")
    event_id = value.get("event_id")
    if not isinstance(event, dict) or not isinstance(event_id, str) or not event_id:
        raise ValueError("event_id or event_data is missing")
    count = value.get("retry_count")
    said = _seconds(value.get("timestamp"))
    return Mirrored(
        event_id,
        written if said is None else min(written, said),
        cast("dict[str, object]", event),
        count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else 0,
        _seconds(value.get("last_retry")),
    )


def parse_object(data: bytes) -> dict[str, object] | None:
    """A JSON object in strict UTF-8, or ``None``."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def encode_event(event: Mapping[str, object]) -> bytes:
    """An event as JSON. What JSON has no form for becomes text; nothing is refused."""
    try:
        return msgspec.json.encode(event, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        import json  # noqa: PLC0415 - for values that only the standard library takes

        return json.dumps(event, default=str, ensure_ascii=False, skipkeys=True).encode("utf-8", "replace")


def file_name(event_id: str) -> str:
    """An event id as part of a file name: every id has one, and no two have the same."""
    encoded = quote(event_id.encode("utf-8", "surrogatepass"), safe=":")
    encoded = encoded.replace("~", "%7E")
    if len(encoded) <= _LONGEST:
        return encoded
    digest = hashlib.sha256(encoded.encode("ascii")).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 17]}-{digest}"


def iso(seconds: float | None) -> str | None:
    """A time for people, with its zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        with contextlib.suppress(ValueError, OverflowError):
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.astimezone()).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _encode(mirrored: Mirrored) -> bytes:
    shown = {
        "event_id": mirrored.event_id,
        "timestamp": iso(mirrored.created_at),
        "event_type": mirrored.event.get("event_type", "unknown"),
        "pattern_id": mirrored.event.get("pattern_id", "unknown"),
        "event_data": mirrored.event,
        "retry_count": mirrored.retry_count,
        "last_retry": iso(mirrored.last_retry),
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"
