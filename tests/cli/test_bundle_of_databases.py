"""A bundle of a run in a database, on a machine that has never seen it: it has what the database has, and says what it lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.runs.test_bundle import contents
from tests.postgres import new_database

Call = Callable[..., subprocess.CompletedProcess[str]]
HIDDEN = "s3cr3t-and-long-enough"
PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    ctx.print("begins")
    await ctx.shell("echo", "done")
    raise ValueError("it broke")
"""
SETTINGS = f"""\
[tests.env]
DB_PASSWORD = "{HIDDEN}"

[workspace]
carry = "none"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "main.py").write_text(PROGRAM, encoding="utf-8")
    (made / "bartack.toml").write_text(SETTINGS, encoding="utf-8")
    monkeypatch.chdir(made)
    return made


@pytest.mark.requirement("database-bundle")
@pytest.mark.parametrize("options", [["--here"], ["--detach"]])
def test_a_bundle_has_what_the_database_has_and_names_the_rest(
    run: Call, call: Call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    on = ("--on", new_database())
    run("run", *on, *options, "main.py")
    is_run = options == ["--here"]
    if is_run:
        assert call("bundle", "latest", "-o", "own.tar.gz").returncode == 0
        own = contents(Path("own.tar.gz"))
        assert "elsewhere.json" not in own
        assert HIDDEN.encode() not in b"".join(own.values())
        assert b"[tests.env]" in own["bartack.toml"]
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    (place / "bartack.toml").write_text("# of another project\n", encoding="utf-8")
    (place / "main.py").write_text("# of another project\n", encoding="utf-8")

    bundled = call("bundle", "latest", "-o", "one.tar.gz", *on)

    assert bundled.returncode == 0, bundled.stderr
    packed = contents(Path("one.tar.gz"))
    assert packed["program/main.py"].decode() == PROGRAM
    assert b"of another project" not in b"".join(packed.values())
    assert HIDDEN.encode() not in b"".join(packed.values())
    assert b'"run.created"' in packed["journal.ndjson"]
    missing = json.loads(packed["elsewhere.json"])
    assert {"hub.log", "secrets.json"} <= set(missing["files"])
    assert "elsewhere.json names it" in bundled.stderr
    if is_run:
        assert packed["transcript.txt"].endswith(b"main: begins\n")
        assert json.loads(packed["run.json"])["error"] == "main: it broke"
    assert b'DB_PASSWORD = "***"' in packed["bartack.toml"]
    shutil.rmtree(place)
    assert contents_of(call, on)["program/main.py"].decode() == PROGRAM


def contents_of(call: Call, on: tuple[str, str]) -> dict[str, bytes]:
    assert call("bundle", "latest", "-o", "two.tar.gz", *on).returncode == 0
    return contents(Path("two.tar.gz"))
