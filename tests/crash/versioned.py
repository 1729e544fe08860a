"""Be another version of Bartack: ``python versioned.py KNOWS READS WORD...`` is ``bartack WORD...`` of that version.

Its programs know the schema of a database up to the version KNOWS, and read journals up to the level READS. Everything else is as
it is here, so the schema that it knows must have what nodes of today use.
"""

from __future__ import annotations

import sys

from bartack.depot import taken
from bartack.depot.postgres import _schema


def become(knows: int, reads: int) -> None:
    """Make this process one of that version."""
    for module, name, value in ((_schema, "VERSION", knows), (taken, "READS", reads)):
        setattr(module, name, value)
    taken.FleetFacts.__new__.__defaults__ = (*(taken.FleetFacts.__new__.__defaults__ or ())[:-1], reads)


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]))
    from bartack.cli import main  # what it imports has to find the other version

    sys.exit(main(sys.argv[3:]))
