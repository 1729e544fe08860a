"""The daemon: one process per user that makes hook events durable and delivers what waits.

It owns its lock for life, its listeners (``_listener.py``) and one ``OutboxWorker`` per outbox that it knows. It exits on
request, when nothing happens for long, or when its own package was replaced. It can be killed at any moment: what it has
answered for is in a database or a spool.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import bartack
from bartack.core.disk import FILE_MODE
from bartack.core.files import replace_file
from bartack.core.redact import Redactor
from bartack.core.sockets import clear_sockets, make_own_folder, socket_place
from bartack.core.trust import make_private
from bartack.core.user_home import user_home
from bartack.errors import BartackError, ResilienceError
from bartack.resilience import Outbox, Settings, load_settings
from bartack.resilience.home import state_home
from bartack.resilience.importing import hook_event
from bartack.resilience.link import register_outbox
from bartack.resilience.loopback import open_listener
from bartack.resilience.own_socket import OwnSocket, point_to, private_mask, take_service_lock
from bartack.resilience.service_files import service_socket
from bartack.resilience.spool import Header, Spool
from bartack.resilience.tokens import load_token
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import DaemonStarted, DaemonStopped
from bartack.tracking.daemon._listener import Ingest, SocketListener, build_door
from bartack.tracking.daemon._notices import NoticeWorker
from bartack.tracking.daemon._outbox_worker import OutboxWorker
from bartack.tracking.lineage._service import DEFAULT_PORT, LineageService
from bartack.tracking.lineage._store import LineageStore

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_log = logging.getLogger("bartack.tracking")
_LOOK_S: Final = 2.0
_FINISH_S: Final = 5.0
_LOG_MOST: Final = 1024 * 1024
_ROUTE_S: Final = 5.0
_LOCAL_SERVICE: Final = "http://localhost:8053"


def run_daemon(home: str | os.PathLike[str] | None = None) -> int:
    """Run the daemon until it ends; 0 also if another one is running already.

    Raises:
        UnsafeSocketError: The state home belongs to another user, or cannot be closed to others.
    """
    place = Path(home) if home is not None else user_home()
    make_private(place)
    make_own_folder(str(place))
    lock = take_lock(place)
    if lock is None:
        return 0
    try:
        _log_to(place / "daemon.log")
        asyncio.run(Daemon(place).run())
    finally:
        os.close(lock)
    return 0


def take_lock(home: Path) -> int | None:
    """The lock of the user's one daemon as an open descriptor; ``None`` if it is held."""
    return take_service_lock(home / "daemon.lock")


def _log_to(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_size > _LOG_MOST:
            os.replace(path, path.with_suffix(".log.1"))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
    except OSError:  # without a log file it works all the same
        return
    handler = logging.StreamHandler(open(fd, "a", encoding="utf-8"))  # noqa: SIM115 - open for the life of the process
    formatter = logging.Formatter("%(asctime)sZ daemon %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("bartack")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class Daemon:
    """The work of one daemon process.

    Args:
        home: The user's state home.
        telemetry: Receives its start and end.
    """

    def __init__(self, home: Path, telemetry: Telemetry = NO_TELEMETRY) -> None:
        self.home = home
        self._telemetry = telemetry
        self._reason = "failed"
        self.settings = load_settings(start=home)
        self._redactor = Redactor(os.environ)
        self._database = ThreadPoolExecutor(4, "database")
        self._workers: dict[str, OutboxWorker] = {}
        self._notices = NoticeWorker(home)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._servers: list[uvicorn.Server] = []
        self._service_socket = OwnSocket(service_socket(DEFAULT_PORT, home))
        self._ingest = Ingest(self._outbox_for, self._ring, partial(hook_event, redactor=self._redactor))
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._routes: dict[tuple[str, str], tuple[float, str]] = {}
        self._own_files = _fingerprint()
        self._active_at = time.monotonic()
        self._facts: dict[str, object] = {}

    async def run(self) -> None:
        """Open the doors, work, and close them again."""
        _log.info("started, version %s, pid %d", bartack.__version__, os.getpid())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        began_ns = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            try:
                await self._open(group)
                if self._telemetry.wanted(DaemonStarted):
                    self._telemetry.emit(DaemonStarted(home=str(self.home), pid=os.getpid()))
                self._reason = await self._until_done()
            finally:
                await self._close()
                if self._telemetry.wanted(DaemonStopped):
                    uptime_ns = time.monotonic_ns() - began_ns
                    self._telemetry.emit(
                        DaemonStopped(uptime_ns=uptime_ns, home=str(self.home), reason=self._reason)
                    )

    async def _open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._worker(self.home)
        for path in self._known_outboxes():
            self._worker(path)
        self._notices.start()
        await self._import_spool()
        self._door, where = await self._open_socket()
        http = self._open_http(group)
        self._open_lineage(group)
        self._facts = {
            "pid": os.getpid(),
            "version": bartack.__version__,
            "started_at": datetime.now(UTC).isoformat(),
            "socket": where,
            "http": http,
        }
        self._write_facts()

    async def _until_done(self) -> str:
        """Work until there is a reason to end, and say which."""
        while not self._stop.is_set():
            await self._import_spool()
            if self._is_idle():
                _log.info("nothing to do for %g s; exiting", self.settings.idle_exit)
                return "idle"
            if _fingerprint() != self._own_files:
                _log.info("this installation was replaced; exiting, the next event starts the new one")
                return "replaced"
            await self._wait(min(_LOOK_S, self.settings.idle_exit or _LOOK_S))
        _log.info("stopped on request")
        return "stopped"

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        self._look.clear()

    async def _close(self) -> None:
        self._ingest.closed = True
        door = getattr(self, "_door", None)
        if door is not None:
            door.close()
        for server in self._servers:
            server.should_exit = True
        self._notices.stop()
        for worker in self._workers.values():
            worker.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_FINISH_S)
            for task in late:
                task.cancel()
        with contextlib.suppress(OSError):
            (self.home / "daemon.sock").unlink()
        self._service_socket.close()
        self._database.shutdown(wait=False)
        _log.info("ended")

    def _worker(self, directory: Path) -> OutboxWorker:
        key = os.path.realpath(directory)
        worker = self._workers.get(key)
        if worker is None:
            at_home = key == os.path.realpath(self.home)
            worker = OutboxWorker(Path(key), _settings_of(Path(key)), self._database, own_spool=not at_home)
            self._workers[key] = worker
            self._tasks[key] = self._group.create_task(worker.run())
            if not at_home:
                self._remember(key)
        return worker

    def _remember(self, path: str) -> None:
        try:
            register_outbox(path, self.home)
        except ResilienceError as error:
            _log.warning("%s is not remembered after this daemon ends: %s", path, error)
        if self._facts:
            self._write_facts()

    def _known_outboxes(self) -> list[Path]:
        store = self._workers[os.path.realpath(self.home)].outbox.store
        try:
            store.check()
            found = store.read(lambda connection: connection.execute("SELECT path FROM outboxes").fetchall())
        except ResilienceError as error:
            _log.warning("other outboxes are not known: %s", error)
            return []
        return [Path(path) for (path,) in found if os.path.isdir(path)]

    def _outbox_for(self, header: Header) -> Outbox:
        return self._worker(Path(self._route(header))).outbox

    def _route(self, header: Header) -> str:
        if header.home:
            return header.home
        key = (header.cwd, os.environ.get("PATTERN_CACHE_DIR", ""))
        known = self._routes.get(key)
        now = time.monotonic()
        if known is None or now - known[0] > _ROUTE_S:
            found = str(state_home(start=header.cwd)) if os.path.isdir(header.cwd) else str(self.home)
            known = self._routes[key] = (now, found)
        return known[1]

    def _ring(self, outbox: Outbox) -> None:
        self._active_at = time.monotonic()
        self._workers[os.path.realpath(outbox.store.directory)].wake()

    def _command(self, header: Header) -> str | None:
        if header.event == "ping":
            return "pong"
        if header.event == "wake":
            self._active_at = time.monotonic()
            self._worker(Path(header.cwd)).wake()
            self._notices.wake()
            return "rung"
        if header.event == "stop":
            self._end()
            return "stopping"
        return None

    def _end(self) -> None:
        self._stop.set()
        self._look.set()

    async def _import_spool(self) -> None:
        """Take in what the shim has left, each event where it belongs."""
        spool = Spool(self.home)
        for name in spool.names():
            try:
                data = spool.read(name)
            except OSError:
                continue
            answer = await self._ingest.submit(data)
            if answer.kind == "ok":
                spool.remove(name)
            elif answer.detail == "malformed":
                _log.warning("spool file %s cannot be read; it is moved aside", name)
                spool.quarantine(name)
            else:
                return

    def _is_idle(self) -> bool:
        if self._notices.waiting or any(worker.waiting for worker in self._workers.values()):
            self._active_at = time.monotonic()
        return time.monotonic() - self._active_at > self.settings.idle_exit

    def _reload(self) -> None:
        _log.info("configuration is read again")
        self.settings = load_settings(start=self.home)
        self._routes.clear()
        for key, worker in self._workers.items():
            worker.reload(_settings_of(Path(key)))

    async def _open_socket(self) -> tuple[asyncio.Server, str]:
        door = SocketListener(self._ingest, self._command)
        path = socket_place(str(self.home / "daemon.sock"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with private_mask():
            server = await asyncio.start_unix_server(door.serve, path, backlog=1024)
        os.chmod(path, FILE_MODE)
        if path != str(self.home / "daemon.sock"):
            point_to(self.home / "daemon.sock", path)
            clear_sockets(path)
        return server, path

    def _open_http(self, group: asyncio.TaskGroup) -> dict[str, object]:
        port = self.settings.http_port
        try:
            listener = open_listener("127.0.0.1", port)
            token = load_token(self.home / "token")
        except BartackError as error:
            _log.warning("no HTTP endpoint: %s", error)
            return {"port": port, "state": "busy"}
        self._serve(group, build_door(self._ingest, token, bartack.__version__), [listener])
        return {"port": listener.getsockname()[1], "state": "listening"}

    def _open_lineage(self, group: asyncio.TaskGroup) -> None:
        """Be the lineage service, if it is to be on this machine and no other process of this user is.

        The port may be another user's; the socket in the state home is not.
        """
        if not self.settings.embedded or self.settings.url != _LOCAL_SERVICE:
            return
        listeners = [*self._service_socket.open(), *_listeners_on(DEFAULT_PORT)]
        if not listeners:
            return
        try:
            store = LineageStore(self.home / "lineage.db").open()
            service = LineageService(store, load_token(self.home / "token"))
        except BartackError as error:
            _log.info("the lineage service is not served: %s", error)
            for listener in listeners:
                listener.close()
            return
        self._serve(group, service, listeners)

    def _serve(self, group: asyncio.TaskGroup, app: ASGIApp, listeners: list[socket.socket]) -> None:
        server = _make_server(app)
        self._servers.append(server)
        group.create_task(server.serve(sockets=listeners))

    def _write_facts(self) -> None:
        facts = {**self._facts, "outboxes": sorted(self._workers)}
        try:
            replace_file(self.home / "daemon.json", msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
        except OSError as error:
            _log.warning("daemon.json: %s", error)


def _listeners_on(port: int) -> list[socket.socket]:
    try:
        return [open_listener(port=port)]
    except BartackError as error:
        _log.info("the lineage service has no port: %s", error)
        return []


def _settings_of(directory: Path) -> Settings:
    """The settings of the project whose state home this is."""
    return load_settings(start=directory.parent if directory.name == ".bartack" else directory)


def _make_server(app: ASGIApp) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - only a running daemon needs it

    class QuietServer(uvicorn.Server):
        """Leaves the signals to the daemon."""

        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

    config = uvicorn.Config(
        app,
        access_log=False,
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    return QuietServer(config)


def _fingerprint() -> tuple[object, ...]:
    """What changes when this installation is replaced."""
    found: list[object] = []
    for path in (__file__, bartack.__file__):
        try:
            facts = os.stat(path)
            found.append((facts.st_mtime_ns, facts.st_ino, facts.st_size))
        except OSError:
            found.append(None)
    return tuple(found)
