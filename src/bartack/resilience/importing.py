"""Taking into the database what was left outside of it: spool files, and readable copies without a row.

A file goes after its row is committed; a crash between the two imports it again, and the event's id makes that harmless. An
unreadable file is moved aside and blocks nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.redact import Redactor
from bartack.errors import OutboxFullError
from bartack.resilience.mirror import Mirror, Mirrored, encode_event, parse_object, read_mirrored
from bartack.resilience.outbox.outbox import Outbox, bump
from bartack.resilience.outbox.row import HOOK, PATTERN, NewEvent
from bartack.resilience.spool import PATTERN_EVENT, Spool, hook_event_id, put_file_aside, split_event

_log = logging.getLogger("bartack.resilience")
_PORTION: Final = 64
LOCAL: Final = "local"
"""The recipient of events that stay on this machine."""


class _Found(NamedTuple):
    name: str
    event: NewEvent | None


def hook_event(data: bytes, redactor: Redactor) -> NewEvent | None:
    """A hook's frame or spool file as a row; ``None`` for one without a body, which says nothing.

    Raises:
        ValueError: It has no header.
    """
    header, body = split_event(data)
    if header.event == PATTERN_EVENT:
        if parse_object(body) is None or not header.event_id:
            raise ValueError("not a pattern event")
        born = header.received_ns / 1e9
        return NewEvent(header.event_id, PATTERN, header.recipient, redactor.redact_bytes(body), born)
    if not body.strip():
        return None
    return NewEvent(hook_event_id(data), HOOK, LOCAL, redactor.redact_bytes(data), header.received_ns / 1e9)


def import_spool(outbox: Outbox, spool: Spool, redactor: Redactor) -> int:
    """Import every file of a spool into ``outbox``; how many events were new."""
    names = spool.names()
    return sum(
        _import_portion(outbox, spool, redactor, names[start : start + _PORTION])
        for start in range(0, len(names), _PORTION)
    )


def _import_portion(outbox: Outbox, spool: Spool, redactor: Redactor, names: list[str]) -> int:
    found = [one for name in names if (one := _read_spooled(spool, name, redactor)) is not None]
    events = [one.event for one in found if one.event is not None]
    empty = len(found) - len(events)
    new = (
        outbox.put(events, beside=lambda connection: bump(connection, "empty_hooks", empty)) if found else []
    )
    for one in found:
        spool.remove(one.name)
    return sum(new)


def _read_spooled(spool: Spool, name: str, redactor: Redactor) -> _Found | None:
    try:
        return _Found(name, hook_event(spool.read(name), redactor))
    except FileNotFoundError:  # another process was faster
        return None
    except (ValueError, OSError) as error:
        _log.warning("spool file %s cannot be read (%s); it is moved aside", name, error)
        spool.quarantine(name)
        return None


def import_files(outbox: Outbox, folder: Path, recipient: str) -> int:
    """Import readable copies that have no row, from any folder; how many events were new.

    In the outbox's own folder, copies of waiting rows stay and those of finished rows go.
    """
    paths = list(Mirror(folder).paths())  # before the rows are read: who writes a copy has committed its row
    own = folder.resolve() == outbox.store.directory.resolve()
    states = _states_by_name(outbox) if own and paths else {}
    new = 0
    for path in paths:
        state = states.get(path.name)
        if state is None:
            new += _import_file(outbox, path, recipient)
        elif state in {"delivered", "dead"}:
            _remove(path)
    return new


def _states_by_name(outbox: Outbox) -> dict[str, str]:
    query = "SELECT event_id,state FROM outbox WHERE kind=?"
    rows = outbox.store.read(lambda connection: connection.execute(query, (PATTERN,)).fetchall())
    return {outbox.mirror.path(event_id).name: state for event_id, state in rows}


def _import_file(outbox: Outbox, path: Path, recipient: str) -> bool:
    mirrored = _read_file(outbox, path)
    if mirrored is None:
        return False
    event = NewEvent(
        mirrored.event_id,
        PATTERN,
        recipient,
        encode_event(mirrored.event),
        mirrored.created_at,
        mirrored.retry_count,
    )
    try:
        new = outbox.put([event])[0]
    except OutboxFullError as error:
        _log.warning("event %s stays where it is: %s", mirrored.event_id, error)
        return False
    if path != outbox.mirror.path(mirrored.event_id):
        _remove(path)
    return new


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _read_file(outbox: Outbox, path: Path) -> Mirrored | None:
    try:
        return read_mirrored(path)
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        _log.warning("%s cannot be read (%s); it is moved aside", path, error)
        with contextlib.suppress(OSError):
            put_file_aside(outbox.store.directory, path)
        return None
