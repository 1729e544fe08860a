"""``bartack show RUN --verify``: the receipts of a run, compared with the files in the workspace."""

from __future__ import annotations

import sys
from typing import Final

from bartack.cli.app._options import write_json
from bartack.cli.app._terminal import Screen, Style, printable
from bartack.errors import RunNotFoundError
from bartack.pipeline.records.receipts import receipt_path
from bartack.pipeline.worktree.old_worktrees import workspace_of
from bartack.runtime.hub.carried import show_workspace
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.receipts import Receipt, read_receipts

_STYLES: Final[dict[str, Style]] = {"same": "green", "changed": "yellow", "missing": "red"}


def show_receipts(run: RunDir, *, as_json: bool) -> None:
    """Write each receipt and whether each of its artifacts is the same, changed or missing.

    Raises:
        RunNotFoundError: The journal does not contain a run.
    """
    recorded, receipts = read_receipts(run)
    if recorded.run is None:
        raise RunNotFoundError(run.id)
    workspace = show_workspace(run, recorded)
    found = [
        (receipt, receipt.verify(workspace_of(run.path, workspace, receipt.task_id))) for receipt in receipts
    ]
    if as_json:
        write_json([_facts(run, receipt) | {"artifacts": states} for receipt, states in found])
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("This run has no receipts.")
    for receipt, states in found:
        is_missing = recorded.copies.latest is None and not (run.path / receipt_path(receipt)).is_file()
        file = "  (its file is missing)" if is_missing else ""
        head = f"{receipt.task_id} {receipt.step}  {receipt.action} round {receipt.round}: {receipt.event}"
        screen.line(f"{printable(head)}{file}")
        for path, state in states.items():
            word = "changed since" if state == "changed" else state
            screen.line(f"  {screen.paint(word, _STYLES[state])}  {printable(path)}")


def _facts(run: RunDir, receipt: Receipt) -> dict[str, object]:
    return {
        "task_id": receipt.task_id,
        "step": receipt.step,
        "action": receipt.action,
        "round": receipt.round,
        "event": receipt.event,
        "file": receipt_path(receipt),
        "there": (run.path / receipt_path(receipt)).is_file(),
    }
