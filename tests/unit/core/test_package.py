"""What importing the package costs and says."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bartack

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_version_is_that_of_the_project() -> None:
    assert bartack.__version__ == tomllib.loads(PROJECT.read_text())["project"]["version"]


@pytest.mark.parametrize("name", ["asyncio", "ctypes", "msgspec", "json", "secrets", "socket", "subprocess"])
def test_importing_core_loads_nothing_slow(name: str) -> None:
    script = f"import sys; before = set(sys.modules); import bartack.core; sys.exit({name!r} in set(sys.modules) - before)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
