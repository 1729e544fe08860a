"""Supervisors and process trees: everything that is started can be named, stopped and killed for certain, whichever process dies.

``Supervisor`` keeps tasks and processes alive as their ``ChildSpec`` says; ``monitor`` reports the end of one, once.
``ParentClient`` starts and talks to a parent program, which starts the processes of a run and outlives none of them.
``kill_tree``, ``kill_descendants`` and ``find_by_environment`` end what is left when a parent program itself was killed.

``run_guarded`` runs a program that executes code of the user, such that nothing of it is left.

The names below are loaded by their first use: guardians and parent programs import this package too, and stay small.

Read ``supervisor/_core.py`` (restarts, without I/O), ``parent/_parent.py`` and ``parent/_guardian.py`` (process trees), and
``forms/_interpreter.py`` (commands without a shell).
"""

from __future__ import annotations

from bartack._lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "parent._client": "KEEPER ParentClient",
        "parent._fence": "Fence",
        "parent._guarded": "run_guarded",
        "parent._guardian": "parse_guarded",
        "parent._parent": "run_parent",
        "parent._wire": "Exited Gone ParentDied ParentEvent ParentReady Started StartFailed",
        "process._cgroup": "is_in_ground",
        "process._cgroup_probe": "probe_cgroups",
        "process._facts": "ProcessFacts ProcessId",
        "process._limits": "Bound files_limit memory_left most_files processes_left raise_files restore_files",
        "process._line": "read_line",
        "process._lock": "take_tree_lock",
        "process._memory": "count_oom_kills",
        "process._system": "find_flaw iter_open_files iter_outputs iter_processes read_command read_environment "
        "read_facts set_death_signal set_subreaper",
        "process._tree": "descendants find_by_environment kill_descendants kill_tree",
        "supervisor._child": "ChildInfo",
        "supervisor._monitors": "Down Leak Monitor MonitorRegistry MonitorStats creators_stack",
        "supervisor._report": "CrashReport Decision",
        "supervisor._restart": "Intensity RestartPolicy",
        "supervisor._spec": "CHILD_BACKOFF ChildSpec SupervisorSpec",
        "supervisor._supervisor": "ChildCounts Supervisor",
        "supervisor._watching": "Inbox MonitorManager MonitorRef monitor",
    },
)
