"""Receipts of a run, compared with the files of the workspace, and the files themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bartack.errors import BartackError, NotShownError
from bartack.pipeline.worktree.old_worktrees import workspace_of
from bartack.runtime.rundir.receipts import Receipt
from bartack.web._threads import in_thread
from bartack.web._verify import Verifier
from bartack.web.models._work import ReceiptRow, Receipts
from bartack.web.reading._files import open_regular
from bartack.web.reading._view import RunView

MOST_VERIFIED: Final = 200
"""Receipts whose artifacts are compared with the files; the newest of them."""


async def read_receipts(view: RunView, verifier: Verifier) -> Receipts:
    """The receipts up to the entry, in order; those of answers that were set aside are left out."""
    found = _standing(view)
    workspace, run = view.workspace, view.run.path

    def verify() -> list[ReceiptRow]:
        rows: list[ReceiptRow] = []
        for place, (seq, receipt) in enumerate(found):
            near = len(found) - place <= MOST_VERIFIED
            verified = verifier.verify(receipt, _place_of(run, workspace, receipt)) if near else {}
            rows.append(ReceiptRow(receipt=receipt, seq=seq, verified=verified))
        return rows

    return view.hider.hide(Receipts(receipts=await in_thread(verify), seq=view.seq))


async def read_receipt(view: RunView, task: str, step: int, verifier: Verifier) -> ReceiptRow:
    """One receipt: the last one of this task and number.

    Raises:
        NotShownError: There is none.
    """
    seq, receipt = _find(view, task, step)
    place = _place_of(view.run.path, view.workspace, receipt)
    verified = await in_thread(lambda: verifier.verify(receipt, place))
    return view.hider.hide(ReceiptRow(receipt=receipt, seq=seq, verified=verified))


def open_receipt_file(view: RunView, task: str, step: int, number: int) -> tuple[int, int]:
    """Open an artifact of a receipt, by its place in the list from 0; returns the descriptor and the size.

    Raises:
        NotShownError: There is no such receipt or artifact, or its file is gone.
    """
    _, receipt = _find(view, task, step)
    if not 0 <= number < len(receipt.artifacts):
        raise NotShownError(f"receipt {step} of {task} has no artifact {number}")
    path = receipt.artifacts[number].path
    descriptor = open_regular(_place_of(view.run.path, view.workspace, receipt), path)
    if descriptor is None:
        raise NotShownError(f"the file of artifact {number} cannot be read: it is gone, a link or not safe")
    return descriptor, os.fstat(descriptor).st_size


def _find(view: RunView, task: str, step: int) -> tuple[int, Receipt]:
    found = [one for one in _standing(view) if (one[1].task_id, one[1].step) == (task, step)]
    if not found:
        raise NotShownError(f"{view.run.id} has no receipt {step} of the task {task!r} here")
    return found[-1]


def _standing(view: RunView) -> list[tuple[int, Receipt]]:
    found: list[tuple[int, Receipt]] = []
    for given in view.followed.pipeline.receipts(view.seq):
        steps = [step for step in view.spans.attempts_of(given.p, given.n) if step.to_seq == given.seq]
        if steps and view.spans.step(steps[0].row, view.seq).status == "finished":
            found.append((given.seq, given.receipt))
    return found


def _place_of(run: Path, workspace: str, receipt: Receipt) -> str:
    try:
        return workspace_of(run, workspace, receipt.task_id)
    except (BartackError, OSError, ValueError):
        return workspace
