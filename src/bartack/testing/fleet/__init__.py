"""What a database does for nodes that take runs from it, without a database: for tests and simulations of many nodes.

- ``FleetFunctions``: the functions of the database, by which nodes join, claim, append and are declared dead;
- ``MemoryFleet``: they in memory, at a time that the caller decides;
- ``FleetContract``: what they promise, as tests that run on any implementation; PostgreSQL keeps it, too.

Read ``_functions.py`` first.
"""

from bartack.testing.fleet._contract import FleetContract
from bartack.testing.fleet._functions import Beat, FleetFunctions, KeptPlace, NodeForm, RunStanding
from bartack.testing.fleet._memory import MemoryFleet

__all__ = [
    "Beat",
    "FleetContract",
    "FleetFunctions",
    "KeptPlace",
    "MemoryFleet",
    "NodeForm",
    "RunStanding",
]
