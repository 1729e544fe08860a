"""Supervisors and process trees: everything that is started can be named, stopped and killed for certain, whichever process dies.

``Supervisor`` keeps tasks and processes alive as their ``ChildSpec`` says; ``monitor`` reports the end of one, once.
``ParentClient`` starts and talks to a parent program, which starts the processes of a run and outlives none of them.
``kill_tree``, ``kill_descendants`` and ``find_by_environment`` end what is left when a parent program itself was killed.
``process/_hold.py`` stops a tree where it stands and lets it continue; a ``LeasePage`` says until when trees may run at all.

``run_guarded`` runs a program that executes code of the user, such that nothing of it is left.

The names below are loaded by their first use: guardians and parent programs import this package too, and stay small.

Folders: ``supervisor/`` (children and restarts), ``parent/`` (the programs that start processes), ``process/`` (processes and
trees as the system knows them), ``forms/`` (commands without a shell), ``lint/`` (mistakes in Python files).

Read ``supervisor/_core.py`` (restarts, without I/O), ``parent/parent.py`` and ``parent/guardian.py`` (process trees), and
``forms/_interpreter.py``. How a whole run stands still and continues: ``process/_hold.py`` and ``process/lease.py``.
"""

from __future__ import annotations

from bartack._lazy import lazy

TYPE_CHECKING = False  # type checkers know it by its name; guardians stay small without typing
if TYPE_CHECKING:
    from bartack.supervision.supervisor._child import ChildInfo
    from bartack.supervision.supervisor._report import CrashReport, Decision
    from bartack.supervision.supervisor._restart import Intensity, RestartPolicy
    from bartack.supervision.supervisor._supervisor import ChildCounts, Supervisor
    from bartack.supervision.supervisor._watching import Inbox, MonitorManager, MonitorRef, monitor
    from bartack.supervision.supervisor.monitors import Down, Leak, Monitor, MonitorRegistry, MonitorStats
    from bartack.supervision.supervisor.spec import ChildSpec, SupervisorSpec

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildSpec",
    "CrashReport",
    "Decision",
    "Down",
    "Inbox",
    "Intensity",
    "Leak",
    "Monitor",
    "MonitorManager",
    "MonitorRef",
    "MonitorRegistry",
    "MonitorStats",
    "RestartPolicy",
    "Supervisor",
    "SupervisorSpec",
    "monitor",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "supervisor._child": "ChildInfo",
        "supervisor._report": "CrashReport Decision",
        "supervisor._restart": "Intensity RestartPolicy",
        "supervisor._supervisor": "ChildCounts Supervisor",
        "supervisor._watching": "Inbox MonitorManager MonitorRef monitor",
        "supervisor.monitors": "Down Leak Monitor MonitorRegistry MonitorStats",
        "supervisor.spec": "ChildSpec SupervisorSpec",
    },
)
