"""Pattern tracking: what code agents write, how it comes from earlier code, and who keeps that knowledge.

The tracker makes events durable (``_tracker.py``), the daemon delivers them (``_daemon.py``), the lineage service keeps the graph
(``_lineage_store.py``). Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.tracking._analytics import analytics_of
    from bartack.tracking._daemon import run_daemon
    from bartack.tracking._lineage_draw import draw_page, draw_svg
    from bartack.tracking._lineage_graph import LineagePicture
    from bartack.tracking._lineage_service import LineageService, open_listener, serve_lineage
    from bartack.tracking._lineage_store import LineageStore
    from bartack.tracking._lineage_tree import TreeLine, iter_tree
    from bartack.tracking._lineage_wire import (
        LineageNode,
        LineageQuery,
        PageQuery,
        SearchRequest,
        ValidateRequest,
    )
    from bartack.tracking._pattern import normalise, pattern_id
    from bartack.tracking._similarity import next_version, similarity
    from bartack.tracking._start import start_daemon, stop_daemon
    from bartack.tracking._sync import SyncReport, sync_now
    from bartack.tracking._tracker import PatternTracker, track_edit_tool_pattern, track_write_tool_pattern

_HOMES: Final = {
    "LineageNode": "_lineage_wire",
    "LineagePicture": "_lineage_graph",
    "LineageQuery": "_lineage_wire",
    "LineageService": "_lineage_service",
    "LineageStore": "_lineage_store",
    "PageQuery": "_lineage_wire",
    "PatternTracker": "_tracker",
    "SearchRequest": "_lineage_wire",
    "TreeLine": "_lineage_tree",
    "ValidateRequest": "_lineage_wire",
    "draw_page": "_lineage_draw",
    "draw_svg": "_lineage_draw",
    "iter_tree": "_lineage_tree",
    "next_version": "_similarity",
    "normalise": "_pattern",
    "open_listener": "_lineage_service",
    "pattern_id": "_pattern",
    "run_daemon": "_daemon",
    "serve_lineage": "_lineage_service",
    "similarity": "_similarity",
    "start_daemon": "_start",
    "SyncReport": "_sync",
    "analytics_of": "_analytics",
    "sync_now": "_sync",
    "stop_daemon": "_start",
    "track_edit_tool_pattern": "_tracker",
    "track_write_tool_pattern": "_tracker",
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
