"""Waiting for something to happen in a real run, without sleeping."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

from bartack.runtime import Run, Session
from bartack.runtime.rundir.layout import RunDir


def wait_for(
    where: Run | Session, event: str, *, count: int = 1, timeout_s: float = 30.0, **match: object
) -> list[dict[str, object]]:
    """Wait until something has happened in a run a number of times, from its beginning on.

    Args:
        where: The run, or a session of it.
        event: The kind of journal entry; ``*`` and ``?`` stand for any text and any character.
        count: How often.
        timeout_s: How long to wait.
        match: Fields that the entries must have.

    Returns:
        The entries, as objects.

    Raises:
        TimeoutError: It has not happened so often in time.
    """
    found: list[dict[str, object]] = []
    limit = time.monotonic() + timeout_s
    directory = where.dir if isinstance(where, Run) else where.dir.parent
    with RunDir(directory).open_reader() as reader:
        seen = 0
        while (left := limit - time.monotonic()) > 0:
            for entry in reader.follow(seen + 1, timeout_s=left):
                seen = entry.seq
                fields = entry.data
                if fnmatchcase(entry.kind, event) and all(fields.get(name) == match[name] for name in match):
                    found.append({"seq": entry.seq, "at": entry.at, "kind": entry.kind, **fields})
                if len(found) == count:
                    return found
                if time.monotonic() > limit:
                    break
    wanted = f"{event} {match}" if match else event
    raise TimeoutError(f"{wanted} happened {len(found)} of {count} times in {timeout_s:g} s")
