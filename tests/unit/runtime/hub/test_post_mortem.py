"""What is known of a process that is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.runtime.hub import post_mortem as _witness
from bartack.runtime.hub.post_mortem import TAIL_BYTES, PostMortem
from bartack.runtime.kernel.workers import NOTHING_KNOWN


class Watching:
    """A hub that looks after descriptors, and somebody who reads what is passed on."""

    def __init__(self) -> None:
        self.ready: dict[int, Callable[[], None]] = {}
        self.passed = b""
        self.witness = PostMortem(self.watch, self.unwatch, self.pass_on)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        self.ready[descriptor] = ready

    def unwatch(self, descriptor: int) -> None:
        del self.ready[descriptor]

    def pass_on(self, data: bytes) -> None:
        self.passed += data


def test_what_a_process_writes_is_passed_on_as_it_comes_and_its_end_is_kept() -> None:
    hub = Watching()
    writer = hub.witness.begin(1)
    hub.witness.started(1, 4711)
    os.write(writer, b"x" * TAIL_BYTES)
    (ready,) = hub.ready.values()
    ready()
    os.write(writer, b"the end")
    os.close(writer)
    hub.witness.exited(1, 2048)

    end = hub.witness.end(1)

    assert hub.passed == b"x" * TAIL_BYTES + b"the end"
    assert end.stderr_tail == "x" * (TAIL_BYTES - 7) + "the end"
    assert (end.pid, end.peak_memory_bytes) == (4711, 2048 * 1024)
    assert end.uptime_s > 0
    assert hub.ready == {}


def test_a_process_that_closes_its_errors_is_not_listened_to_any_more() -> None:
    hub = Watching()
    os.close(hub.witness.begin(1))
    (ready,) = hub.ready.values()
    ready()

    assert hub.ready == {}
    ready()
    assert hub.witness.end(1).stderr_tail == ""


def test_secrets_of_the_environment_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "hunter2hunter2")
    hub = Watching()
    writer = hub.witness.begin(1)
    os.write(writer, b"password hunter2hunter2\n")
    os.close(writer)

    assert hub.witness.end(1).stderr_tail == "password $env:SOME_SECRET\n"


def test_a_writer_that_outlives_the_process_is_not_waited_for() -> None:
    hub = Watching()
    writer = hub.witness.begin(1)
    os.write(writer, b"so far")

    assert hub.witness.end(1).stderr_tail == "so far"
    assert hub.witness.end(1) == NOTHING_KNOWN
    os.close(writer)


def test_a_kill_is_for_want_of_memory_if_the_kernel_counts_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 3, 4, 4, None])
    monkeypatch.setattr(_witness, "count_oom_kills", lambda: next(counts))
    witness = Watching().witness

    assert witness.reason_of("signal:SIGSEGV") == "signal:SIGSEGV"
    assert witness.reason_of("signal:SIGKILL") == "signal:SIGKILL"
    assert witness.reason_of("signal:SIGKILL") == "oom"
    assert witness.reason_of("signal:SIGKILL") == "signal:SIGKILL"
    assert witness.reason_of("signal:SIGKILL") == "signal:SIGKILL"


def test_everything_is_let_go_of_at_the_end() -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    hub = Watching()
    writers = [hub.witness.begin(token) for token in range(3)]
    os.write(writers[1], b"last words")

    hub.witness.close()

    assert hub.passed == b"last words"
    for writer in writers:
        os.close(writer)
    assert len(list(Path("/dev/fd").iterdir())) <= before
