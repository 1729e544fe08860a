"""Supervisors and process trees: everything that is started can be named, stopped and killed for certain, whichever process dies.

``Supervisor`` keeps tasks and processes alive as their ``ChildSpec`` says; ``monitor`` reports the end of one, once.
``ParentClient`` starts and talks to a parent program, which starts the processes of a run and outlives none of them.
``kill_tree``, ``kill_descendants`` and ``find_by_environment`` end what is left when a parent program itself was killed.

``run_guarded`` runs a program that executes code of the user, such that nothing of it is left.

The names below are loaded by their first use: guardians and parent programs import this package too, and stay small.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know it by its name; guardians stay small without typing
if TYPE_CHECKING:
    from bartack.supervision.parent._client import KEEPER, ParentClient
    from bartack.supervision.parent._fence import Fence
    from bartack.supervision.parent._guarded import run_guarded
    from bartack.supervision.parent._guardian import parse_guarded
    from bartack.supervision.parent._parent import run_parent
    from bartack.supervision.parent._wire import (
        Exited,
        Gone,
        ParentDied,
        ParentEvent,
        ParentReady,
        Started,
        StartFailed,
    )
    from bartack.supervision.process._cgroup import is_in_ground
    from bartack.supervision.process._cgroup_probe import probe_cgroups
    from bartack.supervision.process._facts import ProcessFacts, ProcessId
    from bartack.supervision.process._limits import (
        Bound,
        files_limit,
        memory_left,
        most_files,
        processes_left,
        raise_files,
        restore_files,
    )
    from bartack.supervision.process._line import read_line
    from bartack.supervision.process._lock import take_tree_lock
    from bartack.supervision.process._memory import count_oom_kills
    from bartack.supervision.process._system import (
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
    from bartack.supervision.process._tree import (
        descendants,
        find_by_environment,
        kill_descendants,
        kill_tree,
    )
    from bartack.supervision.supervisor._child import ChildInfo
    from bartack.supervision.supervisor._monitors import (
        Down,
        Leak,
        Monitor,
        MonitorRegistry,
        MonitorStats,
        creators_stack,
    )
    from bartack.supervision.supervisor._report import CrashReport, Decision
    from bartack.supervision.supervisor._restart import Intensity, RestartPolicy
    from bartack.supervision.supervisor._spec import CHILD_BACKOFF, ChildSpec, SupervisorSpec
    from bartack.supervision.supervisor._supervisor import ChildCounts, Supervisor
    from bartack.supervision.supervisor._watching import Inbox, MonitorManager, MonitorRef, monitor

_HOMES = {
    "Bound": "process._limits",
    "CHILD_BACKOFF": "supervisor._spec",
    "ChildCounts": "supervisor._supervisor",
    "ChildInfo": "supervisor._child",
    "ChildSpec": "supervisor._spec",
    "CrashReport": "supervisor._report",
    "Decision": "supervisor._report",
    "Down": "supervisor._monitors",
    "Exited": "parent._wire",
    "Fence": "parent._fence",
    "Gone": "parent._wire",
    "Inbox": "supervisor._watching",
    "Intensity": "supervisor._restart",
    "KEEPER": "parent._client",
    "Leak": "supervisor._monitors",
    "Monitor": "supervisor._monitors",
    "MonitorManager": "supervisor._watching",
    "MonitorRef": "supervisor._watching",
    "MonitorRegistry": "supervisor._monitors",
    "MonitorStats": "supervisor._monitors",
    "ParentClient": "parent._client",
    "ParentDied": "parent._wire",
    "ParentEvent": "parent._wire",
    "ParentReady": "parent._wire",
    "ProcessFacts": "process._facts",
    "ProcessId": "process._facts",
    "RestartPolicy": "supervisor._restart",
    "StartFailed": "parent._wire",
    "Started": "parent._wire",
    "Supervisor": "supervisor._supervisor",
    "SupervisorSpec": "supervisor._spec",
    "count_oom_kills": "process._memory",
    "creators_stack": "supervisor._monitors",
    "descendants": "process._tree",
    "files_limit": "process._limits",
    "find_by_environment": "process._tree",
    "find_flaw": "process._system",
    "is_in_ground": "process._cgroup",
    "iter_open_files": "process._system",
    "iter_outputs": "process._system",
    "iter_processes": "process._system",
    "kill_descendants": "process._tree",
    "kill_tree": "process._tree",
    "memory_left": "process._limits",
    "monitor": "supervisor._watching",
    "most_files": "process._limits",
    "parse_guarded": "parent._guardian",
    "probe_cgroups": "process._cgroup_probe",
    "processes_left": "process._limits",
    "raise_files": "process._limits",
    "read_command": "process._system",
    "read_environment": "process._system",
    "read_facts": "process._system",
    "read_line": "process._line",
    "restore_files": "process._limits",
    "run_guarded": "parent._guarded",
    "run_parent": "parent._parent",
    "set_death_signal": "process._system",
    "set_subreaper": "process._system",
    "take_tree_lock": "process._lock",
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
