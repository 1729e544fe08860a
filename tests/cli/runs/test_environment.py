"""A run that is resumed where other packages are installed than it was started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call, Result
from tests.wheels import install_package

from bartack.config.load import load_config
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.program.update import update_program
from bartack.runtime.rundir.find import read_state

PROGRAM = """\
import greeting

from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    await ctx.shell("test", "-e", "go")
    return greeting.VERSION
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the packages of the environment."""
    place = tmp_path / "site" / "site-packages"
    monkeypatch.setenv("PYTHONPATH", str(place))
    return place


@pytest.fixture
def failed(bartack: Call, site: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a run that fails with version 1.0 of a package, and can then go on; the package is 1.1 by then."""

    def make(rule: str) -> Path:
        install_package(site, "1.0")
        (tmp_path / "bartack.toml").write_text(f'[run]\nenvironment = "{rule}"\n', "utf-8")
        (tmp_path / "greets.py").write_text(PROGRAM, "utf-8")
        assert bartack("run", "greets.py").returncode == 1
        (tmp_path / "go").touch()
        install_package(site, "1.1")
        (run,) = (tmp_path / ".bartack" / "runs").glob("run-*")
        return run

    return make


@pytest.mark.requirement("environment-is-compared")
def test_another_version_is_noted_and_the_run_resumed(failed: Callable[[str], Path], bartack: Call) -> None:
    failed("same")

    done: Result = bartack("resume")

    assert done.returncode == 0
    assert "greeting is 1.1 and was 1.0" in done.stderr


@pytest.mark.requirement("environment-strict")
def test_a_strict_run_is_refused_until_a_person_accepts_the_versions_that_are_here(
    failed: Callable[[str], Path], bartack: Call
) -> None:
    run = failed("strict")
    before = (run / "journal.ndjson").read_bytes()

    refused = bartack("resume")
    assert refused.returncode != 0
    assert "BT358" in refused.stderr
    assert "greeting is 1.1 and was 1.0" in refused.stderr
    assert "bartack resume RUN --update" in refused.stderr
    kinds = [line for line in (run / "journal.ndjson").read_bytes().removeprefix(before).splitlines() if line]
    assert all(b'"journal.opened"' in line for line in kinds), "nothing was executed"

    accepted = bartack("resume", "--update")
    assert accepted.returncode == 0, accepted.stderr
    assert "greeting is" not in accepted.stderr, "the versions that are here are recorded"


@pytest.mark.requirement("environment-uv-submission")
def test_a_lock_file_is_kept_with_the_program_and_an_update_takes_the_changed_one(tmp_path: Path) -> None:
    program = PROGRAM.replace("import greeting", "").replace("greeting.VERSION", "''")
    (tmp_path / "one.py").write_text(program, "utf-8")
    for name in ("pyproject.toml", "uv.lock"):
        (tmp_path / name).write_text(f"# {name}\n", "utf-8")

    run = create_run(RunRequest(program="one.py"), tmp_path, load_config(tmp_path, ["run.environment=uv"]))

    created = read_state(run).run
    assert created is not None
    assert created.environment_rule == "uv"
    assert (run.program / "uv.lock").read_text("utf-8") == "# uv.lock\n"
    assert (run.program / "pyproject.toml").read_text("utf-8") == "# pyproject.toml\n"

    (tmp_path / "uv.lock").write_text("# another\n", "utf-8")
    update_program(run)
    assert (run.program / "uv.lock").read_text("utf-8") == "# another\n"
