"""Attempts that came to nothing: refused, crashed and stalled ones are shown, and their cost is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.pipeline.studio import Studio

from bartack.agents import Usage
from bartack.runtime.rundir.receipts import Receipt, load_receipt

SPENDS = "answer['usage'] = {'cost_usd': 0.25, 'turns': 1}\n"
ONCE = """\
import os, pathlib
tries = home / 'tries'
number = len(tries.read_text()) if tries.exists() else 0
tries.write_text('x' * (number + 1))
"""
REFUSED = f"{ONCE}{SPENDS}if not number:\n    answer.update(payload={{'findings': [1]}})\n"
CRASHES = f"{ONCE}if not number:\n    os._exit(3)\n"
STALLS = f"{ONCE}if not number:\n    open({{fifo!r}}).close()\n"
BABBLES = (
    f"{ONCE}if not number:\n    [print('{{', flush=True) for _ in range(30)]\n    open({{fifo!r}}).close()\n"
)
WISHES = f"{ONCE}if not number:\n    answer.update(status='changes_requested', payload={{'findings': ['name it better']}})\n"
QUICK = "backoff_initial_s = 0.01\n"
OFTEN = {
    "refused": (REFUSED, "", "refused: review.completed: findings[0] must be an object with a message, or a text; asked again"),
    "crashed": (CRASHES, "", "failed: its process ended with 3; asked again in a new process"),
    "stalled": (STALLS, "stall_s = 0.3\n", "failed: it made no progress for 0.3 s; asked again in a new process"),
    "garbage": (BABBLES, "", "refused: 21 lines cannot be used, the last: malformed; asked again in a new process"),
}  # fmt: skip


@pytest.mark.requirement("failed-attempts-are-shown")
@pytest.mark.parametrize("name", OFTEN)
def test_a_failed_attempt_is_shown_in_the_output_the_log_and_the_transcript(
    tmp_path: Path, name: str
) -> None:
    act, more, told = OFTEN[name]
    told = f"attempt 1 of review {told}"
    os.mkfifo(tmp_path / "fifo")
    studio = Studio(tmp_path, f"{QUICK}{more}", review=act.replace("{fifo!r}", repr(str(tmp_path / "fifo"))))

    done = studio.bartack("run", "--goal", "do it")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "attempt" in line] == [f"main/2.1:task: own  {told}"]
    kept = [line for line in studio.transcript.splitlines() if "attempt" in line]
    assert [line.split("  ", 1)[1] for line in kept] == [f"{'own':<17}  {told}"]
    assert told in studio.bartack("log").stdout
    assert studio.calls == ["implement", "review", "review"]


@pytest.mark.requirement("receipts-count-every-attempt")
def test_a_receipt_counts_the_cost_of_all_attempts(tmp_path: Path) -> None:
    studio = Studio(tmp_path, QUICK, review=REFUSED)

    done = studio.bartack("run", "--goal", "do it")

    assert done.returncode == 0, done.stderr
    [review] = [found for found in _receipts(studio) if found.action == "review"]
    assert review.usage == Usage(cost_usd=0.5, turns=2)
    assert [attempt.code for attempt in review.attempts] == ["invalid_reply", ""]


def test_a_receipt_counts_answers_that_the_workspace_contradicts(tmp_path: Path) -> None:
    edit = f"{ONCE}{SPENDS}if not number:\n    pathlib.Path('SPEC.md').write_text('# Status\\nnew\\n')\n"
    edit += "else:\n    pathlib.Path('SPEC.md').write_text('# Status\\n')\n"
    studio = Studio(tmp_path, QUICK, {"SPEC.md": "# Status\n"}, update_spec=edit)

    done = studio.bartack("run", "--goal", "do it")

    assert done.returncode == 0, done.stderr
    told = "attempt 1 of update_spec refused: it says spec.no_changes_needed, and changed the spec file"
    assert f"own  {told}" in done.stderr
    [spec] = [found for found in _receipts(studio) if found.action == "update_spec"]
    assert spec.usage == Usage(cost_usd=0.5, turns=2)


@pytest.mark.requirement("findings-may-be-texts")
def test_findings_that_are_texts_are_taken(tmp_path: Path) -> None:
    studio = Studio(tmp_path, review=WISHES)
    studio.act(
        "implement_changes", "(home / 'seen').write_text(str(command['inputs']['iteration']['findings']))\n"
    )

    done = studio.bartack("run", "--goal", "do it")

    assert done.returncode == 0, done.stderr
    assert (studio.home / "seen").read_text() == "[{'message': 'name it better'}]"


def _receipts(studio: Studio) -> list[Receipt]:
    return [load_receipt(path) for path in sorted(studio.run_dir.glob("receipts/*/*.json"))]
