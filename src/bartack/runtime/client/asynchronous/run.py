"""``Run`` on an asyncio loop: the same methods, to be awaited. Cancelling one loses nothing.

Most methods execute that of ``Run`` in a thread. The session that ``join`` opens is in ``session.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from bartack.journal import Entry
from bartack.runtime.client.asynchronous.session import SLICE_S, AsyncSession, in_slices
from bartack.runtime.client.run import Question, Run, RunState
from bartack.runtime.context.decorators import Worker, WorkerCall
from bartack.runtime.protocol.values import codec
from bartack.runtime.rundir.layout import kept_run
from bartack.runtime.state.timeline import MessageRecord, StepRecord, StepStatus

if TYPE_CHECKING:
    from bartack.runtime.rundir.receipts import Receipt
    from bartack.runtime.rundir.snapshots import Snapshot

T = TypeVar("T")


# Long because it has every method of ``Run``; each only awaits that one.
class AsyncRun:
    """One run of a workspace, on an asyncio loop. Closing it never stops the run. See ``Run`` for each method."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @classmethod
    async def start(
        cls,
        program: str | os.PathLike[str] | Worker[..., object] | WorkerCall[object],
        *args: object,
        worker: str | None = None,
        workspace: str | os.PathLike[str] = ".",
        no_input: bool = False,
        on: str | None = None,
        carry: Literal["auto", "full", "remote", "none", "shared"] | None = None,
        **kwargs: object,
    ) -> AsyncRun:
        """Start a run in a process of its own, which outlives the caller; or on a node of a database."""
        started = await asyncio.to_thread(
            Run.start,
            program,
            *args,
            worker=worker,
            workspace=workspace,
            no_input=no_input,
            on=on,
            carry=carry,
            **kwargs,
        )
        return cls(started)

    @classmethod
    async def open(
        cls, run: str | os.PathLike[str], workspace: str | os.PathLike[str] = ".", on: str | None = None
    ) -> AsyncRun:
        """A run by its id, a unique beginning of it, ``latest``, or its directory; with ``on`` a run of that database."""
        return cls(await asyncio.to_thread(Run.open, run, workspace, on))

    @classmethod
    async def list(cls, workspace: str | os.PathLike[str] = ".", on: str | None = None) -> Sequence[AsyncRun]:
        """The runs of a workspace, or of a database, the newest first."""
        return [cls(run) for run in await asyncio.to_thread(Run.list, workspace, on)]

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """The run's directory."""
        return self._run.dir

    @property
    def program(self) -> str:
        """The file that the run was started from."""
        return self._run.program

    async def state(self) -> RunState:
        """What the run is doing now."""
        return await asyncio.to_thread(self._run.state)

    async def wait(
        self, timeout_s: float | None = None, until: Literal["ended", "waiting"] = "ended"
    ) -> RunState:
        """Wait until the run has ended (or was interrupted), or until it waits for an answer."""
        return await in_slices("wait", timeout_s, lambda left: self._run.wait(left, until))

    @overload
    async def result(self) -> object: ...
    @overload
    async def result(self, type: type[T]) -> T: ...
    async def result(self, type: object = None) -> object:  # noqa: A002 - as everywhere
        """The result of the run."""
        data = await asyncio.to_thread(self._run.result_bytes)
        return codec(Any if type is None else type).decode(data)

    async def resume(
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
        """Resume an interrupted or failed run."""
        await asyncio.to_thread(
            self._run.resume,
            update=update,
            program=program,
            unknown=unknown,
            value=value,
            again=again,
            workspace=workspace,
            sets=sets,
        )

    async def fork(self, at: str, *, update: bool = False) -> AsyncRun:
        """A new run that begins with the steps of this one; nothing is executed until it is resumed."""
        return AsyncRun(await asyncio.to_thread(self._run.fork, at, update=update))

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run; it cannot be resumed."""
        await asyncio.to_thread(self._run.cancel, reason)

    async def fail(self, message: str) -> None:
        """Fail the session for all processes in it."""
        await asyncio.to_thread(self._run.fail, message)

    async def interrupt(self) -> None:
        """Stop the run; it can be resumed."""
        await asyncio.to_thread(self._run.interrupt)

    async def questions(self) -> Sequence[Question]:
        """The questions that are not answered yet."""
        return await asyncio.to_thread(self._run.questions)

    async def answer(self, question: str, value: object) -> None:
        """Answer a question. The first answer counts."""
        await asyncio.to_thread(self._run.answer, question, value)

    async def send(self, mailbox: str, value: object, key: str | None = None) -> str:
        """Put a message into a mailbox; without a process that runs the run it is left for the next one."""
        return await asyncio.to_thread(self._run.send, mailbox, value, key)

    async def receive(self, mailbox: str, timeout_s: float | None = None) -> object:
        """Take the oldest message of a mailbox: at least once, it is acknowledged after it was read."""
        session = await self.join()  # bartack: allow[wait_without_deadline] it has a limit of its own
        async with session:
            return await session.mailbox.get(mailbox).receive(timeout_s)

    async def steps(
        self, worker: str | None = None, status: StepStatus | None = None
    ) -> AsyncGenerator[StepRecord]:
        """The steps so far, in the order in which they began."""
        for step in await asyncio.to_thread(lambda: list(self._run.steps(worker, status))):
            yield step

    async def messages(self, mailbox: str | None = None) -> AsyncGenerator[MessageRecord]:
        """The messages so far, in the order in which they were sent; or those of one mailbox."""
        for message in await asyncio.to_thread(lambda: list(self._run.messages(mailbox))):
            yield message

    async def receipts(self) -> AsyncGenerator[Receipt]:
        """What agents did in a run of the pipeline, each with its proof, in the order of the journal."""
        for receipt in await asyncio.to_thread(lambda: list(self._run.receipts())):
            yield receipt

    async def snapshots(self) -> AsyncGenerator[Snapshot]:
        """The snapshots that were taken of the workspace, in the order in which they were taken first."""
        for snapshot in await asyncio.to_thread(lambda: list(self._run.snapshots())):
            yield snapshot

    async def events(self, *, follow: bool = False) -> AsyncGenerator[dict[str, object]]:
        """The entries of the journal: those that are there, or also those to come."""
        seen = 0
        while True:
            for entry in await asyncio.to_thread(self._entries, seen + 1, follow=follow):
                seen = entry.seq
                yield {"seq": entry.seq, "at": entry.at, "kind": entry.kind, **entry.data}
                if follow and entry.kind in {"run.ended", "hub.stopped"}:
                    return
            if not follow:
                return

    async def join(self) -> AsyncSession:
        """Take part in the session."""
        return await AsyncSession.join(self._run.dir)

    async def close(self) -> None:
        """Close this object; the run continues."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _entries(self, first: int, *, follow: bool) -> Sequence[Entry]:
        """The entries from a place on. If there is none yet and ``follow``, those of the next moments."""
        with kept_run(self._run.dir).open_reader() as reader:
            there = [entry for entry in reader.read() if entry.seq >= first]
            return there or (list(reader.follow(first, timeout_s=SLICE_S)) if follow else [])
