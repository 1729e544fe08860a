from __future__ import annotations

import json

from tests.cli.runs.stories import Begin, Call, Story

from bartack.runtime.state import entries as e


def test_the_transcript_is_printed_as_it_is(call: Call, completed: Story) -> None:
    completed.run.transcript.write_text("10:00:00.000 main: hello\n")

    shown = call("log")

    assert (shown.returncode, shown.stdout) == (0, "10:00:00.000 main: hello\n")


def test_following_a_run_that_nobody_runs_ends_at_once(call: Call, completed: Story) -> None:
    completed.run.transcript.write_text("10:00:00.000 main: hello\n")

    assert call("log", "latest", "-f").stdout == "10:00:00.000 main: hello\n"


def test_a_run_that_said_nothing_prints_nothing(call: Call, completed: Story) -> None:
    shown = call("log", completed.id)

    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_texts_are_there_for_programs(call: Call, story: Begin) -> None:
    told = story("dddd0004")
    told.tell(e.OutputWritten(p="main", n=1, channel="print"), b'"one\\ntwo"')
    told.tell(e.OutputWritten(p="main", n=2, channel="log"), b'"three"').end()

    for options in ([], ["-f"]):
        lines = [json.loads(line) for line in call("log", "latest", "--json", *options).stdout.splitlines()]
        assert [(line["worker"], line["channel"], line["text"]) for line in lines] == [
            ("main", "print", "one\ntwo"),
            ("main", "log", "three"),
        ]


def test_what_a_killed_hub_did_not_write_down_is_printed_from_the_journal(call: Call, story: Begin) -> None:
    told = story("dddd0005")
    told.tell(e.OutputWritten(p="main", n=1, channel="print"), b'"one"')
    told.tell(e.OutputWritten(p="main.2.1", n=1, channel="log"), b'"two\\nthree"').end()
    told.run.transcript.write_text("10:00:00.000 main: one\n")
    (told.run.path / "run.json").unlink(missing_ok=True)

    lines = call("log").stdout.splitlines()

    assert [lines[0], lines[1][12:], *lines[2:]] == [
        "10:00:00.000 main: one",
        " main: [log] two",
        "             three",
    ]


def test_the_log_of_no_run_ends_with_7(call: Call) -> None:
    assert call("log").returncode == 7
