"""Views of an active run for a log, as JSON for programs, and without any progress. ``_live.py`` has the one for a terminal.

A view lives in the hub's process and is called from its loop, so it never blocks; or a follower of a run calls it
(``_watch.py``). The output of workers goes to stdout; everything else goes to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Final

import msgspec

from bartack.cli.app._runs import load_value
from bartack.cli.app._terminal import printable, write_note
from bartack.cli.live._ask import Host
from bartack.core import typed
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import EntryData, OutputWritten, WorkerEnded, WorkerSpawned, decode_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Recorded

SETTLED_S: Final = 0.1
"""How long a run has to be blocked on a person before it counts as waiting."""


class View:
    """What all views have in common.

    Args:
        run: The run.
        began: ``started`` or ``resumed``.
        patient: Whether a run that is blocked on a person stays active.
    """

    listens = True
    """See ``Observer.listens``."""

    def __init__(self, run: RunDir, *, began: str, patient: bool) -> None:
        self.run = run
        self._how = began
        self.state = State()
        self._patient = patient
        self._hub: Host | None = None
        self.detached = False
        """A person wants the run to continue without this terminal."""
        self._needed_since: float | None = None
        self._began = time.monotonic()

    @property
    def asks(self) -> bool:
        """Whether a question can be answered here now."""
        return False

    @property
    def has_answered(self) -> bool:
        """Whether all open questions were answered here."""
        return False

    @property
    def elapsed_s(self) -> float:
        """How long this view has watched the run."""
        return time.monotonic() - self._began

    def reopened(self, how: Reopened) -> None:
        """See ``Observer.reopened``."""
        for text in how.notes():
            write_note(printable(text))

    def opened(self, hub: Host) -> None:
        """See ``Observer.opened``."""
        self._hub = hub
        self.state = hub.state
        self.announce()

    def announce(self) -> None:
        """Write which run starts."""
        write_note(f"{self.run.id} {self._how}")

    def entries(self, recorded: list[Recorded]) -> None:
        """See ``Observer.entries``."""

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Observer.show``."""

    def changed(self, state: State) -> None:
        """See ``Observer.changed``."""

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""
        if self._patient or self._hub is None:
            return
        if not self._hub.needs_a_person:
            self._needed_since = None
        elif self._needed_since is None:
            # Branches of a worker request their steps one by one: the next request may already be on its way.
            self._needed_since = time.monotonic()
            self._hub.take_turn_after(SETTLED_S)
        elif time.monotonic() - self._needed_since >= SETTLED_S:
            self._hub.interrupt("waiting")

    def close(self) -> None:
        """Clean up after the hub has stopped."""


class JsonView(View):
    """Every durable entry as a line of JSON on stdout."""

    def reopened(self, how: Reopened) -> None:
        """See ``Observer.reopened``."""
        super().reopened(how)
        for event in how.events():
            put_event(event)

    def announce(self) -> None:
        """Write which run starts; for a new run, also the entries that created it."""
        put_event({"event": "run", "run": self.run.id, "dir": str(self.run.path), "began": self._how})
        if self._how == "started":
            self._put_first_entries()

    def _put_first_entries(self) -> None:
        with self.run.open_reader() as reader:
            for entry in reader.read():
                data = decode_entry(entry.kind, entry.raw)
                if data is not None:
                    put_event(event_of(data, entry.seq, entry.at), entry.value, entry.ref)

    def entries(self, recorded: list[Recorded]) -> None:
        """See ``Observer.entries``."""
        for entry in recorded:
            put_event(event_of(entry.data, entry.seq, entry.at), entry.value.raw, entry.value.ref)
        sys.stdout.flush()


def event_of(data: EntryData, seq: int, at: int) -> dict[str, object]:
    """Return an entry as an event."""
    return {"event": data.kind, "seq": seq, "at": at, **msgspec.to_builtins(data)}


def put_event(event: dict[str, object], value: msgspec.Raw | None = None, ref: object = None) -> None:
    """Write an event as one line; a large value is given by its checksum."""
    if value is not None:
        event["value"] = value
    if ref is not None:
        event["blob"] = ref
    sys.stdout.write(_readable_json(msgspec.json.encode(event).decode()) + "\n")


def _readable_json(text: str) -> str:
    """Escape, as JSON does, the characters that the encoding of stdout lacks."""
    if text.isascii() or (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8":
        return text
    # Outside of strings JSON has only ASCII characters.
    return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)


class Running:
    """The workers of one step: at most ``limit`` of them run at a time, 0 for all."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.waiting: deque[str] = deque()


class PlainView(View):
    """Lines on stderr, for a log or a pipe; output of workers goes to stdout. All in the order of the journal."""

    def __init__(self, run: RunDir, *, began: str, patient: bool) -> None:
        super().__init__(run, began=began, patient=patient)
        self._running: dict[tuple[str, int], Running] = {}
        """The active and the waiting workers, by the step that started them."""

    def entries(self, recorded: list[Recorded]) -> None:
        """See ``Observer.entries``."""
        for entry in recorded:
            match entry.data:
                case WorkerSpawned() as spawned:
                    self._spawned(spawned)
                case WorkerEnded(path=path, error=error):
                    outcome = "ended" if error is None else f"failed: {error.message.partition(chr(10))[0]}"
                    self._line(path, outcome)
                    self._start_next(path)
                case OutputWritten(p=p, channel=channel):
                    self._output(p, channel, typed.decode(load_value(self.run, entry.value), type=str))
                case _:
                    pass
        sys.stdout.flush()
        sys.stderr.flush()

    def _spawned(self, data: WorkerSpawned) -> None:
        """A worker starts at once, or after another has ended if the limit of its delegate is reached."""
        step = (data.p, data.n)
        if step not in self._running:
            owner = self.state.worker_of(data.p) if data.p else None
            opened = owner.open.get(step) if owner is not None else None
            self._running[step] = Running(opened.limit if opened is not None else 0)
        running = self._running[step]
        if running.limit and running.count >= running.limit:
            running.waiting.append(data.path)
        else:
            running.count += 1
            self._line(data.path, "started")

    def _start_next(self, path: str) -> None:
        worker = self.state.workers.get(path)
        running = self._running.get(worker.parent) if worker is not None else None
        if running is None:
            return
        if path in running.waiting:
            running.waiting.remove(path)  # it ended before it started
        elif running.waiting and self.state.failure is None:
            self._line(running.waiting.popleft(), "started")
        else:
            running.count -= 1

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Observer.show``."""
        if channel == "note":
            self._line(worker, text)
        elif channel in {"out", "err"}:
            # The output of a command is passed on unchanged, without the worker's name.
            stream = sys.stdout if channel == "out" else sys.stderr
            stream.write(f"{text}\n")
            stream.flush()
        sys.stderr.flush()

    def _output(self, p: str, channel: str, text: str) -> None:
        if channel == "print":
            sys.stdout.write(f"{text}\n")
        else:
            self._line(p, text)

    def _line(self, worker: str, text: str) -> None:
        who = f"{worker}: " if worker else ""
        sys.stderr.write(f"{who}{text}\n")


class QuietView(View):
    """Only what the program and its commands write."""

    listens = False

    def announce(self) -> None:
        """Write nothing."""

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Observer.show``."""
        if channel in {"print", "out"}:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        elif channel == "err":
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
