from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

from bartack.supervision.process import tree as _tree
from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import read_facts, system
from bartack.supervision.process.tree import descendants, find_by_environment, kill_round, kill_tree

BOUND_S = 60.0

SLEEPER = "import os, signal, sys; os.write(1, b'.'); signal.pause()"
COUPLE = (
    "import os, signal, sys\n"
    "if len(sys.argv) > 1 and not os.fork(): os.setsid(); os.fork()\n"
    "os.write(1, b'%d\\n' % os.getpid()); signal.pause()\n"
)


@contextmanager
def sleeper(**env: str) -> Generator[subprocess.Popen[bytes]]:
    """A process that has begun and does nothing."""
    command = [sys.executable, "-I", "-S", "-c", SLEEPER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env}) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        try:
            yield process
        finally:
            process.kill()


def facts_of(process: subprocess.Popen[bytes]) -> ProcessFacts:
    facts = read_facts(process.pid)
    assert facts is not None
    return facts


def test_a_process_that_got_the_number_of_another_is_not_signalled() -> None:
    with sleeper() as process:
        found = facts_of(process)
        before = found._replace(started=found.started - 1)

        assert not system.send_signal(before, signal.SIGKILL)
        assert process.poll() is None
        assert system.send_signal(found, signal.SIGKILL)
        assert process.wait(BOUND_S) == -signal.SIGKILL


def test_no_process_is_signalled_when_the_process_is_another_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    with sleeper() as process:
        found = facts_of(process)
        later = found._replace(started=found.started + 1)

        def read_later(pid: int) -> ProcessFacts:
            return later._replace(pid=pid)

        monkeypatch.setattr(system, "read_facts", read_later)

        assert not system.send_signal(found, signal.SIGKILL)
        assert process.poll() is None


def test_a_tree_whose_root_got_a_new_owner_is_left_alone() -> None:
    with sleeper() as process:
        stale = ProcessId(process.pid, facts_of(process).started - 1)

        assert kill_tree(stale) == []
        assert process.poll() is None


def test_a_signal_to_the_dead_is_not_an_error() -> None:
    with sleeper() as process:
        found = facts_of(process)
        process.kill()
        process.wait(BOUND_S)

        assert not system.send_signal(found, signal.SIGKILL)
        assert kill_tree(found.id) == []


def test_a_tree_is_killed_with_sessions_of_its_own() -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", COUPLE, "fork"]
    with subprocess.Popen(command, stdout=writer) as process:
        os.close(writer)
        pids = read_lines(reader, 3)

        survivors = kill_tree(facts_of(process).id)

        assert process.wait(BOUND_S) == -signal.SIGKILL
        wait_end(reader)
    assert survivors == []
    assert {pid: read_facts(pid) is None or is_dead(pid) for pid in pids} == dict.fromkeys(pids, True)


def is_dead(pid: int) -> bool:
    facts = read_facts(pid)
    return facts is None or facts.dead


def read_lines(reader: int, count: int) -> list[int]:
    text = b""
    until = time.monotonic() + BOUND_S
    while text.count(b"\n") < count:
        ready, _, _ = select.select([reader], [], [], max(0, until - time.monotonic()))
        assert ready, text
        text += os.read(reader, 100)
    return [int(line) for line in text.split()]


def wait_end(reader: int) -> None:
    ready, _, _ = select.select([reader], [], [], BOUND_S)
    assert ready
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_a_subreaper_ends_what_is_below_it_but_those_it_keeps() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from bartack.supervision.process.system import read_facts, set_subreaper\n"
        "from bartack.supervision.process.tree import kill_descendants\n"
        "assert set_subreaper()\n"
        "start = lambda *more: subprocess.Popen([sys.executable, '-I', '-S', '-c', sys.argv[1], *more], stdout=1)\n"
        "kept, other = start('fork'), start('fork')\n"
        "sys.stdin.read(1)\n"
        "other.kill(); other.wait()\n"
        "left = kill_descendants([kept.pid])\n"
        "facts = read_facts(kept.pid)\n"
        "print('left', len(left), 'kept', facts is not None and not facts.dead, flush=True)\n"
        "print('left', len(kill_descendants()), flush=True)\n"
    )
    reader, writer = os.pipe()
    command = [sys.executable, "-c", code, COUPLE]
    with subprocess.Popen(command, stdout=writer, stdin=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stdin is not None
        assert len(read_lines(reader, 6)) == 6
        process.communicate(b".", timeout=BOUND_S)
        with os.fdopen(reader) as stream:
            said = stream.read()

    assert said == "left 0 kept True\nleft 0\n"


def test_processes_are_found_by_their_environment() -> None:
    place = f"here-{os.getpid()}"  # the same tests may run elsewhere on this machine
    with sleeper(BARTACK_RUN_DIR=place) as here, sleeper(BARTACK_RUN_DIR=f"{place}-too"):
        found = find_by_environment("BARTACK_RUN_DIR", place)

        assert [facts.pid for facts in found] == [here.pid]
        here.kill()
        os.waitid(os.P_PID, here.pid, os.WEXITED | os.WNOWAIT)
        assert find_by_environment("BARTACK_RUN_DIR", place) == []


def test_descendants_are_those_below_without_the_spared() -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(sleeper()) for _ in range(2))
        found = {facts.pid for facts in descendants(os.getpid())}
        without = {facts.pid for facts in descendants(os.getpid(), spare=[first.pid])}

    assert {first.pid, second.pid} <= found
    assert os.getpid() not in found
    assert first.pid not in without
    assert second.pid in without


def test_a_child_that_is_listed_before_its_parent_is_a_descendant() -> None:
    listed = [made_up(3, 9), made_up(4, 3), made_up(5, 1), made_up(9, 8)]

    found = _tree._iter_below(listed, {8}, ())

    assert sorted(facts.pid for facts in found) == [3, 4, 9]


def made_up(pid: int, ppid: int, state: str = "S") -> ProcessFacts:
    return ProcessFacts(pid, ppid, pid, pid, state, 1, 7, "made-up")


class Recorder:
    """Records signals instead of sending them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def send(self, facts: ProcessFacts, number: int) -> bool:
        self.sent.append((facts.pid, number))
        return True

    def send_group(self, group: int, number: int) -> None:
        self.sent.append((group, number))


def test_a_round_stops_until_nothing_new_is_found_and_then_kills_children_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(system, "send_signal", recorder.send)
    looks = iter([[made_up(1, 0)], [made_up(1, 0), made_up(2, 1)], [made_up(1, 0), made_up(2, 1)]])

    kill_round(lambda: next(looks))

    stop, kill = signal.SIGSTOP, signal.SIGKILL
    assert recorder.sent == [(1, stop), (2, stop), (2, kill), (1, kill)]


def test_the_dead_are_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(system, "send_signal", recorder.send)

    assert kill_round(lambda: [made_up(1, 0, "Z")]) == []
    assert recorder.sent == []


def test_a_group_is_killed_only_if_a_member_was_found_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(system, "send_signal", Recorder().send)
    monkeypatch.setattr(os, "killpg", recorder.send_group)

    kill_round(lambda: [made_up(11, 0), made_up(12, 0)], groups=[12, 13])

    assert recorder.sent == [(12, signal.SIGKILL)]


def test_a_round_that_finds_more_and_more_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "send_signal", Recorder().send)
    born = iter(range(10**9))

    stopped = kill_round(lambda: [made_up(next(born), 0)])

    assert stopped


def test_what_cannot_be_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with sleeper() as process:
        monkeypatch.setattr(system, "send_signal", Recorder().send)

        survivors = kill_tree(facts_of(process).id, timeout_s=0.02)

    assert [facts.pid for facts in survivors] == [process.pid]


def test_nothing_below_is_nothing_to_kill() -> None:
    command = [
        sys.executable,
        "-c",
        "from bartack.supervision.process.tree import kill_descendants; print(kill_descendants())",
    ]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)

    assert done.stdout == b"[]\n"
    assert kill_tree() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_a_process_can_become_a_subreaper() -> None:
    code = (
        "import os\nfrom bartack.supervision.process.system import set_subreaper\nassert set_subreaper()\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    if not os.fork():\n"
        "        os.close(w); os.read(r, 1); os._exit(7)\n"
        "    os._exit(0)\n"
        "os.wait(); os.close(w); print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=120)

    assert done.stdout == b"7\n"
