"""Settings of a project that a run shows: where it works, what it is called, how it looks, how long it waits for people."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.runs.stories import Call

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    done = await ctx.shell("pwd")
    ctx.log("seen")
    return done.stdout.strip()
"""
QUESTION = """
worker main() {
  var colour: "red" | "blue" = ask { Which colour? }
  print(colour)
}
"""


def test_a_run_works_where_the_settings_say_and_shows_what_they_call_it(
    bartack: Call, tmp_path: Path
) -> None:
    (tmp_path / "team.py").write_text(PROGRAM)
    (tmp_path / "bartack.toml").write_text('durability = "process"\n')

    plain = bartack("run", "team.py")

    assert plain.stdout == f"{tmp_path}\n"
    assert "\x1b[" not in plain.stderr
    assert f"project    {tmp_path.name}" in bartack("status", "latest").stdout

    (tmp_path / "code").mkdir()
    (tmp_path / "bartack.toml").write_text(
        'durability = "process"\nstate_dir = "state"\n[transcript]\ncolor = "always"\n'
        '[project]\nname = "Weeks"\nworkspace = "code"\n'
    )
    changed = bartack("run", "team.py")

    assert changed.stdout == f"{tmp_path / 'code'}\n"
    assert "\x1b[32mcompleted\x1b[0m" in changed.stderr
    [run] = (tmp_path / "code" / "state" / "runs").iterdir()
    assert f"bartack [run] {run.name} of Weeks\n" in (run / "transcript.txt").read_text()
    assert json.loads((run / "run.json").read_text())["project"] == "Weeks"
    assert "Weeks" in bartack("status", "latest").stdout
    assert json.loads(bartack("status", "latest", "--json").stdout)["project"] == "Weeks"


def test_a_question_in_patchwork_waits_as_long_as_the_settings_say(bartack: Call, tmp_path: Path) -> None:
    (tmp_path / "team.pw").write_text(QUESTION)
    (tmp_path / "bartack.toml").write_text(
        'durability = "process"\n[questions]\ntimeout_s = 0.1\non_timeout = "default"\n'
    )

    taken = bartack("run", "team.pw", "--wait")

    assert (taken.returncode, taken.stdout) == (0, "red\n")
    assert "question q1: Which colour? (red | blue)\n" in taken.stderr
    refused = bartack("resume", "latest", "--set", "spec.file=OTHER.md")
    assert refused.returncode == 2
    assert "spec.file was decided when the run began" in refused.stderr
