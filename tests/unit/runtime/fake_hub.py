"""A hub without processes and sockets: it records what a worker says, answers when a test says so, and greets the next one with the
history it has kept. Every frame goes through its bytes."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TypeVar

import msgspec

from bartack.errors import BartackError, StepCancelledError
from bartack.journal import BlobRef
from bartack.runtime.context.context import Context
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.scheduler.bodies import Bodies
from bartack.runtime.scheduler.scheduler import Facts, Scheduler

F = TypeVar("F", bound=f.Frame)

Program = Callable[[Context], Coroutine[object, object, object]]
Key = tuple[str, int]

NULL = msgspec.Raw(b"null")


class Blobs:
    """Long values, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, content: bytes) -> BlobRef:
        ref = BlobRef(f"{len(self.kept):064d}", len(content))
        self.kept[ref.sha256] = content
        return ref

    def get(self, ref: BlobRef) -> bytes:
        return self.kept[ref.sha256]


class Open:
    """A step without an outcome."""

    def __init__(self, frame: f.Step | f.Begin) -> None:
        self.frame = frame
        self.i = frame.i

    @property
    def key(self) -> Key:
        return self.frame.p, self.frame.n


class FakeHub:
    """Keeps the journal of one worker and talks to its process of the moment."""

    def __init__(self, workspace: str = "/workspace", path: str = "main") -> None:
        self.workspace = workspace
        self.path = path
        self.agent = ""
        self.blobs = Blobs()
        self.journal: list[f.Past] = []
        self.synced = 0
        """How many of the outcomes survive the death of the hub."""
        self.open: dict[Key, Open] = {}
        self.late: set[Key] = set()
        """Steps whose outcome came after the greeting and before the worker asked for them again."""
        self.heard: list[f.ToHub] = []
        """Everything that any process of the worker said."""
        self.to_hub: deque[bytes] = deque()
        self.to_worker: deque[bytes] = deque()
        self.scheduler: Scheduler
        self.bodies: Bodies | None = None

    # Processes of the worker.

    def start(self, program: Program, *, rewinds: int = 0, chunk: int = 3) -> Scheduler:
        """A process of the worker begins: it is greeted with its history."""
        if self.bodies is not None:
            self.bodies.close()
            self.scheduler.discard()
        self.late.clear()
        self.to_hub.clear()
        self.to_worker.clear()
        for opened in self.open.values():
            opened.i = 0
        facts = Facts(
            run="run-20260131-235959-0f3a91c7",
            run_dir=f"{self.workspace}/.bartack/runs/run-20260131-235959-0f3a91c7",
            workspace=self.workspace,
            path=self.path,
            name="main",
            rewinds=rewinds,
            agent=self.agent,
        )
        self.scheduler = Scheduler(facts, {}, self._send, self.blobs)
        self.scheduler.requests.executor = self.bodies = Bodies(self.scheduler, 600.0)
        for place in range(0, len(self.journal), chunk):
            self.say(f.History(past=self.journal[place : place + chunk]))
        begun = [opened.frame for opened in self.open.values()]
        self.say(f.Live(open=[f.Past(p=one.p, n=one.n, step=one.step, fp=one.fp) for one in begun]))
        self.scheduler.start(program(Context(self.scheduler)))
        return self.scheduler

    def run(self, program: Program) -> object:
        """Start a process, let it replay, and give its result; its error is raised."""
        self.start(program)
        self.settle()
        return self.result()

    def settle(self) -> None:
        """Let everything that was said be heard, until nobody has anything to say."""
        while self.to_hub or self.to_worker:
            while self.to_hub:
                self.hear()
            if self.to_worker and not self.scheduler.ended:
                self.hand_over()
            elif self.scheduler.ended:
                self.to_worker.clear()

    def result(self) -> object:
        """What the worker came to."""
        if self.scheduler.fatal is not None:
            raise self.scheduler.fatal
        assert self.scheduler.ended, "the worker is not at its end"
        value, error = self.scheduler.outcome
        if error is not None:
            raise error
        return value

    def wait_for_bodies(self) -> None:
        """Until every body that runs on another thread has ended."""
        assert self.bodies is not None
        self.settle()
        while self.bodies.in_threads:
            self.await_posted()
            self.settle()

    def await_posted(self) -> None:
        """Until there is news of a body."""
        assert self.bodies is not None
        ready, _, _ = select.select([self.bodies.fileno()], [], [], 60.0)
        assert ready, "there is no news of any body"
        self.bodies.run_posted()

    def close(self) -> None:
        if self.bodies is not None:
            self.bodies.close()

    # The sockets.

    def _send(self, frame: f.Frame) -> None:
        self.to_hub.append(f.encode(frame)[4:])

    def say(self, frame: f.Frame) -> None:
        """Something for the worker."""
        self.to_worker.append(f.encode(frame)[4:])

    def hear(self) -> None:
        """Take the next thing the worker said."""
        frame = f.decode_to_hub(self.to_hub.popleft())
        self.heard.append(frame)
        match frame:
            case f.Step():
                self._hear_step(frame)
            case f.Begin():
                self._hear_begin(frame)
            case f.Note():
                self._hear_note(frame)
            case f.Done():
                self._hear_done(frame)
            case f.Out():
                self.journal.append(
                    f.Past(p=frame.p, n=frame.n, step=frame.channel, fp=frame.fp, v=_raw(frame.text))
                )
            case f.Cancel():
                if (frame.p, frame.n) in self.open:
                    self.fail(frame.p, frame.n, StepCancelledError(frame.reason))
            case _:
                pass

    def hand_over(self) -> None:
        """The worker takes the next thing that was said to it."""
        self.scheduler.take(f.decode_to_peer(self.to_worker.popleft()))

    def _hear_step(self, frame: f.Step) -> None:
        if (frame.p, frame.n) in self.late:
            return
        self._check_new(frame.p, frame.n)
        self.open[frame.p, frame.n] = Open(frame)
        if frame.cancelled:
            self.fail(frame.p, frame.n, StepCancelledError("cancelled"))

    def _hear_begin(self, frame: f.Begin) -> None:
        if (frame.p, frame.n) in self.late:
            return
        self._check_new(frame.p, frame.n)
        self.open[frame.p, frame.n] = Open(frame)
        if frame.i:
            self.synced = len(self.journal)
            self.say(f.Answer(i=frame.i, v=_raw({"attempt": frame.attempt})))
            self.open[frame.p, frame.n].i = 0

    def _hear_note(self, frame: f.Note) -> None:
        if frame.step == "timeout" and (frame.p, frame.n) not in self.open:
            return
        self._check_new(frame.p, frame.n)
        self.open.pop((frame.p, frame.n), None)
        self.journal.append(
            f.Past(
                p=frame.p,
                n=frame.n,
                step=frame.step,
                fp=frame.fp,
                v=frame.v,
                ref=frame.ref,
                e=frame.e,
                about=frame.about,
            )
        )

    def _hear_done(self, frame: f.Done) -> None:
        if frame.retry_in_s >= 0:
            self.synced = len(self.journal)
            self.say(f.Answer(i=frame.i, v=_raw({"attempt": frame.attempt + 1})))
            return
        self._check_new(frame.p, frame.n)
        self.open.pop((frame.p, frame.n), None)
        self.journal.append(
            f.Past(p=frame.p, n=frame.n, step=frame.step, fp=frame.fp, v=frame.v, ref=frame.ref, e=frame.e)
        )
        self.synced = len(self.journal)
        if frame.e is not None:
            self.say(f.Refusal(i=frame.i, e=frame.e))
        else:
            self.say(f.Answer(i=frame.i, v=frame.v, ref=frame.ref))

    def _check_new(self, p: str, n: int) -> None:
        assert all((past.p, past.n) != (p, n) for past in self.journal), f"{p}:{n} has its outcome already"

    # Outcomes.

    def steps(self, step: str = "") -> list[Open]:
        """The open steps, in the order in which they were asked for."""
        return [
            opened
            for opened in self.open.values()
            if opened.frame.step != "timeout" and step in {"", opened.frame.step}
        ]

    def finish(self, p: str, n: int, value: object = None) -> None:
        """A step has its outcome."""
        opened = self.open.pop((p, n))
        raw = _raw(value)
        frame = opened.frame
        self._keep(f.Past(p=p, n=n, step=frame.step, fp=frame.fp, v=raw, about=frame.about), opened)
        if opened.i:
            self.say(f.Answer(i=opened.i, v=raw))

    def fail(self, p: str, n: int, error: BartackError) -> None:
        """A step failed."""
        opened = self.open.pop((p, n))
        data = describe_error(error, self.path)
        frame = opened.frame
        self._keep(f.Past(p=p, n=n, step=frame.step, fp=frame.fp, e=data, about=frame.about), opened)
        if opened.i:
            self.say(f.Refusal(i=opened.i, e=data))

    def _keep(self, past: f.Past, opened: Open) -> None:
        """An outcome is durable. A worker that has not asked for it in this process learns it as history."""
        self.journal.append(past)
        self.synced = len(self.journal)
        if not opened.i:
            self.late.add(opened.key)
            self.say(f.History(past=[past]))

    def answer(self, value: object = None, *, step: str = "") -> None:
        """Finish the oldest open step, and let the worker go on."""
        self.settle()
        self.finish(*self.steps(step)[0].key, value)
        self.settle()

    def refuse(self, error: BartackError, *, step: str = "") -> None:
        """Fail the oldest open step, and let the worker go on."""
        self.settle()
        self.fail(*self.steps(step)[0].key, error)
        self.settle()

    def deadlines(self) -> list[Key]:
        """The blocks with a deadline that are open."""
        return [key for key, opened in self.open.items() if opened.frame.step == "timeout"]

    def fire(self, p: str, n: int) -> None:
        """The time of a block is over."""
        self.late.add((p, n))
        frame = self.open.pop((p, n)).frame
        self.journal.append(f.Past(p=p, n=n, step="timeout", fp=frame.fp, v=_raw("fired")))
        self.synced = len(self.journal)
        self.say(f.Fired(p=p, n=n))

    def fail_session(self, message: str = "it broke") -> None:
        """Tell the worker that the session failed."""
        error = f.ErrorData(
            type="builtins:ValueError", message=message, args=[message], worker="main/2:other"
        )
        self.say(f.SessionFailed(e=error))
        self.settle()

    def lose_tail(self, kept: int) -> None:
        """The hub died: of what was not durable, ``kept`` outcomes are left."""
        del self.journal[self.synced + kept :]
        self.open.clear()

    def said(self, kind: type[F]) -> list[F]:
        """What the worker said of one kind."""
        return [frame for frame in self.heard if isinstance(frame, kind)]


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
