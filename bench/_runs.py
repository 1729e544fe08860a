"""Runs a program of ``programs/work.py`` as an ordinary run, in this process, and returns its result."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bartack.config.load import Config
from bartack.runtime import Run
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.launch import drive
from bartack.runtime.hub.serve import Quiet
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.tree import find_by_environment

T = TypeVar("T")

PROGRAM: Final = Path(__file__).parent / "programs" / "work.py"


def make_run(directory: str, worker: str, *args: int, durability: str = "power") -> Run:
    """A run of one of the workers that has not begun."""
    workspace = Path(directory)
    shutil.copyfile(PROGRAM, workspace / PROGRAM.name)
    config = msgspec.convert({"durability": durability}, type=Config)
    (workspace / "bartack.toml").write_text(f'durability = "{durability}"\n')
    run = create_run(
        RunRequest(program=PROGRAM.name, worker=worker, argv=[str(arg) for arg in args]), workspace, config
    )
    return Run.open(run.path)


def run_worker(directory: str, type_: type[T], worker: str, *args: int, durability: str = "power") -> T:
    """Run a worker to its end and return its result."""
    run = make_run(directory, worker, *args, durability=durability)
    drive_here(run, durability)
    return run.result(type_)


def drive_here(run: Run, durability: str = "power") -> str:
    """Be the hub of a run until it ends."""
    return drive(RunDir(run.dir), msgspec.convert({"durability": durability}, type=Config), Quiet())


def hub_pid(run: Run) -> int:
    """The process that runs a run: the first word of its lock."""
    return int((run.dir / "lock").read_text().split()[0])


def kill_everything(run: Run) -> None:
    """Kill the hub of a run and all that belongs to it with ``kill -9``; returns when nothing is left."""
    os.kill(hub_pid(run), signal.SIGKILL)
    for process in find_by_environment("BARTACK_RUN_DIR", str(run.dir)):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    run.wait(30)


def cpu_seconds() -> float:
    """CPU that this process and its ended children have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
