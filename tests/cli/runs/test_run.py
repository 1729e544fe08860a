from __future__ import annotations

import codecs
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.runs import programs
from tests.cli.runs.stories import Call, Start

from bartack import Run
from bartack.testing import wait_for as wait_for_entry

PATIENCE_S = 60.0


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def wait_for(process: subprocess.Popen[str], text: str, *, stdout: bool = False) -> str:
    """Read what a process writes until a text is in it."""
    stream = process.stdout if stdout else process.stderr
    assert stream is not None
    said, until = "", time.monotonic() + PATIENCE_S
    decoder = codecs.getincrementaldecoder("utf-8")()
    while text not in said:
        ready, _, _ = select.select([stream], [], [], max(until - time.monotonic(), 0.0))
        assert ready, f"{text!r} was not said in time; said was: {said}"
        part = os.read(stream.fileno(), 65536)
        assert part, f"the process ended without {text!r}; said was: {said}"
        said += decoder.decode(part)
    return said


def only_run() -> str:
    (run,) = (path.name for path in Path(".bartack/runs").iterdir())
    return run


@pytest.fixture
def gated(start: Start, bartack: Call) -> subprocess.Popen[str]:
    """A run that waits for a message in the mailbox ``gate``."""
    process = start("run", write("gated.py", programs.GATED))
    wait_for(process, "started")
    received = bartack("mailbox", "receive", "latest", "out")
    assert json.loads(received.stdout) == {"ready": True}, received.stderr
    wait_for_entry(Run.open("latest"), "step.started", step="receive", timeout_s=PATIENCE_S)
    return process


# What goes where.


@pytest.mark.requirement("stdout-is-the-programs")
def test_stdout_has_what_the_program_prints_and_its_result(bartack: Call) -> None:
    done = bartack("run", write("hello.py", programs.HELLO))

    assert (done.returncode, done.stdout) == (0, 'hello you\n{\n  "name": "you"\n}\n')
    run = only_run()
    lines = done.stderr.splitlines()
    assert lines[:3] == [f"{run} started", "main: begin", "main: ended"]
    assert lines[3].startswith(f"{run} completed in ")


@pytest.mark.parametrize(("worker", "printed"), [("text", "just text\n"), ("nothing", "done\n")])
def test_a_text_is_printed_as_it_is_and_null_not_at_all(bartack: Call, worker: str, printed: str) -> None:
    assert bartack("run", f"{write('hello.py', programs.HELLO)}:{worker}").stdout == printed


@pytest.mark.parametrize(
    "words",
    [
        ["hello.py", "--", "Ada", "2"],
        ["hello.py:main", "Ada", "2"],
        ["hello.py", "--worker", "main", "--input", '{"name": "Ada", "times": 2}'],
        ["hello.py", "--input", "@input.json"],
    ],
)
def test_arguments_come_as_words_or_as_json(bartack: Call, words: list[str]) -> None:
    write("hello.py", programs.HELLO)
    write("input.json", '{"name": "Ada", "times": 2}')

    done = bartack("run", *words)

    assert done.stdout.splitlines()[:2] == ["hello Ada", "hello Ada"], done.stderr


def test_the_program_may_be_elsewhere_than_the_workspace(bartack: Call, tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    write("hello.py", programs.HELLO)

    done = bartack("run", "hello.py:text", "-C", "space")

    assert done.stdout == "just text\n", done.stderr
    assert list((tmp_path / "space/.bartack/runs").iterdir())


@pytest.mark.requirement("stdout-is-the-programs")
def test_events_are_the_durable_entries_in_order_and_a_result(bartack: Call) -> None:
    done = bartack("run", write("hello.py", programs.HELLO), "--json")

    first, *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["event"] == "run"
    assert first["run"] == only_run()
    places = [event["seq"] for event in events]
    assert places == sorted(places)
    kinds = [event["event"] for event in events]
    assert [kinds[0], kinds[-1]] == ["run.created", "run.ended"]
    assert [event["value"] for event in events if event["event"] == "output"] == ["begin", "hello you"]
    assert last == {
        "event": "result",
        "run": first["run"],
        "status": "completed",
        "exit_code": 0,
        "value": {"name": "you"},
    }


# Mistakes.


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere.py"],
        ["hello.py:nobody"],
        ["broken.py"],
        ["hello.py", "--input", "[]"],
        ["hello.py", "--input", '{"times": "many"}'],
        ["hello.py", "--input", "{"],
        ["hello.py", "--", "too", "1", "many"],
        ["hello.py", "--", "Ada", "many"],
    ],
)
def test_a_command_line_that_cannot_run_makes_no_run(bartack: Call, words: list[str]) -> None:
    write("hello.py", programs.HELLO)
    write("broken.py", "import nothing_of_this_name")

    done = bartack("run", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert "error[BT" in done.stderr
    assert not Path(".bartack").exists()


def test_a_file_for_input_that_is_not_there_is_told_of(bartack: Call) -> None:
    write("hello.py", programs.HELLO)

    assert bartack("run", "hello.py", "--input", "@nowhere.json").returncode == 2


# Failure.


@pytest.mark.requirement("failure-names-its-line")
def test_a_failure_is_told_with_worker_source_line_and_how_to_go_on(bartack: Call) -> None:
    done = bartack("run", write("broken.py", programs.BROKEN))

    assert (done.returncode, done.stdout) == (1, "once\n")
    assert "failed: main/2.1:divide\n  ZeroDivisionError: " in done.stderr
    assert "    broken.py:7 in divide\n        return 1 // 0\n" in done.stderr
    assert done.stderr.endswith(f"  fix the cause, then: bartack resume {only_run()}\n")


def test_a_failure_is_an_event_with_its_error(bartack: Call) -> None:
    done = bartack("run", write("broken.py", programs.BROKEN), "--json")

    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["status"], last["exit_code"], done.returncode) == ("failed", 1, 1)
    assert last["worker"] == "main/2.1:divide"
    assert last["error"]["stack"][-1]["text"] == "return 1 // 0"


@pytest.mark.requirement("update-compares-first")
def test_a_changed_source_is_told_of_and_taken_on_request(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))
    write("broken.py", programs.BROKEN.replace("1 // 0", "1 // 1"))

    again = bartack("resume")
    assert again.returncode == 1
    assert "broken.py has changed;" in again.stderr
    mended = bartack("resume", "--update")
    assert (mended.returncode, mended.stdout) == (0, "1\n"), mended.stderr


@pytest.mark.requirement("update-compares-first")
def test_comparing_a_program_that_cleans_up_says_nothing_of_it(bartack: Call) -> None:
    bartack("run", write("tidy.py", programs.TIDY))
    write("tidy.py", programs.TIDY.replace('"false"', '"true"'))

    mended = bartack("resume", "--update")

    assert mended.returncode == 0, mended.stderr
    assert "Exception ignored" not in mended.stderr


@pytest.mark.requirement("update-compares-first")
def test_a_source_that_does_not_fit_changes_nothing(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))
    write("broken.py", programs.BROKEN.replace('ctx.print("once")', "await ctx.sleep(0)"))

    refused = bartack("resume", "--update")

    assert refused.returncode == 1
    assert "resumed" not in refused.stderr
    assert "ZeroDivisionError" in bartack("resume").stderr


def test_a_program_from_another_file_goes_on_with_its_workers(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))
    write("mended.py", programs.BROKEN.replace("1 // 0", "1 // 1"))

    mended = bartack("resume", "--program", "mended.py")

    assert (mended.returncode, mended.stdout) == (0, "1\n"), mended.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_run_goes_on_when_nobody_reads_its_stderr(options: list[str]) -> None:
    program = write(
        "talking.py",
        "import sys\n"
        "from bartack import Context, worker\n"
        "@worker\n"
        "async def main(ctx: Context) -> int:\n"
        "    for number in range(3):\n"
        "        print('to stderr', number, flush=True)\n"
        "        ctx.log('logged')\n"
        "        await ctx.shell('true')\n"
        "    return 7\n",
    )
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        command = [sys.executable, "-m", "bartack", "run", *options, program]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=nobody, timeout=120, check=False
        )

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(b'"value":7}' if options else b"7")


# Stopping and going on.


@pytest.mark.requirement("stopped-run-goes-on")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_run_is_interrupted_and_goes_on_where_it_was(
    gated: subprocess.Popen[str], bartack: Call, start: Start, number: signal.Signals, code: int
) -> None:
    gated.send_signal(number)
    out, err = gated.communicate(timeout=PATIENCE_S)

    assert (gated.returncode, out) == (code, "before\n")
    assert f"  resume with: bartack resume {only_run()}\n" in err
    assert json.loads(bartack("status", "latest", "--json").stdout)["status"] == "interrupted"
    assert bartack("mailbox", "send", "latest", "gate", '"open"').returncode == 0
    resumed = bartack("resume")
    assert (resumed.returncode, resumed.stdout) == (0, "behind\nopen\n"), resumed.stderr


def test_a_run_whose_directory_is_deleted_does_not_advise_to_resume_it(gated: subprocess.Popen[str]) -> None:
    shutil.rmtree(Path(".bartack/runs") / only_run())
    _, err = gated.communicate(timeout=PATIENCE_S)

    assert gated.returncode == 6
    assert "was deleted or moved while it was active" in err
    assert "resume" not in err


@pytest.mark.requirement("stopped-run-goes-on")
def test_a_killed_run_is_interrupted_and_goes_on_where_it_was(
    gated: subprocess.Popen[str], bartack: Call
) -> None:
    gated.kill()
    gated.wait(PATIENCE_S)

    assert "interrupted" in bartack("status").stdout
    bartack("mailbox", "send", "latest", "gate", "[1]")
    assert bartack("resume", "latest").stdout == "behind\n[\n  1\n]\n"


def test_resume_takes_the_newest_run_that_is_not_over(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))
    failed = only_run()
    bartack("run", write("hello.py", programs.HELLO))

    assert f"{failed} resumed" in bartack("resume").stderr


def test_without_a_run_to_resume_it_ends_with_7(bartack: Call) -> None:
    nothing = bartack("resume")
    assert (nothing.returncode, "there is no run to resume" in nothing.stderr) == (7, True)
    bartack("run", write("hello.py", programs.HELLO))
    assert bartack("resume").returncode == 7


def test_a_run_that_is_completed_is_not_run_again(bartack: Call) -> None:
    bartack("run", write("hello.py", programs.HELLO))

    done = bartack("resume", "latest")
    told = json.loads(bartack("resume", "latest", "--json").stdout)

    assert (done.returncode, done.stdout) == (0, "")
    assert f"{only_run()} is already completed" in done.stderr
    assert (told["event"], told["status"], told["exit_code"]) == ("result", "completed", 0)


def test_a_run_has_one_owner(gated: subprocess.Popen[str], bartack: Call) -> None:
    second = bartack("resume", "latest")

    assert second.returncode == 5
    assert "resumed" not in second.stderr


def kept() -> Path:
    return Path(".bartack/runs", only_run(), "sets.json")


def test_settings_that_cannot_be_used_are_not_kept(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))

    refused = bartack("resume", "--set", "pipeline.bogus=1")

    assert refused.returncode == 2
    assert "--set pipeline.bogus=1: there is no such key" in refused.stderr
    assert not kept().exists()
    assert bartack("resume", "--set", "budget.usd=3").returncode == 1  # it fails as before
    assert json.loads(kept().read_bytes()) == ["budget.usd=3"]


def test_settings_are_not_kept_for_a_run_that_another_process_owns(
    gated: subprocess.Popen[str], bartack: Call
) -> None:
    assert bartack("resume", "latest", "--set", "budget.usd=3").returncode == 5
    assert not kept().exists()


def test_settings_that_were_kept_and_cannot_be_read_are_told_of(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN), "--set", "budget.usd=3")
    kept().write_bytes(kept().read_bytes()[:-3])

    refused = bartack("resume")

    assert refused.returncode == 2
    assert "sets.json: what was given with --set cannot be read" in refused.stderr
    assert "remove the file" in refused.stderr


@pytest.mark.parametrize("decision", ["perhaps", "done", "done {"])
def test_a_decision_that_is_none_is_refused(bartack: Call, decision: str) -> None:
    bartack("run", write("broken.py", programs.BROKEN))

    assert bartack("resume", "--unknown", *decision.split()).returncode == 2


# Questions.


@pytest.mark.requirement("waiting-run-stops")
def test_a_run_that_only_an_answer_can_help_is_stopped_and_says_so(bartack: Call) -> None:
    done = bartack("run", write("asking.py", programs.ASKING))

    run = only_run()
    assert done.returncode == 3
    assert f"? Publish? (yes or no)\n  bartack answer {run} q1 VALUE\n" in done.stderr
    assert f"  answer it, then: bartack resume {run}\n" in done.stderr
    assert bartack("answer", run, "q1", "yes").returncode == 0
    assert bartack("resume").stdout == "published\n"
    shown = json.loads(bartack("show", run, "1", "--json").stdout)
    assert (shown["kind"], shown["value"]) == ("ask", True)


def test_a_question_is_the_result_of_events_that_stop_there(bartack: Call) -> None:
    done = bartack("run", write("asking.py", programs.ASKING), "--json")

    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["status"], last["exit_code"], done.returncode) == ("waiting", 3, 3)
    assert [(question["id"], question["question"]) for question in last["questions"]] == [("q1", "Publish?")]


def test_a_patient_run_takes_its_answer_from_elsewhere(start: Start, bartack: Call) -> None:
    process = start("run", write("asking.py", programs.ASKING), "--wait")
    wait_for(process, "question q1")

    answered = bartack("answer", "latest", "q1", "no")
    assert (answered.returncode, answered.stderr.startswith("answered q1 of run-")) == (0, True)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "kept\n")
    assert json.loads(bartack("show", "latest", "1", "--json").stdout)["by"] == "maria"
    assert bartack("answer", "latest", "q1", "yes").returncode in {1, 7}


def test_without_input_a_question_gets_its_default_or_fails(bartack: Call) -> None:
    write("asking.py", programs.ASKING)

    assert bartack("run", "asking.py:lenient", "--no-input").stdout == "false\n"
    failed = bartack("run", "asking.py", "--no-input")
    assert failed.returncode == 1
    assert "NoAnswerError [BT323]" in failed.stderr


# From outside and from inside.


def test_a_cancelled_run_ends_with_4(gated: subprocess.Popen[str], bartack: Call) -> None:
    done = bartack("cancel", "latest", "--reason", "enough")

    assert (done.returncode, done.stdout) == (0, f"{only_run()} is cancelled\n")
    _, err = gated.communicate(timeout=PATIENCE_S)
    assert gated.returncode == 4
    assert ": enough\n" in err
    assert bartack("resume", "latest").returncode == 1


def test_a_run_that_is_failed_from_outside_ends_with_1(gated: subprocess.Popen[str], bartack: Call) -> None:
    done = bartack("fail", "latest", "the coast is not clear")

    assert done.stdout == f"{only_run()} is failed\n"
    _, err = gated.communicate(timeout=PATIENCE_S)
    assert gated.returncode == 1
    assert "the coast is not clear" in err


@pytest.mark.requirement("processes-are-a-tree")
def test_processes_are_shown_with_what_they_are_busy_with(
    gated: subprocess.Popen[str], bartack: Call
) -> None:
    (told,) = json.loads(bartack("ps", "--json").stdout)

    kinds = {process["kind"]: process for process in told["processes"]}
    assert kinds["hub"]["pid"] == gated.pid
    worker = kinds["worker"]
    assert (worker["worker"], worker["incarnation"], worker["status"]) == ("main", 1, "running")
    assert worker["about"].startswith("receive")
    assert 0 < worker["left_s"] <= 600
    assert Path(f"/proc/{worker['pid']}").exists() or not Path("/proc").exists()
    assert {process["kind"]: process.get("under", "") for process in told["processes"]} == {
        "hub": "",
        "parent of workers": "hub",
        "parent of commands": "hub",
        "worker": "parent of workers",
    }
    assert (told["active"], told["status"]) == (True, "running")
    text = bartack("ps", "latest").stdout.splitlines()
    assert [re.sub(r"(?<=[a-z0-9])  +.*", "", line[2:]) for line in text[1:]] == [
        "hub",
        "├─ parent of workers",
        "│  └─ main#1",
        "└─ parent of commands",
    ]
    assert re.search(rf"main#1 +worker +{worker['pid']} +running +\d.* +main:\d+ receive .* left$", text[3])


@pytest.mark.requirement("processes-are-a-tree")
def test_of_a_run_that_nobody_runs_its_workers_are_shown(bartack: Call) -> None:
    bartack("run", write("broken.py", programs.BROKEN))

    shown = bartack("ps", "latest")

    lines = shown.stdout.splitlines()
    assert (shown.returncode, lines[0]) == (0, f"{only_run()}  failed")
    assert [re.split("  +", line.strip())[:4] for line in lines[1:]] == [
        ["main", "worker", "-", "aborted"],
        ["└─ main/2.1:divide", "worker", "-", "failed"],
    ]
    (told,) = json.loads(bartack("ps", "latest", "--json").stdout)
    assert not told["active"]
    assert {process["kind"] for process in told["processes"]} == {"worker"}


def test_no_processes_are_shown_of_a_run_that_nobody_runs(bartack: Call) -> None:
    bartack("run", write("hello.py", programs.HELLO))

    assert bartack("ps").stdout == "No run is active here.\n"


def test_messages_go_in_and_out_of_a_run(gated: subprocess.Popen[str], bartack: Call) -> None:
    sent = bartack("mailbox", "send", "latest", "gate", "-", stdin='{"go": 1}')

    assert sent.stdout.startswith("m-")
    out, _ = gated.communicate(timeout=PATIENCE_S)
    assert out == 'before\nbehind\n{\n  "go": 1\n}\n'


def test_a_message_with_a_known_key_is_sent_once(gated: subprocess.Popen[str], bartack: Call) -> None:
    ids = {bartack("mailbox", "send", "latest", "box", "1", "--key", "k").stdout for _ in range(2)}

    assert len(ids) == 1
    assert json.loads(bartack("mailbox", "list", "latest", "--json").stdout)["box"]["queued"] == 1


def test_receiving_from_an_empty_mailbox_times_out_with_8(
    gated: subprocess.Popen[str], bartack: Call
) -> None:
    assert bartack("mailbox", "receive", "latest", "empty", "--timeout", "0").returncode == 8


def test_several_messages_are_received_in_order(gated: subprocess.Popen[str], bartack: Call) -> None:
    for number in range(3):
        bartack("mailbox", "send", "latest", "box", str(number))

    received = bartack("mailbox", "receive", "latest", "box", "--count", "3", "--json")

    assert [json.loads(line)["value"] for line in received.stdout.splitlines()] == [0, 1, 2]
    assert json.loads(bartack("mailbox", "list", "latest", "--json").stdout)["box"]["received"] == 3


def test_a_message_that_could_not_be_printed_stays_in_its_place(
    gated: subprocess.Popen[str], bartack: Call
) -> None:
    bartack("mailbox", "send", "latest", "box", '"precious"')
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [sys.executable, "-m", "bartack", "mailbox", "receive", "latest", "box"],
        stdout=writer,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writer)

    assert done.returncode == 141
    received = bartack("mailbox", "receive", "latest", "box", "--json")
    assert json.loads(received.stdout)["value"] == "precious"
    assert json.loads(received.stdout)["attempt"] == 2


def test_following_a_mailbox_ends_with_the_run(
    gated: subprocess.Popen[str], start: Start, bartack: Call
) -> None:
    follower = start("mailbox", "receive", "latest", "box", "--follow")
    for number in range(3):
        bartack("mailbox", "send", "latest", "box", str(number))
    assert wait_for(follower, "2\n", stdout=True) == "0\n1\n2\n"

    bartack("mailbox", "send", "latest", "gate", "1")

    _, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, err) == (0, "")


@pytest.mark.requirement("insiders-cannot-answer")
def test_a_process_inside_the_run_may_neither_answer_nor_cancel(bartack: Call) -> None:
    done = bartack("run", write("inside.py", programs.INSIDE))

    assert json.loads(done.stdout) == [[1, True], [1, True]], done.stderr


def test_a_log_is_followed_until_the_run_ends(
    gated: subprocess.Popen[str], start: Start, bartack: Call
) -> None:
    follower = start("log", "latest", "-f")
    bartack("mailbox", "send", "latest", "gate", "1")

    out, _ = follower.communicate(timeout=PATIENCE_S)

    said = [line.split(" ", 1)[1] for line in out.splitlines()]
    assert said[0].startswith("bartack [run] run-")
    assert said[1:] == ["main: before", "main: behind"]


@pytest.mark.requirement("fork-leaves-its-origin")
def test_a_fork_goes_on_behind_its_step(bartack: Call) -> None:
    bartack("run", write("asking.py", programs.ASKING), "--worker", "twice")
    first = only_run()
    bartack("answer", first, "q1", "3")
    bartack("resume")
    bartack("answer", first, "q2", "red")
    assert json.loads(bartack("resume").stdout) == [3, "red"]

    fork = bartack("fork", first, "--at", "1").stdout.strip()
    assert bartack("resume", fork).returncode == 3
    bartack("answer", fork, "q2", "green")
    assert json.loads(bartack("resume", fork).stdout) == [3, "green"]
    assert json.loads(bartack("status", first, "--json").stdout)["status"] == "completed"
