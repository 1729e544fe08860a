"""The directory of a run: the path of every file in it, its environment, its heartbeat and its socket.

What the files contain is written elsewhere: ``mirror.py`` (run.json, .failed), ``transcript.py``, ``inbox.py`` and
``bartack.journal``. Runs are found by ``find.py``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

import msgspec

from bartack.core import Batch, clear_sockets, open_private, socket_place
from bartack.errors import PeerRefusedError, WorkspaceError
from bartack.runtime.protocol.frames import Order
from bartack.runtime.state.run_state import State


class RunDir:
    """One run's directory. Creating this object creates no files."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.journal = self.path / "journal.ndjson"
        self.lock = self.path / "lock"
        self.tree_lock = self.path / "lock.tree"
        self.socket = self.path / "hub.sock"
        self.mirror = self.path / "run.json"
        self.failed = self.path / ".failed"
        self.program = self.path / "program"
        self.work = self.path / "work"
        self.agents = self.path / "agents"
        self.inbox = self.path / "inbox"
        self.transcript = self.path / "transcript.txt"
        self.log = self.path / "hub.log"

    @property
    def id(self) -> str:
        """The run's id."""
        return self.path.name

    def make(self, batch: Batch | None = None) -> None:
        """Make the directories that a run needs; they become durable with the batch."""
        batch = batch or Batch()
        for folder in (self.path, self.program, self.work, self.inbox):
            batch.make_dirs(str(folder))

    def workspace(self, state: State, given: str | None = None) -> str:
        """Where the run's commands and relative paths are from now on.

        Args:
            state: The run.
            given: Where the caller says it is. Without it, the place as seen from the run's directory, or where it was.

        Raises:
            WorkspaceError: It is not there.
        """
        assert state.run is not None
        wanted = [os.path.realpath(given)] if given else [self._beside(state.run.place), state.run.workspace]
        found = next((path for path in wanted if path and os.path.isdir(path)), None)
        if found is None:
            raise WorkspaceError(wanted[-1])
        return found

    def _beside(self, place: str) -> str:
        """The workspace that the run's directory is in, if the directory is still at the same place inside it."""
        path, tail = str(self.path), os.sep + place
        inside = bool(place) and not place.startswith(os.pardir) and path.endswith(tail)
        return path.removesuffix(tail) if inside else ""

    def seed(self, state: State) -> int:
        """The hash seed of the run's workers: the same in every process of it."""
        assert state.run is not None
        return state.run.seed

    def environment(self, state: State) -> dict[str, str]:
        """The variables that every process of the run has in its environment."""
        return {"BARTACK_RUN": self.id, "BARTACK_RUN_DIR": str(self.path), "BARTACK_HUB": str(state.hub)}

    def worker_payload(self, state: State, path: str, incarnation: int) -> bytes:
        """What a new worker process gets, encoded."""
        assert state.run is not None
        order = Order(
            path=path,
            incarnation=incarnation,
            run_dir=str(self.path),
            workspace=state.run.workspace,
            program=str(self.program),
            root=state.run.root,
            folder=os.path.relpath(os.path.dirname(state.run.program), state.run.root),
            paths=state.run.paths,
        )
        return msgspec.json.encode(order)

    def beat(self) -> None:
        """Write a heartbeat, and hand it to the disk without waiting for it.

        The time without a hub is counted from the last one. The file also holds how many entries the journal had.
        """
        with contextlib.suppress(OSError):
            fd = open_private(self.lock, os.O_RDONLY)
            try:
                os.utime(fd)
                if hasattr(os, "posix_fadvise"):
                    # On Linux this begins to write the file's changed pages; a sync would hold up the hub.
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def last_sign_of_life_us(self) -> int | None:
        """When the last hub of the run was seen alive: by itself, or by the parent programs that saw it die."""
        signs: list[int] = []
        for path in (self.lock, self.tree_lock):
            with contextlib.suppress(OSError):
                signs.append(os.lstat(path).st_mtime_ns // 1000)
        return max(signs, default=None)

    def keep_sign_of_life(self, at_us: int | None) -> None:
        """Restore when the last hub was seen alive: owning the journal for a moment is not running the run."""
        with contextlib.suppress(OSError):
            if at_us is not None:
                os.utime(self.lock, ns=(at_us * 1000, at_us * 1000), follow_symlinks=False)

    # The socket.

    def listen(self, group: int | None = None) -> socket.socket:
        """Listen for processes that want to join: only this user's can, and those of a group."""
        self.remove_socket()
        target = socket_place(str(self.socket))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(target)
        finally:
            os.umask(mask)
        if group is not None:
            os.chown(target, -1, group)
            os.chmod(target, 0o660)
        listener.listen(64)
        listener.setblocking(False)
        if target != str(self.socket):
            os.symlink(target, self.socket)
            clear_sockets(target)
        return listener

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to the run's hub.

        Raises:
            PeerRefusedError: The socket belongs to another user.
            OSError: No process listens.
        """
        target = self._listens_at()
        facts = os.lstat(target)
        # What root owns is the hub of a run whose processes have another user.
        if facts.st_uid not in {os.getuid(), 0} or not stat.S_ISSOCK(facts.st_mode):
            raise PeerRefusedError("join", f"{target} is not a socket of this user")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(target)
        except BaseException:
            sock.close()
            raise
        return sock

    def _listens_at(self) -> str:
        """Where the socket is: in the run's directory or, if its path is too long, in the one place that a link may lead to.

        Raises:
            ConnectionRefusedError: A link leads elsewhere, perhaps to the socket of another run or another service.
        """
        if not self.socket.is_symlink():
            return str(self.socket)
        place, found = socket_place(str(self.socket)), os.readlink(self.socket)
        if found != place:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the hub does not listen there", found)
        return place

    def remove_socket(self) -> None:
        """Remove the socket: no process listens any more."""
        for path in {socket_place(str(self.socket)), str(self.socket)}:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
