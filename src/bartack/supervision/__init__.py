"""Supervisors, and process trees: everything that is started can be named, stopped and ended for certain, whoever is killed.

``Supervisor`` keeps tasks and processes alive as their ``ChildSpec`` says; ``monitor`` reports the end of one, once.
``ParentClient`` starts and talks to a parent program, which starts the processes of a run and outlives none of them.
``kill_tree``, ``kill_descendants`` and ``find_by_environment`` end what is left when a parent program itself was killed.

``run_guarded`` runs a program that executes code of the user, such that nothing of it is left.

The names below are loaded by their first use: guardians and parent programs import this package too, and stay small.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know it by its name; guardians stay small without typing
if TYPE_CHECKING:
    from bartack.supervision._cgroup import is_in_ground
    from bartack.supervision._cgroup_probe import probe_cgroups
    from bartack.supervision._client import KEEPER, ParentClient
    from bartack.supervision._core import ChildInfo
    from bartack.supervision._facts import ProcessFacts, ProcessId
    from bartack.supervision._fence import Fence
    from bartack.supervision._guarded import run_guarded
    from bartack.supervision._guardian import parse_guarded
    from bartack.supervision._limits import (
        Bound,
        files_limit,
        memory_left,
        most_files,
        processes_left,
        raise_files,
        restore_files,
    )
    from bartack.supervision._line import read_line
    from bartack.supervision._lock import take_tree_lock
    from bartack.supervision._memory import count_oom_kills
    from bartack.supervision._monitors import (
        Down,
        Leak,
        Monitor,
        MonitorRegistry,
        MonitorStats,
        creators_stack,
    )
    from bartack.supervision._parent import run_parent
    from bartack.supervision._report import CrashReport, Decision
    from bartack.supervision._restart import Intensity, RestartPolicy
    from bartack.supervision._spec import CHILD_BACKOFF, ChildSpec, SupervisorSpec
    from bartack.supervision._supervisor import ChildCounts, Supervisor
    from bartack.supervision._system import (
        find_flaw,
        iter_open_files,
        iter_outputs,
        iter_processes,
        read_command,
        read_environment,
        read_facts,
        set_death_signal,
        set_subreaper,
    )
    from bartack.supervision._tree import descendants, find_by_environment, kill_descendants, kill_tree
    from bartack.supervision._watching import Inbox, MonitorManager, MonitorRef, monitor
    from bartack.supervision._wire import (
        Exited,
        Gone,
        ParentDied,
        ParentEvent,
        ParentReady,
        Started,
        StartFailed,
    )

_HOMES = {
    "Bound": "_limits",
    "CHILD_BACKOFF": "_spec",
    "ChildCounts": "_supervisor",
    "ChildInfo": "_core",
    "ChildSpec": "_spec",
    "CrashReport": "_report",
    "Decision": "_report",
    "Down": "_monitors",
    "Exited": "_wire",
    "Fence": "_fence",
    "Gone": "_wire",
    "Inbox": "_watching",
    "Intensity": "_restart",
    "KEEPER": "_client",
    "Leak": "_monitors",
    "Monitor": "_monitors",
    "MonitorManager": "_watching",
    "MonitorRef": "_watching",
    "MonitorRegistry": "_monitors",
    "MonitorStats": "_monitors",
    "ParentClient": "_client",
    "ParentDied": "_wire",
    "ParentEvent": "_wire",
    "ParentReady": "_wire",
    "ProcessFacts": "_facts",
    "ProcessId": "_facts",
    "RestartPolicy": "_restart",
    "StartFailed": "_wire",
    "Started": "_wire",
    "Supervisor": "_supervisor",
    "SupervisorSpec": "_spec",
    "count_oom_kills": "_memory",
    "creators_stack": "_monitors",
    "descendants": "_tree",
    "files_limit": "_limits",
    "find_by_environment": "_tree",
    "find_flaw": "_system",
    "is_in_ground": "_cgroup",
    "iter_open_files": "_system",
    "iter_outputs": "_system",
    "iter_processes": "_system",
    "kill_descendants": "_tree",
    "kill_tree": "_tree",
    "memory_left": "_limits",
    "monitor": "_watching",
    "most_files": "_limits",
    "parse_guarded": "_guardian",
    "probe_cgroups": "_cgroup_probe",
    "processes_left": "_limits",
    "raise_files": "_limits",
    "read_command": "_system",
    "read_environment": "_system",
    "read_facts": "_system",
    "read_line": "_line",
    "restore_files": "_limits",
    "run_guarded": "_guarded",
    "run_parent": "_parent",
    "set_death_signal": "_system",
    "set_subreaper": "_system",
    "take_tree_lock": "_lock",
}

__all__ = [
    "CHILD_BACKOFF",
    "KEEPER",
    "Bound",
    "ChildCounts",
    "ChildInfo",
    "ChildSpec",
    "CrashReport",
    "Decision",
    "Down",
    "Exited",
    "Fence",
    "Gone",
    "Inbox",
    "Intensity",
    "Leak",
    "Monitor",
    "MonitorManager",
    "MonitorRef",
    "MonitorRegistry",
    "MonitorStats",
    "ParentClient",
    "ParentDied",
    "ParentEvent",
    "ParentReady",
    "ProcessFacts",
    "ProcessId",
    "RestartPolicy",
    "StartFailed",
    "Started",
    "Supervisor",
    "SupervisorSpec",
    "count_oom_kills",
    "creators_stack",
    "descendants",
    "files_limit",
    "find_by_environment",
    "find_flaw",
    "is_in_ground",
    "iter_open_files",
    "iter_outputs",
    "iter_processes",
    "kill_descendants",
    "kill_tree",
    "memory_left",
    "monitor",
    "most_files",
    "parse_guarded",
    "probe_cgroups",
    "processes_left",
    "raise_files",
    "read_command",
    "read_environment",
    "read_facts",
    "read_line",
    "restore_files",
    "run_guarded",
    "run_parent",
    "set_death_signal",
    "set_subreaper",
    "take_tree_lock",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only who uses a name pays for it

    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
