"""The pages of a run besides the overview and the steps, and the pages of patterns."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from starlette.testclient import TestClient
from tests.crash.test_recorded_runs import restore
from tests.web import pages
from tests.web.journals import RUN, Writer, finished, started, written_run
from tests.web.live import run, serve
from tests.web.pages import RUN_PAGES, Markup
from tests.web.sites import enter, make_site

from bartack.messaging.letter import letter_id
from bartack.pipeline.request import MAIN
from bartack.runtime.protocol.frames import ErrorData, Site, StackLine
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.state import entries as e
from bartack.tracking import LineageStore
from bartack.web.models._mail import Messages
from bartack.web.pages._sequence import OUTSIDE, draw_sequence

BASE = f"/r/{RUN}"
KEY = "ik:" + "a1" * 32
CHILD = "main/2:child"


@contextmanager
def browse(workspace: Path, *, read_only: bool = False) -> Generator[TestClient]:
    """A browser that has entered a site with one workspace."""
    client, _ = enter(make_site(workspace, read_only=read_only))
    with client:
        yield client


def look(client: TestClient, path: str) -> Markup:
    """A page, taken apart."""
    answer = client.get(path)
    page = Markup(answer.text)
    assert answer.status_code == 200, (path, page.text)
    page.check()
    return page


# Calls of agents.

SAID: list[dict[str, Any]] = [
    {
        "event": "agent.started",
        "attempt": 1,
        "pid": 0,
        "conversation": "",
        "generation": 0,
        "model": "scripted",
    },
    {"event": "agent.text", "text": "I read the parser first."},
    {
        "event": "agent.tool",
        "id": "do_1",
        "tool": "read_file",
        "phase": "started",
        "input": '{"path": "a.py"}',
    },
    {"event": "agent.tool", "id": "do_1", "tool": "read_file", "phase": "finished", "duration_s": 0.044},
    {
        "event": "agent.retry",
        "code": "BT612",
        "error": "the connection was lost",
        "attempt": 1,
        "delay_s": 2.0,
    },
    {"event": "agent.usage", "usage": {"input_tokens": 30, "output_tokens": 12, "turns": 3, "cost_usd": 0.5}},
]


def say(run: Writer, *lines: dict[str, Any], first: int = 1) -> None:
    """Write lines to the transcript of an agent."""
    folder = run.run.agents / "ann"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "transcript.ndjson").open("a", encoding="utf-8") as file:
        for number, line in enumerate(lines, first):
            file.write(json.dumps({"key": KEY, "n": number, "at": "2026-11-18T10:10:10Z", **line}) + "\n")


def call(run: Writer) -> None:
    """A call of an agent that is over."""
    asked = {"prompt": "Review the parser.", "name": "review", "agent": "ann", "system": "You are careful."}
    run.write(started(1, step="think", about="Review the parser"), value=asked)
    usage = {"input_tokens": 30, "output_tokens": 12, "turns": 3}
    replied = {"key": KEY, "agent": "ann", "text": "Words are not numbers.", "usd": 0.5, "usage": usage}
    run.write(finished(1, step="think", usd=0.5), value=replied)


@pytest.mark.requirement("web-shows-what-agents-said")
def test_a_call_shows_prompt_transcript_tools_retries_usage_and_reply(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        call(run)
        say(run, *SAID)
        (link,) = [
            one for one in look(client, f"{BASE}/talk").find("a") if "/talk/" in one.attributes["href"]
        ]
        text = look(client, link.attributes["href"]).text

    for words in (
        "Review the parser.",
        "You are careful.",
        "I read the parser first.",
        '{"path": "a.py"}',
        "44 ms",
        "the connection was lost",
        "42 tokens, 0.50 USD, turn 3",
        "Words are not numbers.",
    ):
        assert words in text


def test_the_wire_of_a_call_is_shown_as_text(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        call(run)
        page = look(client, f"{BASE}/talk/{KEY}?raw=true")

    assert "No wire was recorded." in page.text
    assert "view=head" in page.find("body")[0].attributes["data-stream"]


@pytest.mark.requirement("web-shows-what-agents-said")
def test_lines_of_an_open_call_arrive_as_parts_of_its_page(tmp_path: Path) -> None:
    async def watch() -> None:
        with written_run(tmp_path) as written:
            written.begin()
            call(written)
            say(written, SAID[0])
            async with serve(make_site(tmp_path)) as served:
                path = f"/api/v1/runs/{RUN}/events?view=talk&talk={KEY}&after=1"
                async with served.stream(path) as reader:
                    await reader.named("hello")
                    say(written, {"event": "agent.text", "text": "<b>now</b>"}, first=2)
                    found = await reader.until(
                        lambda event: event.name == "parts" and event.data.get("set", [[""]])[0][0] == "l2"
                    )

        part = Markup(found.data["set"][0][1])
        part.check()
        assert part.elements[0].attributes["id"] == "l2"
        assert "<b>now</b>" in part.text

    run(watch)


# Failures.

SOURCE = "one\ntwo\nthree = int(word)\nfour\nfive\nsix\nseven\neight = delegate(child)\n"


@pytest.mark.requirement("web-failure-through-all-workers")
def test_a_failure_is_shown_through_all_workers_with_source_causes_crashes_and_what_to_type(
    tmp_path: Path,
) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        run.run.program.mkdir(exist_ok=True)
        (run.run.program / "team.py").write_text(SOURCE)
        place = str(run.run.program / "team.py")
        run.write(started(2, step="delegate"))
        spawned = e.WorkerSpawned(
            path=CHILD, worker="team:child", p="main", n=2, site=Site(file="team.py", line=8)
        )
        run.write(spawned, value={"args": []})
        run.write(
            e.WorkerCrashed(
                path=CHILD, incarnation=1, reason="killed by SIGKILL", stderr_tail="\x1b[31mred\x1b[0m"
            )
        )
        error = ErrorData(
            type="builtins:ValueError",
            message="not a number",
            stack=[StackLine(file=place, line=3, function="parse", text="", column=9, width=3)],
            cause=ErrorData(type="builtins:KeyError", message="the cause"),
        )
        run.write(e.FailureRecorded(worker=CHILD, error=error, p=CHILD, n=2))
        later = ErrorData(type="m:Later", message="came after it")
        run.write(e.FailureRecorded(worker="main", error=later, suppressed=True))
        page = look(client, f"{BASE}/failure")

    for words in (
        "not a number",
        "three = int(word)",
        "        ^^^",
        "eight = delegate(child)",
        "the cause",
        "came after it",
    ):
        assert words in page.text
    assert "killed by SIGKILL" in page.text
    assert page.find("span", **{"class": "t-red"})
    assert f"bartack resume {RUN}" in page.text


def test_a_run_that_has_not_failed_says_so(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()

        assert "Nothing has failed." in look(client, f"{BASE}/failure").text


# Messages.


def send(run: Writer) -> None:
    """Messages: one received, one queued, one from outside; and a dead letter."""
    for number, sender in enumerate(("main", CHILD, "")):
        sent = e.MessageSent(mailbox="findings", id=f"m{number}", size=20, sender=sender)
        run.write(sent, value={"line": number})
    run.write(e.MessageTaken(mailbox="findings", id="m0", p=CHILD, n=4, fp="f"), value={"line": 0})
    letter = e.LetterAdded(
        message="m-9", mailbox="results", reason="timeout", error="it was late", metadata={"round": 2}
    )
    run.write(letter, value={"word": "two"})


def test_messages_are_drawn_and_listed_and_can_be_filtered(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        send(run)
        page = look(client, f"{BASE}/messages")
        queued = look(client, f"{BASE}/messages?status=queued&mailbox=findings")
        none = look(client, f"{BASE}/messages?mailbox=other")

    assert len(page.find("g", **{"class": "arrow a-received"})) == 1
    assert len(page.find("g", **{"class": "arrow a-queued"})) == 2
    assert len(page.find("td", **{"class": "a-dead"})) == 1
    assert len(queued.find("td", **{"class": "a-queued"})) == 2
    assert "No message fits." in none.text


def test_an_arrow_goes_from_the_sender_when_it_was_sent_to_the_receiver_when_it_was_taken(
    tmp_path: Path,
) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        send(run)
        found = client.get(f"/api/v1/runs/{RUN}/messages").content

    drawing = draw_sequence(msgspec.json.decode(found, type=Messages).messages)
    places = {party.name: party.x for party in drawing.parties}
    first, second, third, _ = drawing.arrows
    assert list(places) == ["main", CHILD, OUTSIDE]
    assert (first.x1, first.x2) == (places["main"], places[CHILD])
    assert first.y1 < second.y1 < third.y1 < first.y2
    assert (second.x1, second.y1) == (places[CHILD], second.y2)


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_dead_letters_are_shown_with_their_messages_and_purged_by_the_form(tmp_path: Path) -> None:
    letter = letter_id(RUN, "m-9")
    with written_run(tmp_path) as run:
        run.begin(origin=mark_of(run.run))
        send(run)
        run.mirror()
    with browse(tmp_path) as client:
        page = look(client, f"{BASE}/mailboxes")
        one = look(client, f"{BASE}/letters/{letter}")
        fields = {
            one.attributes["name"]: one.attributes["value"] for one in page.find("input", type="hidden")
        }
        (box,) = page.find("input", type="checkbox", name="letters")
        (button,) = page.find("button", **{"class": "danger", "formaction": f"{BASE}/letters/purge"})
        data = {**fields, "letters": box.attributes["value"]}
        answer = client.post(button.attributes["formaction"], data=data)
        after = look(client, f"{BASE}/mailboxes")
        past = look(client, f"{BASE}/mailboxes?at=9")

    assert box.attributes["value"] == letter
    assert all(words in one.text for words in ("it was late", "two", "round"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{BASE}/mailboxes")
    assert not after.find("input", name="letters")
    assert not past.find("button", **{"class": "danger", "formaction": f"{BASE}/letters/purge"})


# Log, journal, program.


def test_the_log_has_what_was_printed_and_what_happened(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        for number in range(210):
            run.write(e.OutputWritten(p="main", n=number, channel="print"), value=f"line {number}.")
        last = look(client, f"{BASE}/log")
        (earlier,) = [one for one in last.find("a") if one.attributes["href"].startswith("?before=")]
        first = look(client, f"{BASE}/log{earlier.attributes['href']}")

    assert "line 209." in last.text
    assert "line 3." not in last.text
    assert "line 3." in first.text


def test_the_journal_shows_entries_as_they_are_with_their_values(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        place = run.write(started(1, about="git status"), value={"argv": ["git", "status"]})
        page = look(client, f"{BASE}/journal?from={place}")

    assert "step.started" in page.text
    assert "run.created" not in page.text
    assert "status" in page.text
    assert page.find("a", href=f"{BASE}?at={place}")
    assert page.find("a", href="?from=1")


def test_the_program_shows_the_source_and_what_differs_in_the_project_now(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        run.run.program.mkdir(exist_ok=True)
        (run.run.program / "team.py").write_text("one\ntwo\n")
        (tmp_path / "team.py").write_text("one\nthree\n")
        page = look(client, f"{BASE}/program")

    assert "changed in the project since" in page.text
    assert page.find("span", **{"class": "source-line plus"})
    assert page.find("span", **{"class": "source-line minus"})


# Money.


def test_money_is_shown_over_time_and_by_agent_and_worker(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        none = look(client, f"{BASE}/money")
        call(run)
        page = look(client, f"{BASE}/money")

    assert "No agent has cost or used anything." in none.text
    (curve,) = page.find("path", **{"class": "curve"})
    assert re.fullmatch(r"M64 156\.0 H[\d.]+ V\d+\.\d H884", curve.attributes["d"])
    assert [one for one in ("agent", "task", "worker") if page.find("h2", id=f"by-{one}")] == [
        "agent",
        "worker",
    ]
    assert "0.50" in page.text


# Receipts and snapshots.


def test_a_receipt_shows_its_changes_and_artifacts_as_they_are_now(tmp_path: Path) -> None:
    found = restore("pipeline", tmp_path)
    with browse(tmp_path) as client:
        (link,) = look(client, f"/r/{found.id}/receipts").find("a", href=f"/r/{found.id}/receipts/weeks/1")
        same = look(client, link.attributes["href"])
        (tmp_path / "weeks.txt").write_text("another text")
        changed = look(client, link.attributes["href"])
        (download,) = [one for one in changed.find("a") if "download" in one.attributes]
        content = client.get(download.attributes["href"]).text
        (tmp_path / "weeks.txt").unlink()
        missing = look(client, link.attributes["href"])
        unknown = client.get(f"/r/{found.id}/receipts/weeks/x").status_code

    assert same.find("td", **{"class": "v-same"})
    assert changed.find("td", **{"class": "v-changed"})
    assert content == "another text"
    assert missing.find("td", **{"class": "v-missing"})
    assert not [one for one in missing.find("a") if "download" in one.attributes]
    assert unknown == 404


def test_two_snapshots_are_compared_by_files_and_by_lines_that_can_still_be_had(tmp_path: Path) -> None:
    found = restore("pipeline", tmp_path)
    with browse(tmp_path) as client:
        page = look(client, f"/r/{found.id}/snapshots")
        chosen = {
            one.attributes["name"]: one.attributes["value"]
            for one in page.find("input", type="radio", checked="")
        }
        compared = look(client, f"/r/{found.id}/snapshots?{urlencode(chosen)}")
        unknown = client.get(f"/r/{found.id}/snapshots?a=snap-000000000000&b=../x").status_code

    assert chosen == {"a": "snap-e94d6745a5a7", "b": "snap-026019feae98"}
    assert "1 file differs" in compared.text
    assert compared.find("span", **{"class": "source-line plus"})
    assert unknown == 404


# Patterns.

NASTY = "</title><script>alert(1)</script>"


def track(store: LineageStore, pattern: str, *parents: str, **members: object) -> None:
    """Record a pattern."""
    code = {"code": f"def {pattern}():\n    return 1\n"}
    event = {"event_type": "pattern_created", "pattern_id": pattern, "pattern_name": f"name of {pattern}"}
    store.track({**event, "parent_pattern_ids": list(parents), "pattern_data": code, **members})


def test_without_a_lineage_database_the_page_of_patterns_says_how_to_begin(tmp_path: Path) -> None:
    with browse(tmp_path) as client:
        page = look(client, "/patterns")

    assert "bartack lineage serve" in page.text


@pytest.mark.requirement("web-draws-lineage")
def test_patterns_are_found_drawn_and_compared(tmp_path: Path, own_home: Path) -> None:
    with LineageStore(own_home / "lineage.db") as store:
        track(store, "top", "lost/one")
        track(store, "bottom", "top", pattern_name=NASTY)
        later = {
            "pattern_version": "1.1.0",
            "parent_versions": ["1.0.0"],
            "pattern_data": {"code": "def bottom():\n    return 2\n"},
        }
        track(store, "bottom", "bottom", event_type="pattern_modified", **later)
    with browse(tmp_path) as client:
        found = look(client, "/patterns?q=top")
        orphans = look(client, "/patterns?orphans=true")
        page = look(client, "/patterns/bottom")
        near = look(client, "/patterns/bottom?depth=1")
        stub = look(client, "/patterns/lost/one")
        sides = look(client, "/patterns/bottom?version=1.1.0&other=1.0.0")
        unknown = client.get("/patterns/nothing").status_code

    assert found.find("a", href="/patterns/top?version=1.0.0")
    links = [one.attributes["href"] for one in orphans.find("a") if "version=" in one.attributes["href"]]
    assert [link.partition("?")[0] for link in links] == ["/patterns/top", "/patterns/lost/one"]
    assert len(page.find("rect")) == 4
    assert len(near.find("rect")) == 2
    assert stub.find("g", **{"class": "box root stub"})
    assert NASTY in page.text
    assert len(sides.find("td", **{"class": "minus"})) == len(sides.find("td", **{"class": "plus"})) == 1
    assert unknown == 404


# Time travel.


@pytest.mark.requirement("web-travels-in-time")
def test_the_page_of_a_run_leads_to_the_entries_and_marks_around_the_one_that_is_shown(
    tmp_path: Path,
) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        run.write(e.WorkerCrashed(path="main", incarnation=1, reason="killed"))
        mark = run.seq
        for number in (1, 2, 3):
            run.write(started(number))
            run.write(finished(number))
        middle = run.seq - 3
        past = look(client, f"{BASE}?at={middle}")
        live = look(client, BASE)

    ways = {
        one.attributes["data-travel"]: one.attributes["href"]
        for one in past.find("a")
        if "data-travel" in one.attributes
    }
    assert ways == {
        "mark-before": f"{BASE}?at={mark}",
        "back": f"{BASE}?at={middle - 1}",
        "on": f"{BASE}?at={middle + 1}",
        "live": BASE,
    }
    assert not [one for one in live.find("a") if one.attributes.get("data-travel") in {"on", "live"}]


@pytest.mark.requirement("web-forks-at-an-entry")
def test_the_form_of_a_past_entry_names_the_step_and_forks_there(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        run.begin(origin=mark_of(run.run))
        run.write(started(1, about="git status"))
        run.write(finished(1))
        place = run.write(started(2, about="git push"))
        run.write(finished(2))
        run.mirror()
    with browse(tmp_path) as client:
        early = look(client, f"{BASE}?at=4")
        page = look(client, f"{BASE}?at={place}")
        action = f"{BASE}/fork"
        fields = {
            one.attributes["name"]: one.attributes["value"] for one in page.find("input", type="hidden")
        }
        answer = client.post(action, data=fields)
        fork = look(client, answer.headers["location"])

    assert not early.find("form", action=action)
    assert "git status" in page.text
    assert "Files are not rolled back." in page.text
    assert answer.status_code == 303
    assert fork.find("section", id="head")[0].attributes["data-last"] == str(place - 1)


@pytest.mark.requirement("web-follows-through-damage")
@pytest.mark.parametrize("is_gone", [True, False], ids=["missing", "changed"])
def test_a_large_value_that_is_lost_is_missing_from_its_place_only(tmp_path: Path, *, is_gone: bool) -> None:
    large = "x" * 100_000
    # The key that hubs give a call is known without its outcome.
    key = step_key(RUN, "main", 3, 0)

    async def check() -> None:
        with written_run(tmp_path) as writer:
            writer.begin(MAIN)
            writer.write(started(1), value={"argv": [large, "asked"]})
            writer.write(finished(1), value={"argv": [], "status": 0, "stdout": large})
            writer.write(e.OutputWritten(p="main", n=2, channel="print"), value=large)
            writer.write(started(3, step="think"), value={"prompt": large, "name": "n", "agent": "ann"})
            writer.write(finished(3, step="think"), value={"key": key, "agent": "ann", "text": large})
            writer.write(e.LetterAdded(message="m-9", mailbox="results", reason="timeout"), value=[large])
            writer.write(started(4, step="ask", question="q1", about="Which?"), value={"question": large})
            writer.mirror()
            for blob in (writer.run.path / "blobs").rglob("*"):
                if blob.is_file() and is_gone:
                    blob.unlink()
                elif blob.is_file():
                    blob.chmod(0o600)
                    blob.write_bytes(b"{}")
            code = "BT211" if is_gone else "BT212"
            async with (
                serve(make_site(tmp_path)) as served,
                served.stream(f"/api/v1/runs/{RUN}/events?view=overview") as reader,
            ):
                await reader.named("hello")
                moment = (await served.get(f"/api/v1/runs/{RUN}")).json
                assert moment.get("state", "current") == "current"
                for path in RUN_PAGES.values():
                    page = await served.get(f"/r/{RUN}{path.replace(pages.KEY, key)}")
                    assert page.status == 200, (path, page.body)
                step = (await served.get(f"/api/v1/runs/{RUN}/step?p=main&n=1")).json
                assert step["asked"]["problem"]["code"] == step["value"]["problem"]["code"] == code
                assert step["value"]["size"] > 100_000
                assert code in (await served.get(f"/r/{RUN}/step?p=main&n=1")).body.decode()
                (line,) = (
                    one
                    for one in (await served.get(f"/api/v1/runs/{RUN}/log")).json["lines"]
                    if one.get("channel") == "print"
                )
                assert code in line["text"]
                value = await served.get(f"/api/v1/runs/{RUN}/value/{step['entries'][0]}")
                assert value.json["error"]["code"] == code
                writer.write(started(5, about="after it"))
                assert "after it" in str((await reader.named("parts")).data)

    run(check)
