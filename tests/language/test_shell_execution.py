"""Shell forms as steps of real runs: what they give, how they end, and what is left of them when somebody is killed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.crash.runs import RealRun, kill, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")

PROGRAM = Path(__file__).with_name("shell_programs.py")
Begin = Callable[..., RealRun]
HIDDEN = 'hunter\'s "2"\nhunter'


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a run of one of the workers; nothing runs yet."""
    shutil.copy(PROGRAM, tmp_path / PROGRAM.name)
    with ExitStack() as stack:

        def create(worker: str, *args: object) -> RealRun:
            return stack.enter_context(RealRun.create_from(tmp_path, PROGRAM.name, worker, args))

        yield create


def result_of(run: RealRun) -> list[object]:
    """The list that a worker returned."""
    return msgspec.convert(run.api.result(), list[object])


def test_forms_give_their_status_and_what_they_wrote(begin: Begin) -> None:
    run = begin("outcomes")

    assert run.finish() == 0, run.story()

    told = run.api.result()
    lines = [str(number) for number in range(11, 21)]
    everything = "".join(f"{number}\n" for number in range(1, 21))
    failing = "sh -c 'echo out; seq 20 >&2; exit 3'"
    missing = "no-such-program 'a b'"
    assert told == [
        [0, "a b *\n"],
        [0, "a\nb\n", "a\nb"],
        [0, "effects.txt\n"],
        [127],
        [137],
        [127],
        [
            "ShellError",
            3,
            failing,
            "out\n",
            everything,
            "\n".join([f"command failed with status 3: {failing}", *lines]),
        ],
        [
            "ShellError",
            4,
            f"({failing}) || sh -c 'exit 4'",
            "out\n",
            everything,
            "\n".join([f"command failed with status 4: ({failing}) || sh -c 'exit 4'", *lines]),
        ],
        [
            "ShellError",
            127,
            missing,
            "",
            "bartack: the program 'no-such-program' was not found\n",
            f"command failed with status 127: {missing}\nbartack: the program 'no-such-program' was not found",
        ],
    ]


def test_a_secret_is_not_shown(begin: Begin) -> None:
    run = begin("secretive", HIDDEN)

    run.start(env={"SOME_TOKEN": HIDDEN})

    assert run.wait_hub() == 0, run.story()
    told = run.api.result()
    assert told == [
        "ShellError",
        1,
        "test '$env:SOME_TOKEN' = x && true",
        "",
        "",
        "command failed with status 1: test '$env:SOME_TOKEN' = x && true",
    ]
    failed = [str(entry.data) for entry in run.entries() if entry.kind in {"step.started", "step.failed"}]
    assert failed
    assert not [line for line in failed if "hunter" in line]


def test_a_form_past_its_deadline_leaves_nothing(begin: Begin) -> None:
    run = begin("late")

    assert run.finish() == 0, run.story()

    kind, status, command, stdout, stderr, message = result_of(run)
    assert (kind, status, stdout, stderr) == ("ShellTimeoutError", 124, "begun\n", "")
    assert message == f"shell took longer than 3 s (its argument timeout_s): {command}"
    assert run.effects() == []
    run.wait_nothing_left()


def test_output_without_end_is_refused(begin: Begin) -> None:
    run = begin("flooding")

    assert run.finish() == 0, run.story()

    limit = "more than 67108864 bytes of output of"
    assert result_of(run) == [
        ["LimitExceededError", f"{limit} head -c 68000000 /dev/zero && true"],
        ["LimitExceededError", f"{limit} sh -c 'head -c 70000000 /dev/zero; exec sleep 1000'"],
    ]
    run.wait_nothing_left()


def test_output_is_shown_while_a_form_runs_and_the_end_of_it_kept(begin: Begin) -> None:
    run = begin("talking")
    run.start()
    wait_until(lambda: run.run.transcript.exists() and "trouble" in run.run.transcript.read_text())
    assert run.count("step.finished") == 0
    (run.workspace / "go").touch()

    assert run.wait_hub() == 0, run.story()

    assert run.api.result() == [64 * 1024, "999\n20000\nno newline", "trouble\n"]
    text = run.run.transcript.read_text()
    assert 0 <= text.find("talking: before\n") < text.find("talking [out] begins\n")
    assert "talking [err] trouble\n" in text
    assert " 10000\n" in text
    assert "no newline\n" in text


def test_a_form_runs_once_though_its_worker_is_killed(begin: Begin) -> None:
    run = begin("patient")
    run.start()
    keys = run.wait_effects(1)
    kill(*run.parts().workers.values())
    run.wait_entry(lambda entry: entry.kind == "worker.crashed")
    (run.workspace / "go").touch()

    assert run.wait_hub() == 0, run.story()

    assert run.api.result() == "done"
    assert run.effects() == keys


def test_a_form_runs_again_with_its_key_when_the_hub_was_killed(begin: Begin) -> None:
    run = begin("patient")
    run.start()
    (key,) = run.wait_effects(1)
    run.kill_hub()
    run.start()
    run.wait_effects(2)
    (run.workspace / "go").touch()

    assert run.wait_hub() == 0, run.story()

    assert key.startswith("ik:")
    assert run.effects() == [key, key]
    run.wait_nothing_left()


def test_a_form_runs_again_when_the_keeper_was_killed(begin: Begin) -> None:
    run = begin("patient")
    run.start()
    (key,) = run.wait_effects(1)
    kill(run.parts().keeper)
    run.wait_effects(2)
    (run.workspace / "go").touch()

    assert run.wait_hub() == 0, run.story()

    assert run.effects() == [key, key]
