"""At every entry of a run, the API and the page show what the state of the run has after that entry."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.crash.test_random_programs import CarelessWriter, Writer, actor, make_agent, make_run, shell
from tests.crash.test_recorded_runs import restore
from tests.web.journals import keep
from tests.web.live import Served, run, serve
from tests.web.pages import Element, Markup
from tests.web.sites import make_site

from bartack import ShellResult
from bartack.journal import Entry, open_reader
from bartack.runtime.client.manage import fork_run
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import Timeline
from bartack.testing import TestRun
from bartack.web._wording import visible as _visible

RECORDED = ["plain", "killed", "failed", "patchwork", "pipeline"]
FEW = 20
"""Entries of a run made by chance at which its page is looked at."""


async def check_run(served: Served, run_dir: RunDir, pages: int = FEW) -> int:
    """Compare what the API answers at each entry, and the page at some, with the state after it; returns how many there are."""
    with open_reader(run_dir.path) as reader:
        entries = list(reader.read())
    state = State()
    outcomes = _Outcomes()
    for entry in entries:
        add_entry(state, entry)
        outcomes.take(entry, state)
        answer = await served.get(f"/api/v1/runs/{run_dir.id}?at={entry.seq}")
        assert answer.status == 200, answer.body
        _compare(answer.json, state, outcomes, entry)
        steps = await served.get(f"/api/v1/runs/{run_dir.id}/steps?at={entry.seq}&status=open&all=true")
        _compare_steps(steps.json, state)
        if entry.seq % (len(entries) // pages + 1) == 0:
            page = await served.get(f"/r/{run_dir.id}?at={entry.seq}")
            assert page.status == 200, page.body
            _compare_page(Markup(page.body.decode()), answer.json, state)
    return len(entries)


def _compare_page(page: Markup, moment: dict[str, Any], state: State) -> None:
    """The page of the run shows its workers, what is open, its questions and its mailboxes as its state has them."""
    page.check()
    if moment["seq"] < moment["last_seq"]:
        assert state.status in _without_signs(page.texts["head"])
    lanes = {path: (f"w{one['id']}", one) for one in moment.get("workers", []) for path in [one["path"]]}
    shown = {lane.attributes["id"]: lane.attributes["class"] for lane in page.find("li") if _is(lane, "lane")}
    assert shown.keys() == {name for name, _ in lanes.values()}
    for path, worker in state.workers.items():
        name, row = lanes[path]
        assert ("over" in shown[name].split()) == worker.ended
        assert row["status"] in _without_signs(page.texts[name])
    opened = {f"o{step['row']}": step for _, worker in lanes.values() for step in worker.get("open", [])}
    assert {(step["p"], step["n"]) for step in opened.values()} == {
        key for worker in state.workers.values() for key in worker.open
    }
    assert {name for name in page.texts if re.fullmatch(r"o\d+", name)} == opened.keys()
    for name, step in opened.items():
        words = [step["kind"], step["p"], *_visible(step.get("about", "")).split()]
        assert page.texts[name].split()[: len(words)] == words
    asked = {
        one.attributes["data-question"]: one.attributes["id"]
        for one in page.find("article", **{"class": "card question"})
    }
    assert asked.keys() == state.questions.keys()
    for one in moment.get("questions", []):
        assert " ".join(_visible(one["question"]).split()) in " ".join(page.texts[asked[one["id"]]].split())
    boxes = {f"m{box['row']}": box["name"] for box in moment.get("mailboxes", [])}
    assert {name for name in page.texts if re.fullmatch(r"m\d+", name)} == boxes.keys()
    for name, mailbox in boxes.items():
        box = state.mailboxes[mailbox]
        said = page.texts[name].split()
        assert said[: len(mailbox.split())] == mailbox.split()
        assert said[-3:] == [str(len(box)), "of", str(box.sent)]


def _without_signs(text: str) -> list[str]:
    return re.sub("[●?✗✓⊘‖!↶]", " ", text).split()


def _is(element: Element, name: str) -> bool:
    return name in element.attributes.get("class", "").split()


class _Outcomes:
    """How many outcomes each worker has had since it was spawned, and how many crashes."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self._closed: dict[str, list[int]] = {}

    def take(self, entry: Entry, state: State) -> None:
        data = entry.data
        if entry.kind == "worker.spawned":
            self.steps[str(data["path"])] = self.crashes[str(data["path"])] = 0
        if entry.kind == "worker.crashed":
            self.crashes[str(data["path"])] += 1
        closes = entry.kind in {"step.finished", "step.failed", "message.taken", "messages.drained", "output"}
        if entry.kind == "message.sent":
            closes = bool(data.get("n")) and not data.get("reply_to")
        owner = state.worker_of(str(data.get("p", ""))) if closes else None
        if owner is not None:
            self.steps[owner.path] += 1


def _compare(moment: dict[str, Any], state: State, outcomes: _Outcomes, entry: Entry) -> None:
    assert (moment["seq"], moment["at"]) == (entry.seq, entry.at)
    if entry.seq < moment["last_seq"]:
        assert moment["run"]["status"] == state.status
    assert moment["hub"].get("number", 0) == state.hub
    assert moment["money"].get("spent_usd", 0.0) == round(state.spent_usd, 6)
    assert moment["money"].get("reserved_usd", 0.0) == round(state.reserved_usd, 6)
    assert moment["money"].get("tokens", 0) == state.spent.tokens
    assert (moment.get("failure") is None) == (state.failure is None)
    if state.failure is not None:
        assert moment["failure"]["message"] == state.failure.error.message
        assert moment["run"]["error"].endswith(state.failure.error.message)
    _compare_workers(moment, state, outcomes)
    _compare_mail(moment, state)
    asked = {one["id"]: (one["worker"], one["p"], one["n"], one["at"]) for one in moment.get("questions", [])}
    assert asked == {number: (one.worker, one.p, one.n, one.at) for number, one in state.questions.items()}
    assert moment["run"].get("questions", []) == list(state.questions)


def _compare_workers(moment: dict[str, Any], state: State, outcomes: _Outcomes) -> None:
    shown = {worker["path"]: worker for worker in moment.get("workers", [])}
    alive = {path for path, worker in state.workers.items() if not worker.ended}
    assert {path for path, worker in shown.items() if "ended_at" not in worker} == alive
    assert shown.keys() >= state.workers.keys()
    for path, worker in state.workers.items():
        row = shown[path]
        if worker.ended:
            expected = {"completed": {"completed"}, "failed": {"failed", "aborted", "cancelled"}}
            assert row["status"] in expected[worker.status]
            assert (row.get("error") is None) == (worker.error is None)
        assert row.get("steps", 0) == outcomes.steps[path], path
        assert row.get("crashes", 0) == outcomes.crashes[path], path
        assert row.get("parent", "") == (f"{worker.parent[0]}:{worker.parent[1]}" if worker.parent[0] else "")
        opened = {(step["p"], step["n"]): step for step in row.get("open", [])}
        assert opened.keys() == worker.open.keys()
        for key, step in opened.items():
            known = worker.open[key]
            assert (step["kind"], step.get("about", ""), step.get("attempt", 1)) == (
                known.step,
                known.about,
                known.attempt,
            )
            assert step.get("question", "") == known.question
            running = worker.tools[key].running if key in worker.tools else None
            assert step.get("tool", "") == ("" if running is None else running.tool)


def _compare_mail(moment: dict[str, Any], state: State) -> None:
    boxes = {box["name"]: box for box in moment.get("mailboxes", [])}
    assert boxes.keys() == state.mailboxes.keys()
    for name, box in state.mailboxes.items():
        row = boxes[name]
        counts = [
            row.get(key, 0) for key in ("queued", "scheduled", "held", "sent", "size_bytes", "capacity")
        ]
        assert counts == [len(box), box.scheduled, box.held, box.sent, box.size_bytes, box.capacity]
        assert (row.get("closed", False), row.get("topics", [])) == (box.closed, box.patterns)
        assert row.get("owner", "") == state.owner_of(box)
    letters = [one for one in state.deliveries.letters.values() if one.state not in {"purged", "redelivered"}]
    assert moment.get("letters", 0) == len(letters)


def _compare_steps(steps: dict[str, Any], state: State) -> None:
    opened = {(step["p"], step["n"]) for step in steps["steps"] if step["kind"] != "tool"}
    assert opened == {key for worker in state.workers.values() for key in worker.open}


@pytest.mark.requirement("web-shows-the-state")
@pytest.mark.parametrize("kind", RECORDED)
def test_a_recorded_run_is_shown_at_each_entry_as_its_state_is(tmp_path: Path, kind: str) -> None:
    found = restore(kind, tmp_path)

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            assert await check_run(served, found, pages=1000) > 5

    run(look)


@pytest.mark.requirement("web-shows-the-state")
def test_the_same_holds_for_a_fork(tmp_path: Path) -> None:
    whole = restore("plain", tmp_path)
    with open_reader(whole.path) as reader:
        inner = next(step for step in Timeline.of(reader.read()).steps if "/" in step.p and step.seq)
    forked = fork_run(whole, inner.name)

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            assert await check_run(served, forked) > 5

    run(look)


@pytest.mark.requirement("web-shows-the-state")
@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_for_programs_made_by_chance_that_are_killed_and_resumed(
    tmp_path: Path, seed: int
) -> None:
    code = Writer(seed).write()
    with make_run(code) as whole:
        whole.finish()
    killed = make_run(code, Random(seed).randint(2, len(whole.lines) - 1))
    with closing(killed):
        with pytest.raises(KilledError):
            _play(killed)
        killed.resume()
        killed.finish()
    found = keep(killed.journal, tmp_path, "run-20261118-101010-0123abcd")

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            assert await check_run(served, found) > 5

    run(look)


def _play(killed: TestRun[list[object]]) -> None:
    killed.start()
    killed.finish()


@pytest.mark.requirement("web-shows-the-state")
@pytest.mark.parametrize("seed", range(3))
def test_the_same_holds_for_failures_that_are_resumed_after_their_cause_is_fixed(
    tmp_path: Path, seed: int
) -> None:
    broken = [True]

    def fixable(words: list[str]) -> ShellResult:
        return shell(words) if broken[0] else ShellResult.success("said")

    with TestRun(actor(CarelessWriter(seed).write()), agent=make_agent(), shell=fixable) as failing:
        failing.finish()
        broken[0] = False
        for _ in range(6):
            if failing.error is not None:
                failing.resume()
                failing.finish()
    found = keep(failing.journal, tmp_path, "run-20261118-101010-0123abcd")

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            assert await check_run(served, found) > 5

    run(look)
