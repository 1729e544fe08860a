"""For tools that run, watch and steer runs: the command line and the web. Programs use ``bartack`` itself.

Every name is imported when it is first used, so that a tool that only looks at a run does not load what executes one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bartack.runtime._again import SetAside, last_answer, set_aside
    from bartack.runtime._answers import check_answer
    from bartack.runtime._client import HubClient
    from bartack.runtime._config import (
        Config,
        Reading,
        check_resumed,
        find_workspace,
        kept_sets,
        load_config,
        read_settings,
    )
    from bartack.runtime._config_problem import CONFIG_FILE, SettingProblem
    from bartack.runtime._config_sections import (
        BudgetConfig,
        IntakeConfig,
        ParallelConfig,
        PipelineConfig,
        QuestionsConfig,
        RedactionConfig,
        ReviewConfig,
        SnapshotConfig,
        SpecConfig,
        TaskConfig,
        TestsConfig,
    )
    from bartack.runtime._creation import Order, create_run
    from bartack.runtime._dead_letters import open_letters
    from bartack.runtime._digests import Digests
    from bartack.runtime._entries import (
        EntryData,
        Output,
        RunCreated,
        RunEnded,
        StepFailed,
        StepFinished,
        StepStarted,
        WorkerEnded,
        WorkerSpawned,
        decode_entry,
    )
    from bartack.runtime._exceptions import revive_error
    from bartack.runtime._frames import TOGETHER, ErrorData, StackLine
    from bartack.runtime._hub import Hub, Observer
    from bartack.runtime._inbox import LeftMessage, leave_answer, leave_message, left_messages
    from bartack.runtime._inside import find_enclosing
    from bartack.runtime._inspection import Examined, examine_program
    from bartack.runtime._launch import EXIT_CODES, check_telemetry, drive
    from bartack.runtime._layout import RunDir
    from bartack.runtime._locate import (
        ENDED,
        TERMINAL,
        UNREADABLE,
        RunSummary,
        check_place,
        check_readable,
        find_run,
        is_readable,
        list_runs,
        read_state,
        shorten_goal,
        status_of,
        summarise,
        was_abandoned,
    )
    from bartack.runtime._machine import FILES_LEAST, workers_room
    from bartack.runtime._manage import cancel_run, delete_run, fail_run, fork_run
    from bartack.runtime._mirror import Describe, RunFile
    from bartack.runtime._origin import check_own
    from bartack.runtime._presence import is_active, is_stopped
    from bartack.runtime._program import differences, pinned_files
    from bartack.runtime._project import PATCHWORK
    from bartack.runtime._receipts import (
        Answered,
        Attempt,
        FileChange,
        Receipt,
        ReceiptAgent,
        ReceiptArtifact,
        iter_receipts,
        load_receipt,
    )
    from bartack.runtime._reopened import Reopened
    from bartack.runtime._requests import Process, Request, RunFacts
    from bartack.runtime._run_as import check_run_as
    from bartack.runtime._serve import Quiet, serve
    from bartack.runtime._snapshots import (
        Change,
        FileEntry,
        Manifest,
        Snapshot,
        compare,
        iter_snapshots,
        manifest_path,
        read_manifest,
        snapshot_id,
    )
    from bartack.runtime._state import State
    from bartack.runtime._step_search import find_step
    from bartack.runtime._steps import AskArgs, CallArgs, Held, ThinkArgs, ThinkOutcome
    from bartack.runtime._timeouts import Limit, limits_in_force
    from bartack.runtime._transcript import has_facts, lost_lines, read_transcript
    from bartack.runtime._transcript_facts import cut_line
    from bartack.runtime._update import update_program
    from bartack.runtime._view import (
        Chronicle,
        StepRecord,
        describe_worker,
        name_deadlock,
        parse_step,
        value_of,
    )
    from bartack.runtime._worker_state import OpenStep, Recorded, UnknownDecision, Value, Worker
    from bartack.runtime.patchwork import Survey, compile_file, survey, upgrade_file

__all__ = [
    "CONFIG_FILE",
    "ENDED",
    "EXIT_CODES",
    "FILES_LEAST",
    "PATCHWORK",
    "TERMINAL",
    "TOGETHER",
    "UNREADABLE",
    "Answered",
    "AskArgs",
    "Attempt",
    "BudgetConfig",
    "CallArgs",
    "Change",
    "Chronicle",
    "Config",
    "Describe",
    "Digests",
    "EntryData",
    "ErrorData",
    "Examined",
    "FileChange",
    "FileEntry",
    "Held",
    "Hub",
    "HubClient",
    "IntakeConfig",
    "LeftMessage",
    "Limit",
    "Manifest",
    "Observer",
    "OpenStep",
    "Order",
    "Output",
    "ParallelConfig",
    "PipelineConfig",
    "Process",
    "QuestionsConfig",
    "Quiet",
    "Reading",
    "Receipt",
    "ReceiptAgent",
    "ReceiptArtifact",
    "Recorded",
    "RedactionConfig",
    "Reopened",
    "Request",
    "ReviewConfig",
    "RunCreated",
    "RunDir",
    "RunEnded",
    "RunFacts",
    "RunFile",
    "RunSummary",
    "SetAside",
    "SettingProblem",
    "Snapshot",
    "SnapshotConfig",
    "SpecConfig",
    "StackLine",
    "State",
    "StepFailed",
    "StepFinished",
    "StepRecord",
    "StepStarted",
    "Survey",
    "TaskConfig",
    "TestsConfig",
    "ThinkArgs",
    "ThinkOutcome",
    "UnknownDecision",
    "Value",
    "Worker",
    "WorkerEnded",
    "WorkerSpawned",
    "cancel_run",
    "check_answer",
    "check_own",
    "check_place",
    "check_readable",
    "check_resumed",
    "check_run_as",
    "check_telemetry",
    "compare",
    "compile_file",
    "create_run",
    "cut_line",
    "decode_entry",
    "delete_run",
    "describe_worker",
    "differences",
    "drive",
    "examine_program",
    "fail_run",
    "find_enclosing",
    "find_run",
    "find_step",
    "find_workspace",
    "fork_run",
    "has_facts",
    "is_active",
    "is_readable",
    "is_stopped",
    "iter_receipts",
    "iter_snapshots",
    "kept_sets",
    "last_answer",
    "leave_answer",
    "leave_message",
    "left_messages",
    "limits_in_force",
    "list_runs",
    "load_config",
    "load_receipt",
    "lost_lines",
    "manifest_path",
    "name_deadlock",
    "open_letters",
    "parse_step",
    "pinned_files",
    "read_manifest",
    "read_settings",
    "read_state",
    "read_transcript",
    "revive_error",
    "serve",
    "set_aside",
    "shorten_goal",
    "snapshot_id",
    "status_of",
    "summarise",
    "survey",
    "update_program",
    "upgrade_file",
    "value_of",
    "was_abandoned",
    "workers_room",
]

_HOMES = {
    "_again": (
        "SetAside",
        "last_answer",
        "set_aside",
    ),
    "_answers": ("check_answer",),
    "_client": ("HubClient",),
    "_config": (
        "Config",
        "Reading",
        "check_resumed",
        "find_workspace",
        "kept_sets",
        "load_config",
        "read_settings",
    ),
    "_config_problem": (
        "CONFIG_FILE",
        "SettingProblem",
    ),
    "_config_sections": (
        "BudgetConfig",
        "IntakeConfig",
        "ParallelConfig",
        "PipelineConfig",
        "QuestionsConfig",
        "RedactionConfig",
        "ReviewConfig",
        "SnapshotConfig",
        "SpecConfig",
        "TaskConfig",
        "TestsConfig",
    ),
    "_creation": (
        "Order",
        "create_run",
    ),
    "_dead_letters": ("open_letters",),
    "_digests": ("Digests",),
    "_entries": (
        "EntryData",
        "Output",
        "RunCreated",
        "RunEnded",
        "StepFailed",
        "StepFinished",
        "StepStarted",
        "WorkerEnded",
        "WorkerSpawned",
        "decode_entry",
    ),
    "_exceptions": ("revive_error",),
    "_frames": (
        "ErrorData",
        "StackLine",
        "TOGETHER",
    ),
    "_hub": (
        "Hub",
        "Observer",
    ),
    "_inbox": (
        "LeftMessage",
        "leave_answer",
        "leave_message",
        "left_messages",
    ),
    "_inside": ("find_enclosing",),
    "_inspection": (
        "Examined",
        "examine_program",
    ),
    "_launch": (
        "EXIT_CODES",
        "check_telemetry",
        "drive",
    ),
    "_layout": ("RunDir",),
    "_locate": (
        "ENDED",
        "RunSummary",
        "TERMINAL",
        "UNREADABLE",
        "check_place",
        "check_readable",
        "find_run",
        "is_readable",
        "list_runs",
        "read_state",
        "shorten_goal",
        "status_of",
        "summarise",
        "was_abandoned",
    ),
    "_machine": (
        "FILES_LEAST",
        "workers_room",
    ),
    "_manage": (
        "cancel_run",
        "delete_run",
        "fail_run",
        "fork_run",
    ),
    "_mirror": (
        "Describe",
        "RunFile",
    ),
    "_origin": ("check_own",),
    "_presence": (
        "is_active",
        "is_stopped",
    ),
    "_program": (
        "differences",
        "pinned_files",
    ),
    "_project": ("PATCHWORK",),
    "_receipts": (
        "Answered",
        "Attempt",
        "FileChange",
        "Receipt",
        "ReceiptAgent",
        "ReceiptArtifact",
        "iter_receipts",
        "load_receipt",
    ),
    "_reopened": ("Reopened",),
    "_requests": (
        "Process",
        "Request",
        "RunFacts",
    ),
    "_run_as": ("check_run_as",),
    "_serve": (
        "Quiet",
        "serve",
    ),
    "_snapshots": (
        "Change",
        "FileEntry",
        "Manifest",
        "Snapshot",
        "compare",
        "iter_snapshots",
        "manifest_path",
        "read_manifest",
        "snapshot_id",
    ),
    "_state": ("State",),
    "_step_search": ("find_step",),
    "_steps": (
        "AskArgs",
        "CallArgs",
        "Held",
        "ThinkArgs",
        "ThinkOutcome",
    ),
    "_timeouts": (
        "Limit",
        "limits_in_force",
    ),
    "_transcript": (
        "has_facts",
        "lost_lines",
        "read_transcript",
    ),
    "_transcript_facts": ("cut_line",),
    "_update": ("update_program",),
    "_view": (
        "Chronicle",
        "StepRecord",
        "describe_worker",
        "name_deadlock",
        "parse_step",
        "value_of",
    ),
    "_worker_state": (
        "OpenStep",
        "Recorded",
        "UnknownDecision",
        "Value",
        "Worker",
    ),
    "patchwork": (
        "Survey",
        "compile_file",
        "survey",
        "upgrade_file",
    ),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"bartack.runtime.{module}"), name)
    raise AttributeError(name)
