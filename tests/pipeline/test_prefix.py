"""A journal that ends anywhere leads to the same end: cut behind any line in memory, and at any byte of a file.

In memory the workspace is as it was at the end, which is the hardest case: everything is there already, and nothing is known of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.pipeline.real import Shop
from tests.pipeline.team import (
    APPROVED,
    UNCHANGED,
    Reply,
    Team,
    edits,
    gates,
    order,
    receipts,
    settings,
    spec_wants,
    statuses,
    wants,
)

from bartack.journal import Entry, open_journal, open_reader
from bartack.pipeline import note_resume
from bartack.pipeline.records.receipts import receipt_path
from bartack.pipeline.records.records import PipelineOrder, Place, Summary
from bartack.testing import FaultyDisk, TestRun

SOAK: Final = "BARTACK_CHAOS_SOAK" in os.environ
SPEC: Final = {"SPEC.md": "# Spec\n\n## Status\n\nold\n"}
RUN: Final = "/run"


def by_round(*replies: Reply) -> list[Reply]:
    """Replies that depend on the round, and not on what was asked before."""
    return [{**reply, "when": {"round": number}, "times": 0} for number, reply in enumerate(replies, 1)]


LOOPS: Final[dict[str, tuple[dict[str, object], PipelineOrder, Mapping[str, str]]]] = {
    "one task": ({}, order("T-1"), {}),
    "three tasks": ({}, order("one", "two", "three"), {}),
    "review loop": ({"review": by_round(wants("a"), wants("b"), APPROVED)}, order("T-1"), {}),
    "spec loop": ({"update_spec": by_round(spec_wants("a"), UNCHANGED)}, order("T-1"), SPEC),
}


def facts(run: TestRun[Summary], team: Team) -> tuple[object, ...]:
    """What has to be the same."""
    files = [path for path in sorted(team.workspace.rglob("*")) if path.is_file()]
    return (
        statuses(run),
        [gate.verdict for gate in gates(run)],
        [(r.task_id, r.action, r.round, r.step, r.cause, r.event) for r in receipts(run)],
        [(artifact.path, artifact.sha256) for r in receipts(run) for artifact in r.artifacts],
        {path.name: path.read_text() for path in files},
    )


def forget(run: TestRun[Summary], last: int) -> set[str]:
    """Only the first entries are left, and the receipts that they tell of; returns the keys of the commands among them."""
    del run._run.store.entries[last:]
    kept = receipts(run)
    folder = Path(run._scratch.name)
    known = {folder / receipt_path(receipt) for receipt in kept}
    for path in folder.glob("receipts/*/*.json"):
        if path not in known:
            path.unlink()
    return {receipt.idempotency_key for receipt in kept}


@pytest.mark.requirement("pipeline-survives-kill")
@pytest.mark.parametrize("name", LOOPS)
def test_a_journal_that_ends_behind_any_line_leads_to_the_same_end_whatever_is_in_the_workspace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses, what, files = LOOPS[name]
    team = Team(tmp_path, responses, files=files)
    # One that remembers would answer with what it wrote, and have that changed by what cannot have come behind it.
    team.dedupe = False
    with team.running(what) as run:
        whole, lines = facts(run, team), run.lines
    places = range(1, len(lines) - 1)

    for place in places if SOAK else places[2 :: len(places) // 3]:
        with team.running(what) as run:
            finished = forget(run, lines[place])
            before = len(team.commands)
            note_resume(Place(run_dir=run._scratch.name, workspace=str(tmp_path)), what.settings, 2)

            with monkeypatch.context() as patch:
                patch.setenv("BARTACK_HUB", "2")
                run.resume()
                run.finish()

            told = f"{name}, cut behind line {place + 1}"
            assert run.status == "completed", f"{told}: {run.error}"
            assert facts(run, team) == whole, told
            assert finished.isdisjoint(command.idempotency_key for command in team.commands[before:]), told


@pytest.mark.requirement("pipeline-survives-kill")
@pytest.mark.parametrize("dedupe", [True, False])
def test_a_spec_that_was_written_before_the_kill_is_no_reason_to_pay_for_the_answer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dedupe: bool
) -> None:
    team = Team(tmp_path, {"update_spec": edits("# Spec\n\n## Status\n\nnew\n")}, files=SPEC)
    team.dedupe = dedupe
    with team.running(order("T-1")) as run:
        asked = [n for n, entry in enumerate(run._run.store.entries) if entry.data.get("step") == "think"]
        forget(run, asked[-1])
        before = len(team.commands)
        note_resume(Place(run_dir=run._scratch.name, workspace=str(tmp_path)), settings(), 2)
        monkeypatch.setenv("BARTACK_HUB", "2")

        run.resume()
        run.finish()

        assert run.status == "completed", str(run.error)
        assert [command.action for command in team.commands[before:]] == ["update_spec"]
        assert [change.path for change in receipts(run)[-1].changes] == ["SPEC.md"]


# Files.


def read_prefix(content: bytes) -> tuple[list[Entry], int]:
    """What the next owner of a file finds, and how many bytes of it were torn."""
    disk = FaultyDisk()
    disk.mkdir(RUN)
    disk.put(f"{RUN}/journal.ndjson", content)
    with open_journal(RUN, disk=disk) as journal:
        torn = journal.recovery.size_bytes if journal.recovery is not None else 0
        return list(journal.read())[:-1], torn


@pytest.mark.requirement("torn-line-is-kept-aside")
def test_a_file_that_ends_at_any_byte_has_every_entry_before_and_no_other(shop: Shop) -> None:
    content = shop.journal.read_bytes().rstrip(b"\n") + b"\n"
    with open_reader(shop.run_dir) as reader:
        entries = list(reader.read())
    first = content.index(b"\n") + 1
    ends = [place + 1 for place in range(len(content)) if content[place : place + 1] == b"\n"]
    places = range(first, len(content) + 1) if SOAK else range(first, len(content) + 1, len(content) // 80)

    for place in places:
        whole = max(end for end in ends if end <= place)
        found, torn = read_prefix(content[:place])
        assert found == entries[: len(found)], f"{place} bytes"
        assert torn == place - whole, f"{place} bytes"
        assert found[-1].seq == read_last(content[:whole]), f"{place} bytes"


def read_last(content: bytes) -> int:
    """The place of the last entry of a journal that ends with a whole line."""
    return read_prefix(content)[0][-1].seq


@pytest.mark.requirement("pipeline-survives-kill")
def test_a_run_whose_journal_ends_at_any_byte_goes_on_to_the_same_end(shop: Shop, tmp_path: Path) -> None:
    whole = shop.facts()
    content = shop.journal.read_bytes().rstrip(b"\n") + b"\n"
    second = content.index(b"\n", content.index(b"\n") + 1) + 1
    steps = 60 if SOAK else 1
    places = [second + (len(content) - second) * number // (steps + 1) for number in range(1, steps + 1)]

    for place in places:
        copy = shop.copy(tmp_path / f"at-{place}", place)
        assert copy.resume() == 0, copy.story()

        assert copy.facts() == whole, f"{place} bytes"
