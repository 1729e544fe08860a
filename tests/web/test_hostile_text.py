"""Whatever text is in a run, the API and its events carry it as text, and nothing else comes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.web.hostile import CORPUS, below, fill, restore_pipeline, texts_in
from tests.web.journals import RUN, written_run
from tests.web.live import Answer, Served, run, serve
from tests.web.pages import KEY, Markup
from tests.web.sites import make_site

from bartack.runtime.protocol.step_key import step_key
from bartack.tracking import LineageStore
from bartack.web._wording import visible
from bartack.web.reading import _patterns

HOLDS = {
    "": ["project", "about", "name", "worker", "args", "message", "question", "options", "tool", "input"],
    "/steps": ["about", "message", "type"],
    "/timeline": ["text"],
    "/messages": ["mailbox", "sender", "topic"],
    "/mailboxes": ["name", "topics"],
    "/letters": ["mailbox", "sender", "error", "metadata"],
    "/talk": ["agent", "action", "task"],
    "/failure": ["message", "stderr_tail", "reason", "function"],
    "/entries": ["project", "value"],
    "/log": ["text"],
    "/program": ["text", "argv", "environment"],
}
"""Where a text is found, below each address: at least so many times as there are members."""


def check_is_text(answer: Answer, text: str, least: int) -> Any:
    """An answer is JSON that has a text as it was, so many times."""
    assert answer.status == 200, answer.body[:500]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"\n" not in answer.body
    found = json.loads(answer.body)
    # A text that is too long for its place is cut.
    begun = text[:150]
    assert sum(begun in one for one in texts_in(found)) >= least, answer.body[:2000]
    return found


@pytest.mark.requirement("web-text-is-text")
@pytest.mark.parametrize("name", CORPUS)
def test_texts_of_a_run_are_text_in_json_and_in_events(tmp_path: Path, name: str) -> None:
    text = CORPUS[name]

    async def look() -> None:
        with written_run(tmp_path) as writer:
            fill(writer, text)
            async with serve(make_site(tmp_path)) as served:
                for path in below(tmp_path):
                    least = len(HOLDS.get(path, []))
                    check_is_text(await served.get(f"/api/v1/runs/{RUN}{path}"), text, least)
                await check_parts_of_run(served, text)
                await check_events(served, text)
            # Each test checks the wires that it leaves, and no agent wrote these.
            shutil.rmtree(writer.run.agents)

    run(look)


async def check_parts_of_run(served: Served, text: str) -> None:
    base = f"/api/v1/runs/{RUN}"
    letters = (await served.get(f"{base}/letters")).json
    check_is_text(await served.get(f"{base}/letters/{letters[0]['id']}"), text, 5)
    for key, least in ((KEY, 4), (step_key(RUN, "main", 2, 0), 4)):
        check_is_text(await served.get(f"{base}/talk/{key}"), text, least)
    wire = check_is_text(await served.get(f"{base}/talk/{KEY}?raw=true"), "", 0)
    assert all(isinstance(line["line"], str) for line in wire["lines"])
    for p, n in (("main", 1), ("main", 2), ("main", 3), (f"main/1:{text[:100]}", 5)):
        check_is_text(await served.get(f"{base}/step?p={quote(p)}&n={n}"), text, 1)
    check_is_text(await served.get(f"{base}/messages?mailbox={quote(text[:900])}"), "", 0)
    check_is_text(await served.get("/api/v1/runs"), text, 1)
    check_is_text(await served.get(f"/api/v1/runs?q={quote(text[:900])}"), text, 0)
    check_is_text(await served.get("/api/v1/questions"), text, 3)


async def check_events(served: Served, text: str) -> None:
    """Every event is one line of JSON, and no part of a page has markup that came from the text."""
    for query in ("since=4", "since=4&view=steps&all=true", f"view=talk&talk={KEY}"):
        async with served.stream(f"/api/v1/runs/{RUN}/events?{query}") as reader:
            assert (await reader.next()).name == "hello"
            if "talk" in query:
                lines = (await reader.named("talk")).data["lines"]
                assert lines[0]["text"] == text
                continue
            event = await reader.next()
            if event.name == "reset":
                assert len(text) > 1000
                continue
            while event.name != "parts" or not check_parts(event.data["set"], text):
                event = await reader.next()  # the head of the page comes first


def check_parts(parts: list[tuple[str, str]], text: str) -> bool:
    """Each part is markup of ours; returns whether one of them says the text."""
    is_shown = False
    for name, html in parts:
        shown = Markup(html)
        shown.check()
        assert name.isalnum()
        assert shown.elements[0].attributes["id"] == name
        is_shown = is_shown or visible(text[:100]) in shown.text
    return is_shown


@pytest.mark.requirement("web-text-is-text")
@pytest.mark.parametrize("name", sorted(CORPUS.keys() - {"word"}))
def test_texts_of_tasks_files_and_agents_of_the_pipeline_are_text(tmp_path: Path, name: str) -> None:
    text = CORPUS[name]
    found = restore_pipeline(tmp_path, text)
    shutil.rmtree(
        found.path / "snapshots"
    )  # each test checks the manifests that it leaves, and no run wrote these

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            base = f"/api/v1/runs/{found.id}"
            check_is_text(await served.get(base), text, 2)
            receipts = check_is_text(await served.get(f"{base}/receipts"), text, 3)
            assert list(receipts["receipts"][0]["verified"].values()) == ["missing"]
            check_is_text(await served.get(f"{base}/receipts/weeks/1"), text, 3)
            artifact = await served.get(f"{base}/receipts/weeks/1/artifacts/0")
            assert artifact.status == 404

    run(look)


def id_of(name: str) -> str:
    """The id of a pattern with a text in it; the ends of lines are not part of an address."""
    return f"{name}/{''.join(CORPUS[name][:100].splitlines())}"


@pytest.mark.requirement("web-text-is-text")
def test_texts_of_patterns_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "lineage.db"
    monkeypatch.setattr(_patterns, "lineage_path", lambda: database)
    with LineageStore(database) as store:
        for name, text in CORPUS.items():
            body = {
                "event_type": "pattern_created",
                "pattern_id": id_of(name),
                "pattern_name": text[:400],
            }
            store.track({**body, "pattern_data": {"code": text}})

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            found = await served.get("/api/v1/patterns?limit=50")
            assert found.status == 200
            assert {one["pattern_name"] for one in found.json["results"]} == {
                text[:400] for text in CORPUS.values()
            }
            for name, text in CORPUS.items():
                answer = await served.get(f"/api/v1/patterns/{quote(id_of(name), safe='')}")
                assert answer.status == 200, answer.body
                assert answer.json["node"]["pattern_name"] == text[:400]

    run(look)
