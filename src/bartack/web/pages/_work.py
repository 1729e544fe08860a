"""What a run has produced: receipts with their artifacts, and snapshots of the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from bartack.web._queries import AtQuery
from bartack.web.models._work import SnapshotDiff
from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.reading._receipts import read_receipt, read_receipts
from bartack.web.reading._snapshots import read_snapshot_diff, read_snapshots

_LONGEST_NUMBER: Final = 15


class SnapshotsQuery(AtQuery, frozen=True, kw_only=True):
    """Which two snapshots are compared; none, or one: the list alone."""

    a: Annotated[str, Meta(max_length=100)] = ""
    b: Annotated[str, Meta(max_length=100)] = ""


async def _read_receipts(page: RunPage) -> Mapping[str, object]:
    return {"found": await read_receipts(page.view, page.site.verifier)}


async def _read_receipt(page: RunPage) -> Mapping[str, object]:
    text = page.path["step"]
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else -1
    return {"row": await read_receipt(page.view, page.path["task"], number, page.site.verifier)}


async def _read_snapshots(page: RunPage) -> Mapping[str, object]:
    query: SnapshotsQuery = page.query
    diff: SnapshotDiff | None = None
    if query.a and query.b:
        diff = await read_snapshot_diff(page.view, query.a, query.b)
    found = read_snapshots(page.view)
    kept = [row.id for row in found.snapshots if row.kept]
    return {
        "found": found,
        "query": query,
        "diff": diff,
        "chosen": (query.a or (kept[0] if kept else ""), query.b or (kept[-1] if kept else "")),
    }


RECEIPTS: Final = RunTab("receipts", "Receipts", "receipts.html", _read_receipts)
RECEIPT: Final = RunTab("receipts/{task}/{step}", "", "receipt.html", _read_receipt, parent="receipts")
SNAPSHOTS: Final = RunTab("snapshots", "Snapshots", "snapshots.html", _read_snapshots, SnapshotsQuery)
