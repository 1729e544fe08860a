"""Be another version of Bartack: ``python versioned.py KNOWS READS WORD...`` is ``bartack WORD...`` of that version.

Its programs know the schema of a database up to the version KNOWS, and read journals up to the level READS. Everything else is as
it is here, except the one statement that versions before 8 of the schema have another form of.
"""

from __future__ import annotations

import sys
from typing import Any

from bartack.depot import taken
from bartack.depot.postgres import _schema
from bartack.depot.postgres._database import Session

WITH_TIMES = 8
"""The first version of the schema in which a run may be queued for a later time."""
ENQUEUE = "SELECT bartack.enqueue(%s, %s, %s, %s, %s)"
_rows = Session.rows


def _older_rows(session: Session, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """See ``Session.rows``."""
    if statement == ENQUEUE:
        return _rows(session, "SELECT bartack.enqueue(%s, %s, %s, %s)", *values[:-1])
    return _rows(session, statement, *values)


def become(knows: int, reads: int) -> None:
    """Make this process one of that version."""
    for module, name, value in ((_schema, "VERSION", knows), (taken, "READS", reads)):
        setattr(module, name, value)
    taken.FleetFacts.__new__.__defaults__ = (*(taken.FleetFacts.__new__.__defaults__ or ())[:-1], reads)
    if knows < WITH_TIMES:
        setattr(Session, _rows.__name__, _older_rows)


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]))
    from bartack.cli import main  # what it imports has to find the other version

    sys.exit(main(sys.argv[3:]))
