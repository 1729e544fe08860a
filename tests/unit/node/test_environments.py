"""Environments that a node makes from lock files: once for each content, whole or not at all, and not for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.waiting import until
from tests.wheels import lock_project, uv_program, uv_variables, write_own_wheel, write_wheel

from bartack._version import __version__
from bartack.depot.taken import READS
from bartack.errors import EnvironmentUnavailableError
from bartack.node._environment_maker import Made, MakeOrder, make
from bartack.node._environments import (
    MADE,
    MAKING,
    UNUSED_US,
    Environments,
    Interpreter,
    NotNeededError,
    make_guarded,
)
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import RunCreated

WHOLE = Made(bartack=__version__, reads=READS)
PATIENCE_S = 30
DAY_US = 24 * 3600 * 1_000_000
SECRET = "s3cret-of-the-index"  # noqa: S105 - it is not one


class Maker:
    """Makes environments that have an interpreter and nothing else.

    Args:
        answer: What it answers.
        gate: It waits for this before it answers.
    """

    def __init__(self, answer: Made = WHOLE, gate: threading.Event | None = None) -> None:
        self.orders: list[MakeOrder] = []
        self.files: list[set[str]] = []
        self.started = threading.Event()
        self._answer = answer
        self._gate = gate

    def __call__(
        self, order: MakeOrder, environ: Mapping[str, str], is_needed: Callable[[], bool]
    ) -> Made | None:
        self.orders.append(order)
        self.files.append(set(os.listdir(order.project)))
        self.started.set()
        assert self._gate is None or self._gate.wait(PATIENCE_S)
        (Path(order.place) / "bin").mkdir(parents=True)
        (Path(order.place) / "bin" / "python").symlink_to(sys.executable)
        return self._answer


@pytest.fixture
def environ() -> dict[str, str]:
    return {"PATH": os.path.dirname(uv_program()), "PYTHONPATH": "/elsewhere", "PYPI_TOKEN": SECRET}


def a_run(folder: Path, lock: str = "one", python: str = "3.11.7") -> tuple[RunDir, RunCreated]:
    """A run whose program was kept with a lock file."""
    run = RunDir(folder / f"run-{lock}-{python}")
    run.program.mkdir(parents=True, exist_ok=True)
    (run.program / "pyproject.toml").write_text("[project]\n", "utf-8")
    (run.program / "uv.lock").write_text(lock, "utf-8")
    return run, created(python=python)


def created(**environment: str) -> RunCreated:
    return RunCreated(
        run="run-1", worker="a:main", name="main", program="a.py", workspace="/", root="/", seed=1,
        environment=environment, environment_rule="uv",
    )  # fmt: skip


def used(environments: Environments, run: tuple[RunDir, RunCreated]) -> Interpreter:
    """What a run is executed with, which has ended by then."""
    with environments.use(*run, lambda: True) as found:
        return found


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


@pytest.mark.requirement("environment-uv-once")
def test_there_is_one_environment_for_each_lock_and_minor_version_of_python(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    maker = Maker()
    environments = Environments(tmp_path / "made", environ, print, maker)

    first = used(environments, a_run(tmp_path, "one", "3.11.7"))
    same = used(environments, a_run(tmp_path, "one", "3.11.9"))
    others = [
        used(environments, a_run(tmp_path, "two", "3.11.7")),
        used(environments, a_run(tmp_path, "one", "3.99.1")),
    ]

    assert first.python == same.python
    assert len({first.python, *(other.python for other in others)}) == 3
    own = ".".join(map(str, sys.version_info[:2]))
    assert [order.python for order in maker.orders] == [
        sys.executable if version == own else version for version in ("3.11", "3.11", "3.99")
    ]
    assert maker.files[0] == {"pyproject.toml", "uv.lock"}


@pytest.mark.requirement("environment-uv")
def test_a_hub_gets_the_environment_as_one_that_is_activated(tmp_path: Path, environ: dict[str, str]) -> None:
    found = used(Environments(tmp_path / "made", environ, print, Maker()), a_run(tmp_path))

    place = Path(found.python).parents[1]
    assert found.environ == {
        "PATH": f"{place}/bin{os.pathsep}{environ['PATH']}",
        "VIRTUAL_ENV": str(place),
        "PYPI_TOKEN": SECRET,
    }


@pytest.mark.requirement("environment-uv-once")
def test_runs_that_begin_together_wait_for_one_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    gate = threading.Event()
    maker = Maker(gate=gate)
    environments = Environments(tmp_path / "made", environ, print, maker)
    found: list[Interpreter] = []
    run = a_run(tmp_path)
    threads = [threading.Thread(target=lambda: found.append(used(environments, run))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert maker.started.wait(PATIENCE_S)
    gate.set()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert len(found) == 3
    assert len(maker.orders) == 1
    assert [name for name in names(tmp_path / "made") if name.startswith(".")] == []


@pytest.mark.requirement("environment-uv-once")
def test_a_run_whose_node_stops_does_not_wait_for_the_environment_of_another(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    gate = threading.Event()
    maker = Maker(gate=gate)
    environments = Environments(tmp_path / "made", environ, print, maker)
    thread = threading.Thread(target=used, args=(environments, a_run(tmp_path)))
    thread.start()
    assert maker.started.wait(PATIENCE_S)

    with pytest.raises(NotNeededError), environments.use(*a_run(tmp_path), lambda: False):
        pass

    gate.set()
    thread.join(PATIENCE_S)


@pytest.mark.requirement("environment-uv-once")
def test_what_a_killed_node_has_left_is_not_taken_for_an_environment(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    directory, maker = tmp_path / "made", Maker()
    environments = Environments(directory, environ, print, maker)
    place = Path(used(environments, a_run(tmp_path)).python).parents[1]
    left = directory / f"{MAKING}{place.name}-left"
    place.rename(left)

    used(environments, a_run(tmp_path))
    assert len(maker.orders) == 2
    (place / MADE).unlink()
    used(environments, a_run(tmp_path))
    assert len(maker.orders) == 3
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to("/no/such/python")
    used(environments, a_run(tmp_path))
    assert len(maker.orders) == 4

    assert environments.remove_unused(0) == []
    assert names(directory) == [place.name]


@pytest.mark.requirement("environment-uv-removed")
def test_an_environment_goes_when_no_run_has_used_it_for_a_week(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    directory = tmp_path / "made"
    environments = Environments(directory, environ, print, Maker())
    old = Path(used(environments, a_run(tmp_path, "old")).python).parents[1]
    with ExitStack() as stack:
        busy = Path(stack.enter_context(environments.use(*a_run(tmp_path), lambda: True)).python).parents[1]
        for place in (old, busy):
            os.utime(place / MADE, (1, 1))

        assert environments.remove_unused(UNUSED_US) == []
        assert environments.remove_unused(UNUSED_US + DAY_US) == [old.name]

        assert names(directory) == [busy.name]
    now_us = (busy / MADE).stat().st_mtime_ns // 1000
    assert now_us > UNUSED_US, "the end of a run is a use"
    assert environments.remove_unused(now_us + UNUSED_US) == []
    assert environments.remove_unused(now_us + UNUSED_US + DAY_US) == [busy.name]
    assert names(directory) == []


@pytest.mark.requirement("environment-uv-removed")
def test_an_environment_that_is_being_made_is_not_removed(tmp_path: Path, environ: dict[str, str]) -> None:
    gate = threading.Event()
    maker = Maker(gate=gate)
    environments = Environments(tmp_path / "made", environ, print, maker)
    found: list[Interpreter] = []
    thread = threading.Thread(target=lambda: found.append(used(environments, a_run(tmp_path))))
    thread.start()
    assert maker.started.wait(PATIENCE_S)

    before = names(tmp_path / "made")
    assert environments.remove_unused(2**60) == []
    assert names(tmp_path / "made") == before

    gate.set()
    thread.join(PATIENCE_S)
    assert Path(found[0].python).exists()


@pytest.mark.requirement("environment-uv-refused")
@pytest.mark.parametrize("level", [READS - 1, READS + 1])
def test_bartack_of_another_level_is_refused(tmp_path: Path, environ: dict[str, str], level: int) -> None:
    maker = Maker(Made(bartack="0.9", reads=level))

    with pytest.raises(EnvironmentUnavailableError, match=f"Bartack 0.9 .* level {level}"):
        used(Environments(tmp_path / "made", environ, print, maker), a_run(tmp_path))


@pytest.mark.requirement("environment-uv-refused")
def test_a_problem_is_reported_without_credentials_and_leaves_nothing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    problem = f"'uv sync' failed: https://me:hidden-too@index/simple answers 401 to {SECRET}"
    maker = Maker(Made(problem=problem))

    with pytest.raises(EnvironmentUnavailableError) as caught:
        used(Environments(tmp_path / "made", environ, print, maker), a_run(tmp_path))

    assert caught.value.problem == (
        "'uv sync' failed: https://***@index/simple answers 401 to $env:PYPI_TOKEN"
    )
    assert names(tmp_path / "made") == []


@pytest.mark.requirement("environment-uv-refused")
def test_a_node_without_uv_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))

    with pytest.raises(EnvironmentUnavailableError, match="no uv on the PATH"):
        used(Environments(tmp_path / "made", {"PATH": str(tmp_path)}, print, Maker()), a_run(tmp_path))


@pytest.mark.requirement("environment-uv-refused")
def test_a_run_that_was_kept_without_a_lock_file_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    run, made = a_run(tmp_path)
    (run.program / "uv.lock").unlink()

    with pytest.raises(EnvironmentUnavailableError, match=r"without uv\.lock"):
        used(Environments(tmp_path / "made", environ, print, Maker()), (run, made))


# With the real uv.


def order_for(folder: Path, *needs: str) -> MakeOrder:
    """What the maker is asked for, with wheels of a directory instead of an index."""
    project = folder / "project"
    project.mkdir()
    write_wheel(folder / "wheels", "1.2")
    write_own_wheel(folder / "wheels")
    lock_project(project, folder / "wheels", *needs)
    return MakeOrder(uv=uv_program(), python=sys.executable, project=str(project), place=str(folder / "made"))


def variables(folder: Path) -> dict[str, str]:
    """Those of a node which is in an environment of its own."""
    others = {"VIRTUAL_ENV": "/elsewhere", "UV_PROJECT_ENVIRONMENT": "/elsewhere", "PYTHONPATH": "/elsewhere"}
    return {**os.environ, **uv_variables(folder / "wheels"), **others}


@pytest.mark.requirement("environment-uv")
def test_uv_makes_an_environment_that_can_be_moved(tmp_path: Path) -> None:
    order = order_for(tmp_path, "bartack", "greeting")

    made = make_guarded(order, variables(tmp_path), lambda: True)

    assert made == WHOLE
    moved = Path(order.place).rename(tmp_path / "moved")
    said = subprocess.run([moved / "bin" / "greet"], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "1.2\n"


@pytest.mark.requirement("environment-uv-refused")
def test_an_environment_without_bartack_is_none(tmp_path: Path) -> None:
    made = make(order_for(tmp_path, "greeting"), variables(tmp_path))

    assert "uv add bartack" in made.problem
    assert "No module named 'bartack'" in made.problem


@pytest.mark.requirement("environment-uv-refused")
def test_the_last_lines_of_uv_name_the_problem(tmp_path: Path) -> None:
    order = order_for(tmp_path, "greeting")
    for wheel in (tmp_path / "wheels").glob("*.whl"):
        wheel.unlink()

    made = make(order, variables(tmp_path))

    assert made.problem.startswith("'uv sync' failed: ")
    assert "greeting" in made.problem
    assert "\n" not in made.problem


@pytest.mark.requirement("environment-uv-once")
def test_uv_is_ended_when_the_environment_is_not_needed_any_more(tmp_path: Path) -> None:
    begun, uv = tmp_path / "begun", tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho $$ > "{begun}"\nexec sleep 600\n', "utf-8")
    uv.chmod(0o700)
    order = MakeOrder(uv=str(uv), python="", project=str(tmp_path), place=str(tmp_path / "made"))

    assert (
        make_guarded(order, dict(os.environ), lambda: not (begun.exists() and begun.read_text("utf-8")))
        is None
    )

    pid = int(begun.read_text("utf-8"))
    until(lambda: not Path(f"/proc/{pid}").exists(), "the program to end")


def test_what_is_written_beside_an_environment_is_what_the_maker_found(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    place = Path(used(Environments(tmp_path / "made", environ, print, Maker()), a_run(tmp_path)).python)

    assert msgspec.json.decode((place.parents[1] / MADE).read_bytes(), type=Made) == WHOLE
