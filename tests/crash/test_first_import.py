"""Nothing is left of a program that is looked at before it runs, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.trees import BOUND_S, HERE, Reports, is_alive, wait_deaths
from tests.crash.warden import Findings, check_soon, read_findings, under_warden

from bartack.supervision.process.tree import descendants

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux"),
    pytest.mark.requirement("no-import-is-left"),
]

BARTACK = ("-P", "-s", "-m", "bartack", "run", "program.py")

PROGRAM = """
import os, signal, subprocess, sys
from bartack import worker

with open({pipe!r}, "wb") as out:
    subprocess.Popen([sys.executable, "-I", "-S", {shapes!r}, {shape!r}], stdout=out)
    os.write(out.fileno(), b"%d\\n" % os.getpid())
if {stays}:
    signal.pause()

@worker
async def main(ctx):
    return None
"""


@pytest.fixture(autouse=True)
def without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are any, they only help."""
    monkeypatch.setenv("BARTACK_CGROUPS", "off")


class Importing:
    """A command that imports a program, which starts a shape meanwhile."""

    def __init__(self, folder: Path, reports: Reports, shape: str, *words: str, stays: bool = True) -> None:
        pipe = f"/proc/{os.getpid()}/fd/{reports.writer}"
        text = PROGRAM.format(pipe=pipe, shapes=str(HERE / "shapes.py"), shape=shape, stays=stays)
        (folder / "program.py").write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, *(words or BARTACK)], cwd=folder, stderr=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def begin_import(tmp_path: Path, reports: Reports) -> Iterator[Callable[..., Importing]]:
    begun: list[Importing] = []

    def begin(shape: str, *words: str, stays: bool = True) -> Importing:
        begun.append(Importing(tmp_path, reports, shape, *words, stays=stays))
        return begun[-1]

    yield begin
    for importing in begun:
        importing.close()


def guardians(importing: Importing) -> list[int]:
    """The processes between a command and the one that imports, the upper first."""
    below = [facts for facts in descendants(importing.process.pid) if not facts.dead]
    upper = next(facts.pid for facts in below if facts.ppid == importing.process.pid)
    return [upper, next(facts.pid for facts in below if facts.ppid == upper)]


@pytest.mark.parametrize("shape", ["everything", "forgets_everything"])
@pytest.mark.parametrize(
    "also", [(), (0,), (1,)], ids=["alone", "and the upper guardian", "and the lower guardian"]
)
def test_nothing_is_left_of_the_first_import_when_its_command_is_killed(
    begin_import: Callable[..., Importing], reports: Reports, shape: str, also: tuple[int, ...]
) -> None:
    importing = begin_import(shape)
    started = reports.read_pids(3)
    watching = guardians(importing)
    killed = [*(watching[place] for place in also), importing.process.pid]

    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in killed:
            os.kill(pid, number)

    assert len(reports.wait_end()) >= len(started)
    wait_deaths(watching)


def test_nothing_is_left_100_ms_after_a_command_was_killed_that_imports(
    tmp_path: Path, begin_import: Callable[..., Importing], record_property: Callable[[str, object], None]
) -> None:
    def kill_command() -> Findings:
        reports = Reports()
        importing = Importing(tmp_path, reports, "everything", *under_warden(tmp_path, *BARTACK))
        reports.read_pids(3)
        importing.process.terminate()
        reports.wait_end()
        assert importing.process.wait(BOUND_S) == 0
        importing.close()
        reports.close()
        return read_findings(tmp_path)

    record_property("gone_ms", check_soon(kill_command))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_nothing_is_left_of_the_first_import_when_its_command_is_told_to_end(
    begin_import: Callable[..., Importing], reports: Reports, number: signal.Signals
) -> None:
    importing = begin_import("everything")
    reports.read_pids(3)

    os.killpg(importing.process.pid, number)

    reports.wait_end()
    assert importing.process.wait(BOUND_S) in {2, 130, 143}


def test_what_an_import_starts_ends_with_it(begin_import: Callable[..., Importing], reports: Reports) -> None:
    importing = begin_import("forgets_everything", stays=False)

    assert importing.process.wait(BOUND_S) == 0
    # The worker that runs imports it once more; both have ended.
    pids = reports.wait_end()
    assert [pid for pid in pids if is_alive(pid)] == []


def test_an_answer_longer_than_a_pipe_is_read(tmp_path: Path) -> None:
    names = [f"module_{number:04}_{'x' * 100}" for number in range(1500)]
    for name in names:
        (tmp_path / f"{name}.py").touch()
    text = "".join(f"import {name}\n" for name in names)
    (tmp_path / "program.py").write_text(
        f"{text}from bartack import worker\n\n@worker\nasync def main(ctx):\n    return 1\n"
    )

    done = subprocess.run(
        [sys.executable, *BARTACK], cwd=tmp_path, capture_output=True, timeout=BOUND_S, check=False
    )

    assert done.returncode == 0, done.stderr.decode()
