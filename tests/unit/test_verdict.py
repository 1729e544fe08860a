"""Which failed tests the suite repeats: those that may have met a busy machine, and not those that have found a history wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.verdict import WRONG, WrongHistoryError, judging

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
from pathlib import Path
from tests.verdict import judging

def test_something():
    has_failed = Path("failed").exists()
    Path("failed").touch()
    {block}
        assert has_failed, "H3: a step began again"
"""


def suite(place: Path, block: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a project with one test, which fails the first time."""
    (place / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\naddopts = -p tests.verdict\n", "utf-8")
    (place / "test_once.py").write_text(FAILS_ONCE.format(block=block), "utf-8")
    words = [str(ROOT / ".ci/suite"), sys.executable, "-q"]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False, timeout=120)


def test_a_test_that_has_failed_is_repeated_and_named(tmp_path: Path) -> None:
    done = suite(tmp_path, "if True:")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASSED ONLY WHEN REPEATED: test_once.py::test_something"


def test_a_test_that_has_found_a_history_wrong_is_not_repeated(tmp_path: Path) -> None:
    done = suite(tmp_path, "with judging():")

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("nothing is repeated: test_once.py::test_something")
    assert (tmp_path / WRONG).read_text("utf-8") == "test_once.py::test_something\n"


def test_other_errors_are_no_verdicts() -> None:
    with pytest.raises(WrongHistoryError, match="H1"), judging():
        raise AssertionError("H1: an entry is not there")
    with pytest.raises(OSError, match="the disk is full"), judging():
        raise OSError("the disk is full")
