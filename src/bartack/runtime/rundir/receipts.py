"""Receipts as they are read: proof of what agents did in a run, from its journal. No hub is needed.

The pipeline writes them; their form is here, so that programs can read them without the pipeline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from bartack.agents import Usage
from bartack.agents.artifacts import open_artifact
from bartack.agents.contract import VerifiedArtifact
from bartack.core import typed
from bartack.depot import KeptRun
from bartack.errors import FileAccessError, UnsafePathError
from bartack.runtime.rundir.follower import RunFollower
from bartack.runtime.rundir.layout import kept_run
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import Timeline

ACCEPT: Final = "accept"
"""What the step of the pipeline is about that makes a receipt."""
Verified = Literal["same", "changed", "missing"]
"""What became of an artifact since."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a receipt."""


class Answered(Record, frozen=True):
    """A question of an agent and the answer of a person."""

    question: str
    answer: str


class FileChange(Record, frozen=True):
    """A file that differs between two snapshots."""

    path: str
    change: Literal["added", "modified", "deleted"]
    sha256: str = ""
    size: int | None = None


class Attempt(Record, frozen=True):
    """One attempt at a command."""

    attempt: int
    cause: str
    started_at: str
    ended_at: str = ""
    code: str = ""


class ReceiptAgent(Record, frozen=True):
    """The agent that did it."""

    agent_type: str
    agent_id: str


class ReceiptArtifact(Record, frozen=True):
    """A file that the agent left, as it was found on the disk."""

    path: str
    sha256: str
    size: int
    found: bool = False
    contains_secret: bool = False

    @classmethod
    def of(cls, artifact: VerifiedArtifact) -> ReceiptArtifact:
        """The same of an artifact that was verified."""
        return cls(path=artifact.path, sha256=artifact.sha256, size=artifact.size, found=artifact.found)


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Readable proof of a finished agent step."""

    schema: int
    run_id: str
    task_id: str
    step: int
    action: str
    round: int
    cause: str
    idempotency_key: str
    correlation_id: str
    command_message_id: str
    event_message_id: str
    agent: ReceiptAgent
    attempts: list[Attempt]
    snapshot_id: str
    result_snapshot_id: str
    changes: list[FileChange]
    changes_more: int = 0
    event: str
    status: str = ""
    replayed: bool = False
    artifacts: list[ReceiptArtifact]
    tests: dict[str, object] | None = None
    usage: Usage | None = None
    task_title: str = ""
    instruction: str = ""
    approved_plan: str = ""
    clarifications: list[Answered]
    conflict_resolutions: list[str]
    created_at: str

    def verify(self, workspace: str | os.PathLike[str] = ".") -> dict[str, Verified]:
        """Compare each artifact with what it was.

        Args:
            workspace: Where the run worked.
        """
        return {
            artifact.path: _verify(artifact.path, artifact.sha256, workspace) for artifact in self.artifacts
        }


class _Accepted(msgspec.Struct):
    receipt: Receipt | None = None


def load_receipt(path: str | os.PathLike[str]) -> Receipt:
    """Read a receipt.

    Raises:
        FileAccessError: It cannot be read, or is none.
    """
    try:
        return typed.decode(Path(path).read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError) as error:
        raise FileAccessError(os.fspath(path), str(error)) from None


def iter_receipts(run: KeptRun | str | os.PathLike[str], *, undone: bool = False) -> Iterator[Receipt]:
    """The receipts of a run, in the order of its journal. The journal is read, not the files; no hub is needed.

    Args:
        run: The run, or its directory.
        undone: Instead, those of answers that do not count any more: a person has set them aside.
    """
    yield from read_receipts(run, undone=undone)[1]


def read_receipts(
    run: KeptRun | str | os.PathLike[str], *, undone: bool = False
) -> tuple[State, list[Receipt]]:
    """What the journal of a run adds up to, and its receipts; see ``iter_receipts``."""
    with kept_run(run).open_reader() as reader:
        entries = list(reader.read())
        timeline = Timeline.of(entries)
        wanted = "undone" if undone else "finished"
        accepted = {step.seq for step in timeline.steps if step.about == ACCEPT and step.status == wanted}
        made = [receipt_in(reader.load_value(entry)) for entry in entries if entry.seq in accepted]
    return timeline.state, [receipt for receipt in made if receipt is not None]


def receipts_of(follower: RunFollower) -> list[Receipt]:
    """The receipts of a run that is followed. Only their values are read again."""
    steps = follower.spans.steps(kinds=("body",), text=ACCEPT)
    accepted = [step for step in steps if step.about == ACCEPT and step.status == "finished"]
    made = [receipt_in(follower.value(step.to_seq)) for step in accepted]
    return [receipt for receipt in made if receipt is not None]


def receipt_in(value: bytes | None) -> Receipt | None:
    """The receipt in the outcome of a step that has accepted an answer, if it has one."""
    found = typed.decode(value or b"null", type=_Accepted | None)
    return None if found is None else found.receipt


def _verify(path: str, sum_: str, workspace: str | os.PathLike[str]) -> Verified:
    try:
        with open(open_artifact(os.fspath(workspace), path), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UnsafePathError):
        return "missing"
    return "same" if f"sha256:{digest}" == sum_ else "changed"
