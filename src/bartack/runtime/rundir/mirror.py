"""Plain files that mirror a run for people and for processes that have not joined it: run.json, .failed, transcript.txt.

The journal is the truth; these are written from it, and written anew when they are missing or wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bartack.core.files import replace_file
from bartack.journal.veil import Secrets, Veil
from bartack.runtime.rundir.doing import Doing, FirstQuestion, OpenKind, doing_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.moments import iso_time
from bartack.runtime.rundir.pipeline_transcript import FactTranscript, is_made_of_facts
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.rundir.transcript import Transcript, head_of
from bartack.runtime.state.entries import FailureRecorded
from bartack.runtime.state.run_state import State

STACK_LIMIT = 50
_LEFT: dict[str, str] = dict.fromkeys(("disk", "copies", "terminated", "resting"), "interrupted")
"""How a hub ended that left its run resumable."""
MESSAGE_LIMIT = 4096


Describe = Callable[[], dict[str, object]]
"""Returns what the program of a run knows of it."""


class RunBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents have cost, and what is set aside for those that are at work."""

    spent_usd: float
    reserved_usd: float
    usd_estimated: bool = False
    """What they have cost was computed from a table of prices, or in part."""


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
    """The last entry known to be durable: a journal that ends before it has lost entries. See ``KeptRun.mark``."""
    hub: int
    project: str = ""
    pid: int = 0
    """The process that runs it, while one does."""
    ended_at: str = ""
    resumes: int = 0
    """How often it was resumed."""
    questions: list[str] = []
    asked: FirstQuestion | None = None
    """The first of these."""
    workers: int = 0
    """Workers that have not ended, as of the last second."""
    open: list[OpenKind] = []
    """Steps that are under way, by kind, as of the last second."""
    deadlock: list[str] = []
    """What each worker waits for, while all wait for each other."""
    rests_until: str = ""
    """When a run that no process runs has something to do again by itself."""
    rests_for: str = ""
    """What it waits for until then."""
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


class MirrorFiles(NamedTuple):
    """The content of the files at one place of the journal."""

    run: RunFile
    failed: FailedFile | None


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
        self._shown: tuple[Doing, RunBudget | None] | None = None
        """What the files that were taken last say that changes without a change of status."""
        self._transcript = (
            FactTranscript(run, run.transcript)
            if is_made_of_facts(state.run)
            else Transcript(run, run.transcript, self._head)
        )

    def write(self, seq: int, *, active: bool, status: str = "") -> None:
        """Bring run.json and .failed up to date."""
        files = self.take(active=active, status=status)
        if files is not None:
            self.put(files, seq)

    def is_stale(self) -> bool:
        """Whether the run does something else, or has cost more, than the files say that were taken last."""
        return self._state.run is not None and self._shown != (doing_of(self._state), self._budget())

    def take(self, *, active: bool, status: str = "") -> MirrorFiles | None:
        """What run.json and .failed are to hold if the state, as it is now, becomes durable."""
        if self._state.run is None:
            return None
        return MirrorFiles(self._run_file(active, status), self._failed_file())

    def put(self, files: MirrorFiles, seq: int) -> None:
        """Write the files; entry ``seq`` is durable, and they show nothing that is later."""
        if not self._run.path.is_dir():
            return
        files.run.seq = seq
        with contextlib.suppress(OSError):
            # The files are for people; the journal reports a full disk or a vanished directory.
            self._run.mark(self._encode(files.run))
            self._write_failed(files.failed)
        self._transcript.look()
        if not files.run.pid:
            self._transcript.close()

    def transcribe(self, shown: Shown) -> None:
        """Something is to be shown: add it to the transcript, if it belongs there."""
        self._transcript.add(shown._replace(text=self._veil.hide_text(shown.text)))

    def repair_transcript(self) -> None:
        """Add the lines that are missing in the transcript since a hub was killed."""
        self._transcript.repair(self._state.outputs)

    def _head(self) -> str:
        """What the transcript begins with."""
        assert self._state.run is not None
        return head_of(self._state.run, self._state.created_at)

    def _encode(self, content: msgspec.Struct) -> bytes:
        encoded = msgspec.json.encode(content)
        hidden = self._veil.hide(encoded)
        # Nothing is put back into these files: a marker is as good as its text.
        shown = encoded if hidden == encoded else msgspec.json.encode(msgspec.json.decode(hidden))
        return shown + b"\n"

    def _run_file(self, active: bool, status: str) -> RunFile:
        run, failure = self._state.run, self._state.failure
        assert run is not None
        self._shown = (doing, budget) = (doing_of(self._state), self._budget())
        ended = self._state.status if self._state.ended is not None else status
        return RunFile(
            run=run.run,
            status=_LEFT.get(ended, ended) or self._state.status,
            worker=run.name,
            program=run.program,
            workspace=run.workspace,
            created_at=iso_time(self._state.created_at),
            updated_at=iso_time(self._state.last_at),
            seq=0,
            hub=self._state.hub,
            project=run.project,
            rests_until=iso_time(self._state.rests_until) if self._state.rests_until and not active else "",
            rests_for="" if active else self._state.rests_for,
            pid=os.getpid() if active else 0,
            ended_at="" if self._state.ended is None else iso_time(self._state.last_at),
            resumes=max(self._state.hub - 1, 0),
            deadlock=self.deadlock if active else [],
            questions=list(self._state.questions),
            asked=doing.asked,
            workers=doing.workers,
            open=doing.open,
            error="" if failure is None else describe_failure(failure),
            budget=budget,
            pipeline=None if self._describe is None else self._describe(),
        )

    def _budget(self) -> RunBudget | None:
        spent, reserved = round(self._state.spent_usd, 6), round(self._state.reserved_usd, 6)
        return RunBudget(spent, reserved, self._state.usd_estimated) if spent or reserved else None

    def _failed_file(self) -> FailedFile | None:
        failure = self._state.failure
        if failure is None:
            return None
        stack = [msgspec.to_builtins(line) for line in failure.error.stack[-STACK_LIMIT:]]
        return FailedFile(
            at=iso_time(self._state.failed_at),
            worker=failure.worker,
            error=f"{failure.error.type.rpartition(':')[2]} {failure.error.code}".strip(),
            message=failure.error.message[:MESSAGE_LIMIT],
            stack=stack,
            step={"path": failure.p, "n": failure.n} if failure.n else None,
            suppressed=self._state.suppressed,
        )

    def _write_failed(self, content: FailedFile | None) -> None:
        if content is not None:
            replace_file(self._run.failed, self._encode(content))
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._run.failed)


def describe_failure(failure: FailureRecorded) -> str:
    """Why a run failed, in a text that is not too long for a list."""
    whose = f"{failure.worker}: " if failure.worker else ""
    return f"{whose}{failure.error.message}"[:MESSAGE_LIMIT]
