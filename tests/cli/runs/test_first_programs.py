"""What a person meets who writes a first program: true times, and errors that name the mistake and the way on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.cli.runs.stories import Begin, Call, Start

from bartack import Run
from bartack.testing import wait_for as wait_for_entry

HEAD = "from bartack import Context, step, worker\n"


def write(text: str, name: str = "team.py", head: str = HEAD) -> str:
    Path(name).write_text(head + textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return name


# Times.


def test_the_time_of_a_body_counts_from_its_real_begin(bartack: Call) -> None:
    """One is over before the hub looks, the other is seen a second late."""
    program = write(
        """
        import time

        @step
        def work(seconds: float) -> None:
            time.sleep(seconds)

        @worker
        async def main(ctx: Context) -> None:
            await work(0.2)
            await work(1.2)
        """
    )

    assert bartack("run", program).returncode == 0
    took = [step["duration_s"] for step in json.loads(bartack("show", "latest", "--json").stdout)["steps"]]
    assert [seconds >= least for seconds, least in zip(took, (0.2, 1.2), strict=True)] == [True, True]


# Programs that cannot be loaded.

A_WORKER = "@worker\nasync def {}(ctx: Context) -> None: ...\n"


UNLOADABLE = [
    (
        A_WORKER.format("a") + A_WORKER.format("b"),
        "team.py",
        "it has several workers and no 'main': name one of a, b",
        "Name the worker after a colon: bartack run team.py:a",
    ),
    (
        A_WORKER.format("review"),
        "team.py:reviw",
        "it has no worker 'reviw' (there are: review)",
        "Name a worker that it has: bartack run team.py:review",
    ),
    ("", "team.py", "it has no worker", "Write @worker above an 'async def main(ctx: Context)'"),
    (
        "@worker\nasync def main() -> None: ...\n",
        "team.py",
        "team.py:2: main: its first parameter must be ctx",
        "Write: async def main(ctx: Context)",
    ),
    (
        "@worker\nasync def main(ctx: Context) -> None\n    pass\n",
        "team.py",
        "team.py:3: SyntaxError: expected ':'\n  async def main(ctx: Context) -> None\n",
        "Correct the syntax of the line that is shown",
    ),
    (
        "from bartack import Contxt\n",
        "team.py",
        "team.py:2: ImportError: cannot import name 'Contxt' from 'bartack'",
        "Correct the name in the import. Did you mean 'Context'?",
    ),
    (
        "import reqests\n",
        "team.py",
        "team.py:2: ModuleNotFoundError: No module named 'reqests'\n  import reqests\n",
        "Correct the name of the module, or install it",
    ),
    (
        "@worker\nasync def main(ctx: Context, n: Int) -> None: ...\n",
        "team.py",
        "team.py:3: NameError: name 'Int' is not defined",
        "Correct the name, or import or define it",
    ),
    (
        "@worker\nasync def main(ctx: Context, n: 'Int') -> None: ...\n",
        "team.py",
        "team.py:2: main: an annotation of it cannot be read: NameError: name 'Int' is not defined",
        "Correct the annotation, or import the name",
    ),
    (
        A_WORKER.format("main") + "import bartack\nbartack.run(main())\n",
        "team.py",
        "bartack.run was called while the program was imported",
        "Put the call under: if __name__ == '__main__':",
    ),
    ("", "teem.py", "teem.py: there is no such file", "Did you mean this one? bartack run team.py"),
    ("", ".", ".: this is a directory", "Name a program in it: bartack run ./team.py"),
]


@pytest.mark.parametrize(("text", "target", "problem", "remedy"), UNLOADABLE)
def test_each_program_that_cannot_be_loaded_has_its_own_remedy(
    call: Call, text: str, target: str, problem: str, remedy: str
) -> None:
    write(text)

    ran = call("run", target)

    assert ran.returncode in {1, 2}
    assert problem in ran.stderr
    assert f"\n  help: {remedy}" in ran.stderr
    assert "<frozen" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.partition("\n")[0].count("team.py") <= 1 or ":" in target


# Replay.


def test_a_mismatch_on_update_shows_both_steps_and_the_line_that_asks(bartack: Call) -> None:
    text = "@worker\nasync def main(ctx: Context) -> None:\n    await ctx.shell('echo', '{}')\n    raise ValueError\n"
    bartack("run", write(text.format("one")))
    write(text.format("two"))

    ran = bartack("resume", "--update")

    assert (
        "the journal has the command 'echo one', the program requests the command 'echo two' at "
        in ran.stderr
    )
    assert "team.py:4\n  await ctx.shell('echo', 'two')\n  help: " in ran.stderr


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("ctx.shell('true')", "the command 'true'"),
        ("ctx.shell('false', check=False)", "the command 'false'"),
        ("ctx.mailbox.out.send(1)", "a send to the mailbox 'out'"),
        ("ctx.sleep(0.01)", "a sleep of 0.01"),
    ],
)
def test_a_mismatch_names_the_recorded_step(bartack: Call, call: str, words: str) -> None:
    text = "@worker\nasync def main(ctx: Context) -> None:\n    await {}\n    raise ValueError\n"
    bartack("run", write(text.format(call)))
    write(text.format("ctx.now()"))

    assert f"the journal has {words}" in bartack("resume", "--update").stderr


@pytest.mark.requirement("update-compares-first")
def test_an_update_that_changes_a_step_that_has_begun_executes_nothing(bartack: Call) -> None:
    text = "@worker\nasync def main(ctx: Context) -> None:\n    await ctx.gather({})\n"
    bartack("run", write(text.format("ctx.ask('Name?')")))
    write(text.format("ctx.shell('touch', 'made'), ctx.ask('Colour?')"))

    changed = bartack("resume", "--update")
    executed = Path("made").exists()
    write(text.format("ctx.ask('Name?'), ctx.shell('touch', 'made')"))
    extended = bartack("resume", "--update")

    assert (
        "the journal has the question 'Name?', the program requests the command 'touch made'"
        in changed.stderr
    )
    assert (changed.returncode, executed) == (1, False)
    assert (extended.returncode, Path("made").exists()) == (3, True)


# Command lines.

TAKES_A_NAME = "@worker\nasync def main(ctx: Context, name: str = 'x') -> None: ...\n"


@pytest.mark.parametrize("option", ["--name Bob", "--name=Bob"])
def test_an_option_of_the_program_is_said_to_follow_two_dashes(call: Call, option: str) -> None:
    write(TAKES_A_NAME)

    ran = call("run", "team.py", "--json", *option.split())

    assert ran.returncode == 2
    help_ = f"Arguments of the program follow --: bartack run team.py --json -- {option}"
    assert json.loads(ran.stderr)["error"]["help"] == help_


def test_a_misspelt_option_of_run_itself_is_not_taken_for_the_programs(call: Call) -> None:
    write(TAKES_A_NAME)

    ran = call("run", "--jsn", "team.py")

    assert "'bartack run --help' shows its arguments." in ran.stderr


def test_where_the_usage_was_shown_the_help_refers_to_it(call: Call) -> None:
    write(TAKES_A_NAME)

    ran = call("run", "team.py", "--", "--nme", "Bob")

    assert "usage: main [--name NAME]\n  help: Give the arguments as the usage shows them" in ran.stderr


def test_the_beginning_of_several_ids_asks_for_more_of_it(call: Call, story: Begin) -> None:
    story("aaaa0001").end()
    story("bbbb0002").end()

    shown = call("show", "run-2026")

    assert shown.stderr.startswith("error[BT301]: 'run-2026' is a prefix of several run ids: run-2026")
    assert "\n  help: Give more characters of the id, or all of it.\n" in shown.stderr


# Calls of workers.


def test_a_wrong_call_of_a_worker_says_how_it_is_written(bartack: Call) -> None:
    program = write(
        """
        @worker
        async def child(ctx: Context, n: int) -> int:
            return n

        @worker
        async def main(ctx: Context) -> None:
            for wrong in (
                lambda: child(ctx, 3),
                lambda: child(ctx),
                lambda: child(m=3),
                lambda: ctx.delegate(child(1), child(2)),
                lambda: ctx.delegate([child]),
                lambda: ctx.delegate(child),
                lambda: ctx.delegate([child("3")]),
                lambda: ctx.delegate([child(n="3")]),
            ):
                try:
                    wrong()
                except (TypeError, ValueError) as error:
                    ctx.print(str(error).rpartition(".py:")[2])
        """
    )

    ran = bartack("run", program)

    assert ran.stdout.splitlines() == [
        "child takes (n: int); leave ctx out",
        "child takes (n: int); leave ctx out",
        "child takes (n: int): missing a required argument: 'n'",
        "put the calls in a list: ctx.delegate([child(…), child(…)])",
        "child is a worker without its arguments; call it: child(…)",
        "child is a worker without its arguments; call it: child(…)",
        "15: the argument 'n' of child: expected int, found str",
        "16: the argument 'n' of child: expected int, found str",
    ]
    assert "RuntimeWarning" not in ran.stderr


def test_a_result_of_another_type_is_named_with_its_function_and_remedy(bartack: Call) -> None:
    program = write("@worker\nasync def main(ctx: Context) -> str:\n    return await ctx.shell('true')\n")

    ran = bartack("run", program)

    assert "team.py:2: main returned ShellResult, but its annotation is str\n" in ran.stderr
    assert "help: Take the text of the result: write str(result), or result.stdout" in ran.stderr


def test_asyncio_in_a_worker_is_named_with_what_to_use_instead(bartack: Call) -> None:
    program = write(
        "import asyncio\n@worker\nasync def main(ctx: Context) -> None:\n    await asyncio.sleep(1)\n"
    )

    ran = bartack("run", program)

    said = "asyncio.sleep in a worker is executed again on replay, where its result may differ"
    assert f"warning[nondeterminism]: {said}\n --> team.py:5:11\n  = help: use ctx.sleep()\n" in ran.stderr
    assert (
        f"{Path('team.py').resolve()}:5: a worker cannot await asyncio.sleep()\n  help: Use ctx.sleep();"
        in ran.stderr
    )


def test_a_prompt_without_an_agent_says_how_to_get_one(bartack: Call) -> None:
    program = write("@worker\nasync def main(ctx: Context) -> str:\n    return await ctx.think('hi')\n")

    ran = bartack("run", program)

    said = "help: Add a section [agents.NAME] to bartack.toml, or have one written: bartack init --example\n"
    assert said in ran.stderr


# Around a run.


def test_a_run_warns_of_no_resource_of_its_own(bartack: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    program = write("@worker\nasync def main(ctx: Context) -> None:\n    await ctx.shell('true')\n")

    assert "ResourceWarning" not in bartack("run", program).stderr


def test_a_look_at_a_run_leaves_no_note_in_it(bartack: Call, start: Start) -> None:
    program = write(
        "@worker\nasync def main(ctx: Context) -> None:\n    await ctx.mailbox.gate.receive(timeout_s=60)\n"
    )
    process = start("run", program)
    assert process.stderr is not None
    assert "started" in process.stderr.readline()
    wait_for_entry(Run.open("latest"), "step.started", step="receive", timeout_s=60)

    assert "receive" in bartack("ps").stdout
    assert "joined" not in bartack("show", "latest").stdout
    bartack("mailbox", "send", "latest", "gate", "1")
    assert "joined" in bartack("show", "latest").stdout


def test_workers_beyond_the_limit_are_said_to_start_when_they_do(bartack: Call) -> None:
    program = write(
        """
        @worker
        async def child(ctx: Context, n: int) -> int:
            return n

        @worker
        async def main(ctx: Context) -> None:
            await ctx.delegate([child(n) for n in range(3)], limit=1)
        """
    )

    said = [line for line in bartack("run", program).stderr.splitlines() if line.startswith("main/")]

    names = [f"main/1.{n}:child" for n in (1, 2, 3)]
    assert said == [f"{name}: {word}" for name in names for word in ("started", "ended")]


def test_the_log_of_a_failed_run_ends_with_the_failure(bartack: Call) -> None:
    bartack(
        "run", write("@worker\nasync def main(ctx: Context) -> None:\n    raise ValueError('too small')\n")
    )

    assert bartack("log").stdout.splitlines()[-1].endswith(" main: [failed] ValueError: too small")


def test_output_that_goes_into_the_package_is_not_kept_as_its_data(tmp_path: Path) -> None:
    package = tmp_path / "crew"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.txt").write_text("hi")
    write(
        """
        from pathlib import Path

        @worker
        async def main(ctx: Context) -> str:
            return Path(__file__).with_name("words.txt").read_text()
        """,
        name="crew/main.py",
    )
    with (package / "out.txt").open("w") as out:
        command = [sys.executable, "-m", "bartack", "run", "crew/main.py"]
        subprocess.run(command, stdout=out, check=True, timeout=60, stdin=subprocess.DEVNULL)

    (kept,) = (tmp_path / ".bartack/runs").glob("*/program/crew")
    assert (kept / "words.txt").exists()
    assert not (kept / "out.txt").exists()


def test_hooks_of_the_environment_are_not_among_what_a_program_takes(call: Call) -> None:
    write(A_WORKER.format("main"))

    shown = call("check", "--program", "team.py").stdout

    assert "msgspec" in shown
    assert "_distutils_hack" not in shown
