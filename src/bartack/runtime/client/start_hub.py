"""Starts the process that runs a run, and finds out whether it has left.

The hub is a process of its own that outlives the caller. It reports over a pipe: an empty line once it runs the run, or the error
because of which it cannot. The other end of that report is ``runtime/hub/serve.py``. The process is a new interpreter, unless the
caller has another way to make one: a ``Spawn``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Final, Protocol

import msgspec

from bartack.config.project import with_absolute_path
from bartack.core import typed
from bartack.core.files import open_private
from bartack.core.readable import wait_readable
from bartack.errors import DeadlineExceededError
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import RunFile
from bartack.runtime.state.worker_state import UnknownDecision
from bartack.supervision.process.system import read_facts

START_TIMEOUT_S: Final = 30.0
SERVER: Final = "bartack.runtime.hub.serve"
"""The program that is the hub of a run."""
SERVERS: Final = {"bartack.pipeline._main:main": "bartack.pipeline._serve"}
"""Workers whose runs need another one. Its program is above this package, so it is named here and not imported."""


class HubOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has to know to be a hub.

    Attributes:
        module: The program: ``SERVER``, or one of ``SERVERS``.
        words: What follows it in the command.
        workspace: Its working directory.
        environ: Its environment.
        sets: Settings that are given for the run now.
        rest_after_s: See ``Instructions``.
    """

    module: str
    words: tuple[str, ...]
    workspace: str
    environ: Mapping[str, str]
    sets: tuple[str, ...] = ()
    rest_after_s: float = -1.0


class HubProcess(Protocol):
    """The process of a hub."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def is_gone(self) -> bool:
        """Whether it has ended."""
        ...

    def wait_end(self, timeout_s: float) -> None:
        """Wait until it has ended, no longer than this."""
        ...

    def release(self) -> None:
        """It outlives this process; while both live, its end is collected, or it would stay a zombie."""
        ...


Spawn = Callable[[HubOrder, int, int], HubProcess]
"""Starts the process of a hub in a session of its own, with the descriptors of its log and of its report."""


def start_hub(
    run: RunDir,
    decision: UnknownDecision | None = None,
    value: bytes = b"",
    workspace: str | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    spawn: Spawn | None = None,
    rest_after_s: float = -1.0,
) -> int:
    """Start the hub of a run and wait until it runs the run. Returns its process.

    Args:
        run: The run.
        decision: What to do with a step whose outcome is unknown.
        value: The encoded outcome of that step, if the decision is that it was done.
        workspace: Where the workspace is, if it is not where it was.
        sets: Settings that hold for the run from now on.
        environ: Its environment; by default that of this process.
        spawn: Starts its process; by default a new interpreter.
        rest_after_s: Let it stop when there is nothing to do for longer than this; negative: never.

    Raises:
        BartackError: The hub could not run the run, and this is why.
        DeadlineExceededError: It did not start in time.
    """
    state = read_state(run)
    assert state.run is not None
    place = run.workspace(state, workspace)
    words = [str(run.path), place]
    if decision is not None:
        words += [decision.choice, *([value.decode()] if value else [])]
    order = HubOrder(
        module=SERVERS.get(state.run.worker, SERVER),
        words=tuple(words),
        workspace=place,
        environ=with_absolute_path(os.environ if environ is None else environ),
        sets=tuple(sets),
        rest_after_s=rest_after_s,
    )
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as report:
        try:
            with open(run.log, "ab", opener=open_private) as log:
                process = (spawn or spawn_interpreter)(order, log.fileno(), write_end)
        finally:
            os.close(write_end)
        _wait_for_hub(run, process, report)
    process.release()
    return process.pid


def has_left(run: RunDir) -> bool:
    """Whether the hub of a run has written that it left, or is gone without having done so."""
    if run.questioner() is not None:
        return not run.is_active()  # its process is one of another machine
    try:
        pid = typed.decode(run.summary() or b"", type=RunFile).pid
    except msgspec.DecodeError:
        return True
    facts = read_facts(pid) if pid else None
    return facts is None or facts.state in {"Z", "X"}


def spawn_interpreter(order: HubOrder, log: int, report: int) -> HubProcess:
    """See ``Spawn``: a new interpreter."""
    process = subprocess.Popen(  # bartack: allow[unsupervised_process] a hub outlives us  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-s", "-m", order.module, *order.words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd=order.workspace,
        env=order.environ,
        pass_fds=(report,),
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        instructions = {"report": report, "sets": list(order.sets), "rest_after_s": order.rest_after_s}
        process.stdin.write(msgspec.json.encode(instructions))
    return InterpreterProcess(process)


class InterpreterProcess:
    """See ``HubProcess``."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def is_gone(self) -> bool:
        """See ``HubProcess.is_gone``."""
        return self._process.poll() is not None

    def wait_end(self, timeout_s: float) -> None:
        """See ``HubProcess.wait_end``."""
        self._process.wait(timeout_s)

    def release(self) -> None:
        """See ``HubProcess.release``."""
        threading.Thread(  # bartack: allow[unsupervised_thread] it ends with the hub, or with us
            target=self._process.wait, name=f"bartack hub {self.pid}", daemon=True
        ).start()


def _wait_for_hub(run: RunDir, process: HubProcess, report: BinaryIO) -> None:
    """Wait until a hub listens, or the process that was started has ended.

    Raises:
        BartackError: It could not run the run, and reports why.
    """
    limit = time.monotonic() + START_TIMEOUT_S
    with run.watch() as watch:
        while not wait_readable([report.fileno()], 0) or (not process.is_gone() and not run.is_active()):
            if time.monotonic() > limit:
                process.release()
                raise DeadlineExceededError("start", START_TIMEOUT_S, "default")
            watch.wait(0.05)
    problem = report.readline().strip()
    if problem:
        process.wait_end(START_TIMEOUT_S)
        raise revive_error(typed.decode(problem, type=ErrorData))
