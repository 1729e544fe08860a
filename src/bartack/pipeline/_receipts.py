"""Receipts as files: written once, never overwritten, and checked against the workspace whenever somebody asks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from bartack.agents import open_artifact
from bartack.core import DIR_MODE, FILE_MODE
from bartack.errors import FileAccessError, ReceiptConflictError, UnsafePathError
from bartack.journal import open_reader
from bartack.pipeline._records import Accepted, Receipt
from bartack.runtime.operate import Chronicle

Verified = Literal["same", "changed", "missing"]


def receipt_path(receipt: Receipt) -> str:
    """Where a receipt is, in the directory of its run."""
    task = receipt.task_id.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")
    return f"receipts/{task}/step-{receipt.step}.json"


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
    file.parent.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
    content = encode_receipt(receipt)
    there = _read(file)
    if not there:
        _put(file, content)
    elif there != content:
        raise ReceiptConflictError(str(file))
    return path


def _read(file: Path) -> bytes:
    """What is there; nothing also if a power cut has left nothing of it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _put(file: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all. It is not synced: the journal has the receipt, and gives it again."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(fd, "wb") as stream:
        stream.write(content)
    os.replace(temporary, file)


def load_receipt(path: str | os.PathLike[str]) -> Receipt:
    """Read a receipt.

    Raises:
        FileAccessError: It cannot be read, or is none.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError) as error:
        raise FileAccessError(os.fspath(path), str(error)) from None


def iter_receipts(run_dir: str | os.PathLike[str]) -> Iterator[Receipt]:
    """The receipts of a run, in the order of its journal. The journal is read, not the files; no hub is needed."""
    chronicle = Chronicle()
    with open_reader(run_dir) as reader:
        entries = list(reader.read())
        chronicle.add_all(entries)
        accepted = {
            step.seq for step in chronicle.steps if step.about == "accept" and step.status == "finished"
        }
        for entry in entries:
            if entry.seq in accepted:
                value = reader.load_value(entry)
                found = msgspec.json.decode(value or b"null", type=Accepted | None)
                if found is not None and found.receipt is not None:
                    yield found.receipt


def restore_receipts(run_dir: Path) -> list[str]:
    """Write the receipts anew that are missing; returns which.

    Raises:
        ReceiptConflictError: There is another file in the place of one.
    """
    restored: list[str] = []
    for receipt in iter_receipts(run_dir):
        missing = not _read(run_dir / receipt_path(receipt))
        path = store_receipt(run_dir, receipt)
        restored += [path] if missing else []
    return restored


def verify_receipt(receipt: Receipt, workspace: str | os.PathLike[str]) -> dict[str, Verified]:
    """Whether each artifact of a receipt is still what it was."""
    return {
        artifact.path: _verify(artifact.path, artifact.sha256, workspace) for artifact in receipt.artifacts
    }


def _verify(path: str, sum_: str, workspace: str | os.PathLike[str]) -> Verified:
    try:
        with open(open_artifact(os.fspath(workspace), path), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UnsafePathError):
        return "missing"
    return "same" if f"sha256:{digest}" == sum_ else "changed"
