from __future__ import annotations

import json
import os

import pytest
from tests.cli.runs.stories import Begin, Call, Story, finished

from bartack.journal import Entry, open_journal, open_reader, verify_journal
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

BIG = b'"' + b"x" * 70_000 + b'"'


def status_of(call: Call, run: str) -> str:
    found: str = json.loads(call("status", run, "--json").stdout)["status"]
    return found


def entries_of(run: RunDir) -> list[Entry]:
    with open_reader(run.path) as reader:
        return list(reader.read())


# cancel and fail


def test_a_run_that_nobody_runs_is_cancelled_by_whoever_asks(call: Call, asking: Story) -> None:
    shown = call("cancel", asking.id, "--reason", "no longer needed")

    assert (shown.returncode, shown.stdout) == (0, f"{asking.id} is cancelled\n")
    assert entries_of(asking.run)[-1].data == {"status": "cancelled", "reason": "no longer needed"}
    assert json.loads((asking.run.path / "run.json").read_bytes())["status"] == "cancelled"


def test_a_run_that_nobody_runs_is_failed_by_whoever_asks(call: Call, asking: Story) -> None:
    shown = call("fail", asking.id, "the budget is gone", "--json")

    assert json.loads(shown.stdout) == {"run": asking.id, "status": "failed"}
    assert json.loads(asking.run.failed.read_bytes())["message"] == "the budget is gone"
    assert "the budget is gone" in call("status", asking.id).stdout


def test_a_failed_run_can_be_cancelled(call: Call, failed: Story) -> None:
    assert call("cancel", failed.id).returncode == 0
    assert status_of(call, failed.id) == "cancelled"


@pytest.mark.parametrize("command", [["cancel", "RUN"], ["fail", "RUN", "because"]])
def test_a_run_that_is_over_stays_as_it_is(call: Call, completed: Story, command: list[str]) -> None:
    before = len(entries_of(completed.run))

    shown = call(*(completed.id if word == "RUN" else word for word in command))

    assert shown.returncode == 9
    assert "is not active (completed)" in shown.stderr
    kinds = [entry.kind for entry in entries_of(completed.run)[before:]]
    assert set(kinds) <= {"journal.opened"}


@pytest.mark.parametrize("command", [["cancel", "RUN"], ["fail", "RUN", "because"]])
def test_a_run_that_somebody_is_about_to_run_is_left_alone(
    call: Call, asking: Story, command: list[str]
) -> None:
    with open_journal(asking.run.path):
        shown = call(*(asking.id if word == "RUN" else word for word in command))

    assert shown.returncode == 5


# fork


def test_a_fork_begins_with_what_the_run_did_up_to_the_step(call: Call, failed: Story) -> None:
    (failed.run.program / "team.py").write_text("the program")
    (failed.run.work / "notes.txt").write_text("a file")

    shown = call("fork", failed.id, "--at", "1", "--json")

    made = RunDir(json.loads(shown.stdout)["dir"])
    assert shown.returncode == 0
    assert (made.program / "team.py").read_text() == "the program"
    assert (made.work / "notes.txt").read_text() == "a file"
    assert verify_journal(made.path).ok
    kept = [entry for entry in entries_of(failed.run) if entry.seq <= 6]
    copied = entries_of(made)[: len(kept)]
    assert [(entry.seq, entry.at, entry.kind) for entry in copied] == [
        (entry.seq, entry.at, entry.kind) for entry in kept
    ]
    assert copied[-1].kind == "step.finished"
    assert len(entries_of(made)) == len(kept)


def test_a_fork_has_a_name_of_its_own_and_knows_where_it_comes_from(call: Call, failed: Story) -> None:
    made = call("fork", failed.id, "--at", "main:1").stdout.strip()

    found = json.loads(call("status", made, "--json").stdout)

    assert made != failed.id
    assert found["run"] == made
    assert found["forked_from"] == failed.id
    assert found["status"] == "interrupted"
    assert status_of(call, failed.id) == "failed"


def test_a_fork_says_that_files_were_not_set_back(call: Call, failed: Story) -> None:
    shown = call("fork", failed.id, "--at", "1")

    assert "files were not rolled back" in shown.stderr
    assert f"bartack resume {shown.stdout.strip()}" in shown.stderr


def test_entries_of_a_fork_keep_their_places_over_several_owners(call: Call, story: Begin) -> None:
    told = story("dddd0004").tell(finished(1), BIG).end()
    with open_journal(told.run.path) as journal:
        journal.stage(e.draft(finished(2), b"2"))
        journal.commit()

    made = RunDir(json.loads(call("fork", told.id, "--at", "2", "--json").stdout)["dir"])

    before, after = entries_of(told.run), entries_of(made)
    assert [entry.kind for entry in before][-2:] == ["journal.opened", "step.finished"]
    assert [entry.kind for entry in after][-2:] == ["fork.skipped", "step.finished"]
    assert [entry.seq for entry in after] == [entry.seq for entry in before]
    with open_reader(made.path) as reader:
        assert reader.load_value(after[4]) == BIG


def test_how_long_nobody_ran_a_fork_counts_from_its_last_entry(call: Call, failed: Story) -> None:
    made = RunDir(json.loads(call("fork", failed.id, "--at", "1", "--json").stdout)["dir"])

    assert os.stat(made.path / "lock").st_mtime_ns == entries_of(made)[-1].at * 1000


@pytest.mark.parametrize("step", ["9", "nobody:1", "main"])
def test_a_fork_at_a_step_that_is_not_there_makes_nothing(call: Call, failed: Story, step: str) -> None:
    before = os.listdir(failed.run.path.parent)

    assert call("fork", failed.id, "--at", step).returncode == 7
    assert os.listdir(failed.run.path.parent) == before


def test_a_fork_at_a_step_without_outcome_makes_nothing(call: Call, asking: Story) -> None:
    assert call("fork", asking.id, "--at", "2").returncode == 7


@pytest.mark.requirement("forks-have-conversations-of-their-own")
def test_a_fork_reports_which_prompts_are_asked_again(call: Call, story: Begin) -> None:
    told = story("dddd0005").tell(e.StepStarted(p="main", n=1, step="shell", fp="f"))
    for n in (2, 3):
        told.tell(e.StepStarted(p="main", n=n, step="think", fp="f"))
    told.tell(finished(1), b"null").tell(finished(3), b"{}").end()

    early, late = (call("fork", told.id, "--at", at) for at in ("1", "3"))

    assert "2 prompts had no reply yet and will be asked again from the beginning" in early.stderr
    assert "1 prompt had no reply yet and will be asked again from the beginning" in late.stderr
    assert json.loads(call("fork", told.id, "--at", "3", "--json").stdout)["asked_again"] == 1


def test_a_fork_has_the_conversations_of_agents_but_not_their_sockets(call: Call, failed: Story) -> None:
    agent = failed.run.agents / "claude"
    agent.mkdir(parents=True)
    (agent / "stream.ndjson").write_text("{}\n")
    os.mkfifo(agent / "pipe")

    made = RunDir(json.loads(call("fork", failed.id, "--at", "1", "--json").stdout)["dir"])

    assert os.listdir(made.agents / "claude") == ["stream.ndjson"]
    assert "asked again" not in call("fork", failed.id, "--at", "1").stderr
