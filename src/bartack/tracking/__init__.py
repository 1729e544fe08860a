"""Pattern tracking: what code agents write, how it comes from earlier code, and who keeps that knowledge.

The tracker makes events durable (``pattern/_tracker.py``), the daemon delivers them (``daemon/_daemon.py``), the lineage
service keeps the graph (``lineage/_store.py``). Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.tracking.daemon._daemon import run_daemon
    from bartack.tracking.daemon._start import start_daemon, stop_daemon
    from bartack.tracking.daemon._sync import SyncReport, sync_now
    from bartack.tracking.lineage._draw import draw_page, draw_svg
    from bartack.tracking.lineage._graph import LineagePicture
    from bartack.tracking.lineage._service import LineageService, open_listener, serve_lineage
    from bartack.tracking.lineage._store import LineageStore
    from bartack.tracking.lineage._tree import TreeLine, iter_tree
    from bartack.tracking.lineage._wire import (
        LineageNode,
        LineageQuery,
        PageQuery,
        SearchRequest,
        ValidateRequest,
    )
    from bartack.tracking.pattern._analytics import analytics_of
    from bartack.tracking.pattern._pattern import normalise, pattern_id
    from bartack.tracking.pattern._similarity import next_version, similarity
    from bartack.tracking.pattern._tracker import (
        PatternTracker,
        track_edit_tool_pattern,
        track_write_tool_pattern,
    )

_HOMES: Final = {
    "LineageNode": "lineage._wire",
    "LineagePicture": "lineage._graph",
    "LineageQuery": "lineage._wire",
    "LineageService": "lineage._service",
    "LineageStore": "lineage._store",
    "PageQuery": "lineage._wire",
    "PatternTracker": "pattern._tracker",
    "SearchRequest": "lineage._wire",
    "TreeLine": "lineage._tree",
    "ValidateRequest": "lineage._wire",
    "draw_page": "lineage._draw",
    "draw_svg": "lineage._draw",
    "iter_tree": "lineage._tree",
    "next_version": "pattern._similarity",
    "normalise": "pattern._pattern",
    "open_listener": "lineage._service",
    "pattern_id": "pattern._pattern",
    "run_daemon": "daemon._daemon",
    "serve_lineage": "lineage._service",
    "similarity": "pattern._similarity",
    "start_daemon": "daemon._start",
    "SyncReport": "daemon._sync",
    "analytics_of": "pattern._analytics",
    "sync_now": "daemon._sync",
    "stop_daemon": "daemon._start",
    "track_edit_tool_pattern": "pattern._tracker",
    "track_write_tool_pattern": "pattern._tracker",
}

__all__ = [
    "LineageNode",
    "LineagePicture",
    "LineageQuery",
    "LineageService",
    "LineageStore",
    "PageQuery",
    "PatternTracker",
    "SearchRequest",
    "SyncReport",
    "TreeLine",
    "ValidateRequest",
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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
