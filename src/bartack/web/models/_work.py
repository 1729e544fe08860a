"""What a run has left: receipts, snapshots, its program."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.rundir.receipts import Receipt, Verified
from bartack.web.models._model import At, Model, Seq

ChangeKind = Literal["added", "deleted", "modified", "mode"]
FileNow = Literal["same", "changed", "missing"]


class ReceiptRow(Model, frozen=True, kw_only=True):
    """A receipt, and what became of its artifacts since."""

    receipt: Receipt
    seq: Seq
    verified: dict[str, Verified] = {}


class Receipts(Model, frozen=True, kw_only=True):
    """The receipts of a run, in the order of its journal."""

    receipts: list[ReceiptRow]
    seq: Seq


class SnapshotRow(Model, frozen=True, kw_only=True):
    """A snapshot of the workspace."""

    id: str
    at: At
    seq: Seq
    files: int = 0
    bytes: int = 0
    task: str = ""
    p: str = ""
    n: int = 0
    kept: Annotated[bool, Meta(description="Whether its manifest is there, so that it can be compared.")] = (
        False
    )


class Snapshots(Model, frozen=True, kw_only=True):
    """The snapshots of a run, in the order in which they were taken."""

    snapshots: list[SnapshotRow]
    seq: Seq


class FileChangeRow(Model, frozen=True, kw_only=True):
    """A file in which two snapshots differ."""

    path: str
    change: ChangeKind
    size_before: int | None = None
    size_after: int | None = None
    lines: Annotated[
        list[str] | None,
        Meta(description="A unified diff, if both contents can still be had; absent: they cannot."),
    ] = None


class SnapshotDiff(Model, frozen=True, kw_only=True):
    """The files in which two snapshots differ."""

    a: str
    b: str
    files: list[FileChangeRow]
    left_out: int = 0


class ProgramFile(Model, frozen=True, kw_only=True):
    """A file of the program that a run executes."""

    path: str
    size: int
    text: str = ""
    cut: bool = False
    now: Annotated[FileNow, Meta(description="What became of the file in the project.")]
    lines: Annotated[
        list[str], Meta(description="A unified diff from this file to that of the project.")
    ] = []


class Program(Model, frozen=True, kw_only=True):
    """The program that a run executes, and how the project differs from it now."""

    program: str
    worker: str
    root: str
    files: list[ProgramFile]
    left_out: int = 0
    environment: dict[str, str] = {}
    forked_from: str = ""
    argv: list[str] = []
