"""Pattern tracking: what code agents write, how it comes from earlier code, and who keeps that knowledge.

The tracker in ``pattern/`` makes events durable (``pattern/_tracker.py``), the daemon in ``daemon/`` delivers them
(``daemon/_daemon.py``), the service in ``lineage/`` keeps the graph (``lineage/_store.py``). Names are loaded when they are first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy
from bartack.resilience.loopback import open_listener

if TYPE_CHECKING:
    from bartack.tracking.daemon._daemon import run_daemon
    from bartack.tracking.daemon._start import start_daemon, stop_daemon
    from bartack.tracking.daemon._sync import SyncReport, sync_now
    from bartack.tracking.lineage._graph import LineagePicture
    from bartack.tracking.lineage._service import LineageService, serve_lineage
    from bartack.tracking.lineage._store import LineageStore
    from bartack.tracking.lineage._tree import TreeLine, iter_tree
    from bartack.tracking.lineage.draw import draw_page, draw_svg
    from bartack.tracking.lineage.wire import LineageNode, LineageQuery
    from bartack.tracking.pattern._analytics import analytics_of
    from bartack.tracking.pattern._pattern import normalise, pattern_id
    from bartack.tracking.pattern._similarity import next_version, similarity
    from bartack.tracking.pattern._tracker import (
        PatternTracker,
        track_edit_tool_pattern,
        track_write_tool_pattern,
    )

__all__ = [
    "LineageNode",
    "LineagePicture",
    "LineageQuery",
    "LineageService",
    "LineageStore",
    "PatternTracker",
    "SyncReport",
    "TreeLine",
    "analytics_of",
    "draw_page",
    "draw_svg",
    "iter_tree",
    "next_version",
    "normalise",
    "open_listener",
    "pattern_id",
    "run_daemon",
    "serve_lineage",
    "similarity",
    "start_daemon",
    "stop_daemon",
    "sync_now",
    "track_edit_tool_pattern",
    "track_write_tool_pattern",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "daemon._daemon": "run_daemon",
        "daemon._start": "start_daemon stop_daemon",
        "daemon._sync": "SyncReport sync_now",
        "lineage._graph": "LineagePicture",
        "lineage._service": "LineageService serve_lineage",
        "lineage._store": "LineageStore",
        "lineage._tree": "TreeLine iter_tree",
        "lineage.draw": "draw_page draw_svg",
        "lineage.wire": "LineageNode LineageQuery",
        "pattern._analytics": "analytics_of",
        "pattern._pattern": "normalise pattern_id",
        "pattern._similarity": "next_version similarity",
        "pattern._tracker": "PatternTracker track_edit_tool_pattern track_write_tool_pattern",
    },
)
