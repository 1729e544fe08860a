"""What people are told when something fails: where, what it was, and advice that can help."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest
from tests.cli.runs.stories import Call

from bartack.cli.app._app import app
from bartack.errors import FileAccessError, RunNotActiveError, TreeLockedError, iter_errors

HEAD = """\
import datetime, os
from bartack import Context, step, worker

@step
def save(value): return value

@step
def look(): return {"items": [1, {"when": datetime.datetime.now()}]}

@worker
async def main(ctx: Context) -> object:
"""
FIRST_LINE = HEAD.count("\n") + 1


def write(body: str) -> Path:
    """A program in the current directory whose worker has this body."""
    program = Path("team.py")
    program.write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    return program.resolve()


# The first commands of a newcomer, in a directory without runs.


@pytest.mark.parametrize(
    "words", ["show", "report", "log", "watch", "attach", "diff", "resume", "web latest"]
)
@pytest.mark.requirement("newcomers-know-what-is-next")
def test_where_there_is_no_run_the_remedy_is_to_start_one(bartack: Call, words: str) -> None:
    done = bartack(*words.split())

    assert done.returncode == 7
    assert re.match(r"error\[BT301\]: there is no run (here|to resume)\n", done.stderr)
    assert "'bartack run FILE' or 'bartack run --goal TEXT' starts one." in done.stderr


# Failed runs.


@pytest.mark.requirement("failed-run-shows-its-remedy")
def test_a_failed_run_shows_the_remedy_of_its_error(bartack: Call) -> None:
    write("await ctx.shell('false')\n")

    ran = bartack("run", "team.py")

    run = ran.stderr.partition(" ")[0]
    assert ran.returncode == 1
    assert (
        "\n  help: Read the error output of the command. With check=False the status is returned as a value.\n"
        in ran.stderr
    )
    assert "\n  more: bartack explain BT318\n" in ran.stderr
    assert f"\n  fix the cause, then: bartack resume {run}\n" in ran.stderr
    assert "help: Read the error output" in bartack("show", "latest").stdout


@pytest.mark.requirement("failed-run-shows-its-remedy")
def test_json_has_the_remedy_too(bartack: Call) -> None:
    write("await ctx.shell('false')\n")

    ran = bartack("run", "team.py", "--json")

    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["help"].startswith("Read the error output")


# Values.

BAD_VALUES = {
    "await save({'items': [1, {2}]})": (FIRST_LINE, "the argument 'value' of team.save", "$.items[1]: set"),
    "await ctx.mailbox.work.send({'at': datetime.datetime(2026, 1, 1)})": (
        FIRST_LINE,
        "",
        "$.at: naive datetime",
    ),
    "await look()": (
        HEAD[: HEAD.index("def look")].count("\n"),
        "the result of team.look",
        "$.items[1].when: naive datetime",
    ),
    "return {'done': [print]}": (
        FIRST_LINE - 2,
        "the result of main",
        "$.done[0]: builtin_function_or_method",
    ),
}


@pytest.mark.requirement("unserialisable-values-are-located")
@pytest.mark.parametrize("body", BAD_VALUES)
def test_a_value_that_cannot_be_serialised_is_located(bartack: Call, body: str) -> None:
    line, what, problem = BAD_VALUES[body]
    program = write(f"{body}\n")

    ran = bartack("run", "team.py")

    assert ran.returncode == 1
    shown = f"{program}:{line}: " + (f"{what} cannot be serialised: " if what else "") + problem
    assert f"MessageValueError [BT401]: {shown}" in re.sub(
        r"a message to \w+ cannot be serialised: ", "", ran.stderr
    )
    assert "fix the program, then: bartack resume " in ran.stderr


# Replay.


@pytest.mark.requirement("mismatch-is-told-in-words")
def test_a_replay_mismatch_names_both_steps_and_the_line_and_advises_no_plain_resume(bartack: Call) -> None:
    program = write(
        """\
        seen = os.path.exists("seen")
        await (ctx.shell("echo", "again") if seen else save("first"))
        await ctx.write("seen", "")
        await ctx.shell("false")
        """
    )
    bartack("run", "team.py")

    resumed = bartack("resume")

    run = resumed.stderr.partition(" ")[0]
    assert resumed.returncode == 1
    assert (
        "main, step main:1: the journal has the step team.save, the program requests the command 'echo again'"
        f" at {program}:{FIRST_LINE + 1}"
    ) in resumed.stderr
    assert f"bartack resume {run} --update" in resumed.stderr
    assert "fix the cause, then" not in resumed.stderr


@pytest.mark.requirement("mismatch-is-told-in-words")
def test_an_edited_program_that_does_not_fit_is_told_in_words(bartack: Call) -> None:
    write("await save('first')\nawait ctx.shell('false')\n")
    bartack("run", "team.py")
    program = write("# a line more\nawait ctx.sleep(5)\nawait ctx.shell('false')\n")

    refused = bartack("resume", "--update")

    assert "the journal has the step team.save, the program requests a sleep of 5 s" in refused.stderr
    assert f" at {program}:{FIRST_LINE + 1}" in refused.stderr


# Advice.


@pytest.mark.requirement("advice-fits-the-error")
def test_a_worker_that_cannot_be_one_is_refused_by_its_own_error(bartack: Call) -> None:
    program = Path("team.py")
    program.write_text("from bartack import worker\n\n@worker\ndef main(ctx):\n    return 1\n")

    ran = bartack("run", "team.py")

    assert ran.returncode == 2
    assert f"error[BT309]: {program.resolve()}:3: main: a worker must be an 'async def'" in ran.stderr
    assert "more: bartack explain BT309" in ran.stderr
    assert "BT310" not in ran.stderr


@pytest.mark.requirement("advice-fits-the-error")
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free space on the disk"),
        (errno.EDQUOT, "Free space on the disk"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "ulimit -n"),
        (errno.EROFS, "Mount the file system"),
        (errno.ENOENT, "Check that the path exists"),
        (errno.EACCES, "that you are allowed to read or write it"),
    ],
)
def test_the_advice_for_a_file_fits_the_reason(number: int, advice: str) -> None:
    assert advice in FileAccessError("a", os.strerror(number)).remedy


@pytest.mark.requirement("advice-fits-the-error")
def test_a_full_disk_is_not_taken_for_a_wrong_path() -> None:
    command = [sys.executable, "-m", "bartack", "explain", "BT104"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )

    assert ended.returncode == 6
    assert f"error[BT104]: input or output: {os.strerror(errno.ENOSPC)}" in ended.stderr
    assert "help: Free space on the disk" in ended.stderr


@pytest.mark.requirement("advice-fits-the-error")
def test_a_run_that_is_over_is_not_to_be_resumed(bartack: Call) -> None:
    write("return 1\n")
    ran = bartack("run", "team.py")
    run = ran.stderr.partition(" ")[0]

    cancelled = bartack("cancel", run)
    received = bartack("mailbox", "receive", run, "work")

    for refused in (cancelled, received):
        assert refused.returncode == 9
        assert f"error[BT304]: {run} is not active (completed)" in refused.stderr
        assert "bartack resume" not in refused.stderr
        assert f"'bartack show {run}' shows how" in refused.stderr
    assert "bartack resume" in RunNotActiveError("run", "interrupted").remedy


@pytest.mark.requirement("advice-fits-the-error")
def test_a_script_that_cannot_be_read_is_an_error_of_the_script(bartack: Call) -> None:
    write("return await ctx.think('hello')\n")
    Path("bartack.toml").write_text(
        '[agents]\ndefault = "robot"\n\n[agents.robot]\nkind = "scripted"\nscript = "gone.json"\n'
    )

    ran = bartack("run", "team.py")

    assert ran.returncode == 2
    assert "error[BT802]" in ran.stderr
    assert "gone.json" in ran.stderr
    assert "help: Correct the script that the message names" in ran.stderr


@pytest.mark.requirement("advice-fits-the-error")
def test_remedies_name_only_commands_and_options_that_exist() -> None:
    """Each quoted ``bartack …`` in a remedy is a command with its options."""
    remedies = [(kind.code, kind.remedy) for kind in iter_errors()]
    remedies.append(("BT304", RunNotActiveError("run-1", "completed").remedy))
    for code, remedy in remedies:
        for line in re.findall(r"'bartack ([^']+)'", remedy):
            words = line.split()
            with click.Context(app) as context:
                command: click.Command = app
                while words and isinstance(command, click.Group):
                    found = command.get_command(context, words[0])
                    assert found is not None, (code, line)
                    command, words = found, words[1:]
                options = {name for param in command.params for name in param.opts}
            assert {word for word in words if word.startswith("--")} <= options, (code, line)
    assert "--orphans" not in TreeLockedError.remedy


# Resume.


@pytest.mark.requirement("resume-names-the-completed-run")
def test_resume_without_a_run_to_resume_names_the_newest_one(bartack: Call) -> None:
    nothing = bartack("resume")
    write("return 1\n")
    run = bartack("run", "team.py").stderr.partition(" ")[0]

    resumed = bartack("resume")

    assert "there is no run to resume\n" in nothing.stderr
    assert resumed.returncode == 7
    assert f"there is no run to resume: the newest run, {run}, is completed" in resumed.stderr
    assert f"help: 'bartack show {run}' shows how it ended" in resumed.stderr


@pytest.mark.requirement("resume-names-the-completed-run")
def test_resume_of_an_older_run_names_the_newest_one_that_is_completed(bartack: Call) -> None:
    write("await ctx.shell('test', '-e', 'ready')\nreturn 'older'\n")
    older = bartack("run", "team.py").stderr.partition(" ")[0]
    write("return 'newer'\n")
    newer = bartack("run", "team.py").stderr.partition(" ")[0]
    Path("ready").touch()

    resumed = bartack("resume")

    assert resumed.stdout == "older\n"
    assert f"{newer}, the newest run, is completed; resuming {older}\n" in resumed.stderr
