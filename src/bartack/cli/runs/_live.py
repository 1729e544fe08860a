"""Three views of an active run: for a terminal, for a log, and as JSON for programs.

A view lives in the hub's process and is called from its loop, so it never blocks. The output of workers goes to stdout;
everything else goes to stderr. ``_ask.py`` asks the questions of a run on the terminal.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from bartack.cli.app._paint import Board
from bartack.cli.app._terminal import Colour, Screen, columns, human_time, printable, write_note
from bartack.cli.runs._ask import Asker
from bartack.cli.runs._runs import load_value
from bartack.core import SystemClock
from bartack.journal import open_reader
from bartack.runtime.hub.hub import Hub
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import EntryData, OutputWritten, WorkerEnded, WorkerSpawned, decode_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import name_deadlock
from bartack.runtime.state.worker_state import OpenStep, Recorded, WorkerState

DRAW_S: Final = 0.1
"""The shortest time between two redraws of the terminal."""
ROWS: Final = 12
"""The largest number of workers shown."""


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
        self._hub: Hub | None = None
        self._needed_since: float | None = None
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """How long this view has watched the run."""
        return time.monotonic() - self._began

    def reopened(self, how: Reopened) -> None:
        """See ``Observer.reopened``."""
        for text in how.notes():
            write_note(printable(text))

    def opened(self, hub: Hub) -> None:
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
        with open_reader(self.run.path) as reader:
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
                    self._output(p, channel, msgspec.json.decode(load_value(self.run, entry.value), type=str))
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


class TerminalView(View):
    """A few lines at the bottom of the terminal that show the progress; questions are asked there, too."""

    def __init__(
        self, run: RunDir, *, began: str, patient: bool, asks: bool, colour: Colour = "auto"
    ) -> None:
        super().__init__(run, began=began, patient=patient or asks)
        self._waits = patient
        self._board = Board(sys.stderr, colour)
        self._asker = Asker(self._board.screen) if asks else None
        self._waiting: list[tuple[str, str, str]] = []
        self._drawn_at = 0.0

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Observer.show``."""
        if channel != "note" or not text.startswith("question "):
            self._waiting.append((channel, worker, text))

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""
        asking = self._asker is not None and self._asker.asking
        if self._waiting:
            self._write_waiting(asking=asking)
        if self._asker is not None and self._hub is not None:
            self._ask(self._asker, self._hub)
            asking = self._asker.asking
            self._patient = self._waits or not self._asker.gone
        now = time.monotonic()
        if not asking and now - self._drawn_at >= DRAW_S:
            self._drawn_at = now
            waits = [] if self._hub is None else self._hub.deadlock
            self._board.draw(lambda screen: draw(screen, self.run, state, self.elapsed_s, waits))
        super().turn(state)

    def close(self) -> None:
        """Clean up after the hub has stopped."""
        if self._asker is not None and self._asker.asking:
            self._asker.leave()
        self._board.erase()
        if self._waiting:
            self._write_waiting(asking=False)

    def _ask(self, asker: Asker, hub: Hub) -> None:
        if not asker.asking and hub.state.questions and not asker.gone:
            self._board.erase()
        asker.turn(hub)

    def _write_waiting(self, *, asking: bool) -> None:
        self._board.erase()
        if asking and self._asker is not None:
            self._asker.hide()
        screen = self._board.screen
        for channel, worker, text in self._waiting:
            if channel in {"print", "out"}:
                sys.stdout.write(f"{text}\n")
            elif channel == "err":
                sys.stderr.write(f"{text}\n")
            else:
                who = screen.paint(printable(worker), "dim") + ": " if worker else ""
                sys.stderr.write(f"{who}{text}\n")
        self._waiting.clear()
        sys.stdout.flush()
        sys.stderr.flush()
        self._drawn_at = 0.0
        if asking and self._asker is not None:
            self._asker.show()


# Drawing.


def draw(screen: Screen, run: RunDir, state: State, elapsed_s: float, waits: Sequence[str] = ()) -> None:
    """Draw the state of a run."""
    program = state.run.name if state.run is not None else ""
    head = (
        f"{screen.paint(run.id, 'bold')}  {printable(program)}  {_status(screen, state)}  {_clock(elapsed_s)}"
    )
    screen.line(head)
    working = [worker for worker in state.workers.values() if not worker.ended]
    now = SystemClock().now_us()
    rows = [(_name(worker), *_doing(screen, worker, now)) for worker in working[:ROWS]]
    width = max((len(row[0]) for row in rows), default=0)
    for line in columns([(name, screen.fit(doing, width + 14), took) for name, doing, took in rows]):
        screen.line(f"  {line}")
    if waits:
        screen.line(f"  {screen.paint(screen.fit(name_deadlock(waits), 2), 'yellow')}")
    for text in _rest(state, len(working)):
        screen.line(f"  {screen.paint(screen.fit(text, 2), 'dim')}")


def _status(screen: Screen, state: State) -> str:
    if state.failure is not None:
        return screen.paint("failing", "red")
    return screen.paint("waiting", "yellow") if state.questions else screen.paint("running", "cyan")


def _clock(seconds: float) -> str:
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    return f"{int(seconds)} s" if seconds < 60 else human_time(seconds)


def _name(worker: WorkerState) -> str:
    """The name of a worker, indented below its parent."""
    parent, slash, own = worker.path.rpartition("/")
    place, colon, name = own.partition(":")
    depth = parent.count("/") + 1 if slash else 0
    return printable("  " * depth + (f"{name} {place}" if colon else own))


def _doing(screen: Screen, worker: WorkerState, now: int) -> tuple[str, str]:
    steps = [step for step in worker.open.values() if step.step != "timeout"]
    if not steps:
        return screen.paint("starting" if worker.status == "waiting" else "computing", "dim"), ""
    newest = max(steps, key=lambda step: step.at)
    more = f" (and {len(steps) - 1} more)" if len(steps) > 1 else ""
    return printable(f"{_describe(newest)}{more}"), _clock((now - newest.at) / 1e6)


def _describe(step: OpenStep) -> str:
    kind = "step" if step.step == "body" else step.step
    about = f"{kind} {step.about}".rstrip()
    again = f", attempt {step.attempt}" if step.attempt > 1 else ""
    return f"{step.question}: {about}{again}" if step.question else f"{about}{again}"


def _rest(state: State, working: int) -> list[str]:
    lines: list[str] = []
    ended = len(state.workers) - working
    if working > ROWS:
        lines.append(f"and {working - ROWS} more workers")
    if ended:
        lines.append(f"{ended} worker{'s' if ended != 1 else ''} ended")
    queued = [f"{name} {len(box)}" for name, box in state.mailboxes.items() if len(box)]
    if queued:
        lines.append(f"messages queued: {', '.join(queued[:8])}")
    if state.spent_usd:
        lines.append(f"{state.spent_usd:.2f} USD spent")
    return lines
