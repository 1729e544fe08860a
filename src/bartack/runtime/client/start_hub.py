"""Starts the process that runs a run, and finds out whether it has left.

The hub is a process of its own that outlives the caller. It reports over a pipe: an empty line once it runs the run, or the error
because of which it cannot. The other end of that report is ``runtime/hub/serve.py``.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO, Final

import msgspec

from bartack.config.project import with_absolute_path
from bartack.core import open_private, open_watch
from bartack.errors import DeadlineExceededError
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import RunFile
from bartack.runtime.rundir.presence import is_active
from bartack.runtime.state.worker_state import UnknownDecision
from bartack.supervision import read_facts

START_TIMEOUT_S: Final = 30.0
SERVER: Final = "bartack.runtime.hub.serve"
"""The program that is the hub of a run."""
SERVERS: Final = {"bartack.pipeline._main:main": "bartack.pipeline._serve"}
"""Workers whose runs need another one. Its program is above this package, so it is named here and not imported."""


def start_hub(
    run: RunDir,
    decision: UnknownDecision | None = None,
    value: bytes = b"",
    workspace: str | None = None,
    sets: Sequence[str] = (),
) -> None:
    """Start the hub of a run and wait until it runs the run.

    Args:
        run: The run.
        decision: What to do with a step whose outcome is unknown.
        value: The encoded outcome of that step, if the decision is that it was done.
        workspace: Where the workspace is, if it is not where it was.
        sets: Settings that hold for the run from now on.

    Raises:
        BartackError: The hub could not run the run, and this is why.
        DeadlineExceededError: It did not start in time.
    """
    state = read_state(run)
    assert state.run is not None
    place = run.workspace(state, workspace)
    words = [SERVERS.get(state.run.worker, SERVER), str(run.path), place]
    if decision is not None:
        words += [decision.choice, *([value.decode()] if value else [])]
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as report:
        try:
            process = _start_process(run, words, place, write_end)
        finally:
            os.close(write_end)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(msgspec.json.encode({"report": write_end, "sets": list(sets)}))
        _wait_for_hub(run, process, report)
    # It outlives this process; while both live, its end has to be collected, or it stays a zombie.
    threading.Thread(  # bartack: allow[unsupervised_thread] it ends with the hub, or with us
        target=process.wait, name=f"bartack {run.id}", daemon=True
    ).start()


def has_left(run: RunDir) -> bool:
    """Whether the hub of a run has written that it left, or is gone without having done so."""
    try:
        pid = msgspec.json.decode(run.mirror.read_bytes(), type=RunFile).pid
    except (OSError, msgspec.DecodeError):
        return True
    facts = read_facts(pid) if pid else None
    return facts is None or facts.state in {"Z", "X"}


def _start_process(run: RunDir, words: Sequence[str], place: str, report: int) -> subprocess.Popen[bytes]:
    with open(run.log, "ab", opener=open_private) as log:
        return subprocess.Popen(  # bartack: allow[unsupervised_process] a hub outlives us  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-s", "-m", *words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=place,
            env=with_absolute_path(os.environ),
            pass_fds=(report,),
        )


def _wait_for_hub(run: RunDir, process: subprocess.Popen[bytes], report: BinaryIO) -> None:
    """Wait until a hub listens, or the process that was started has ended.

    Raises:
        BartackError: It could not run the run, and reports why.
    """
    limit = time.monotonic() + START_TIMEOUT_S
    with open_watch(str(run.path)) as watch:
        while not select.select([report], [], [], 0)[0] or (process.poll() is None and not is_active(run)):
            if time.monotonic() > limit:
                raise DeadlineExceededError("start", START_TIMEOUT_S, "default")
            watch.wait(0.05)
    problem = report.readline().strip()
    if problem:
        process.wait(START_TIMEOUT_S)
        raise revive_error(msgspec.json.decode(problem, type=ErrorData))
