"""Runs whose packages matter: nodes with other versions refuse them, or make the environment of their lock file with uv."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.test_fleet import LEASE, LIMIT_S, Fleet
from tests.waiting import until
from tests.wheels import install_package, lock_project, uv_variables, write_own_wheel, write_wheel

GREETS = (Path(__file__).with_name("programs") / "greets.py").read_text("utf-8")
GREETED = """\
import greeting

from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    await ctx.shell("true")
    return greeting.VERSION
"""


class Equipped(Fleet):
    """A fleet whose nodes have packages of their own, as have the people who submit."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.workspace = folder / "workspace"
        (folder / "output").touch()
        self.wheels = folder / "wheels"
        self.of_nodes = folder / "nodes" / "site-packages"
        self.of_people = folder / "people" / "site-packages"
        self._people: dict[str, str] = {**self._env, "PYTHONPATH": str(self.of_people)}
        of_nodes: dict[str, str] = {**uv_variables(self.wheels), "PYTHONPATH": str(self.of_nodes)}
        self._of_nodes: dict[str, str] = {**self._env, **of_nodes}
        self._env = self._people

    def node(self, name: str, *options: str, lease: str = LEASE) -> subprocess.Popen[bytes]:
        self._env = self._of_nodes
        try:
            return super().node(name, *options, lease=lease)
        finally:
            self._env = self._people

    def prepare(self, program: str, rule: str) -> None:
        (self.workspace / "greets.py").write_text(program, "utf-8")
        (self.workspace / "bartack.toml").write_text(f'[run]\nenvironment = "{rule}"\n', "utf-8")

    def call(self, *words: str, code: int = 0) -> str:
        """Run a command to its end; what it has written."""
        before = len(self.output())
        assert self.start(*words).wait(LIMIT_S) == code, self.output()
        return self.output()[before:]

    def state(self) -> tuple[object, ...]:
        return self.rows("SELECT state, cardinality(refused), reason FROM bartack.owner ORDER BY run DESC")[0]

    def environments(self, name: str) -> list[Path]:
        return sorted((self.seat(name) / "environments").glob("*"))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Equipped]:
    made = Equipped(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("environment-is-compared")
@pytest.mark.requirement("environment-strict-nodes")
def test_nodes_with_other_versions_note_that_or_refuse_the_run_until_a_person_resumes_it(
    fleet: Equipped,
) -> None:
    install_package(fleet.of_people, "1.0")
    install_package(fleet.of_nodes, "1.1")
    fleet.prepare(GREETED, "same")
    fleet.node("one")
    fleet.node("two")
    assert "1.1" in fleet.call("run", "--on", fleet.url, "greets.py").splitlines()
    assert "greeting is 1.1 and was 1.0" in fleet.hub_log()

    fleet.prepare(GREETED, "strict")
    fleet.call("run", "--detach", "--on", fleet.url, "greets.py")
    until(lambda: fleet.state()[0] == "held", "both nodes to refuse it")
    state, refused, reason = fleet.state()
    assert (state, refused) == ("held", 2)
    assert "BT358" in str(reason)
    assert "greeting is 1.1 and was 1.0" in str(reason)
    for command in ("status", "show"):
        assert "greeting is 1.1 and was 1.0" in fleet.call(command, "latest", "--on", fleet.url)

    install_package(fleet.of_nodes, "1.0")
    assert "completed" in fleet.call("resume", "latest", "--on", fleet.url)


@pytest.mark.requirement("environment-uv")
@pytest.mark.requirement("environment-uv-once")
@pytest.mark.requirement("environment-uv-submission")
@pytest.mark.requirement("environment-uv-refused")
def test_a_node_makes_the_environment_of_a_lock_file_once_and_refuses_what_it_cannot_make(
    fleet: Equipped,
) -> None:
    write_own_wheel(fleet.wheels)
    write_wheel(fleet.wheels, "1.2")
    install_package(fleet.of_nodes, "1.1")
    fleet.prepare(GREETS, "uv")
    run = ("run", "--on", fleet.url)

    refused = fleet.call(*run, "greets.py", code=2)
    assert "run 'uv lock' there" in refused
    assert fleet.rows("SELECT count(*) FROM bartack.run") == [(0,)]

    lock_project(fleet.workspace, fleet.wheels, "bartack", "greeting")
    fleet.node("one")
    first, second = fleet.call(*run, "greets.py"), fleet.call(*run, "greets.py")
    (made,) = fleet.environments("one")
    for shown in (first, second):
        found = json.loads(shown[shown.index("\n[\n") : shown.index("\n]\n") + 2])
        assert found == ["1.2", str(made), str(made), str(made / "bin" / "python")]
    assert fleet.output().count("uv makes the environment") == 1
    assert not made.parent.stat().st_mode & 0o077

    write_wheel(fleet.wheels, "1.3")
    lock_project(fleet.workspace, fleet.wheels, "bartack", "greeting==1.3")
    for wheel in fleet.wheels.glob("greeting-*.whl"):
        wheel.unlink()
    fleet.call(*run, "--detach", "greets.py")
    until(lambda: fleet.state()[0] == "held", "the node to refuse it")
    reason = str(fleet.state()[2])
    assert reason.startswith("BT359: ")
    assert "'uv sync' failed: " in reason
    assert fleet.environments("one") == [made], "nothing half is left"
