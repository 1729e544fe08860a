"""What a hook costs the agent: from the start of its process until the event is durable.

The floor is the same interpreter that does nothing, measured in turns with ours: what counts is what the hook takes longer. The
door of the daemon is measured at its socket, by a client that stays connected.

Run with ``python -m bench.hook [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from bartack.plugin.hooks import shim_path
from bartack.resilience.link import DaemonLink
from bartack.resilience.spool import Header
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

BODY: Final = (
    b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"true"}}'
)
BARE: Final = [sys.executable, "-c", "pass"]


def spool_1(directory: str, size: int) -> Sample:
    """Milliseconds over a bare interpreter, no daemon, one at a time."""
    return _over_bare(directory, size, at_once=1)


def spool_16(directory: str, size: int) -> Sample:
    """The same with sixteen at a time."""
    return _over_bare(directory, size, at_once=16)


def daemon_1(directory: str, size: int) -> Sample:
    """Milliseconds over a bare interpreter, with the daemon, one at a time."""
    with _daemon(directory):
        return _over_bare(directory, size, at_once=1)


def daemon_16(directory: str, size: int) -> Sample:
    """The same with sixteen at a time."""
    with _daemon(directory):
        return _over_bare(directory, size, at_once=16)


def door(directory: str, size: int) -> Sample:
    """Milliseconds until the daemon has made one event durable and said so."""
    with _daemon(directory) as home, socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.realpath(home / "daemon.sock"))
        took = [_exchange(client, number) for number in range(size)]
    return _sample(took[size // 10 :])


def synced_append(directory: str, size: int) -> Sample:
    """Milliseconds to append the same bytes to a file and sync it: no promise is cheaper."""
    fd = os.open(os.path.join(directory, "floor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    took: list[float] = []
    for _ in range(size):
        started = perf_counter()
        os.write(fd, BODY)
        os.fdatasync(fd)
        took.append((perf_counter() - started) * 1000)
    os.close(fd)
    return _sample(took)


def _exchange(client: socket.socket, number: int) -> float:
    frame = Header("PreToolUse", number, "/").encode() + b"\n" + BODY
    started = perf_counter()
    client.sendall(len(frame).to_bytes(4, "big") + frame)
    answer = client.recv(200)
    took = (perf_counter() - started) * 1000
    assert answer.startswith(b"ok hk_"), answer
    return took


def _over_bare(directory: str, size: int, *, at_once: int) -> Sample:
    home = _home(directory)
    hook = [sys.executable, "-I", "-S", str(home / "bin" / "bartack-hook.py"), "PreToolUse"]
    with ThreadPoolExecutor(at_once) as pool:
        pairs = list(pool.map(_run_both, [hook] * size))
    ours, bare = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    facts = {"hook": _quantiles(ours), "bare": _quantiles(bare)}
    return Sample(value=statistics.median(ours) - statistics.median(bare), facts=facts)


def _run_both(hook: list[str]) -> tuple[float, float]:
    return _run(hook), _run(BARE)


def _run(command: list[str]) -> float:
    started = perf_counter()
    subprocess.run(command, input=BODY, check=True)
    return (perf_counter() - started) * 1000


def _quantiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"


def _sample(took: list[float]) -> Sample:
    return Sample(value=statistics.median(took), facts={"spread": _quantiles(took)})


def _home(directory: str) -> Path:
    home = Path(directory) / "state" / "bartack"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "autostart-off").touch()
    (home / "bartack.toml").write_text("[daemon]\nhttp_port = 0\n[lineage]\nembedded = false\n")
    shutil.copy(shim_path(), home / "bin" / "bartack-hook.py")
    return home


@contextmanager
def _daemon(directory: str) -> Generator[Path]:
    home = _home(directory)
    environ = {**os.environ, "XDG_STATE_HOME": str(home.parent), "PATTERN_CACHE_DIR": str(home)}
    command = [sys.executable, "-I", "-m", "bartack", "daemon", "run"]
    process = subprocess.Popen(command, env=environ, cwd="/")
    try:
        _wait(DaemonLink(home).is_running)
        yield home
    finally:
        process.terminate()
        process.wait()


def _wait(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    started = perf_counter()
    while not condition():
        if perf_counter() - started > 30:
            raise TimeoutError("the daemon does not answer")
        pause.wait(0.02)


def _race(key: str, title: str, measure: Callable[[str, int], Sample], size: int) -> Race:
    ours = Contestant(key=OURS, label="bartack", measure=measure, size=size, quick_size=max(10, size // 4))
    return Race(key=key, title=title, unit="ms", better="lower", contestants=(ours,))


_goal = partial(Goal, bound="at most", target=15.0, stretch=8.0)

BENCH: Final = Bench(
    name="hook",
    title="a hook event, from the start of its process until it is durable",
    races=(
        _race("spool-1", "hook without a daemon, over bare python, one at a time", spool_1, 60),
        _race("spool-16", "hook without a daemon, over bare python, sixteen at a time", spool_16, 160),
        _race("daemon-1", "hook with a daemon, over bare python, one at a time", daemon_1, 60),
        _race("daemon-16", "hook with a daemon, over bare python, sixteen at a time", daemon_16, 160),
        Race(
            key="door",
            title="one event through the daemon's socket until it is durable",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=door, size=500),
                Contestant(key="floor", label="floor: append + fdatasync", measure=synced_append, size=500),
            ),
        ),
    ),
    goals=(
        _goal(race="spool-1", title="over bare python, no daemon, one at a time"),
        _goal(race="daemon-1", title="over bare python, with a daemon, one at a time"),
        Goal(race="door", title="durable at the daemon", bound="at most", target=1.0, stretch=0.5),
    ),
    notes=("No other tool records hook events durably, so the floor is the only comparison.",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
