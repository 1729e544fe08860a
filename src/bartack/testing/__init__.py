"""What tests of Bartack, and of programs and engines built on it, need: fakes that keep the real contracts, and the contracts.

- ``VirtualClock``: time that moves only when told to.
- ``FaultyDisk``: a disk that can lose power after every operation and fail in every way a disk fails.
- ``CountingService``: a service for pattern events that is up, down, hangs or refuses as told.
- ``JournalContract``: what every journal engine must do; subclass it to check yours.
"""

from bartack.testing._clock import VirtualClock
from bartack.testing._disk import FaultyDisk, Operation, PowerCut
from bartack.testing._journal_contract import JournalContract
from bartack.testing._journal_harness import JournalEngine
from bartack.testing._platter import (
    SECTOR,
    Choose,
    Doubt,
    keep_everything,
    keep_nothing,
    keep_only,
    keep_some,
)
from bartack.testing._service import CountingService

__all__ = [
    "SECTOR",
    "Choose",
    "CountingService",
    "Doubt",
    "FaultyDisk",
    "JournalContract",
    "JournalEngine",
    "Operation",
    "PowerCut",
    "VirtualClock",
    "keep_everything",
    "keep_nothing",
    "keep_only",
    "keep_some",
]
