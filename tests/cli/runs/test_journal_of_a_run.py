from __future__ import annotations

import json

import pytest
from tests.cli.runs.stories import Begin, Call, Story

from bartack.runtime.state import entries as e


@pytest.mark.parametrize("asked", ["latest", "run-20260101-000000-aaaa0001", "run-2026", "20260101-000000-a"])
@pytest.mark.parametrize("command", [("show", "--json"), ("export",)])
def test_a_journal_can_be_named_by_its_run(
    call: Call, completed: Story, asked: str, command: tuple[str, ...]
) -> None:
    by_path = call("journal", *command, str(completed.run.path))

    by_name = call("journal", *command, asked)

    assert by_name.returncode == 0
    assert by_name.stdout == by_path.stdout
    assert json.loads(by_name.stdout.splitlines()[-1])["kind"] == "run.ended"


def test_only_runs_of_the_pipeline_have_a_ledger(call: Call, completed: Story) -> None:
    refused = call("journal", "export", "--ledger", "latest")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{completed.run.path} is not a run of the pipeline" in refused.stderr
    assert call("journal", "verify", "latest").returncode == 0


def test_a_name_that_is_no_run_or_several_is_refused(call: Call, completed: Story, failed: Story) -> None:
    assert call("journal", "export", "run-2027").returncode == 7
    several = call("journal", "export", "run-2026")

    assert several.returncode == 2
    assert completed.id in several.stderr
    assert failed.id in several.stderr


def test_a_run_that_a_person_ended_is_called_aborted_everywhere(call: Call, story: Begin) -> None:
    told = story("eeee0005").tell(e.RunEnded(status="aborted", reason="denied: no plan was approved")).end()

    assert json.loads(call("status", "latest", "--json").stdout)["status"] == "aborted"
    assert "aborted" in call("status").stdout
    assert json.loads((told.run.path / "run.json").read_bytes())["status"] == "aborted"
    refused = call("resume", told.id)
    assert (refused.returncode, "it is aborted" in refused.stderr) == (1, True)
    assert call("cancel", told.id).returncode == 9
    assert "aborted" in call("clean", "--dry-run").stdout
