"""Runs, as a program outside them sees them: start, read, answer, wait for, resume.

The process of a run is started in ``start_hub.py``, the requests to it are built in ``requests.py``, and what is also possible
without that process is in ``manage.py``. ``Run`` on an asyncio loop is in ``asynchronous/run.py``.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec

from bartack.config.load import check_resumed, find_workspace, load_config, load_elsewhere
from bartack.core import typed
from bartack.core.closing import Closing
from bartack.depot.elsewhere import Home
from bartack.errors import (
    DeadlineExceededError,
    NotInWorkerError,
    RunFailedError,
    RunNotActiveError,
    RunNotFinishedError,
    UsageError,
)
from bartack.messaging import DeadLetterQueue
from bartack.runtime.client.again import set_aside
from bartack.runtime.client.answering import answer_question
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.databases import (
    bring_journal,
    find_run_on,
    give_to_nodes,
    list_runs_on,
    queueing_of,
)
from bartack.runtime.client.dead_letters import open_letters
from bartack.runtime.client.deciding import Decisions, record_decisions
from bartack.runtime.client.manage import cancel_run, fail_run, fork_run
from bartack.runtime.client.sending import send_message
from bartack.runtime.client.session import ForeignMailbox, Session
from bartack.runtime.client.start_hub import has_left, start_hub
from bartack.runtime.context.decorators import Worker as WorkerFunction
from bartack.runtime.context.decorators import WorkerCall
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.launch import check_resumable
from bartack.runtime.program.update import update_program
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.values import codec, encode
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import ENDED, Status, find_run, is_readable, list_runs, read_state, status_of
from bartack.runtime.rundir.inside import check_may_drive
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.presence import check_continues, join_limit_s
from bartack.runtime.rundir.secrets import restored
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.entries import FailureRecorded
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import worker_status
from bartack.runtime.state.timeline import MessageRecord, StepRecord, StepStatus, Timeline
from bartack.runtime.state.worker_state import NO_VALUE, UnknownDecision, Value

if TYPE_CHECKING:
    from bartack.runtime.rundir.receipts import Receipt
    from bartack.runtime.rundir.snapshots import Snapshot

T = TypeVar("T")


class Question(msgspec.Struct, frozen=True):
    """A question that is not answered yet."""

    id: str
    worker: str
    text: str
    type: str = "str"
    options: list[str] | None = None
    kind: str = "ask"
    """``ask``, or ``permission``: whether an agent may use a tool."""
    agent: str = ""
    """The agent that asks; empty if the program does."""
    tool: str = ""
    input: str = ""
    """With a permission: the tool, and what it is to be used with, as JSON in one line."""


class RunState(msgspec.Struct, frozen=True):
    """What a run is doing."""

    id: str
    status: Status
    error: str
    questions: list[Question]
    spent_usd: float
    reserved_usd: float
    workers: dict[str, str]
    usd_estimated: bool = False
    """What was spent was computed from a table of prices, or in part."""


# Long because it is the one object through which programs use a run; each method is a few lines that call the module that owns it.
class Run(Closing):
    """One run of a workspace. Closing it never stops the run."""

    def __init__(self, run: RunDir, *, is_for_nodes: bool = False) -> None:
        self._run = run
        self._is_for_nodes = is_for_nodes

    @classmethod
    def start(
        cls,
        program: str | os.PathLike[str] | WorkerFunction[..., object] | WorkerCall[object],
        *args: object,
        worker: str | None = None,
        workspace: str | os.PathLike[str] = ".",
        no_input: bool = False,
        on: str | None = None,
        carry: Literal["auto", "full", "remote", "none", "shared"] | None = None,
        **kwargs: object,
    ) -> Run:
        """Start a run in a process of its own, which outlives the caller; or on a node of a database.

        Args:
            program: A file, ``FILE:worker``, a worker, or a worker with its arguments.
            args: Arguments of the worker.
            worker: The worker of the file to run.
            workspace: Where the run's commands and relative paths are.
            no_input: No person is there to answer questions.
            on: A PostgreSQL database that keeps the run, whose nodes run it: ``postgresql://…`` or ``service:NAME``. Which nodes
                take it, and whose run it is there, is said by the section ``run`` of the settings.
            carry: With ``on``: how the workspace comes to the node, as a copy (``auto``; ``full``: with its whole history;
                ``remote``: with what its remote lacks of that), begun empty (``none``), or at the same path (``shared``). Without
                it, as the section ``workspace`` of the settings says.
            kwargs: Further arguments of the worker.

        Raises:
            ProgramImportError: The program cannot run; no run was made.
            UsageError: The arguments do not match the worker; no run was made.
            DepotError: The database cannot be used.
            WorkspaceCarryError: The workspace is too large to travel; no run was made.
        """
        place = find_workspace(Path(workspace)).resolve()
        request = _request(program, args, kwargs)
        if worker is not None:
            request.worker = worker
        request.no_input = no_input
        if on is None:
            if carry is not None:
                raise UsageError("carry", "it brings a workspace to a node of a database: name one with on")
            run = create_run(request, place, load_config(place))
            start_hub(run)
            return cls(run)
        sets = () if carry is None else (f"workspace.carry={carry}",)
        config = load_config(place, sets)
        is_carried = config.workspace.carry != "shared"
        home = Home(load_elsewhere(on), config.run.team, queueing=queueing_of(config.run))
        run = create_run(request, place, config, sets, home=home, is_carried=is_carried, is_for_nodes=True)
        bring_journal(run)
        return cls(run, is_for_nodes=True)

    @classmethod
    def open(
        cls, run: str | os.PathLike[str], workspace: str | os.PathLike[str] = ".", on: str | None = None
    ) -> Run:
        """A run by its id, a unique beginning of it, ``latest``, or its directory; with ``on`` a run of that database.

        Raises:
            RunNotFoundError: There is none, or more than one.
            DepotError: The database cannot be used.
        """
        if on is not None:
            return cls(find_run_on(on, run), is_for_nodes=True)
        return cls(find_run(run, Path(workspace)))

    @classmethod
    def list(cls, workspace: str | os.PathLike[str] = ".", on: str | None = None) -> list[Run]:
        """The runs of a workspace that can be read, the newest first. ``bartack status`` names the others with the reason.

        Args:
            workspace: The workspace.
            on: The database whose runs are listed instead: the newest 1,000, and all older ones that have a question open.

        Raises:
            DepotError: The database cannot be used.
        """
        found = list_runs(Path(workspace)) if on is None else list_runs_on(on)
        return [cls(run, is_for_nodes=on is not None) for run in found if is_readable(run)]

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """The run's directory."""
        return self._run.path

    @property
    def program(self) -> str:
        """The file that the run was started from."""
        state = read_state(self._run)
        return state.run.program if state.run else ""

    def state(self) -> RunState:
        """What the run is doing now."""
        return _describe(self._run, read_state(self._run))

    def wait(self, timeout_s: float | None = None, until: Literal["ended", "waiting"] = "ended") -> RunState:
        """Wait until the run has ended (or was interrupted), or until it waits for an answer.

        Raises:
            DeadlineExceededError: It took longer than ``timeout_s``.
        """
        goals = ENDED | ({"waiting"} if until == "waiting" else frozenset[str]())
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        with self._run.watch() as watch:
            while True:
                found = self.state()
                if self._has_stopped(found, goals):
                    # One that had failed may have been continued, and have ended anew, since it was read.
                    return self.state() if found.status == "failed" else found
                left = 1.0 if limit is None else min(limit - time.monotonic(), 1.0)
                if left <= 0:
                    raise DeadlineExceededError("wait", timeout_s or 0.0, "explicit")
                watch.wait(left)

    def _has_stopped(self, found: RunState, goals: frozenset[str]) -> bool:
        """Whether a run has come to one of these, or waits for a person without a process."""
        if found.status not in goals | {"waiting"}:
            return False
        if found.status in {"waiting", "interrupted", "failed"} and not self._run.is_active():
            # Nodes may have been given a failed run back: its end is still to come then.
            return not self._run.is_awaited() and (found.status == "waiting" or has_left(self._run))
        return found.status in goals and (found.status == "waiting" or has_left(self._run))

    @overload
    def result(self) -> object: ...
    @overload
    def result(self, type: type[T]) -> T: ...
    def result(self, type: object = None) -> object:  # noqa: A002 - likewise
        """The result of the run.

        Raises:
            RunFailedError: It failed.
            RunNotFinishedError: It has not ended, or was interrupted.
        """
        return codec(Any if type is None else type).decode(self.result_bytes())

    def result_bytes(self) -> bytes:
        """The result of the run, as encoded JSON; see ``result``."""
        with self._run.open_reader() as reader:
            state = State()
            last = None
            for entry in reader.read():
                apply_all(state, [entry])
                last = entry if entry.kind == "run.ended" else last
            if state.failure is not None:
                raise _failure(self._run, state.failure)
            if state.ended is None or last is None or state.ended.status != "completed":
                raise RunNotFinishedError(self.id, status_of(self._run, state))
            value = reader.load_value(last) or b"null"
        return restored(self._run, self._run.workspace(state), value)

    def resume(
        self,
        *,
        update: bool = False,
        program: str | os.PathLike[str] | None = None,
        unknown: str | None = None,
        value: object = None,
        again: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        sets: Sequence[str] = (),
    ) -> None:
        """Resume an interrupted or failed run.

        A run of the pipeline is resumed as ``bartack resume`` does it: with the workspace for itself, its receipts and settings.
        A run for the nodes of a database is given back to them with what was decided, which any machine may do.

        Args:
            update: Take the program's source as it is now; it must match its recorded steps.
            program: Take the program from this file, likewise.
            unknown: What to do with a step whose outcome is not known: ``retry``, ``done`` or ``fail``.
            value: With ``done``: its outcome.
            again: Execute this step again, ``path:n`` or ``n`` of the first worker: its recorded outcome is set aside, with all
                that followed from it.
            workspace: Where its workspace is, if it is not where it was. Of a run for nodes: with ``update``, where its source is,
                if that is not in the workspace of this process.
            sets: Settings that hold for this run from now on, each ``section.key=value``.

        Raises:
            ConfigError: A setting cannot be used, or cannot change any more.
            UsageError: A node is to resume it, and a workspace was given without ``update``.
            WorkspaceBusyError: Another run of the pipeline works in its workspace.
            JournalLockedError: Another process runs it.
            ResumeRefusedError: It has ended for good, needs a decision first, or cannot execute the step again.
            StepNotFoundError: The run has no such step, or the step has no outcome.
            PeerRefusedError: This process belongs to a run.
            HubStoppedError: A process runs it and is stopped.
            JournalLostError: Its journal has lost acknowledged entries; nothing was executed or changed. Accepting the
                loss is up to a person: ``bartack resume`` has an option for it.
            ForeignRunError: It came from elsewhere, and is not trusted.
        """
        if self._is_for_nodes or self._run.is_for_nodes():
            if again is not None:
                set_aside(self._run, again)
            self._take_source(program, workspace, wanted=update or program is not None)
            self._give_back(unknown, value, sets)
            return
        if self._run.is_active():
            check_continues(self._run, self._run.owner_pid(), join_limit_s())
        check_own(self._run)
        check_resumed(sets)
        self._run.check_kept()
        decision = None if unknown is None else UnknownDecision(unknown)
        check_may_drive(self._run)
        if again is not None:
            set_aside(self._run, again)
        if update or program is not None:
            update_program(self._run, None if program is None else Path(program))
        check_resumable(self._run, read_state(self._run), decision)
        given = None if workspace is None else os.fspath(workspace)
        start_hub(self._run, decision, encode(value) if unknown == "done" else b"", given, sets)

    def _take_source(
        self,
        program: str | os.PathLike[str] | None,
        workspace: str | os.PathLike[str] | None,
        *,
        wanted: bool,
    ) -> None:
        """Take the program of a run of nodes from a workspace of this machine, if that is wanted."""
        if not wanted:
            if workspace is not None:
                raise UsageError("resume", "a node has the workspace of the run, so it cannot be given")
            return
        place = find_workspace(Path("." if workspace is None else workspace)).resolve()
        update_program(self._run, None if program is None else Path(program), str(place))

    def _give_back(self, unknown: str | None, value: object, sets: Sequence[str]) -> None:
        """Record what was decided, and queue the run for the nodes of its database."""
        decision = None
        if unknown is not None:
            outcome = Value(msgspec.Raw(encode(value))) if unknown == "done" else NO_VALUE
            decision = UnknownDecision(unknown, outcome)
        record_decisions(self._run, Decisions(unknown=decision, sets=sets))
        check_resumable(self._run, read_state(self._run), decision)
        give_to_nodes(self._run)

    def fork(self, at: str | int, *, update: bool = False) -> Run:
        """A new run that begins with the steps of this one; nothing is executed until it is resumed.

        If this run keeps copies of its workspace, the new one begins with the files as of that step. Others are not rolled back.

        Args:
            at: The last step that both have in common: ``path:n``, or ``n`` of the first worker as text. Or the number of an
                entry of the journal: the last step that had an outcome then.
            update: It takes the program's source as it is now, which must match the steps that both have.

        Raises:
            StepNotFoundError: The run has no such step, or the step has no outcome.
        """
        made = fork_run(self._run, at)
        if update:
            update_program(made)
        return Run(made, is_for_nodes=self._is_for_nodes)

    def cancel(self, reason: str = "") -> None:
        """Cancel the run; it cannot be resumed. With or without a process that runs it.

        Raises:
            RunNotActiveError: It has ended for good already.
        """
        cancel_run(self._run, reason)

    def fail(self, message: str) -> None:
        """Fail the session for all processes in it. With or without a process that runs it.

        Raises:
            RunNotActiveError: It has ended for good already.
        """
        fail_run(self._run, message)

    def interrupt(self) -> None:
        """Stop the run; it can be resumed."""
        with HubClient(self._run) as hub:
            hub.ask("interrupt")

    def questions(self) -> Sequence[Question]:
        """The questions that are not answered yet."""
        return self.state().questions

    def answer(self, question: str, value: object) -> None:
        """Answer a question. The first answer counts; without a process that runs the run it is left for the next one.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It was answered before.
            TypeMismatchError: The answer is not of the kind that was asked for.
            PeerRefusedError: This process belongs to a run.
        """
        answer_question(self._run, question, encode(value))

    def send(self, mailbox: str, value: object, key: str | None = None) -> str:
        """Put a message into a mailbox; without a process that runs the run it is left for the next one."""
        return send_message(self._run, mailbox, encode(value), key or "").id

    def receive(self, mailbox: str, timeout_s: float | None = None) -> object:
        """Take the oldest message of a mailbox: at least once, it is acknowledged after it was read.

        Raises:
            RunNotActiveError: No process runs the run.
            ReceiveTimeoutError: None came in time.
        """
        with HubClient(self._run, wakes=True) as hub:
            return ForeignMailbox(hub, mailbox).receive(timeout_s)

    def steps(self, worker: str | None = None, status: StepStatus | None = None) -> Iterator[StepRecord]:
        """The steps so far, in the order in which they began.

        Args:
            worker: Only those of the worker of this path, its branches and its tools.
            status: Only those with this status.
        """
        timeline = self._timeline()
        for step in timeline.steps:
            owner = timeline.state.worker_of(step.p)
            if worker in (None, owner.path if owner is not None else step.p) and status in (
                None,
                step.status,
            ):
                yield step

    def messages(self, mailbox: str | None = None) -> Iterator[MessageRecord]:
        """The messages so far, in the order in which they were sent; or those of one mailbox."""
        for message in self._timeline().messages.values():
            if mailbox in (None, message.mailbox):
                yield message

    def receipts(self) -> Iterator[Receipt]:
        """What agents did in a run of the pipeline, each with its proof, in the order of the journal."""
        from bartack.runtime.rundir.receipts import iter_receipts  # noqa: PLC0415 - few runs have any

        return iter_receipts(self._run)

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots that were taken of the workspace, in the order in which they were taken first.

        Raises:
            ManifestError: One cannot be read.
        """
        from bartack.runtime.rundir.snapshots import iter_snapshots  # noqa: PLC0415 - likewise

        return iter_snapshots(self._run.path)

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The messages of the run that could not be delivered; with or without a process that runs it."""
        return open_letters(self._run)

    def join(self) -> Session:
        """Take part in the session."""
        return Session.join(self._run.path)

    def events(self, *, follow: bool = False) -> Iterator[dict[str, object]]:
        """The entries of the journal: those that are there, or also those to come."""
        with self._run.open_reader() as reader:
            for entry in reader.follow() if follow else reader.read():
                yield {"seq": entry.seq, "at": entry.at, "kind": entry.kind, **entry.data}
                if follow and entry.kind in {"run.ended", "hub.stopped"}:
                    return

    def close(self) -> None:
        """Close this object; the run continues."""

    def _timeline(self) -> Timeline:
        with self._run.open_reader() as reader:
            return Timeline.of(reader.read())


def run(
    program: WorkerFunction[..., T] | WorkerCall[T],
    *args: object,
    workspace: str | os.PathLike[str] = ".",
    **kwargs: object,
) -> T:
    """Run a worker and wait for its result. Ctrl-C leaves the run resumable.

    Raises:
        RunFailedError: It failed; ``run_id`` names the run.
    """
    if os.environ.get("BARTACK_PROBE"):
        raise NotInWorkerError(
            "bartack.run",
            "was called while the program was imported",
            "Put the call under: if __name__ == '__main__':",
        )
    call = program if isinstance(program, WorkerCall) else program(*args, **kwargs)
    started = Run.start(call, workspace=workspace)
    try:
        started.wait()  # bartack: allow[wait_without_deadline] a run takes as long as it takes
    except KeyboardInterrupt:
        with contextlib.suppress(RunNotActiveError):
            started.interrupt()
        sys.stderr.write(f"interrupted; resume with: bartack resume {started.id}\n")
        raise
    return cast("T", call.worker.shape.result.decode(started.result_bytes()))


def _request(
    program: str | os.PathLike[str] | WorkerFunction[..., object] | WorkerCall[object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> RunRequest:
    if isinstance(program, WorkerFunction):
        program = program(*args, **kwargs)
    if isinstance(program, WorkerCall):
        file = inspect.getsourcefile(program.worker.function) or ""
        call = typed.decode(program.encode(), type=s.CallArgs)
        module = _module_name(program.worker.function)
        return RunRequest(program=os.path.abspath(file), worker=program.worker.name, call=call, module=module)
    call = s.CallArgs(
        [msgspec.Raw(encode(value)) for value in args],
        {name: msgspec.Raw(encode(value)) for name, value in kwargs.items()},
    )
    return RunRequest(program=os.fspath(program), call=call)


def _module_name(function: Callable[..., object]) -> str:
    """The module that a function is in; for a script, the name that it would be imported under, if Python knows one."""
    if function.__module__ != "__main__":
        return function.__module__
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else str(spec.name)


def _describe(run: RunDir, state: State) -> RunState:
    active = run.is_active()
    return RunState(
        id=run.id,
        status=status_of(run, state, active=active),
        error="" if state.failure is None else state.failure.error.message,
        questions=[_question(run, state, number) for number in state.questions],
        spent_usd=state.spent_usd,
        reserved_usd=state.reserved_usd,
        usd_estimated=state.usd_estimated,
        workers={
            worker.path: worker_status(state, worker.status, active=active)
            for worker in state.workers.values()
        },
    )


def _question(run: RunDir, state: State, number: str) -> Question:
    asked = state.questions[number]
    args, tool_input = load_question(run, asked)
    return Question(
        number,
        asked.worker,
        args.question,
        args.type,
        args.options,
        asked.kind,
        asked.agent,
        asked.tool,
        tool_input,
    )


def _failure(run: RunDir, failure: FailureRecorded) -> RunFailedError:
    error = failure.error.type.rpartition(":")[2]
    return RunFailedError(run.id, failure.worker or "a process outside it", error, failure.error.message)
