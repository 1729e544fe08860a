"""What tests of Bartack, and of programs and engines built on it, need: fakes that keep the real contracts, and the contracts.

- ``run_worker`` and ``start_worker``: a whole run in memory, to its end or step by step.
- ``assert_survives_crashes``: a program is killed everywhere and must come to the same end.
- ``assert_replays``: today's code still fits the journal of an earlier run.
- ``wait_for``: until something has happened in a real run.
- ``VirtualClock``: time that moves only on request.
- ``FaultyDisk``: a disk that can lose power after every operation and fail in every way a disk fails.
- ``Cable``: the way between a client and a server, which can be cut, slow or silent.
- ``CountingService``: a service for pattern events that is up, down, hangs or refuses, as a test demands.
- ``ModelServer``: a model server that answers real agents (Claude Code, Codex, others) from scripts.
- ``ClaudeSandbox``: a place for these real agents, without a trace of the user, without a network, with nothing left running.
- ``JournalContract``: what every journal engine must do; subclass it to check yours.
- ``AgentContract``: what every kind of agents must do; likewise.
- ``DepotContract``: what every depot must do; likewise.

Folders: ``fleet/`` (what a database does for nodes, with a door of its own), ``runs/`` (runs in memory), ``model/`` (the model
server), ``sandbox/`` (where real agents run). Read ``runs/_run.py``, ``disk.py`` (a disk that fails), ``_journal_contract.py``
(what every engine has to pass), ``model/_director.py`` (how a model server chooses its replies).
"""

from bartack.agents import ScriptedAgent
from bartack.testing._agent_contract import AgentContract
from bartack.testing._agent_harness import AgentEngine, Behaviour
from bartack.testing._cable import Cable
from bartack.testing._clock import VirtualClock
from bartack.testing._depot_contract import DepotContract
from bartack.testing._journal_contract import JournalContract
from bartack.testing._journal_harness import JournalEngine
from bartack.testing._service import CountingService
from bartack.testing.disk import FaultyDisk, PowerCut
from bartack.testing.model._conversation import ToolResult
from bartack.testing.model._hold import Hold
from bartack.testing.model._record import ModelRequest
from bartack.testing.model._script import TokenUsage
from bartack.testing.model._server import ModelServer
from bartack.testing.runs._crashes import assert_replays, assert_survives_crashes
from bartack.testing.runs._run import SentMessage, TestRun, run_worker, start_worker
from bartack.testing.runs._wait import wait_for
from bartack.testing.sandbox._programs import find_program
from bartack.testing.sandbox._sandbox import ClaudeSandbox

__all__ = [
    "AgentContract",
    "AgentEngine",
    "Behaviour",
    "Cable",
    "ClaudeSandbox",
    "CountingService",
    "DepotContract",
    "FaultyDisk",
    "Hold",
    "JournalContract",
    "JournalEngine",
    "ModelRequest",
    "ModelServer",
    "PowerCut",
    "ScriptedAgent",
    "SentMessage",
    "TestRun",
    "TokenUsage",
    "ToolResult",
    "VirtualClock",
    "assert_replays",
    "assert_survives_crashes",
    "find_program",
    "run_worker",
    "start_worker",
    "wait_for",
]
