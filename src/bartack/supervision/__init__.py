"""Process trees: everything a run starts can be named, stopped and ended for certain, whoever is killed.

``ParentClient`` starts and talks to a parent program, which starts the processes of a run and outlives none of them.
``kill_tree``, ``kill_descendants`` and ``find_by_environment`` end what is left when a parent program itself was killed.
"""

from bartack.supervision._client import KEEPER, ParentClient
from bartack.supervision._facts import ProcessFacts, ProcessId
from bartack.supervision._lock import take_tree_lock
from bartack.supervision._parent import run_parent
from bartack.supervision._system import system
from bartack.supervision._tree import descendants, find_by_environment, kill_descendants, kill_tree
from bartack.supervision._wire import (
    Exited,
    Gone,
    ParentDied,
    ParentEvent,
    ParentReady,
    Started,
    StartFailed,
)

read_environment = system.read_environment
read_facts = system.read_facts
set_death_signal = system.set_death_signal
set_subreaper = system.set_subreaper

__all__ = [
    "KEEPER",
    "Exited",
    "Gone",
    "ParentClient",
    "ParentDied",
    "ParentEvent",
    "ParentReady",
    "ProcessFacts",
    "ProcessId",
    "StartFailed",
    "Started",
    "descendants",
    "find_by_environment",
    "kill_descendants",
    "kill_tree",
    "read_environment",
    "read_facts",
    "run_parent",
    "set_death_signal",
    "set_subreaper",
    "take_tree_lock",
]
