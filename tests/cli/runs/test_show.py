from __future__ import annotations

import json

import pytest
from tests.cli.runs.stories import Begin, Call, Story, an_error, finished, started

from bartack.runtime.protocol.frames import Site
from bartack.runtime.state import entries as e

BIG = b'"' + b"x" * 70_000 + b'"'


def steps_of(call: Call, *options: str) -> dict[str, dict[str, object]]:
    shown = json.loads(call("show", "latest", "--json", *options).stdout)
    return {step["step"]: step for step in shown["steps"]}


def test_steps_are_shown_with_kind_outcome_duration_and_what_they_are_about(
    call: Call, completed: Story
) -> None:
    shown = call("show", "latest")

    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == f"{completed.id}  completed  main  1.2 s"
    rows = [line.split() for line in shown.stdout.split("main  completed\n")[1].splitlines()[:4]]
    assert rows == [
        ["1", "shell", "finished", "0.2", "s", "wc", "-l", "a.txt"],
        ["2", "send", "finished", "tasks"],
        ["3", "receive", "finished", "tasks"],
        ["4", "print", "finished"],
    ]


def test_messages_say_where_they_went(call: Call, completed: Story) -> None:
    shown = call("show", "latest").stdout

    assert "  m-7  tasks  received  3 bytes  from main to main\n" in shown


@pytest.mark.requirement("statuses-tell-what-happened")
def test_a_dead_letter_is_dead_and_not_dropped(call: Call, story: Begin) -> None:
    told = story("dddd0004")
    for name in ("m-7", "m-8"):
        told.tell(e.MessageSent(mailbox="tasks", id=name, size=3, sender="main", p="main", n=1, fp="f"), b"1")
    told.tell(e.MessageMoved(mailbox="tasks", id="m-7", to="dead", reason="nack"))
    told.tell(e.MessageMoved(mailbox="tasks", id="m-8", to="dropped", reason="overflow")).end()

    shown = call("show").stdout
    assert "  m-7  tasks  dead     3 bytes  from main: nack\n" in shown
    assert "  m-8  tasks  dropped  3 bytes  from main: overflow\n" in shown


def test_a_body_is_shown_with_the_time_that_its_worker_measured(call: Call, story: Begin) -> None:
    told = story("dddd0004").tell(started(1, "body", "team.nap"))
    ended = e.StepFinished(p="main", n=1, step="body", fp="fp1", took_us=250_000)
    quick = e.StepFinished(p="main", n=2, step="body", fp="fp2", about="team.quick", took_us=3)
    told.tell(ended, b"1", after_s=0.0106).tell(quick, b"2").end()

    rows = [line.split() for line in call("show").stdout.split("main  interrupted\n")[1].splitlines()]
    assert rows == [
        ["1", "body", "finished", "0.2", "s", "team.nap"],
        ["2", "body", "finished", "<0.1", "ms", "team.quick"],
    ]


def test_what_a_failure_cut_off_is_aborted(call: Call, delegated: Story) -> None:
    shown = call("show").stdout

    assert "main  aborted\n     1  delegate  aborted               bad, slow\n" in shown
    assert "main/1.2:slow  aborted\n     1  sleep  aborted               30 s\n" in shown
    assert {step: facts["status"] for step, facts in steps_of(call).items()} == {
        "main:1": "aborted",
        "main/1.2:slow:1": "aborted",
    }
    assert "status  aborted\n" in call("show", "latest", "1").stdout


@pytest.mark.requirement("places-are-journaled")
def test_a_failure_is_shown_with_where_its_worker_was_delegated(call: Call, delegated: Story) -> None:
    place = "team.py"
    chain = [
        "  delegated by main at step main:1",
        f"    {place}:3",
        "        await ctx.delegate([bad(), slow()])",
    ]

    for command in ("show", "status"):
        lines = call(command, "latest").stdout.splitlines()
        begin = lines.index("failed: main/1.1:bad")
        assert lines[lines.index(chain[0]) :][:3] == chain
        assert begin < lines.index(chain[0])


def test_a_place_in_a_program_that_was_changed_since_is_shown_without_its_line(
    call: Call, story: Begin
) -> None:
    told = story("dddd0004")
    (told.run.program / "team.py").write_text("another line\n")
    spawned = e.WorkerSpawned(
        path="main/1:bad", worker="team:bad", p="main", n=1, spawned=True, site=Site("team.py", 1)
    )
    told.tell(spawned, b"{}").tell(finished(1, "spawn", "bad"))
    told.tell(e.ProgramPinned(program="team.py", root=str(told.run.path.parent.parent.parent)))
    told.tell(e.WorkerEnded(path="main/1:bad", error=an_error()))
    told.tell(e.FailureRecorded(worker="main/1:bad", error=an_error())).tell(
        e.RunEnded(status="failed")
    ).end()

    shown = call("show").stdout
    assert "  spawned by main at step main:1\n    team.py:1\n" in shown
    assert "another line" not in shown


def test_a_prompt_is_shown_whole_with_its_outcome(call: Call, story: Begin) -> None:
    prompt = "Name the risks.\n" + "of every file " * 40
    told = story("dddd0004").tell(
        started(1, "think", prompt[:120]),
        json.dumps({"prompt": prompt, "name": "p1", "agent": "ann"}).encode(),
    )
    told.tell(finished(1, "think"), b'{"key":"k","agent":"ann","text":"none"}').end()

    shown = call("show", "latest", "1").stdout
    assert f"\nAsked\nName the risks.\n{'of every file ' * 40}\n" in shown
    assert shown.index('"agent": "ann"') < shown.index("\nOutcome\n") < shown.index('"text": "none"')
    asked = json.loads(call("show", "latest", "1", "--json").stdout)["asked"]
    assert (asked["prompt"], asked["agent"]) == (prompt, "ann")


def test_a_failure_is_shown_with_its_step_and_stack(call: Call, failed: Story) -> None:
    shown = call("show", "latest").stdout

    assert "     2  shell  failed          2.0 s  make: ValueError: it broke\n" in shown
    assert "failed: main at step main:2\n" in shown
    assert "raise ValueError('it broke')\n" in shown


def test_without_a_name_the_latest_run_is_shown(call: Call, completed: Story) -> None:
    assert call("show").stdout == call("show", completed.id).stdout != ""


@pytest.mark.requirement("newest-run-by-default")
@pytest.mark.parametrize("step", ["1", "main:1", "main/1.2:slow:1"])
def test_a_step_without_a_run_is_one_of_the_newest_run(
    call: Call, completed: Story, delegated: Story, step: str
) -> None:
    shown = call("show", step)

    assert (shown.returncode, shown.stdout) == (0, call("show", delegated.id, step).stdout)
    assert f"the newest run is {delegated.id}" in shown.stderr
    assert "newest" not in call("show").stderr


def test_only_failed_steps_are_shown_on_request(call: Call, failed: Story) -> None:
    assert list(steps_of(call, "--failed")) == ["main:2"]


def test_only_the_steps_below_a_worker_are_shown_on_request(call: Call, story: Begin) -> None:
    told = story("dddd0004")
    told.tell(finished(1))
    for path in ("main/1.1:one", "main/1.1:one/2:two", "main/1.10:one"):
        told.tell(e.WorkerSpawned(path=path, worker="team:one", p="main", n=1))
        told.tell(finished(1, p=path))
    told.end()

    assert list(steps_of(call, "--worker", "main/1.1:one")) == ["main/1.1:one:1", "main/1.1:one/2:two:1"]


def test_a_branch_is_not_taken_for_another_that_begins_alike(call: Call, story: Begin) -> None:
    story("dddd0004").tell(finished(1, p="main.1.2")).tell(finished(1, p="main.1.20")).end()

    assert list(steps_of(call, "--worker", "main.1.2")) == ["main.1.2:1"]
    assert list(steps_of(call, "--worker", "main")) == ["main.1.2:1", "main.1.20:1"]


@pytest.mark.parametrize("name", ["1", "main:1"])
def test_one_step_is_shown_in_full_with_its_value(call: Call, completed: Story, name: str) -> None:
    shown = call("show", "latest", name)

    assert shown.returncode == 0
    assert "step    main:1\n" in shown.stdout
    assert "took    0.2 s\n" in shown.stdout
    assert shown.stdout.endswith('\n\n{\n  "status": 0\n}\n')


def test_a_large_value_of_a_step_is_found_in_its_blob(call: Call, story: Begin) -> None:
    story("dddd0004").tell(finished(1), BIG).end()

    assert json.loads(call("show", "latest", "1", "--json").stdout)["value"] == "x" * 70_000


def test_a_failed_step_is_shown_with_its_traceback(call: Call, failed: Story) -> None:
    shown = call("show", "latest", "2").stdout

    assert "status  failed\n" in shown
    assert "    team.py:7 in main\n" in shown


@pytest.mark.parametrize("name", ["99", "nobody:1", "main", ":", "main:x"])
def test_a_step_that_is_not_there_ends_with_7(call: Call, completed: Story, name: str) -> None:
    assert call("show", "latest", name).returncode == 7


def test_a_step_under_way_has_no_duration(call: Call, story: Begin) -> None:
    story("dddd0004").tell(started(1)).end()

    assert steps_of(call)["main:1"]["duration_s"] is None
    assert "     1  shell  open" in call("show", "latest").stdout


def test_a_rewind_marks_what_no_longer_counts(call: Call, failed: Story, story: Begin) -> None:
    told = story("dddd0004")
    error = failed.state.workers["main"].error
    assert error is not None
    told.tell(finished(1))
    told.tell(e.StepFailed(p="main", n=2, step="shell", fp="fp2", error=error))
    place = told.journal.last_seq
    told.tell(e.WorkerEnded(path="main", error=error, origin=("main", 2)))
    told.tell(e.HubStarted(hub=2, dead_us=3_000_000)).tell(e.WorkerRewound(path="main", to=place))
    told.tell(finished(2), b"2").end()

    shown = json.loads(call("show", "latest", "--json").stdout)

    assert [(step["step"], step["status"]) for step in shown["steps"]] == [
        ("main:1", "finished"),
        ("main:2", "undone"),
        ("main:2", "finished"),
    ]
    assert [note["kind"] for note in shown["notes"]] == ["resumed", "rewound"]
    assert json.loads(call("show", "latest", "2", "--json").stdout)["value"] == 2


def test_text_of_a_program_cannot_steer_the_terminal(call: Call, story: Begin) -> None:
    story("dddd0004").tell(finished(1, about="\x1b[2Jgone")).end()

    shown = call("show", "latest").stdout

    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown


def test_a_journal_without_a_run_is_no_run(call: Call, completed: Story) -> None:
    file = completed.run.path / "journal.ndjson"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])

    assert call("show", str(completed.run.path)).returncode == 7


def test_monitors_are_shown_with_who_watches_whom_and_where_they_were_made(call: Call, story: Begin) -> None:
    told = story("eeee0005")
    for number, tag in ((1, "first"), (2, "second")):
        told.tell(
            e.MonitorMade(
                ref=f"mon-main:{number}.0",
                target="main/3:child",
                watcher="main",
                into="@main",
                tag=tag,
                stack=("team.py:5 in main",),
            )
        )
    told.tell(e.MonitorReported(ref="mon-main:1.0", reason="normal"))
    child = "main/3:child"
    told.tell(e.WorkerSpawned(path=child, worker="team:child", p="main", n=3))
    told.tell(
        e.MonitorMade(
            ref="mon-3", target="main", watcher=child, into=f"@{child}", stack=("team.py:9 in child",)
        )
    )
    told.tell(e.WorkerEnded(path=child))
    told.end()

    shown = call("show", "latest", "--monitors").stdout
    listed = json.loads(call("show", "latest", "--monitors", "--json").stdout)

    assert shown.splitlines()[0] == "1 active, 3 created, 2 removed, 1 leaked"
    assert "mon-main:2.0  main watches main/3:child                second  team.py:5 in main" in shown
    assert [monitor["ref"] for monitor in listed["monitors"]] == ["mon-main:2.0"]
    assert "mon-3         main/3:child leaked its monitor of main          team.py:9 in child" in shown
    assert [leak["ref"] for leak in listed["leaks"]] == ["mon-3"]
    assert listed["stats"] == {"created": 3, "cleaned": 2, "leaked": 1, "active": 1}
    assert (
        json.loads(call("show", "latest", "--monitors", "--json", "--worker", "main/9:x").stdout)["monitors"]
        == []
    )


def test_of_a_long_run_the_newest_steps_are_shown_and_what_is_under_way(call: Call, story: Begin) -> None:
    told = story("dddd0004")
    told.tell(started(1)).tell(e.MessageSent(mailbox="box", id="m-1", size=1, sender="main"))
    for n in range(2, 1502):
        sent = e.MessageSent(mailbox="box", id=f"m-{n}", size=1, sender="main")
        taken = e.MessageTaken(mailbox="box", id=f"m-{n}", p=f"main.9.{n}", n=1, fp="")
        told.journal.stage(*map(e.draft, (finished(n), sent, taken)))
    told.journal.commit()
    told.end()

    shown = call("show", "latest").stdout

    assert (
        f"only the newest are shown, without 2,000 steps, 500 messages; all of them: bartack show {told.id} --all"
        in shown
    )
    assert "     1  shell  open" in shown
    assert "  1501  shell  finished" in shown
    assert "   501  shell" not in shown
    assert "  m-1     box  queued" in shown
    assert "m-501 " not in shown
    everything = call("show", "latest", "--all").stdout
    assert "   501  shell" in everything
    assert "are not: bartack" not in everything
    assert len(steps_of(call)) == 3001


@pytest.mark.requirement("unused-tools-are-shown")
def test_a_prompt_is_shown_with_the_tools_that_its_agent_did_not_call(call: Call, story: Begin) -> None:
    asked = b'{"prompt":"p","name":"n","tools":[{"name":"do_1"},{"name":"do_2"},{"name":"do_3"}]}'
    told = story("eeee0061").tell(started(1, "think", "n"), asked)
    told.tell(e.ToolCalled(p="main", n=1, call=1, place=1, tool="do_2"), b"{}")
    told.tell(e.ToolFinished(p="main", n=1, call=1), b"1")
    told.tell(started(2, "think", "n"), asked).end()
    yet = call("show", "latest", "1").stdout
    facts = json.loads(call("show", "latest", "1", "--json").stdout)
    other = call("show", "latest", "2").stdout

    assert yet.endswith("\nTools\n  do_1: not called yet\n  do_3: not called yet\n")
    assert facts["tools_not_called"] == ["do_1", "do_3"]
    assert "  do_2: not called yet\n" in other


def test_a_prompt_that_is_over_has_tools_that_were_not_called(call: Call, story: Begin) -> None:
    asked = b'{"prompt":"p","name":"n","tools":[{"name":"do_1"}]}'
    told = story("eeee0062").tell(started(1, "think", "n"), asked)
    told.tell(finished(1, "think", "n"), b'{"key":"k","agent":"a"}').end()

    assert call("show", "latest", "1").stdout.endswith("\nTools\n  do_1: not called\n")
