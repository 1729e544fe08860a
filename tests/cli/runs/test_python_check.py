"""Mistakes in Python programs: found before the run where that is possible, else in it, always with file and line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call

HEAD = """\
import os
import time
from bartack import Context, step, worker

@step
def save(text: str) -> str:
    return text

@worker
async def main(ctx: Context) -> str:
"""
FIRST_LINE = HEAD.count("\n") + 1


def write(body: str) -> Path:
    """A program in the current directory whose worker has this body."""
    program = Path("team.py")
    program.write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    return program


@pytest.mark.requirement("forgotten-await-is-found-by-check")
def test_a_program_with_a_forgotten_await_is_not_run(bartack: Call) -> None:
    write("await save('before')\nsave('forgotten')\nreturn 'done'\n")

    checked = bartack("check", "team.py")
    ran = bartack("run", "team.py")

    assert checked.returncode == 1
    assert f"team.py:{FIRST_LINE + 1}:5: forgotten_await: " in checked.stdout
    assert ran.returncode == 2
    assert (
        f"error[forgotten_await]: the step save() is never awaited, so it does not happen\n --> team.py:{FIRST_LINE + 1}:5\n"
        in ran.stderr
    )
    assert ran.stdout == ""
    assert not Path(".bartack").exists()


@pytest.mark.requirement("nondeterminism-is-found-by-check")
def test_warnings_are_shown_and_the_program_runs(bartack: Call) -> None:
    write("place = os.environ.get('PLACE_OF_NOBODY')\nreturn await save(f'at {place}')\n")

    ran = bartack("run", "team.py")

    assert ran.returncode == 0
    assert ran.stdout == "at None\n"
    assert "warning[nondeterminism]: os.environ " in ran.stderr
    assert f" --> team.py:{FIRST_LINE}:13\n" in ran.stderr


@pytest.mark.requirement("forgotten-await-is-an-error")
def test_a_forgotten_await_that_only_the_run_can_see_fails_it_and_an_update_continues_it(
    bartack: Call,
) -> None:
    write("await save('before')\ngetattr(ctx, 'sleep')(5)\nreturn 'done'\n")

    ran = bartack("run", "team.py")
    write("await save('before')\nawait ctx.sleep(0.01)\nreturn 'done'\n")
    resumed = bartack("resume", "--update")

    place = Path("team.py").resolve()
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert f"ForgottenAwaitError [BT346]: {place}:{FIRST_LINE + 1}: sleep 5 s was never awaited" in ran.stderr
    assert "help: Write 'await' before the call." in ran.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == "done\n"


def test_an_update_with_a_forgotten_await_is_refused(bartack: Call) -> None:
    write("await save('before')\nraise ValueError\n")
    bartack("run", "team.py")
    write("await save('before')\nsave('forgotten')\n")

    refused = bartack("resume", "--update")

    assert refused.returncode == 2
    assert f" --> team.py:{FIRST_LINE + 1}:5\n" in refused.stderr


def test_warnings_of_patchwork_are_shown_too(bartack: Call) -> None:
    Path("team.pw").write_text("worker main() {\n    var unused = 5\n    return 6\n}\n")

    checked = bartack("check", "team.pw")
    ran = bartack("run", "team.pw")

    warning = checked.stdout.partition("\n")[0]
    assert warning.startswith("warning[PW")
    assert warning in ran.stderr
    assert ran.stdout == "6\n"
