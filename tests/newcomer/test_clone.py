"""What a newcomer does first: the programs of the pages, in the root of a clone from which Bartack itself is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEAM = re.compile(r'```patchwork title="team\.pw"\n(.*?)```', re.DOTALL)
PYTHON_TEAM = """\
from bartack.runtime import Context, step, worker


@step
def double(n: int) -> int:
    return 2 * n


@worker
async def main(ctx: Context) -> int:
    return await double(21)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout with the package below the workspace, as an editable install has it."""
    place = tmp_path / "bartack"
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def bartack(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bartack", *words],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.requirement("first-program-runs-in-a-clone")
def test_the_first_program_of_the_readme_runs_in_the_root_of_a_clone(clone: Path) -> None:
    found = TEAM.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    (clone / "team.pw").write_text(found[1])

    for _ in range(2):
        done = bartack(clone, "run", "team.pw")
        assert (done.returncode, done.stdout) == (0, "[\n  1,\n  2\n]\n"), done.stderr
    (run, _) = sorted((clone / ".bartack/runs").iterdir())
    assert sorted(path.name for path in (run / "program").rglob("*.p[yw]")) == ["team.pw"]


@pytest.mark.requirement("first-program-runs-in-a-clone")
def test_a_python_program_runs_in_the_root_of_a_clone(clone: Path) -> None:
    (clone / "team.py").write_text(PYTHON_TEAM)

    done = bartack(clone, "run", "team.py")

    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
