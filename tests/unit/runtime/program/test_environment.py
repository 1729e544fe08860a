"""The versions that a run was started with, and the files from which a node makes its environment."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from bartack._version import __version__
from bartack.errors import ConfigError, EnvironmentMismatchError
from bartack.runtime.program.environment import check_environment, find_differences, read_lock

HERE = {"python": platform.python_version(), "bartack": __version__, "click": version("click")}


@pytest.mark.requirement("environment-is-compared")
def test_differences_name_what_was_recorded_and_what_is_here() -> None:
    recorded = {**HERE, "python": "3.2.1", "nowhere_to_be_found": "4.5"}

    assert find_differences(HERE) == ()
    assert find_differences(recorded) == (
        "nowhere_to_be_found 4.5 is not installed",
        f"python is {HERE['python']} and was 3.2.1",
    )


@pytest.mark.requirement("environment-strict")
@pytest.mark.parametrize("name", list(HERE))
def test_each_other_version_is_a_mismatch(name: str) -> None:
    check_environment("run-1", HERE)

    with pytest.raises(EnvironmentMismatchError, match=f"{name} is .* and was 0.0.1") as caught:
        check_environment("run-1", {**HERE, name: "0.0.1"})
    assert "--update" in caught.value.remedy


@pytest.mark.requirement("environment-uv-submission")
@pytest.mark.parametrize("missing", ["pyproject.toml", "uv.lock"])
def test_a_missing_file_is_named_with_the_command_that_makes_it(tmp_path: Path, missing: str) -> None:
    for name in {"pyproject.toml", "uv.lock"} - {missing}:
        (tmp_path / name).touch()

    with pytest.raises(ConfigError, match=rf"no {missing}; run 'uv lock'"):
        read_lock("uv", tmp_path)


@pytest.mark.requirement("environment-uv-credentials")
@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock"])
def test_a_password_in_a_url_is_not_kept(tmp_path: Path, name: str) -> None:
    for file in ("pyproject.toml", "uv.lock"):
        (tmp_path / file).write_text('url = "https://index.example/simple"\ngit = "git+ssh://git@host/it"\n')
    assert set(read_lock("uv", tmp_path)) == {"pyproject.toml", "uv.lock"}

    (tmp_path / name).write_text('url = "https://me:pass-word@index.example/simple"\n')
    with pytest.raises(ConfigError, match="a URL with a password") as caught:
        read_lock("uv", tmp_path)
    assert "pass-word" not in str(caught.value)
