"""The node of a user: the process that runs what is queued, from whichever terminal, and resumes it after a crash or a reboot.

``_core.py`` decides what becomes of a run whose process has ended, without I/O: read it first. ``_node.py`` is the loop around
it, ``_hubs.py`` starts and watches the hubs, ``_guard.py`` keeps what a run raises from it, ``_warm.py`` forks hubs from one
process that has imported everything, ``_start.py`` starts and stops the node from outside. ``_schedules.py`` starts runs at
fixed times, and says why one time makes one run, whatever is killed when. ``_notices.py`` notifies people of what is held, and
``_service.py`` makes the node a service of the system. ``fleet.py`` is a node of a database, one of many;
``_fleet_core.py`` decides for it, without I/O, and ``_environments.py`` makes the environments of runs that bring a lock file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.node._core import Ending, Policy, judge
    from bartack.node._cron import load_zone, local_zone, next_time
    from bartack.node._hubs import RealHubs
    from bartack.node._launch import Launcher
    from bartack.node._node import Node, choose_slots, new_node
    from bartack.node._notices import NodeNotices
    from bartack.node._schedules import Schedules, find_schedule, start_now
    from bartack.node._service import Service, describe_service
    from bartack.node._start import ensure_node, node_log, stop_node, trim_log
    from bartack.node._submit import Submission, enqueue, kept_environment
    from bartack.node._warm import WarmHubs

__all__ = [
    "Ending",
    "Launcher",
    "Node",
    "NodeNotices",
    "Policy",
    "RealHubs",
    "Schedules",
    "Service",
    "Submission",
    "WarmHubs",
    "choose_slots",
    "describe_service",
    "enqueue",
    "ensure_node",
    "find_schedule",
    "judge",
    "kept_environment",
    "load_zone",
    "local_zone",
    "new_node",
    "next_time",
    "node_log",
    "start_now",
    "stop_node",
    "trim_log",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_core": "Ending Policy judge",
        "_cron": "load_zone local_zone next_time",
        "_hubs": "RealHubs",
        "_launch": "Launcher",
        "_node": "Node choose_slots new_node",
        "_notices": "NodeNotices",
        "_schedules": "Schedules find_schedule start_now",
        "_service": "Service describe_service",
        "_start": "ensure_node node_log stop_node trim_log",
        "_submit": "Submission enqueue kept_environment",
        "_warm": "WarmHubs",
    },
)
