"""Runs that came with a clone, an archive or a copy: shown by any command, changed and executed by none until they are trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import warm

from bartack.core.trust import add_trusted

PROGRAM = """\
from bartack import worker


@worker
async def main(ctx):
    await ctx.append("effects.txt", "once\\n")
    await ctx.ask("go on?", type=bool)
    return "done"
"""
REFUSED = (
    ["resume", "RUN"],
    ["resume", "RUN", "--update"],
    ["cancel", "RUN"],
    ["fail", "RUN", "because"],
    ["fork", "RUN", "--at", "1"],
    ["answer", "RUN", "q1", "true"],
    ["mailbox", "send", "RUN", "box", "1"],
    ["dlq", "purge", "RUN", "--all", "--yes"],
    ["clean", "RUN", "--unfinished", "--yes"],
)


def bartack(place: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "bartack", *words],
        cwd=place,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def waiting(place: Path, **environ: str) -> Path:
    """A run that waits for an answer."""
    place.mkdir()
    (place / "team.py").write_text(PROGRAM, "utf-8")
    shown = bartack(place, "run", "team.py", **environ)
    assert shown.returncode == 3, shown.stderr
    (run,) = (place / ".bartack/runs").iterdir()
    return run


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another project, which is only copied."""
    return waiting(tmp_path_factory.mktemp("project") / "theirs")


@pytest.fixture
def copied(theirs: Path, tmp_path: Path) -> Path:
    """A run that was made in one project and came to another one by a copy of everything."""
    shutil.copytree(theirs.parents[2], tmp_path / "mine", symlinks=True)
    return tmp_path / "mine/.bartack/runs" / theirs.name


@pytest.mark.requirement("foreign-runs-are-not-changed")
def test_a_run_that_was_copied_is_not_changed_by_any_command(copied: Path) -> None:
    before = contents(copied.parents[2])

    for words in REFUSED:
        refused = bartack(copied.parents[2], *(copied.name if word == "RUN" else word for word in words))

        assert refused.returncode == 2, (words, refused.stderr)
        assert "BT340" in refused.stderr, (words, refused.stderr)
        assert f"bartack trust {copied}" in refused.stderr
    assert contents(copied.parents[2]) == before


@pytest.mark.requirement("foreign-runs-are-not-changed")
def test_a_run_that_was_copied_can_be_looked_at(copied: Path) -> None:
    for words in (
        ["status"],
        ["show", copied.name],
        ["log", copied.name],
        ["journal", "verify", copied.name],
    ):
        assert bartack(copied.parents[2], *words).returncode == 0, words


@pytest.mark.requirement("trusted-runs-resume")
def test_a_run_that_was_copied_resumes_where_it_is_trusted(copied: Path, tmp_path: Path) -> None:
    place, config = copied.parents[2], {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    assert bartack(place, "trust", ".", **config).returncode == 0
    assert bartack(place, "answer", copied.name, "q1", "true", **config).returncode == 0
    resumed = bartack(place, "resume", copied.name, **config)

    assert (resumed.returncode, resumed.stdout.strip()) == (0, "done"), resumed.stderr
    assert (place / "effects.txt").read_text("utf-8") == "once\n"


@pytest.mark.requirement("own-projects-need-no-trust")
def test_a_run_without_a_mark_resumes_where_it_was_made(tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    config = {"XDG_CONFIG_HOME": str(nowhere)}
    run = waiting(tmp_path / "mine", **config)
    assert '"origin"' not in (run / "journal.ndjson").read_text("utf-8")

    assert bartack(run.parents[2], "answer", run.name, "q1", "true", **config).returncode == 0
    resumed = bartack(run.parents[2], "resume", **config)

    assert (resumed.returncode, resumed.stdout.strip()) == (0, "done"), resumed.stderr


@pytest.mark.requirement("foreign-runs-are-not-changed")
def test_a_run_without_a_mark_is_refused_where_it_was_not_made(tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    run = waiting(tmp_path / "theirs", XDG_CONFIG_HOME=str(nowhere))
    shutil.copytree(tmp_path / "theirs", tmp_path / "mine", symlinks=True)
    shutil.rmtree(tmp_path / "theirs")

    refused = bartack(tmp_path / "mine", "resume", run.name)

    assert "it has no mark of yours" in refused.stderr


@pytest.mark.requirement("foreign-runs-are-not-changed")
def test_a_run_that_is_put_among_own_runs_is_refused(tmp_path: Path) -> None:
    mine, theirs = waiting(tmp_path / "mine"), waiting(tmp_path / "theirs")
    planted = mine.parent / "run-29990101-000000-00000000"
    shutil.copytree(theirs, planted, symlinks=True)

    refused = bartack(mine.parents[2], "resume", planted.name)

    assert refused.returncode == 2
    assert "BT340" in refused.stderr


@pytest.mark.requirement("links-are-not-followed")
@pytest.mark.parametrize(
    "name", ["reserve", "lock", "lock.tree", "inbox", "blobs", "run.json", "transcript.txt", "hub.log"]
)
def test_a_link_in_the_place_of_a_file_of_a_run_is_not_followed(
    copied: Path, tmp_path: Path, name: str
) -> None:
    run = copied
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"precious")
    there = run / name
    if there.is_dir():
        shutil.rmtree(there)
    else:
        there.unlink(missing_ok=True)
    there.symlink_to(outside if name in {"inbox", "blobs"} else outside / "file")
    add_trusted(run)

    for words in (["resume"], ["cancel"], ["answer"]):
        more = ["q1", "true"] if words == ["answer"] else []
        refused = bartack(run.parents[2], *words, run.name, *more)
        assert refused.returncode != 0, (words, refused.stdout)
    bartack(run.parents[2], "show", run.name)
    there.unlink()

    assert contents(outside) == {"file": b"precious"}


@pytest.mark.requirement("links-are-not-followed")
def test_a_socket_that_a_link_leads_to_is_not_spoken_to(tmp_path: Path) -> None:
    mine, planted = waiting(tmp_path / "mine"), waiting(tmp_path / "theirs")
    (planted / "hub.sock").symlink_to(mine / "hub.sock")
    hub = subprocess.Popen(
        [sys.executable, "-m", "bartack", "resume", "--wait", "--json"],
        cwd=mine.parents[2],
        stdout=subprocess.PIPE,
    )
    try:
        assert hub.stdout is not None
        while b"hub.started" not in hub.stdout.readline():
            assert hub.poll() is None
        shown = bartack(planted.parents[2], "cancel", planted.name)

        assert shown.returncode == 0
        assert hub.poll() is None
    finally:
        hub.kill()
        hub.communicate()


def test_a_process_of_a_run_cannot_trust_a_directory(tmp_path: Path) -> None:
    config = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "BARTACK_RUN": "run-20260101-000000-00000000"}

    refused = bartack(tmp_path, "trust", ".", **config)

    assert "BT328" in refused.stderr
    assert not (tmp_path / "config").exists()
