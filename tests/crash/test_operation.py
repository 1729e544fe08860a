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
    await ctx.shell("sh", "-c", "echo started >> effects")
"""
LIMIT_S = 60


@pytest.mark.requirement("fleet-schedules")
@pytest.mark.requirement("fleet-upgrade")
def test_a_node_starts_what_is_scheduled_and_ends_when_it_does_not_know_the_tables(tmp_path: Path) -> None:
    url = new_database()
    (tmp_path / "nightly.py").write_text(PROGRAM, encoding="utf-8")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

    def start(*words: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "output").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "bartack", *words],
                cwd=tmp_path,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    added = start(
        "schedules", "add", "nightly", "--on", url, "--cron", "0 3 * * *", "--", "run", "nightly.py"
    )
    assert added.wait(LIMIT_S) == 0
    with Database(url) as database:
        rows = database.shared.rows
        rows("UPDATE bartack.schedule SET next = '2026-01-01T03:00Z'")
        node = start("node", "run", "--on", url, "--lease", "3")
        try:
            until(lambda: rows("SELECT state FROM bartack.owner") == [("over",)], "the run")
            assert (tmp_path / "effects").read_text(encoding="utf-8") == "started\n"
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
