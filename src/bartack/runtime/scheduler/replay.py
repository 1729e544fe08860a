"""The replay of a worker: outcomes are taken from its history, and what the program asks for is compared with them.

The history and the program meet in ``Replay.advance``. It takes the next outcome of the journal and looks for the step that the
program did there: the step with the same path and number. If it is there and is the same step (``is_same``: the kind, and the
fingerprint of what it was asked), its branch continues with the recorded outcome. Everything else is a *mismatch*:

- the program did another step there: its kind or its fingerprint differs;
- the program did nothing there: the branch does not exist or has ended, waits for another step, or waits for its branches;
- a block with a deadline was left in time on the first run, and the program has not left it;
- an agent called a tool in a prompt for which no branch waits.

When a mismatch is found: when its outcome is the next one, or, for harmless steps, when the program does the step; for a step
that has begun and has no outcome, at the end of the history. Before each
outcome every branch has run as far as it gets, so a step that is not there by then never comes. What is *not* compared is what
the program computes, assigns or imports between its steps: it is found only through the steps that it leads to. Steps without a
recorded outcome are pending at the end of the history. Those that had begun are compared then (``Replay.check_open``), before the
first of them is sent.

A mismatch stops the worker with ``ReplayMismatchError``, which the program cannot catch. Nothing has been sent by then, so the
run is as it was: with the old program it resumes.

Harmless steps (``NoteOp``) and output never wait for their turn. The outcome of a harmless step is looked up, wherever it is
ahead. If more history is to come it can still be there: the worker stalls until it has arrived. If the whole history has
arrived and does not have it, the step is done anew, because whatever the program did after it is not recorded either.

A version has no place in the history and cannot differ; ``versions.py`` chooses it. A *rehearsal* (``Scheduler.rehearse``) is a
replay that ends with the history: nothing is sent or done, also no harmless step.

Read ``replay_log.py`` for the bookkeeping, ``scheduler.py`` for why the turns are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from bartack.core import typed
from bartack.errors import ReplayMismatchError, VersionError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.source_places import source_at
from bartack.runtime.protocol.steps import in_words
from bartack.runtime.scheduler.asyncio_guard import place_of_await
from bartack.runtime.scheduler.cancellation import Cancellation
from bartack.runtime.scheduler.operations import Counted, Deadline, NoteOp, WakeUp, place_of
from bartack.runtime.scheduler.replay_log import FIRED, Pending, ReplayLog, has_fired
from bartack.runtime.scheduler.requests import Requests, note_error
from bartack.runtime.scheduler.run_queue import RunQueue
from bartack.runtime.scheduler.tool_calls import ToolCalls
from bartack.runtime.scheduler.versions import VersionOp, Versions


class Replay:
    """Leads one worker through its history, up to its first step that is not recorded."""

    def __init__(
        self,
        path: str,
        log: ReplayLog,
        queue: RunQueue,
        requests: Requests,
        cancellation: Cancellation,
        tool_calls: ToolCalls,
        versions: Versions,
    ) -> None:
        self.stalled: NoteOp[object] | VersionOp | None = None
        """What a branch asks for that depends on a part of the history that has not arrived. No branch runs until then."""
        self._path = path
        self._log = log
        self._queue = queue
        self._requests = requests
        self._cancellation = cancellation
        self._tool_calls = tool_calls
        self._versions = versions
        self._failure: f.ErrorData | None = None
        """The failure of the session, if it came during the replay."""

    # What comes from the hub.

    def take(self, frame: f.ToPeer) -> None:
        """Take a frame while the worker replays. It only adds to the history; ``advance`` takes it from there."""
        match frame:
            case f.History():
                self._log.extend(frame.past)
                self._end_stall()
            case f.Live():
                self._log.complete = True
                self._log.end(frame.open)
                self._end_stall()
            case f.Fired():
                self._log.extend([f.Past(p=frame.p, n=frame.n, step="timeout", v=FIRED)])
            case f.Called():
                past = f.Past(p=frame.p, n=0, step="tool", v=frame.v, ref=frame.ref, about=frame.tool)
                self._log.extend([past])
            case f.SessionFailed():
                # The program learns it at the end of the history: there, clean-up finds what it has to clean up.
                self._failure = self._failure or frame.e
            case _:
                pass  # an answer to a request that this process has not made

    def advance(self, *, started: bool) -> bool:
        """Take the next outcome, or end the replay; ``False`` if neither is possible before another frame."""
        if self._log:
            if started:
                self._take_past(self._log.next())
            return started
        # Steps that have begun are part of the history: the program has to come to them before anything counts as new.
        if not self._log.complete or (self._log.open and not started):
            return False
        self._go_live()
        return True

    def _go_live(self) -> None:
        """The history is used up: what it did not confirm is sent, unless the session has failed meanwhile."""
        if not self.check_open(self._log.open):
            return
        self._log.replaying = False
        if self._failure is None:
            self._requests.submit_rest()
        else:
            self._log.drain()
            self._cancellation.fail_all(self._failure)

    def check_open(self, steps: Iterable[f.Past]) -> bool:
        """Whether the program asks for the steps that are open, as far as it has come to them; otherwise it is a mismatch."""
        for past in steps:
            pending = self._log.get(past.p, past.n)
            if pending is not None and not is_same(pending, past):
                self._differ(past, pending)
                return False
        return True

    # Rehearsals.

    def expect(self, history: Iterable[f.Past], steps: list[f.Past], *, ended: bool) -> None:
        """Prepare a rehearsal: this is the whole history, and the worker never continues after it."""
        self._log.extend(history)
        self._log.end(steps)
        self._log.ended = ended

    def check_end(self) -> None:
        """Compare the end of a worker that has ended with what the program does after the last outcome."""
        branch = self._queue.branches.get(self._path)
        if branch is not None and self._queue.fatal is None:
            self._differ(f.Past(p=self._path, n=branch.counter, step="end"), None)

    # Outcomes.

    def _take_past(self, past: f.Past) -> None:
        """The next outcome in the order of the journal: the program must have done its step."""
        if past.step == "tool":
            if not self._tool_calls.start(past.p, past.about, self._requests.load(past.v, past.ref)):
                self._differ(past, None)
            return
        pending = self._log.confirm(past.p, past.n)
        if pending is None or not is_same(pending, past):
            self._differ(past, pending)
        elif isinstance(pending, Counted):
            self.take_outcome(pending, past)
        elif isinstance(pending, Deadline):
            left = self._log.confirm(past.p, -past.n) is not None
            if has_fired(past):
                self._cancellation.fire(pending)
            elif not left:
                self._differ(past, pending)

    def take_outcome(self, op: Counted[object], past: f.Past) -> None:
        """The branch of a step continues with its recorded outcome."""
        if past.e is not None:
            self._cancellation.deliver(op, b"", revive_error(past.e, (past.p, past.n)))
        else:
            self._cancellation.deliver(op, self._requests.load(past.v, past.ref), None)

    def find_note(self, op: NoteOp[object]) -> WakeUp | None:
        """What a branch continues with that awaits a harmless step; ``None`` if it stalls, or differs."""
        past = self._log.find(op.p, op.n)
        if past is None:
            if self._log.complete:
                return self._requests.make_note(op)
            if self._log.whole:
                op.branch.op = op  # a rehearsal does nothing: this branch is at the end of what is recorded
            else:
                self.stalled = op
            return None
        if not is_same(op, past):
            self._differ(past, op)
            return None
        if past.e is not None:
            return None, note_error(op, past.e)
        return self._requests.load(past.v, past.ref), None

    def find_version(self, op: VersionOp) -> WakeUp | None:
        """What a branch continues with that asks for a version; ``None`` if it stalls, or the program does not have it."""
        try:
            number = self._versions.choose(op, recorded=self._cancellation.failure is None)
        except VersionError as error:
            self._queue.fatal = error
            return None
        if number is None:
            self.stalled = op
            return None
        return str(number).encode(), None

    def _end_stall(self) -> None:
        """More of the history has arrived: look again for the step that waits for it, before any other branch runs."""
        op, self.stalled = self.stalled, None
        if op is not None:
            wake_up = self.find_version(op) if isinstance(op, VersionOp) else self.find_note(op)
            if wake_up is not None:
                self._queue.ready.appendleft((op.branch, *wake_up))

    # Mismatches.

    def _differ(self, past: f.Past, pending: Pending | None) -> None:
        asked = self._asked_instead(past) if pending is None else describe_pending(pending)
        branch = self._queue.branches.get(past.p)
        op = branch.op if branch is not None else None
        if pending is None and isinstance(op, Counted):
            pending = op
        where = "" if pending is None else _place_of_pending(pending)
        if not where and branch is not None:
            where = place_of_await(branch.coroutine).removeprefix("?")
        step = f"{past.p}:{past.n}"
        self._queue.fatal = ReplayMismatchError(
            self._path, step, describe_past(past), asked, where, source_at(where)
        )

    def _asked_instead(self, past: f.Past) -> str:
        """What a branch asks for that has not come to a recorded step."""
        branch = self._queue.branches.get(past.p)
        if branch is None:
            return "nothing: it is at its end" if past.p == self._path else "nothing there"
        op = branch.op
        return describe_pending(op) if isinstance(op, Counted) else "nothing yet: it waits for its branches"


def is_same(pending: Pending, past: f.Past) -> bool:
    """Whether something the program did is the step that was recorded."""
    if isinstance(pending, f.VersionChosen):
        return False
    step = pending.step if isinstance(pending, Counted) else _kind_and_subject(pending)[0]
    return step == past.step and (not past.fp or past.fp == pending.fp)


def describe_pending(pending: Pending) -> str:
    """What the program did, in a few words."""
    return in_words(*_kind_and_subject(pending))


def describe_past(past: f.Past) -> str:
    """What was recorded, in a few words."""
    return in_words(past.step, past.about or _subject_of_outcome(past))


def _subject_of_outcome(past: f.Past) -> str:
    """The subject of a step whose entry does not name it: its outcome sometimes does."""
    if past.step == "shell" and past.e is not None:
        return str(past.e.facts.get("command", ""))
    try:
        outcome = typed.decode(past.v, type=object) if past.v is not None else None
    except msgspec.DecodeError:
        return ""
    if past.step == "shell" and isinstance(outcome, dict):
        return " ".join(map(str, cast("dict[str, list[object]]", outcome).get("argv", ())))
    return outcome[:60] if past.step in {"print", "log"} and isinstance(outcome, str) else ""


def _place_of_pending(pending: Pending) -> str:
    """File and line of the call in the program, if they are known."""
    made = pending.made if isinstance(pending, Counted) else None
    return "" if made is None else place_of(made)


def _kind_and_subject(pending: Pending) -> tuple[str, str]:
    if isinstance(pending, Deadline):
        return "timeout", f"{pending.seconds:g} s"
    if isinstance(pending, f.Returned):
        return "returned", ""
    if isinstance(pending, f.Out):
        return pending.channel, pending.text[:60]
    if isinstance(pending, f.VersionChosen):
        return "version", pending.name
    return pending.step, pending.about
