from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("needs /proc", allow_module_level=True)

from bartack.supervision.process import _linux
from bartack.supervision.process.facts import ProcessFacts

REST = "0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 {started} 17 18"


def stat(pid: int, name: str, ppid: int, started: int = 500, threads: int = 1) -> str:
    return f"{pid} ({name}) S {ppid} 31 32 " + REST.format(threads=threads, started=started)


@pytest.mark.parametrize("name", ["sh", "a b", "(x) S 1 1", ")) ((", "", "tab\there"])
def test_a_name_may_hold_anything(name: str) -> None:
    parsed = _linux.parse_stat(9, stat(9, name, 3, started=77, threads=4).encode())

    assert parsed == ProcessFacts(9, 3, 31, 32, "S", 4, 77, name)


def test_a_process_sees_itself_as_the_system_does() -> None:
    found = _linux.read_facts(os.getpid())

    assert found is not None
    assert (found.ppid, found.group, found.session) == (os.getppid(), os.getpgid(0), os.getsid(0))
    assert found in {*_linux.iter_processes()} or found.state != "R"


def test_there_are_no_facts_without_a_process() -> None:
    assert _linux.read_facts(2**22 + 1) is None


class FakeProc:
    """A directory like ``/proc`` of a kernel that lists the children of every thread."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, ppid: int, threads: dict[int, str]) -> None:
        home = self.root / str(pid)
        home.mkdir()
        (home / "stat").write_text(stat(pid, "fake", ppid))
        for thread, children in threads.items():
            (home / "task" / str(thread)).mkdir(parents=True)
            (home / "task" / str(thread) / "children").write_text(children)


def test_where_the_kernel_lists_children_only_the_family_is_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, 1, {10: "11 ", 12: "13 "})
    proc.add(11, 10, {11: "20 "})
    proc.add(13, 10, {13: ""})
    proc.add(20, 11, {20: "404 "})
    proc.add(99, 1, {99: ""})

    found = [facts.pid for facts in _linux.iter_family(10, str(tmp_path))]

    assert sorted(found) == [11, 13, 20]
    assert found.index(11) < found.index(20)


def test_trees_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, 1, {10: "11 13 14 "})
    proc.add(11, 10, {11: "20 "})
    proc.add(20, 11, {20: ""})
    proc.add(13, 10, {13: "21 "})
    proc.add(21, 13, {21: ""})
    proc.add(14, 10, {14: ""})

    found = {facts.pid for facts in _linux.iter_family(10, str(tmp_path), spare={11})}

    assert found == {13, 14, 21}


def test_where_the_kernel_lists_no_children_all_processes_are_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, 1, {})
    proc.add(99, 1, {})

    assert {facts.pid for facts in _linux.iter_family(10, str(tmp_path))} == {10, 99}


def test_the_environment_of_a_process_can_be_read() -> None:
    env = {"BARTACK_WORKER": "main#1", "EMPTY": "", "BYTES": os.fsdecode(b"\xff=")}
    command = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = _linux.read_environment(process.pid)
        process.communicate()

    assert env.items() <= found.items()
    assert _linux.read_environment(2**22 + 1) == {}


def test_a_process_can_say_in_its_environment_who_it_became() -> None:
    code = (
        "import os\nfrom bartack.supervision.process import _linux\n"
        "slot = _linux.find_slot('SLOT')\n"
        "_linux.fill_slot(slot, 'x' * 9)\n"
        "print(_linux.read_environment(os.getpid()))\n"
        "_linux.fill_slot(slot, 'name')\n"
        "print(_linux.read_environment(os.getpid()))\n"
        "print(_linux.find_slot('OTHER'), os.environ['SLOT'])\n"
    )
    env = {"BEFORE": "1", "SLOT": "12345678", "NEXT_SLOT": "2"}

    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    lines = done.stdout.splitlines()
    assert lines[0].startswith("{'BEFORE': '1', 'SLOT': '12345678', 'NEXT_SLOT': '2'")
    assert lines[1].startswith("{'BEFORE': '1', 'SLOT': 'name', 'NEXT_SLOT': '2'")
    assert lines[2] == "None 12345678"


def test_a_process_that_continues_without_its_first_thread_is_alive() -> None:
    code = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('.', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 60
        while (found := _linux.read_facts(process.pid)) and found.state != "Z":
            assert time.monotonic() < until
        process.kill()

    assert found is not None
    assert not found.dead
