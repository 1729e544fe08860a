"""Patchwork programs through the real entry point, with real processes."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call, Start
from tests.cli.runs.test_run import only_run, wait_for, write

PAIR = """\
worker asker() {
    self.session.mailbox.tasks.send({ action: "count", target: "notes.txt" })
    var answer = self.session.mailbox.results.receive(5000).await
    return answer.lines
}
worker reader() {
    var task = self.session.mailbox.tasks.receive(10000).await
    var text = $(cat ${task.target})
    self.session.mailbox.results.send({ file: task.target, lines: text.lines().length })
}
"""
STEPS = """\
import ./lib/tools
worker child(n) {
    $ sh -c 'echo child >> ran.txt'
    return n * 2
}
worker main(n: int = 4) {
    var id = uuid()
    $ sh -c 'echo one >> ran.txt'
    append("log.txt", "line\\n")
    print("child", child(n), id == uuid())
    try {
        $ test -e ready
    } catch e {
        print("tidy up")
        throw e
    }
    print(tools.told(id.length))
    return "done"
}
"""
TOOLS = """\
export fun told(n) { return "told $n" }
"""


def write_steps() -> str:
    Path("lib").mkdir()
    write("lib/tools.pw", TOOLS)
    return write("steps.pw", STEPS)


def no_run_was_made() -> bool:
    return not Path(".bartack").exists() or not any(Path(".bartack/runs").iterdir())


def test_a_script_prints_and_its_value_is_printed_last(bartack: Call) -> None:
    done = bartack("run", write("hello.pw", '$ echo live\nprint("hello", args)\n"é" + 5\n'), "--", "a", "b c")

    assert (done.returncode, done.stdout) == (0, 'live\nhello ["a","b c"]\né5\n'), done.stderr
    assert f"{only_run()} completed in " in done.stderr


def test_a_program_with_errors_is_reported_and_no_run_is_made(bartack: Call) -> None:
    done = bartack("run", write("bad.pw", "print(brnach)\n\nfun f() { return nope }\n"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "error[PW120]: `brnach` is not defined\n --> bad.pw:1:7\n" in done.stderr
    assert done.stderr.endswith("2 errors in 1 file\n")
    assert no_run_was_made()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "x"], "argument 'n': expected int, found string \"x\""),
        (["--worker", "nobody"], "nobody"),
        (["--input", '{"m": 1}'], "unknown argument 'm'"),
        (["--input", "@nowhere.json"], f"--input @nowhere.json: {os.strerror(errno.ENOENT)}"),
    ],
)
def test_a_call_that_does_not_fit_makes_no_run(bartack: Call, words: list[str], told: str) -> None:
    done = bartack("run", write("one.pw", "worker one(n: int) { return n }\n"), *words)

    assert done.returncode == 2
    assert told in done.stderr
    assert no_run_was_made()


def test_workers_of_the_older_style_run_together(bartack: Call) -> None:
    write("notes.txt", "a\nb\nc\n")

    done = bartack("run", write("pair.pw", PAIR), "--worker", "asker", "--worker", "reader")

    assert (done.returncode, json.loads(done.stdout)) == (0, [3, None]), done.stderr


def test_workers_that_run_together_get_what_is_given_behind_a_default(bartack: Call) -> None:
    program = write(
        "two.pw", 'worker a(x, n = 1, mode = "m") { return [x, n, mode] }\nworker b(x) { return x }\n'
    )

    done = bartack("run", program, "--worker", "a", "--worker", "b", "--", "--x=y", "--mode", "fast")

    assert (done.returncode, json.loads(done.stdout)) == (0, [["y", 1, "fast"], "y"]), done.stderr


def test_a_worker_is_named_once(bartack: Call) -> None:
    done = bartack("run", write("pair.pw", PAIR) + ":asker", "--worker", "reader")

    assert done.returncode == 2
    assert "name the worker once: pair.pw:asker, or --worker reader" in done.stderr
    assert no_run_was_made()


def test_workers_of_the_older_style_are_delegated_from_a_main(bartack: Call) -> None:
    write("notes.txt", "a\nb\nc\n")
    write("pair.pw", PAIR)

    done = bartack(
        "run", write("all.pw", "import ./pair\nprint(self.delegate([pair.asker(), pair.reader()]))\n")
    )

    assert (done.returncode, done.stdout) == (0, "[3,null]\n"), done.stderr


TIDY = """\
worker broken() { throw "no" }
worker main() {
    try {
        self.delegate([broken()])
    } catch e {
        $ echo one > tidy.txt
        append("tidy.txt", "two\\n")
        print(read("tidy.txt") + e.kind)
    }
}
"""


def test_a_catch_around_a_failed_delegate_tidies_up_from_its_first_step_on(bartack: Call) -> None:
    done = bartack("run", write("tidy.pw", TIDY))

    assert (done.returncode, done.stdout) == (1, "one\ntwo\nWorkerError\n"), done.stderr
    assert "ThrownError [BT601]: no" in done.stderr


def test_a_failure_names_the_lines_of_the_program(bartack: Call) -> None:
    program = write(
        "deep.pw",
        "fun inner(x, n) {\n    if n > 0 { return inner(x, n - 1) }\n    return x.name.first\n}\n"
        "worker main() {\n    return inner({name: null}, 60)\n}\n",
    )

    done = bartack("run", program)

    assert done.returncode == 1
    shown = done.stderr[done.stderr.index("TypeMismatchError [BT402]") :]
    assert re.findall("deep.pw:.*|.* more .*", shown) == [
        *("deep.pw:6:12", "deep.pw:2:23"),
        *("    ... the same 59 times more ...", "deep.pw:3:18"),
    ]
    assert "3 |     return x.name.first\n      |                  ^^^^^^ in inner\n" in shown


def test_a_failed_program_goes_on_at_the_failing_step_when_the_cause_is_mended(bartack: Call) -> None:
    failed = bartack("run", write_steps())
    Path("ready").touch()

    done = bartack("resume")

    assert (failed.returncode, failed.stdout) == (1, "child 8 false\ntidy up\n"), failed.stderr
    assert (done.returncode, done.stdout) == (0, "told 36\ndone\n"), done.stderr
    assert Path("ran.txt").read_text() == "one\nchild\n"
    assert Path("log.txt").read_text() == "line\n"


def test_the_run_executes_its_own_copy_and_takes_an_edited_one_that_fits(bartack: Call) -> None:
    bartack("run", write_steps())
    Path("ready").touch()
    write("lib/tools.pw", "# A longer file.\n\n" + TOOLS.replace("told $n", "mended $n"))
    write("steps.pw", "# Lines above.\n\n" + STEPS)

    done = bartack("resume", "--update")

    assert (done.returncode, done.stdout) == (0, "mended 36\ndone\n"), done.stderr
    kept = Path(".bartack/runs", only_run())
    assert (kept / "program.1/steps.pw").read_text() == STEPS
    assert "mended" in (kept / "program/lib/tools.pw").read_text()


def test_an_edited_program_that_does_not_fit_changes_nothing(bartack: Call) -> None:
    bartack("run", write_steps())
    Path("ready").touch()
    write("steps.pw", STEPS.replace("echo one", "echo two"))

    refused = bartack("resume", "--update")
    done = bartack("resume")

    assert refused.returncode == 1
    assert "the journal has the command" in refused.stderr
    assert (done.returncode, done.stdout) == (0, "told 36\ndone\n"), done.stderr
    assert "steps.pw has changed;" in done.stderr


def test_a_killed_program_is_resumed_without_doing_anything_twice(start: Start, bartack: Call) -> None:
    program = write(
        "gate.pw",
        "worker main() {\n    $ sh -c 'echo one >> ran.txt'\n    var id = uuid()\n    print(id)\n"
        "    print(self.session.mailbox.gate.receive())\n    return id\n}\n",
    )
    process = start("run", program)
    first = wait_for(process, "\n", stdout=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    bartack("mailbox", "send", only_run(), "gate", '"open"')

    done = bartack("resume")

    assert (done.returncode, done.stdout) == (0, f"open\n{first}"), done.stderr
    assert Path("ran.txt").read_text() == "one\n"


def test_compile_shows_python_and_trees(bartack: Call) -> None:
    write("lib.pw", "export fun f(n) { return n }\n")
    program = write("use.pw", "import ./lib\nprint(lib.f(1))\n")

    python = bartack("compile", program)
    tree = bartack("compile", program, "--emit", "ast", "-o", "tree.json")

    assert python.returncode == tree.returncode == 0
    assert python.stdout.startswith("# use.pw, as Bartack runs it.")
    assert "\n\n# module use\n\ndef main(rt):\n    # use.pw:2\n" in python.stdout
    assert "# module lib\n\ndef pw_f(rt, pw_n):\n" in python.stdout
    assert [module["file"] for module in json.loads(Path("tree.json").read_text())["modules"]] == [
        "use.pw",
        "lib.pw",
    ]


def test_an_output_that_is_not_a_regular_file_is_written_to(bartack: Call) -> None:
    program = write("use.pw", "print(1)\n")
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = bartack("compile", program, "-o", "pipe")
        text = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    refused = bartack("compile", program, "-o", "pipe")

    assert (done.returncode, done.stderr) == (0, "")
    assert text.startswith(b"# use.pw, as Bartack runs it.")
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode)
    assert refused.returncode != 0
    assert "pipe" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_several_workers_of_a_python_program_do_not_run_together(bartack: Call) -> None:
    done = bartack("run", write("x.py", ""), "--worker", "a", "--worker", "b")

    assert done.returncode == 2
    assert "only in a Patchwork program" in done.stderr
