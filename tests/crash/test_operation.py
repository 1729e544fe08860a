"""A node of a database that starts what a schedule wants, and that meets tables of a version that it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.postgres import new_database
from tests.waiting import until

from bartack.depot.postgres._database import Database

PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    await ctx.shell("sh", "-c", f"echo {await ctx.shell('cat', 'notes.txt')} started >> effects")
"""
LIMIT_S = 60


@pytest.mark.requirement("fleet-schedules")
@pytest.mark.requirement("fleet-upgrade")
def test_a_node_starts_what_is_scheduled_and_ends_when_it_does_not_know_the_tables(tmp_path: Path) -> None:
    url = new_database()
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for place in (mine, theirs):
        place.mkdir()
    (mine / "nightly.py").write_text(PROGRAM, encoding="utf-8")
    (mine / "notes.txt").write_text("it", encoding="utf-8")
    (mine / "bartack.toml").write_text("[workspace]\nduring_s = 7\n", encoding="utf-8")

    def start(place: Path, *words: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
        with (tmp_path / "output").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "bartack", *words],
                cwd=place,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    words = "schedules", "add", "nightly", "--on", url, "--cron", "0 3 * * *", "--", "run", "nightly.py"
    assert start(mine, *words).wait(LIMIT_S) == 0
    mine.rename(tmp_path / "gone")
    with Database(url) as database:
        rows = database.shared.rows
        rows("UPDATE bartack.schedule SET next = '2026-01-01T03:00Z'")
        node = start(theirs, "node", "run", "--on", url, "--lease", "3")
        try:
            until(lambda: rows("SELECT state FROM bartack.owner") == [("over",)], "the run")
            pull = start(theirs, "pull", "latest", "--on", url, "--dir", str(tmp_path / "files"))
            assert pull.wait(LIMIT_S) == 0
            assert (tmp_path / "files/effects").read_text(encoding="utf-8") == "it started\n"
            kept = {
                path.read_text(encoding="utf-8") for path in (theirs / "state").rglob("run-*/bartack.toml")
            }
            assert kept == {"[workspace]\nduring_s = 7\n"}
            assert rows("SELECT key FROM bartack.run") == [("nightly@2026-01-01T03:00Z",)]

            rows("INSERT INTO bartack.level (version, works_from) VALUES (99, 99)")

            assert node.wait(LIMIT_S) == 2
            output = (tmp_path / "output").read_text(encoding="utf-8")
            assert "BT216" in output
            assert "its tables are those of a newer version" in output
            assert rows("SELECT state FROM bartack.node WHERE slots > 0") == [("left",)]
        finally:
            node.kill()
            node.wait(LIMIT_S)
