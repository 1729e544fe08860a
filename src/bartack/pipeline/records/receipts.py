"""Receipts as files: written once, and never overwritten."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from bartack.core.files import replace_file
from bartack.core.trust import make_private
from bartack.errors import ReceiptConflictError
from bartack.runtime.rundir.receipts import Receipt, iter_receipts

SECTOR: Final = 512
"""What a disk writes at once."""


def receipt_path(receipt: Receipt) -> str:
    """Where a receipt is, in the directory of its run."""
    return f"receipts/{_folder(receipt.task_id)}/step-{receipt.step}.json"


def receipts_of(run_dir: Path, task: str) -> int:
    """How many receipts a task has so far."""
    return len(receipt_files(run_dir, task))


def receipt_files(run_dir: Path, task: str) -> list[Path]:
    """The files of the receipts that a task has so far."""
    return sorted((run_dir / "receipts" / _folder(task)).glob("step-*.json"))


def _folder(task: str) -> str:
    return task.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def encode_receipt(receipt: Receipt) -> bytes:
    """A receipt as it is written."""
    return msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n"


def store_receipt(run_dir: Path, receipt: Receipt) -> str:
    """Write a receipt, unless it is there already; returns where, relative to the run's directory.

    Raises:
        ReceiptConflictError: There is another file in its place.
    """
    path = receipt_path(receipt)
    file = run_dir / path
    content = encode_receipt(receipt)
    there = _read(file)
    if is_remainder(there, content):
        _put(file, content)
    elif there != content:
        raise ReceiptConflictError(str(file))
    return path


def is_remainder(there: bytes, content: bytes) -> bool:
    """Whether this is what a power cut may leave of a file that was not synced: some of its sectors, and zeros for the others."""
    if there == content or len(there) > len(content):
        return False
    sectors = ((there[start : start + SECTOR], start) for start in range(0, len(there), SECTOR))
    return all(part == content[start : start + len(part)] or not any(part) for part, start in sectors)


def _read(file: Path) -> bytes:
    """What is there."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _put(file: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all. It is not synced: the journal has the receipt, and gives it again."""
    try:
        replace_file(file, content, synced=False)
    except FileNotFoundError:
        replace_file(file, content, synced=False, parents=True)


def put_receipts_aside(run_dir: Path) -> list[str]:
    """Move the receipts of answers that a person has set aside out of the way of those to come; returns where they are.

    It is done at every resume: what a receipt stands for is in the journal, so a crash in between changes nothing.
    """
    moved: list[str] = []
    counts = {encode_receipt(receipt) for receipt in iter_receipts(run_dir)}
    for receipt in iter_receipts(run_dir, undone=True):
        file, content = run_dir / receipt_path(receipt), encode_receipt(receipt)
        if content in counts or _read(file) != content:
            continue
        kept = file.parent / "set-aside" / f"{file.stem}-{sha256(content).hexdigest()[:12]}.json"
        make_private(kept.parent)
        file.rename(kept)
        moved.append(str(kept.relative_to(run_dir)))
    return moved


def restore_receipts(run_dir: Path) -> list[str]:
    """Write the receipts anew that are missing; returns which.

    Raises:
        ReceiptConflictError: There is another file in the place of one.
    """
    restored: list[str] = []
    for receipt in iter_receipts(run_dir):
        missing = is_remainder(_read(run_dir / receipt_path(receipt)), encode_receipt(receipt))
        path = store_receipt(run_dir, receipt)
        restored += [path] if missing else []
    return restored
