"""What tests of Bartack, and of programs and engines built on it, need: fakes that keep the real contracts, and the contracts.

- ``run_worker`` and ``start_worker``: a whole run in memory, to its end or step by step.
- ``assert_survives_crashes``: a program is killed everywhere and must come to the same end.
- ``assert_replays``: today's code still fits the journal of an earlier run.
- ``wait_for``: until something has happened in a real run.
- ``VirtualClock``: time that moves only on request.
- ``FaultyDisk``: a disk that can lose power after every operation and fail in every way a disk fails.
- ``CountingService``: a service for pattern events that is up, down, hangs or refuses, as a test demands.
- ``JournalContract``: what every journal engine must do; subclass it to check yours.

Read ``_run.py`` (runs in memory), ``_disk.py`` (a disk that fails), ``_journal_contract.py`` (what every engine has to pass).
"""

from bartack.agents import ScriptedAgent
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
from bartack.testing._run import SentMessage, TestRun, run_worker, start_worker
from bartack.testing._run_crashes import assert_replays, assert_survives_crashes
from bartack.testing._run_wait import wait_for
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
    "ScriptedAgent",
    "SentMessage",
    "TestRun",
    "VirtualClock",
    "assert_replays",
    "assert_survives_crashes",
    "keep_everything",
    "keep_nothing",
    "keep_only",
    "keep_some",
    "run_worker",
    "start_worker",
    "wait_for",
]
