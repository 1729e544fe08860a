"""For tests of programs: runs in memory, and replays that execute nothing. ``bartack.testing`` is what tests use."""

from bartack.runtime._apply import apply_all
from bartack.runtime._calls import Worker, WorkerCall
from bartack.runtime._child import load_worker
from bartack.runtime._effects import ShellEnd
from bartack.runtime._entries import (
    EntryData,
    MessagesDrained,
    MessageSent,
    MessageTaken,
    Output,
    StepFailed,
    StepFinished,
    ToolFailed,
    ToolFinished,
    decode_entry,
)
from bartack.runtime._frames import Begin, Done, Frame, Note, Out, Returned, Step
from bartack.runtime._inquiry import Inquiry
from bartack.runtime._inspection import probe
from bartack.runtime._layout import RunDir
from bartack.runtime._memory_hub import KilledError
from bartack.runtime._memory_run import MemoryRun, MovableClock
from bartack.runtime._pinning import pin, read_sources
from bartack.runtime._project import project_root
from bartack.runtime._replay import ReplayReport, check_replay
from bartack.runtime._results import Failure, ShellResult
from bartack.runtime._state import State
from bartack.runtime._steps import CallArgs
from bartack.runtime._values import encode
from bartack.runtime._view import Chronicle, StepRecord
from bartack.runtime._worker_state import OpenStep, UnknownDecision, Value

__all__ = [
    "Begin",
    "CallArgs",
    "Chronicle",
    "Done",
    "EntryData",
    "Failure",
    "Frame",
    "Inquiry",
    "KilledError",
    "MemoryRun",
    "MessageSent",
    "MessageTaken",
    "MessagesDrained",
    "MovableClock",
    "Note",
    "OpenStep",
    "Out",
    "Output",
    "ReplayReport",
    "Returned",
    "RunDir",
    "ShellEnd",
    "ShellResult",
    "State",
    "Step",
    "StepFailed",
    "StepFinished",
    "StepRecord",
    "ToolFailed",
    "ToolFinished",
    "UnknownDecision",
    "Value",
    "Worker",
    "WorkerCall",
    "apply_all",
    "check_replay",
    "decode_entry",
    "encode",
    "load_worker",
    "pin",
    "probe",
    "project_root",
    "read_sources",
]
