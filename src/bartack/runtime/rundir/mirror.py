"""Plain files that mirror a run for people and for processes that have not joined it: run.json, .failed, transcript.txt.

The journal is the truth; these are written from it, and written anew when they are missing or wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from bartack.core import replace_file
from bartack.journal import Secrets, Veil
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.pipeline_transcript import FactTranscript, is_made_of_facts
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.rundir.transcript import Transcript
from bartack.runtime.state.entries import FailureRecorded
from bartack.runtime.state.run_state import State

STACK_LIMIT = 50
_LEFT: dict[str, str] = {"disk": "interrupted", "terminated": "interrupted"}
"""How a hub ended that left its run resumable."""
MESSAGE_LIMIT = 4096


Describe = Callable[[], dict[str, object]]
"""Returns what the program of a run knows of it."""


class RunBudget(msgspec.Struct, frozen=True):
    """What agents have cost, and what is set aside for those that are at work."""

    spent_usd: float
    reserved_usd: float


class RunFile(msgspec.Struct, omit_defaults=True):
    """The content of run.json."""

    run: str
    status: str
    worker: str
    program: str
    workspace: str
    created_at: str
    updated_at: str
    seq: int
    """The last entry known to be durable: a journal that ends before it has lost entries."""
    hub: int
    project: str = ""
    pid: int = 0
    """The process that runs it, while one does."""
    ended_at: str = ""
    resumes: int = 0
    """How often it was resumed."""
    questions: list[str] = []
    deadlock: list[str] = []
    """What each worker waits for, while all wait for each other."""
    error: str = ""
    budget: RunBudget | None = None
    """Money, if agents have cost some."""
    pipeline: dict[str, object] | None = None
    """How far a run of the pipeline is: its stage, its tasks, and the last report of each agent."""


class FailedFile(msgspec.Struct):
    """The content of .failed: why the session failed."""

    at: str
    worker: str
    error: str
    message: str
    stack: list[dict[str, object]]
    step: dict[str, object] | None = None
    suppressed: int = 0


class Mirror:
    """Writes the files of one run."""

    def __init__(
        self, run: RunDir, state: State, describe: Describe | None = None, veil: Veil | None = None
    ) -> None:
        self._describe = describe
        self._veil = veil or Veil(Secrets({}, ()))
        self._run = run
        self._state = state
        self.deadlock: list[str] = []
        """What each worker waits for, while all wait for each other."""
        self._transcript = (
            FactTranscript(run.path, run.transcript)
            if is_made_of_facts(state.run)
            else Transcript(run.path, run.transcript, self._head)
        )

    def write(self, seq: int, *, active: bool, status: str = "") -> None:
        """Bring run.json and .failed up to date."""
        if self._state.run is None or not self._run.path.is_dir():
            return
        with contextlib.suppress(OSError):
            # The files are for people; the journal reports a full disk or a vanished directory.
            replace_file(self._run.mirror, self._encode(self._run_file(seq, active, status)))
            self._write_failed()
        self._transcript.look()
        if not active:
            self._transcript.close()

    def transcribe(self, shown: Shown) -> None:
        """Something is to be shown: add it to the transcript, if it belongs there."""
        self._transcript.add(shown._replace(text=self._veil.hide_text(shown.text)))

    def repair_transcript(self) -> None:
        """Add the lines that are missing in the transcript since a hub was killed."""
        self._transcript.repair(self._state.outputs)

    def _head(self) -> str:
        """What the transcript begins with: which run of which project it is."""
        run = self._state.run
        assert run is not None
        return f"bartack [run] {run.run} of {run.project or os.path.basename(run.workspace)}"

    def _encode(self, content: msgspec.Struct) -> bytes:
        encoded = msgspec.json.encode(content)
        hidden = self._veil.hide(encoded)
        # Nothing is put back into these files: a marker is as good as its text.
        shown = encoded if hidden == encoded else msgspec.json.encode(msgspec.json.decode(hidden))
        return shown + b"\n"

    def _run_file(self, seq: int, active: bool, status: str) -> RunFile:
        run, failure = self._state.run, self._state.failure
        assert run is not None
        ended = self._state.status if self._state.ended is not None else status
        return RunFile(
            run=run.run,
            status=_LEFT.get(ended, ended) or self._state.status,
            worker=run.name,
            program=run.program,
            workspace=run.workspace,
            created_at=_iso(self._state.created_at),
            updated_at=_iso(self._state.last_at),
            seq=seq,
            hub=self._state.hub,
            project=run.project,
            pid=os.getpid() if active else 0,
            ended_at="" if self._state.ended is None else _iso(self._state.last_at),
            resumes=max(self._state.hub - 1, 0),
            deadlock=self.deadlock if active else [],
            questions=list(self._state.questions),
            error="" if failure is None else describe_failure(failure),
            budget=self._budget(),
            pipeline=None if self._describe is None else self._describe(),
        )

    def _budget(self) -> RunBudget | None:
        spent, reserved = round(self._state.spent_usd, 6), round(self._state.reserved_usd, 6)
        return RunBudget(spent, reserved) if spent or reserved else None

    def _write_failed(self) -> None:
        failure = self._state.failure
        if failure is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._run.failed)
            return
        stack = [msgspec.to_builtins(line) for line in failure.error.stack[-STACK_LIMIT:]]
        content = FailedFile(
            at=_iso(self._state.failed_at),
            worker=failure.worker,
            error=f"{failure.error.type.rpartition(':')[2]} {failure.error.code}".strip(),
            message=failure.error.message[:MESSAGE_LIMIT],
            stack=stack,
            step={"path": failure.p, "n": failure.n} if failure.n else None,
            suppressed=self._state.suppressed,
        )
        replace_file(self._run.failed, self._encode(content))


def known_seq(run: RunDir) -> int:
    """The last entry that run.json knows to be durable; 0 if it knows none."""
    try:
        return msgspec.json.decode(run.mirror.read_bytes(), type=RunFile).seq
    except (OSError, msgspec.DecodeError):
        return 0


def describe_failure(failure: FailureRecorded) -> str:
    """Why a run failed, in a text that is not too long for a list."""
    whose = f"{failure.worker}: " if failure.worker else ""
    return f"{whose}{failure.error.message}"[:MESSAGE_LIMIT]


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
