"""The workflow that ``bartack init --ci`` writes: it is read as YAML, and its commands are executed as they stand there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.cli.runs.stories import Call

PROGRAM = 'worker main() {\n    $ echo "hello"\n    return 1\n}\n'


class Step(msgspec.Struct, forbid_unknown_fields=True, rename={"condition": "if", "given": "with"}):
    """A step of a job; a key that GitHub does not know is an error here, too."""

    run: str = ""
    uses: str = ""
    name: str = ""
    condition: str = ""
    given: dict[str, str] = {}


def commands(path: Path) -> list[str]:
    """The commands of a workflow, in order."""
    workflow = msgspec.convert(msgspec.yaml.decode(path.read_bytes()), dict[str | bool, object])
    jobs = msgspec.convert(workflow["jobs"], dict[str, dict[str, object]])
    steps = [step for job in jobs.values() for step in msgspec.convert(job["steps"], list[Step])]
    assert workflow[True] == [
        "push",
        "pull_request",
    ]  # what 'on' is in the YAML of old, which the library reads
    assert workflow["permissions"] == {"contents": "read"}
    assert [step.uses for step in steps if step.uses] == ["actions/checkout@v4", "actions/setup-python@v5"]
    return [step.run for step in steps if step.run]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Execute a command as a job of GitHub does: by bash, which stops at the first error. Nothing is downloaded."""
    programs = os.path.dirname(sys.executable)
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command],
        env={**os.environ, "CI": "true", "PATH": f"{programs}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.requirement("ci-workflow-works")
@pytest.mark.parametrize("program", ["claude", "no-such-program"])
def test_the_commands_of_the_workflow_pass_and_fail_as_the_page_says(
    bartack: Call, tmp_path: Path, program: str
) -> None:
    assert bartack("init", "--ci").returncode == 0
    agent = f'[agents.all]\nkind = "claude"\ncommand = ["{program}"]\nroles = ["builder", "reviewer", "spec_maintainer"]\n'
    Path("bartack.toml").write_text(
        agent, encoding="utf-8"
    )  # a machine of GitHub has neither its program nor a login
    install, check, replay = commands(tmp_path / ".github/workflows/bartack.yml")
    Path("hello.pw").write_text(PROGRAM, encoding="utf-8")
    assert bartack("run", "hello.pw").returncode == 0
    shutil.copytree(tmp_path / ".bartack/runs", tmp_path / "tests/recorded")

    # An environment that uv has made has no pip.
    pip = [install] if (Path(sys.executable).parent / "pip").exists() else []
    passed = [shell(command) for command in (*pip, check, replay)]
    Path("hello.pw").write_text(PROGRAM.replace("hello", "goodbye"), encoding="utf-8")
    differs = shell(replay)
    Path("hello.pw").write_text("worker main() {", encoding="utf-8")
    broken = shell(check)

    assert install == "pip install bartack"
    assert {done.returncode for done in passed} == {0}, [done.stderr for done in passed]
    assert (differs.returncode, broken.returncode) == (1, 1), (differs.stderr, broken.stderr)
