"""The process of a worker, from its fork to its end: joins the hub, imports the program, runs the scheduler, reports.

It ends when the hub sends ``leave``, or when the hub is gone. It only connects its parts: ``context/invoke.py`` calls the worker's
function, ``scheduler/scheduler.py`` runs it, and ``scheduler/bodies.py`` executes the steps that are done here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.machinery
import os
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Final, TextIO, cast

import msgspec

from bartack.config.project import PATCHWORK, Project, is_below
from bartack.config.timeouts import Timeouts
from bartack.core import typed
from bartack.depot.port import open_blob_port
from bartack.errors import (
    BartackError,
    FrameError,
    MessageTooLargeError,
    ProgramImportError,
    ProgramNotPinnedError,
)
from bartack.journal.veil import Secrets, Veil
from bartack.runtime.context.decorators import find_worker, trust_definitions
from bartack.runtime.context.definitions import Worker
from bartack.runtime.context.invoke import call_worker, facts_of, report_end
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.protocol.source_places import name_sources
from bartack.runtime.scheduler.bodies import Bodies
from bartack.runtime.scheduler.entropy import Entropy, SystemEntropy
from bartack.runtime.scheduler.forgotten import ORIGIN_DEPTH
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.runtime.worker_process.slow_watch import SlowWatch

EXIT_OK: Final = 0
EXIT_HUB_GONE: Final = 3
READ_SIZE: Final = 64 * 1024
TOGETHER: Final = 4096
"""This many bytes of reports keep the hub busy while more are made."""

_LENGTH: Final = struct.Struct(">I")


class _Config(msgspec.Struct):
    timeouts: dict[str, float] = {}
    secrets: Secrets = Secrets({}, ())
    ahead_us: int | None = None
    """How far the clock of the run is ahead of the clock of lease pages; ``None``: it is the clock on the wall."""


# Made in the process that workers are forked from, and not by each of them.
_decode_order: Final = typed.decoder(f.Order).decode
_decode_config: Final = typed.decoder(_Config).decode
_real_places: Final = {path: os.path.realpath(path) for path in sys.path if path}


def _entropy_of(ahead_us: int | None) -> Entropy:
    """The clock of the run, and randomness."""
    if ahead_us is None:
        return SystemEntropy()
    from bartack.runtime.scheduler.shared_entropy import SharedEntropy  # noqa: PLC0415 - other workers start faster without it

    return SharedEntropy(ahead_us)


class HubGoneError(Exception):
    """The hub at the other end of the socket is gone."""


class HubConnection:
    """The socket to the hub: frames out one by one, frames in as they come."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # Not `recv` alone: a thread that waits in it is also woken when the other side has read what was sent.
        readable = select.poll()
        readable.register(sock, select.POLLIN)
        self._wait = readable.poll
        self._reader = f.FrameReader()
        self._frames: deque[f.ToPeer] = deque()
        self._out = bytearray()
        self._sending = threading.Lock()
        self._held: bytearray | None = None
        """The frames since ``together`` was entered."""
        self._encode_into = msgspec.json.Encoder().encode_into

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._sock.fileno()

    def send(self, frame: f.Frame) -> None:
        """Send a frame to the hub."""
        out = self._out
        with self._sending:
            self._encode_into(frame, out, 4)
            size = len(out) - 4
            if size > f.MAX_FRAME:
                raise MessageTooLargeError("a step's arguments", size, f.MAX_FRAME)
            _LENGTH.pack_into(out, 0, size)
            if self._held is None:
                self._send_all(out)
                return
            self._held += out
            if len(self._held) >= TOGETHER:
                self._send_all(self._held)
                self._held.clear()

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """A block whose frames are sent in few pieces: for reports that come in numbers."""
        self._held = bytearray()
        try:
            yield
        finally:
            with self._sending:
                held, self._held = self._held, None
                if held:
                    self._send_all(held)

    def _send_all(self, data: bytearray) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise HubGoneError(str(error)) from None

    def waiting(self) -> bool:
        """Whether a frame is there already."""
        return bool(self._frames)

    def next(self) -> f.ToPeer:
        """The next frame; waits for it."""
        frames = self._frames
        while not frames:
            try:
                self._wait()
                data = self._sock.recv(READ_SIZE)
            except OSError as error:
                # A hub that was killed with unread data resets the connection.
                raise HubGoneError(str(error)) from None
            if not data:
                raise HubGoneError("the hub closed the connection")
            frames.extend(map(f.decode_to_peer, self._reader.feed(data)))
        return frames.popleft()


def worker_main(payload: bytes, fds: Sequence[int]) -> int:
    """Run a worker in this process, which was made for it; returns the exit code."""
    order = _decode_order(payload)
    for errors in fds[2:]:
        os.dup2(errors, 2)
        os.close(errors)
        # A crash in C code reports where the program was.
        faulthandler.enable(2, all_threads=False)
    with socket.socket(fileno=fds[0]) as sock:
        try:
            return _live(order, HubConnection(sock), Scoreboard(fds[1]))
        except HubGoneError:
            return EXIT_HUB_GONE


def _live(order: f.Order, hub: HubConnection, scoreboard: Scoreboard) -> int:
    hub.send(f.Hello(path=order.path, incarnation=order.incarnation, pid=os.getpid()))
    # While the hub answers.
    out = redirect_output(order.path)
    os.chdir(order.workspace)
    prepare_imports(order.program, order.root, order.folder, order.paths)
    welcome = hub.next()
    if not isinstance(welcome, f.Welcome):
        raise FrameError(f"{type(welcome).__name__} instead of a welcome")
    process = WorkerProcess(order, welcome, hub, out, scoreboard)
    try:
        process.run()
    finally:
        out.flush()
    return EXIT_OK


class WorkerProcess:
    """One worker between its welcome and its end."""

    def __init__(
        self,
        order: f.Order,
        welcome: f.Welcome,
        hub: HubConnection,
        out: WorkerOutput | None = None,
        scoreboard: Scoreboard | None = None,
    ) -> None:
        self._order = order
        self._welcome = welcome
        self._hub = hub
        self._out = out
        self._scoreboard = scoreboard
        config = _decode_config(welcome.config)
        self._blobs = open_blob_port(order.blobs, veil=Veil(config.secrets))
        self._bodies: Bodies | None = None
        self._timeouts = Timeouts(os.environ, config.timeouts)
        self._entropy = _entropy_of(config.ahead_us)
        self._slow = SlowWatch(hub.send, self._timeouts.limit("slow"))

    def run(self) -> None:
        """Run the worker, report how it ended, and wait until the hub lets it leave."""
        try:
            end = self._work()
        except HubGoneError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of the process: whatever stops the worker is reported
            end = f.Failed(e=describe_error(error, self._order.path))
        self._hub.send(end)
        while not isinstance(self._hub.next(), f.Leave):
            pass
        # Not before: to wake a thread up takes time, which would delay the report.
        self._slow.stop()
        self._end_bodies()

    def _work(self) -> f.Result | f.Failed:
        with trust_definitions():
            worker = load_worker(self._welcome.worker, self._order.program)
        scheduler = self._make_scheduler(worker)
        scheduler.guard.watch_import()
        self._slow.start()
        return self._perform(worker, scheduler)

    def warm_up(self, worker: Worker[..., object]) -> f.Result | f.Failed:
        """Run a worker where nothing outside may notice it: without a thread, and without a hand in what is imported."""
        try:
            return self._perform(worker, self._make_scheduler(worker))
        finally:
            self._end_bodies()

    def _perform(self, worker: Worker[..., object], scheduler: Scheduler) -> f.Result | f.Failed:
        welcome = self._welcome
        data = self._blobs.get(welcome.ref) if welcome.ref is not None else (welcome.v or b"{}")
        sys.set_coroutine_origin_tracking_depth(ORIGIN_DEPTH)
        coroutine = call_worker(worker, scheduler, data)
        if self._out is not None:
            self._out.scheduler = scheduler
        self._take(scheduler)
        self._slow.begin_turn()
        scheduler.start(coroutine)
        while not scheduler.ended:
            self._slow.end_turn()
            self._take(scheduler)
        self._slow.end_turn()
        if scheduler.aborted:
            self._await_bodies()
        scheduler.requests.close()
        return report_end(worker, scheduler)

    def _await_bodies(self) -> None:
        """The session failed while bodies ran: their outcomes count. The hub ends this process if they take too long."""
        hub, bodies = self._hub, self._bodies
        assert bodies is not None
        while bodies.in_threads:
            ready = [hub.fileno()] if hub.waiting() else []
            if not ready:
                ready, _, _ = select.select(  # bartack: allow[wait_without_deadline] the hub sees to it
                    [hub.fileno(), bodies.fileno()], [], []
                )
            if bodies.fileno() in ready:
                bodies.run_posted()
            if hub.fileno() in ready and isinstance(hub.next(), f.Leave):
                raise HubGoneError("the hub sent leave")

    def _make_scheduler(self, worker: Worker[..., object]) -> Scheduler:
        welcome = self._welcome
        facts = facts_of(welcome, self._order.path, worker)
        scheduler = Scheduler(facts, os.environ, self._hub.send, self._blobs, self._entropy)
        scheduler.requests.executor = self._bodies = Bodies(
            scheduler, self._timeouts.limit("step"), self._scoreboard
        )
        return scheduler

    def _end_bodies(self) -> None:
        if self._bodies is not None:
            self._bodies.close()

    def _take(self, scheduler: Scheduler) -> None:
        """Hand what arrives next to the scheduler: a frame, or the end of a body."""
        hub, bodies = self._hub, self._bodies
        assert bodies is not None
        if bodies.in_threads and not hub.waiting():
            ready, _, _ = select.select(  # bartack: allow[wait_without_deadline] the hub sees to it
                [hub.fileno(), bodies.fileno()], [], []
            )
            self._slow.begin_turn()
            if bodies.fileno() in ready:
                with hub.together():
                    bodies.run_posted()
            if hub.fileno() not in ready or scheduler.ended:
                return
        frame = hub.next()
        if isinstance(frame, f.Leave):
            raise HubGoneError("the hub sent leave")
        self._slow.begin_turn()
        scheduler.take(frame)


# The program.


def load_worker(ref: str, program: str = "") -> Worker[..., object]:
    """The worker that ``module:name`` means; that of a Patchwork program is found below ``program``.

    Raises:
        ProgramImportError: It cannot be imported.
        ProgramFaultError: It is Patchwork and has errors.
    """
    module_name, _, name = ref.partition(":")
    if module_name.endswith(PATCHWORK):
        from bartack.runtime.patchwork import load_program  # noqa: PLC0415 - only who runs Patchwork pays for it

        return load_program(program, module_name).find_worker(ref)
    try:
        module = importlib.import_module(module_name)
    except BartackError:
        raise
    except Exception as error:
        raise ProgramImportError(module_name, f"{type(error).__name__}: {error}") from error
    found = find_worker(module, name)
    if found is None:
        raise ProgramImportError(module_name, f"it has no worker {name!r}")
    return found


def prepare_imports(program: str, root: str, folder: str = "", paths: Sequence[str] = ()) -> None:
    """Import the program from where it is kept with the run, and never from the project it was copied from.

    Args:
        program: Where it is kept.
        root: The project that it was copied from.
        folder: The directory of its file, relative to the project.
        paths: The directories that its modules are in, relative to the project; older runs have none.
    """
    project = Project(root)
    others = [path for path in sys.path if path and project.locate(path, _real_place(path)) is None]
    own = [os.path.normpath(os.path.join(program, place)) for place in paths or (folder, os.curdir)]
    beside = os.path.normpath(os.path.join(program, folder))
    # The directory of a file in a package is the last: what is in it must not hide modules of Python.
    sys.path[:] = [*own, *others, *([] if beside in own else [beside])]
    name_sources(program, root)
    sys.meta_path.insert(0, PinnedFinder(os.path.realpath(program), project))
    # The time of a directory that was searched shows that it has changed; one that was not there has none.
    for path in [path for path, finder in sys.path_importer_cache.items() if finder is None]:
        del sys.path_importer_cache[path]


def _real_place(path: str) -> str:
    return _real_places.get(path) or os.path.realpath(path)


class PinnedFinder:
    """Refuses modules of the project that are not kept with the run, whichever finder has them.

    Bartack itself is never part of a program, also where it is installed from a checkout that is the project.
    """

    def __init__(self, program: str, project: Project) -> None:
        self._program = program
        self._project = project

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self._check(name, spec)
                return spec
        return None

    def _check(self, name: str, spec: importlib.machinery.ModuleSpec) -> None:
        file = spec.origin
        if file is None or not file.startswith(os.sep):
            return
        real = os.path.realpath(file)
        if not is_below(real, self._program) and self._project.locate(file, real) is not None:
            raise ProgramNotPinnedError(name, file)


# Output.


class WorkerOutput:
    """What the program prints by itself: whole lines to stderr, with the worker's name; silent while it replays."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO, path: str) -> None:
        self._stream = stream
        self._path = path
        self._line = ""
        self.scheduler: Scheduler | None = None

    def write(self, text: str) -> int:
        """Take some text."""
        if self.scheduler is not None and self.scheduler.replaying:
            return len(text)
        *lines, self._line = (self._line + text).split("\n")
        with contextlib.suppress(OSError):  # stderr may be closed
            for line in lines:
                self._stream.write(f"{self._path}: {line}\n")
        return len(text)

    def flush(self) -> None:
        """Let what is there be seen."""
        if self._line:
            self.write("\n")
        with contextlib.suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        """It is not a terminal."""
        return False

    def fileno(self) -> int:
        """The descriptor of the stream."""
        return self._stream.fileno()


def redirect_output(path: str) -> WorkerOutput:
    """Standard output belongs to the hub: what this process prints goes to stderr."""
    os.dup2(2, 1)
    out = WorkerOutput(sys.stderr, path)
    sys.stdout = cast("TextIO", out)
    return out
