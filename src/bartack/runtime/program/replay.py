"""Replays what a journal has of a run against a program, executing nothing: does the program still ask for the same steps?

Runs as a program of its own (``python -m bartack.runtime.program.replay``), with the hash seed of the run, because it imports
the user's modules. A worker that gets its history and never ``live`` sends nothing and does nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.project import with_absolute_path
from bartack.core import typed
from bartack.core.accounts import Account
from bartack.errors import BartackError, ReplayMismatchError, VersionError
from bartack.journal.veil import Secrets, Veil
from bartack.runtime.program.recording import Recording, open_recording
from bartack.runtime.program.stderr import errors_passed_on
from bartack.runtime.protocol import frames as f
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.secrets import open_veil_of
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.history import open_steps, outcome_of
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import WorkerState
from bartack.supervision.parent.guarded import run_guarded

REPLAY: Final = "bartack.runtime.program.replay"
TIMEOUT_S: Final = 600.0
NO_SECRETS: Final = Secrets({}, ())
_END: Final = "the end of the worker"


class Difference(msgspec.Struct, frozen=True):
    """Where a program and a journal part."""

    worker: str
    message: str
    step: str = ""
    recorded: str = ""
    asked: str = ""
    where: str = ""
    source: str = ""


class ReplayReport(msgspec.Struct, frozen=True):
    """What a replay found. ``steps`` counts the outcomes that fitted."""

    workers: int
    steps: int
    differences: list[Difference]


class Assignment(msgspec.Struct, frozen=True):
    """What to replay, and against which program."""

    run_dir: str
    program: str
    root: str
    folder: str
    secrets: Secrets = NO_SECRETS
    paths: list[str] = []
    every: bool = False
    """Whether workers that have ended are replayed, too."""


def check_replay(
    run: RunDir,
    program: Path,
    root: str,
    folder: str,
    seed: int,
    workspace: str,
    *,
    timeout_s: float = TIMEOUT_S,
    account: Account | None = None,
    paths: list[str] | None = None,
    every: bool = False,
    stand_ins: Mapping[str, str] | None = None,
) -> ReplayReport:
    """Replay a run against a program in a process of its own, which is executed as ``account``.

    Without ``every`` only the workers count that have something left to do. ``stand_ins`` are values for secrets that are not set.
    """
    given = dict(stand_ins or {})
    secrets = open_veil_of(run, workspace).secrets if run.path.is_dir() else NO_SECRETS
    secrets = secrets._replace(values={**given, **secrets.values})
    assignment = Assignment(str(run.path), str(program), root, folder, secrets, paths or [], every)
    environ = os.environ if account is None else account.environment(os.environ)
    with errors_passed_on() as errors:
        ran = run_guarded(
            REPLAY,
            msgspec.json.encode(assignment),
            cwd=workspace,
            env={**given, **with_absolute_path(environ), "PYTHONHASHSEED": str(seed)},
            errors=errors,
            timeout_s=timeout_s,
            account=account,
        )
    if ran is None:
        problem = f"the replay took longer than {timeout_s:g} s; the program may wait for something by itself"
        return ReplayReport(0, 0, [Difference("", problem)])
    if ran.code != 0 or not ran.output:
        problem = f"the replay ended with status {ran.code}"
        return ReplayReport(0, 0, [Difference("", problem)])
    return typed.decode(ran.output, type=ReplayReport)


def main() -> int:
    """Answer one assignment on stdout."""
    from bartack.runtime.worker_process.child import prepare_imports  # noqa: PLC0415 - the worker's side is needed only here

    assignment = typed.decode(sys.stdin.buffer.read(), type=Assignment)
    answer = os.dup(1)
    os.dup2(2, 1)
    prepare_imports(assignment.program, assignment.root, assignment.folder, assignment.paths)
    place, veil = Path(assignment.run_dir), Veil(assignment.secrets)
    try:
        report = replay(place, assignment.program, veil, every=assignment.every)
    except BartackError as error:
        report = ReplayReport(0, 0, [Difference("", error.message)])
    with os.fdopen(answer, "wb") as out:
        out.write(msgspec.json.encode(report))
    return 0


def replay(place: Path, program: str, veil: Veil, *, every: bool = False) -> ReplayReport:
    """Replay the workers of a recorded run against the program in a directory."""
    state = State()
    with open_recording(place, veil, checked=True) as recording:
        apply_all(state, recording.read())
        workers = [worker for worker in state.workers.values() if every or _is_replayed(worker)]
        histories = _histories(recording, workers)
        found = [
            _replay_worker(place, state, worker, histories[worker.path], program, recording)
            for worker in workers
        ]
    steps = sum(len(past) for past in histories.values())
    return ReplayReport(len(workers), steps, [difference for difference in found if difference is not None])


def _is_replayed(worker: WorkerState) -> bool:
    return not worker.ended or (worker.status == "failed" and not worker.error_is_final)


def _histories(recording: Recording, workers: list[WorkerState]) -> dict[str, list[f.Past]]:
    """The outcomes that each worker would replay if it were resumed; the journal is read once for all of them."""
    histories: dict[str, list[f.Past]] = {worker.path: [] for worker in workers}
    owners = {place: histories[worker.path] for worker in workers for place in _places(worker)}
    for entry in recording.read():
        history = owners.get(entry.seq)
        outcome = outcome_of(entry) if history is not None else None
        if history is not None and outcome is not None:
            history.append(outcome)
    return histories


def _places(worker: WorkerState) -> Iterable[int]:
    """Where the outcomes of a worker are that count: of a failed one, those before its failing step."""
    if worker.origin is None or not worker.origin_seq:
        return worker.history
    kept, _ = worker.blame.standing(worker.origin, worker.origin_seq)
    return [place for place in worker.history if place < worker.origin_seq or place in kept]


def _replay_worker(
    place: Path, state: State, worker: WorkerState, past: list[f.Past], program: str, blobs: Recording
) -> Difference | None:
    from bartack.runtime.context.invoke import call_worker  # noqa: PLC0415 - the worker's side is needed only here
    from bartack.runtime.scheduler.scheduler import Facts, Scheduler  # noqa: PLC0415 - the worker's side is needed only here
    from bartack.runtime.worker_process.child import load_worker  # noqa: PLC0415 - the worker's side is needed only here

    assert state.run is not None
    try:
        function = load_worker(worker.worker, program)
        facts = Facts(
            run=state.run.run,
            run_dir=str(place),
            workspace=state.run.workspace,
            path=worker.path,
            name=function.name,
            timestamp=state.created_at,
            rewinds=worker.rewinds,
            first=worker.first,
            agent=function.agent,
            argv=tuple(state.run.argv),
            versions=dict(worker.versions),
        )
        scheduler = Scheduler(facts, os.environ, _refuse, blobs)
        raw, ref = worker.arguments.raw, worker.arguments.ref
        data = blobs.get(ref) if ref is not None else bytes(raw or b"{}")
        coroutine = call_worker(function, scheduler, data)
        try:
            scheduler.rehearse(coroutine, past, open_steps(worker), ended=worker.status == "completed")
        finally:
            scheduler.discard()
    except BartackError as error:
        return Difference(worker.path, error.message)
    except Exception as error:  # noqa: BLE001 - the boundary of the program: it cannot even be called as it was
        return Difference(worker.path, _in_words(error))
    if scheduler.fatal is not None:
        return _difference(worker, scheduler.fatal)
    if worker.status == "completed" and scheduler.outcome[1] is not None:
        failure = f"a failure: {_in_words(scheduler.outcome[1])}"
        message = f"{worker.path}: the journal has {_END}, the program has {failure}"
        return Difference(worker.path, message, worker.path, _END, failure)
    return None


def _difference(worker: WorkerState, fatal: BartackError) -> Difference:
    match fatal:
        case ReplayMismatchError():
            return Difference(
                worker.path, fatal.message, fatal.step, fatal.recorded, fatal.asked, fatal.where, fatal.source
            )
        case VersionError():
            recorded = f"version {fatal.number} of {fatal.name!r}"
            asked = f"{fatal.known} of {fatal.name!r}"
            return Difference(worker.path, fatal.message, "", recorded, asked, fatal.where, fatal.source)
        case _:
            return Difference(worker.path, fatal.message)


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _refuse(frame: f.Frame) -> None:
    raise AssertionError(f"a replay must not send anything: {frame}")


if __name__ == "__main__":
    sys.exit(main())
