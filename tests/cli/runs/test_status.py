from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.cli.runs.stories import Begin, Call, Story, an_error

from bartack import Run
from bartack.mcp._follow import Cursor, Follow
from bartack.mcp._report import describe_more
from bartack.runtime.rundir.mirror import RunBudget, RunFile
from bartack.runtime.state import entries as e


def json_of(call: Call, command: str) -> dict[str, list[dict[str, object]]]:
    return json.loads(call(command, "latest", "--json").stdout)  # type: ignore[no-any-return]  # - it is JSON


def test_runs_are_listed_the_newest_first(call: Call, failed: Story, completed: Story, asking: Story) -> None:
    shown = call("status")

    assert shown.returncode == 0
    head, *lines = shown.stdout.partition("\n\n")[0].splitlines()
    assert head.split() == ["run", "status", "program", "what", "changed"]
    assert [line.split()[:4] for line in lines] == [
        [asking.id, "interrupted", "team.py", "main"],
        [failed.id, "failed", "team.py", "main"],
        [completed.id, "completed", "team.py", "main"],
    ]
    assert lines[0].endswith("waits for an answer: q1")
    assert lines[1].endswith("main: it broke")


@pytest.mark.requirement("newest-run-by-default")
def test_below_the_list_is_the_state_of_the_newest_run(call: Call, completed: Story, failed: Story) -> None:
    _, _, state = call("status").stdout.partition("\n\n")

    assert state.startswith(f"run        {failed.id}\n")
    assert state == call("status", failed.id).stdout


@pytest.mark.requirement("statuses-tell-what-happened")
def test_workers_that_a_failure_ended_are_aborted_not_interrupted(call: Call, delegated: Story) -> None:
    workers = {facts["path"]: facts["status"] for facts in json_of(call, "status")["workers"]}

    assert workers == {"main": "aborted", "main/1.1:bad": "failed", "main/1.2:slow": "aborted"}
    assert "  main           aborted  step main:1: delegate bad, slow\n" in call("status", "latest").stdout


ABORTED = {"main": "aborted", "main/1.1:bad": "failed", "main/1.2:slow": "aborted"}


@pytest.mark.requirement("statuses-tell-what-happened")
def test_ps_of_a_stopped_run_tells_which_workers_were_aborted(call: Call, delegated: Story) -> None:
    [tree] = json.loads(call("ps", "latest", "--json").stdout)

    assert {process["worker"]: process["status"] for process in tree["processes"]} == ABORTED


@pytest.mark.requirement("statuses-tell-what-happened")
def test_programs_read_which_workers_were_aborted(delegated: Story) -> None:
    assert Run(delegated.run).state().workers == ABORTED


@pytest.mark.requirement("statuses-tell-what-happened")
def test_mcp_clients_read_which_workers_were_aborted(delegated: Story) -> None:
    with Follow(delegated.run, Cursor()) as follow:
        follow.read()
        workers = describe_more(follow)["workers"]

    assert {worker["path"]: worker["status"] for worker in cast("list[dict[str, str]]", workers)} == ABORTED


def test_a_workspace_without_runs_says_how_to_make_one(call: Call) -> None:
    assert (
        call("status").stdout
        == "There are no runs here. 'bartack run FILE' or 'bartack run --goal TEXT' starts one.\n"
    )
    assert call("status", "--json").stdout == "[]\n"


def test_the_list_is_there_for_programs(call: Call, completed: Story, asking: Story) -> None:
    found = json.loads(call("status", "--json").stdout)

    assert [(run["run"], run["status"]) for run in found] == [
        (asking.id, "interrupted"),
        (completed.id, "completed"),
    ]
    assert found[0]["questions"] == ["q1"]


def test_a_run_without_its_mirror_is_listed_from_its_journal(call: Call, completed: Story) -> None:
    (completed.run.path / "run.json").unlink()

    assert call("status").stdout.splitlines()[1].split()[:2] == [completed.id, "completed"]


@pytest.mark.parametrize("settings", ["[pipeline]\nreviw = true\n", "= broken workspace\n"])
@pytest.mark.parametrize(
    "command",
    ["status", "status latest", "show latest", "log latest", "journal show latest", "clean --dry-run"],
)
def test_runs_can_be_looked_at_whatever_is_wrong_with_the_settings(
    call: Call, completed: Story, settings: str, command: str
) -> None:
    Path("bartack.toml").write_text(settings)

    done = call(*command.split())

    assert (done.returncode, done.stderr) == (0, "")


def leave_behind(told: Story) -> None:
    """Let run.json say what a hub had written that was killed before it could write the end."""
    mirror = msgspec.json.decode((told.run.path / "run.json").read_bytes(), type=RunFile)
    mirror.status, mirror.error, mirror.pid, mirror.questions = "running", "", 4_000_000, ["q1"]
    (told.run.path / "run.json").write_bytes(msgspec.json.encode(mirror))


def test_run_json_tells_resumes_money_and_the_end(story: Begin) -> None:
    told = story("dddd0009")
    told.tell(e.HubStarted(hub=2), after_s=5.0).tell(e.HubStarted(hub=3))
    paid = e.StepFinished(p="main", n=1, step="think", fp="f", usd=0.1)
    told.tell(paid).tell(paid).tell(paid)
    told.tell(e.StepStarted(p="main", n=2, step="think", fp="f", reserved_usd=2.0))
    told.tell(e.RunEnded(status="completed"), after_s=1.0).end()

    mirror = msgspec.json.decode((told.run.path / "run.json").read_bytes(), type=RunFile)

    assert (mirror.resumes, mirror.hub, mirror.ended_at) == (2, 3, mirror.updated_at)
    assert mirror.budget == RunBudget(spent_usd=0.3, reserved_usd=2.0)


def test_a_run_whose_hub_was_killed_behind_its_end_has_ended(call: Call, completed: Story) -> None:
    leave_behind(completed)

    [listed] = json.loads(call("status", "--json").stdout)

    assert (listed["status"], listed["worker"]) == ("completed", "main")
    assert listed["updated_at"]
    assert not {"pid", "questions"} & set(listed)
    assert call("resume").returncode == 7


def test_a_run_whose_hub_was_killed_behind_its_failure_has_failed(call: Call, failed: Story) -> None:
    leave_behind(failed)

    [listed] = json.loads(call("status", "--json").stdout)

    assert (listed["status"], listed["error"]) == ("failed", "main: it broke")


def test_a_damaged_run_does_not_hide_the_others(call: Call, completed: Story, failed: Story) -> None:
    (failed.run.path / "run.json").unlink()
    (failed.run.path / "journal.ndjson").write_bytes(
        b"x" * 100 + (failed.run.path / "journal.ndjson").read_bytes()
    )

    shown = call("status")

    assert shown.returncode == 0
    listed, _, state = shown.stdout.partition("\n\n")
    assert [line.split()[1] for line in listed.splitlines()[1:]] == ["unreadable", "completed"]
    assert state.startswith(f"run        {completed.id}\n")


@pytest.mark.parametrize("name", ["latest", "run-20260101-000000-cccc0003", "run-20260101-000000-c"])
def test_a_run_is_found_by_id_beginning_or_latest(
    call: Call, name: str, completed: Story, asking: Story
) -> None:
    assert f"run        {asking.id}\n" in call("status", name).stdout


def test_a_run_is_found_by_its_directory_from_anywhere(
    call: Call, completed: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")

    assert completed.id in call("status", str(completed.run.path)).stdout


def test_another_workspace_is_named_by_an_option(
    call: Call, completed: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")

    assert completed.id in call("status", "-C", str(tmp_path)).stdout


def test_an_ambiguous_beginning_lists_what_it_could_be(call: Call, completed: Story, failed: Story) -> None:
    shown = call("status", "run-2026")

    assert shown.returncode == 2
    assert completed.id in shown.stderr
    assert failed.id in shown.stderr


def test_a_run_that_is_not_there_ends_with_7(call: Call, completed: Story) -> None:
    assert call("status", "run-1999").returncode == 7
    assert call("status", "./nowhere").returncode == 7


def test_one_run_shows_its_workers_questions_and_mailboxes(call: Call, asking: Story) -> None:
    shown = call("status", "latest").stdout

    assert "status     waiting\n" in shown
    assert "  main  interrupted  step main:2: ask Publish?\n" in shown
    assert "  q1  Publish? (bool)\n" in shown
    assert f"      bartack answer {asking.id} q1 VALUE\n" in shown
    assert "  tasks  1 queued\n" in shown
    assert shown.endswith(f"bartack resume {asking.id}\n")


def test_a_failed_run_shows_why_with_source_lines_and_causes(call: Call, failed: Story) -> None:
    shown = call("status", "latest").stdout

    assert "failed: main at step main:2\n" in shown
    assert "  ValueError: it broke\n    team.py:7 in main\n        raise ValueError('it broke')\n" in shown
    assert "  caused by\n  ValueError: the disk said no\n" in shown


def test_a_failure_counts_those_that_came_after_it(call: Call, story: Begin) -> None:
    failure = e.FailureRecorded(worker="main", error=an_error())
    story("dddd0004").tell(failure).tell(failure).tell(e.RunEnded(status="failed")).end()

    assert "and 1 more failed after it" in call("status", "latest").stdout


def test_one_run_is_there_for_programs(call: Call, failed: Story) -> None:
    found = json.loads(call("status", "latest", "--json").stdout)

    assert found["status"] == "failed"
    assert found["workers"][0]["path"] == "main"
    assert found["workers"][0]["status"] == "failed"
    assert found["failure"]["message"] == "it broke"
    assert found["failure"]["cause"]["message"] == "the disk said no"


def test_watching_a_run_that_is_over_shows_it_once(call: Call, completed: Story) -> None:
    shown = call("status", "--watch", "--json")

    assert shown.returncode == 0
    assert [json.loads(line)["status"] for line in shown.stdout.splitlines()] == ["completed"]


def test_money_and_origin_are_shown_if_there_are_any(call: Call, story: Begin) -> None:
    told = story("eeee0005")
    told.tell(e.StepFinished(p="main", n=1, step="think", fp="t", usd=0.25)).end()

    assert "money      0.25 USD spent, 0.00 USD reserved\n" in call("status", "latest").stdout


def test_the_shell_completes_the_ids_of_runs(
    call: Call, completed: Story, failed: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_BARTACK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "bartack show run-20260101-000000-b")
    monkeypatch.setenv("COMP_CWORD", "2")

    assert call().stdout == f"plain,{failed.id}\n"
