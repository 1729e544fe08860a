"""One run that cannot be read is one line of the list; every command works for all others."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.runs.stories import Begin, Call, Story

from bartack import Run

PROGRAM = """\
from bartack import worker


@worker
async def main(ctx):
    await ctx.ask("publish?", type=bool)
    return "published"
"""


def newer(run: Path) -> None:
    journal = run / "journal.ndjson"
    text = journal.read_bytes()
    assert b'"format":1' in text
    journal.write_bytes(text.replace(b'"format":1', b'"format":99'))


def half_deleted(run: Path) -> None:
    (run / "journal.ndjson").unlink()


def empty(run: Path) -> None:
    (run / "journal.ndjson").write_bytes(b"")


def garbage(run: Path) -> None:
    (run / "journal.ndjson").write_bytes(os.urandom(100_000))


def directory(run: Path) -> None:
    (run / "journal.ndjson").unlink()
    (run / "journal.ndjson").mkdir()


def link(run: Path) -> None:
    moved = run.rename(run.parent.parent / "elsewhere")
    run.symlink_to(moved)


def open_to_all(run: Path) -> None:
    run.chmod(0o777)


DAMAGES: dict[Callable[[Path], None], str] = {
    newer: "journal format 99",
    half_deleted: "no journal",
    empty: "not a journal",
    garbage: "not a journal",
    directory: "journal",
    link: "symbolic link",
    open_to_all: "every user can write to it",
}


@pytest.fixture
def damaged(story: Begin) -> Story:
    """A run that is to be damaged; its id makes it the newest."""
    return story("ffff0009").end()


@pytest.mark.requirement("one-unreadable-run-is-one-line")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_run_that_cannot_be_read_is_one_line_with_its_reason(
    call: Call, completed: Story, asking: Story, damaged: Story, damage: Callable[[Path], None]
) -> None:
    damage(damaged.run.path)

    rows = {row["run"]: row for row in json.loads(call("status", "--json").stdout)}
    shown = call("status")

    assert rows[damaged.id]["status"] == "unreadable"
    assert DAMAGES[damage] in rows[damaged.id]["error"]
    assert (rows[completed.id]["status"], rows[asking.id]["status"]) == ("completed", "interrupted")
    assert shown.returncode == 0
    assert [line.split()[1] for line in shown.stdout.splitlines() if damaged.id in line] == ["unreadable"]


@pytest.mark.requirement("one-unreadable-run-is-one-line")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_command_works_for_all_other_runs(
    call: Call,
    completed: Story,
    asking: Story,
    damaged: Story,
    damage: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    (tmp_path / "bartack.toml").touch(0o644)
    damage(damaged.run.path)

    questions = call("answer")
    latest = call("log")
    cleaned = call("clean", "--yes", "--json")
    checked = json.loads(call("doctor", "--json").stdout)["findings"]

    assert (questions.returncode, asking.id in questions.stdout) == (0, True), questions.stderr
    assert latest.returncode == 0, latest.stderr
    assert f"{damaged.id} is skipped: " in latest.stderr
    assert [run["run"] for run in json.loads(cleaned.stdout)["runs"]] == [completed.id]
    assert not completed.run.path.exists()
    assert damaged.run.path.exists()
    assert [found["check"] for found in checked if damaged.id in found["sentence"]] == ["runs"]
    assert call("ps").returncode == 0
    assert call("show", asking.id).returncode == 0
    assert call("cancel", asking.id).returncode == 0
    assert [run.id for run in Run.list()] == [asking.id]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_run_that_cannot_be_read_and_is_named_is_refused_with_a_code(
    call: Call, damaged: Story, damage: Callable[[Path], None]
) -> None:
    damage(damaged.run.path)

    for words in (["status"], ["log"], ["ps"], ["answer"], ["show"]):
        refused = call(*words, damaged.id)

        assert refused.returncode != 0, words
        assert "error[BT" in refused.stderr, words
        assert "BT106" not in refused.stderr, words


def test_a_directory_that_is_being_made_into_a_run_is_not_listed(call: Call, completed: Story) -> None:
    being_made = completed.run.path.with_name("run-20270101-000000-00000000")
    (being_made / "program").mkdir(parents=True)

    rows = json.loads(call("status", "--json").stdout)

    assert [row["run"] for row in rows] == [completed.id]


def test_a_run_that_cannot_be_deleted_does_not_keep_the_others(
    call: Call, completed: Story, story: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = story("dddd0001")
    shutil.copytree(completed.run.path, other.run.path, dirs_exist_ok=True)
    rename = os.rename

    def refusing(source: Path, target: Path) -> None:
        if Path(source).name == other.id:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refusing)
    call("trust", str(other.run.path))
    shown = call("clean", "--yes", "--json")
    call("trust", "--remove", str(other.run.path))

    assert shown.returncode == 1
    assert list(json.loads(shown.stdout)["failed"]) == [other.id]
    assert not completed.run.path.exists()


def test_what_a_killed_deletion_left_goes_with_the_next_one(call: Call, completed: Story) -> None:
    left = completed.run.path.with_name(".deleted-run-20250101-000000-00000000")
    left.mkdir()
    (left / "journal.ndjson").touch()

    assert call("clean", "--yes").returncode == 0

    assert not left.exists()


def bartack_without_privileges(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command line in a process to which the permissions of files apply, also if this user is root."""
    command = [sys.executable, "-m", "bartack", *words]
    if os.geteuid() == 0:
        drop = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *command]
    return subprocess.run(
        command,
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.requirement("one-unreadable-run-is-one-line")
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.parametrize("name", ["", "journal.ndjson", "run.json"])
def test_files_without_permission_concern_one_run_only(damaged: Story, tmp_path: Path, name: str) -> None:
    (tmp_path / "team.py").write_text(PROGRAM, "utf-8")
    assert bartack_without_privileges(tmp_path, "run", "team.py").returncode == 3
    (mine,) = (path for path in damaged.run.path.parent.iterdir() if path != damaged.run.path)
    (damaged.run.path / name).chmod(0)

    try:
        listed = bartack_without_privileges(tmp_path, "status", "--json")
        answered = bartack_without_privileges(tmp_path, "answer", mine.name, "q1", "true")
        resumed = bartack_without_privileges(tmp_path, "resume")
        cleaned = bartack_without_privileges(tmp_path, "clean", "--yes")
    finally:
        (damaged.run.path / name).chmod(0o700)

    (row,) = (row for row in json.loads(listed.stdout) if row["run"] == damaged.id)
    if name != "run.json":  # that one is made of the journal
        assert (row["status"], os.strerror(errno.EACCES) in row["error"]) == ("unreadable", True)
    assert answered.returncode == 0, answered.stderr
    assert (resumed.returncode, resumed.stdout) == (0, "published\n"), resumed.stderr
    assert (cleaned.returncode, mine.exists()) == (0, False), cleaned.stderr
