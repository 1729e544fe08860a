"""Streams of events: what they send, how often, and what becomes of a reader that is slow, of a run that changes under them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import TextIO
from zlib import crc32

import pytest
from tests.web.journals import RUN, Writer, finished, started, written_run
from tests.web.live import Event, run, serve, until
from tests.web.sites import make_site

from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.state import entries as e
from bartack.web.following import _follow
from bartack.web.streams import _sse

EVENTS = f"/api/v1/runs/{RUN}/events"


def parts_of(event: Event) -> dict[str, str]:
    return dict(event.data.get("set", []))


@pytest.mark.requirement("web-events-are-the-changes")
def test_a_stream_begins_with_hello_and_sends_bars_and_parts_that_changed(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, served.stream(EVENTS) as reader:
                hello = await reader.next()
                assert (hello.name, hello.id, hello.data["seq"]) == ("hello", 4, 4)

                writer.write(started(1, about="pytest -q"))
                parts = await reader.next()
                assert (parts.name, parts.id, parts.data["seq"]) == ("parts", 4, 5), "bars are missing yet"
                assert set(parts_of(parts)) == {"head", "w0", "o0", "travel"}
                assert "pytest -q" in parts_of(parts)["o0"]
                assert "Fork here" not in parts_of(parts)["travel"]
                bars = await reader.next()
                assert (bars.name, bars.id) == ("bars", 5)
                assert bars.data["open"][0][:3] == [0, 0, 0]
                assert (bars.data["kinds"], bars.data["lanes"]) == (["shell"], [[0, "main", "main"]])

                writer.write(finished(1), value={"status": 0})
                parts = await reader.next()
                assert parts.data["gone"] == ["o0"]
                assert "(entry 6)" in parts_of(parts)["travel"]
                bars = await reader.next()
                assert [bar[0] for bar in bars.data["close"]] == [0]
                assert bars.data["close"][0][2] == "finished"
                assert "kinds" not in bars.data

                writer.write(started(2, step="ask", question="q1"), value={"question": "Which?"})
                writer.write(started(3, about="make"))
                parts = await reader.until(lambda found: found.name == "parts" and found.data["seq"] == 8)
                assert f'href="/r/{RUN}?at=7" data-travel="mark-before"' in parts_of(parts)["travel"]
                assert 'max="8"' in parts_of(parts)["travel"]

    run(look)


@pytest.mark.requirement("web-events-are-the-changes")
def test_a_page_that_comes_back_gets_what_changed_since(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.write(started(1))
            seen = writer.seq
            writer.write(finished(1))
            writer.write(started(2, about="second"))
            async with (
                serve(make_site(tmp_path)) as served,
                served.stream(f"{EVENTS}?since={seen}") as reader,
            ):
                assert (await reader.next()).data["seq"] == seen
                parts = await reader.next()
                assert {"o1", "w0"} <= set(parts_of(parts))
                assert parts.data["gone"] == ["o0"]
                bars = await reader.next()
                assert ([bar[0] for bar in bars.data["open"]], [bar[0] for bar in bars.data["close"]]) == (
                    [1],
                    [0],
                )

    run(look)


@pytest.mark.requirement("web-events-are-the-changes")
def test_a_page_that_lost_the_rest_of_a_frame_gets_all_of_it_again(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served:
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    writer.write(started(1, about="pytest -q"))
                    first = await reader.next()  # the connection breaks after it
                async with served.stream(f"{EVENTS}?since={first.id}") as reader:
                    await reader.next()
                    again, bars = await reader.next(), await reader.next()
                    assert set(parts_of(again)) >= set(parts_of(first))
                    assert [bar[0] for bar in bars.data["open"]] == [0]

    run(look)


@pytest.mark.requirement("web-events-are-bounded")
def test_the_first_change_goes_out_at_once_and_others_are_gathered(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, served.stream(EVENTS) as reader:
                await reader.next()
                loop = asyncio.get_running_loop()
                first: list[float] = []
                last = 0
                async with asyncio.TaskGroup() as tasks:
                    writing = tasks.create_task(_write_steps(writer, 60))
                    while last < 60:
                        event = await reader.named("bars")
                        first.append(loop.time())
                        last += len(event.data.get("close", []))
                    await writing
                gaps = [after - before for before, after in pairwise(first)]
                assert len(first) < 30, "events are gathered"
                assert min(gaps) > _follow.FRAME_S * 0.5

    run(look)


async def _write_steps(writer: Writer, count: int) -> None:
    for n in range(1, count + 1):
        writer.write(started(n))
        writer.write(finished(n))
        await asyncio.sleep(0.01)


@pytest.mark.requirement("web-events-are-bounded")
def test_a_frame_that_would_be_too_large_is_a_reset(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for n in range(1, 3000):
                writer.journal.stage(e.draft(started(n)))
            writer.journal.commit()
            async with serve(make_site(tmp_path)) as served, served.stream(f"{EVENTS}?since=4") as reader:
                assert (await reader.next()).data["seq"] == 4
                reset = await reader.next()
                assert (reset.name, reset.data, reset.id) == ("reset", {"why": "behind"}, writer.seq)
                writer.write(finished(1))
                assert (await reader.named("bars")).data["close"][0][0] == 0
                assert max(map(len, reader.raw)) < _sse.MOST_BYTES

    run(look)


@pytest.mark.requirement("web-events-are-bounded")
def test_a_reader_that_was_slow_gets_a_reset_and_nothing_is_kept_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sse, "FULL_S", 0.2)

    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, served.stream(EVENTS) as reader:
                await reader.next()
                reader.pause()
                writer.write(started(1))
                await _passed(0.5)
                for n in range(2, 200):
                    writer.write(started(n))
                reader.go_on()
                before = await reader.named("bars")  # what was being sent when the reader stopped
                assert len(before.data["open"]) == 1
                reset = await reader.named("reset")
                assert reset.data == {"why": "behind"}
                assert sum(len(data) for data in reader.raw) < _sse.MOST_BYTES

    run(look)


async def _passed(seconds: float) -> None:
    """Let time pass, by which a reader is slow."""
    await asyncio.sleep(seconds)


def test_a_quiet_stream_gets_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sse, "COMMENT_S", 0.05)

    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, served.stream(EVENTS) as reader:
                await reader.next()
                await until(lambda: reader.comments >= 3)

    run(look)


def test_a_stream_ends_when_its_reader_leaves_and_when_its_session_ends(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served:
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    followed = served.site.followers.look_at(writer.run)
                    assert followed.has_listeners
                await until(lambda: not followed.has_listeners)
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    served.session.ended.set()
                    await reader.end()

    run(look)


def test_a_session_has_a_limited_number_of_streams(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, AsyncExitStack() as stack:
                for _ in range(16):
                    reader = await stack.enter_async_context(served.stream(EVENTS))
                    await reader.next()
                answer = await served.get(EVENTS)
                assert answer.status == 503
                assert answer.json["error"]["code"].startswith("BT")

    run(look)


# What becomes of the run.


@pytest.mark.requirement("web-follows-through-damage")
def test_a_run_that_is_over_ends_its_stream(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served, served.stream(EVENTS) as reader:
                await reader.next()
                writer.write(e.WorkerEnded(path="main"), e.RunEnded(status="completed"))
                assert (await reader.named("over")).data == {"status": "completed"}
                await reader.end()

    run(look)


@pytest.mark.requirement("web-follows-through-damage")
def test_a_run_that_is_deleted_while_it_is_watched_is_over_and_then_gone(tmp_path: Path) -> None:
    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            with written_run(tmp_path) as writer:
                writer.begin()
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    shutil.rmtree(writer.run.path)
                    assert (await reader.named("over")).data == {"status": "deleted"}
                    answer = await served.get(f"/api/v1/runs/{RUN}")
                    assert answer.status == 410, answer.body
                    assert answer.json["error"]["code"].startswith("BT2")

    run(look)


@pytest.mark.requirement("web-follows-through-damage")
def test_a_journal_that_is_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            with written_run(tmp_path) as writer:
                writer.begin()
                before = writer.file.read_bytes()
                writer.write(started(1))
            async with served.stream(EVENTS) as reader:
                assert (await reader.next()).data["seq"] == 5
                # A power cut took the last commit back.
                os.truncate(writer.file, len(before))
                reset = await reader.named("reset")
                assert (reset.data, reset.id) == ({"why": "journal"}, 4)
                assert (await served.get(f"/api/v1/runs/{RUN}")).json["last_seq"] == 4

    run(look)


@pytest.mark.requirement("web-follows-through-damage")
def test_a_changed_byte_is_a_state_of_the_run_and_what_was_before_it_is_shown(tmp_path: Path) -> None:
    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            with written_run(tmp_path) as writer:
                writer.begin()
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    writer.write(started(1))
                    await reader.named("parts")
                    end = writer.file.stat().st_size
                    for n in range(2, 9):
                        writer.write(started(n, about="second"))
                    _damage(writer.file, end + 60)
                    await reader.until(lambda found: "damaged" in parts_of(found).get("head", ""))
                    moment = (await served.get(f"/api/v1/runs/{RUN}")).json
                    assert moment["state"] == "damaged"
                    assert str(end) in moment["problem"]["message"]
                    assert moment["problem"]["code"] == "BT201"
                    entries = (await served.get(f"/api/v1/runs/{RUN}/entries?from=1")).json
                    assert [one["seq"] for one in entries["entries"]] == [1, 2, 3, 4, 5]

    run(look)


def _damage(journal: Path, offset: int) -> None:
    """Change a byte, and the moment of the file with it, before anything else is read."""
    with open(journal, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.requirement("web-follows-through-damage")
def test_a_run_that_is_resumed_while_it_is_watched_goes_on(tmp_path: Path) -> None:
    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            with written_run(tmp_path) as writer:
                writer.begin()
                error = ErrorData(type="builtins:ValueError", message="no")
                failed = e.StepFailed(p="main", n=1, step="shell", fp="f", error=error)
                async with served.stream(EVENTS) as reader:
                    await reader.next()
                    writer.write(started(1), failed)
                    at = writer.seq
                    writer.write(
                        e.WorkerEnded(path="main", error=error, origin=("main", 1)),
                        e.FailureRecorded(worker="main", error=error, p="main", n=1),
                        e.RunEnded(status="failed"),
                    )
                    await reader.until(lambda found: "failure" in parts_of(found))
                    writer.write(e.HubStarted(hub=2), e.WorkerRewound(path="main", to=at))
                    assert (await reader.named("reset")).data == {"why": "journal"}
                    writer.write(started(1), finished(1))
                    await reader.named("bars")
                    moment = (await served.get(f"/api/v1/runs/{RUN}")).json
                    assert moment.get("failure") is None
                    assert moment["hub"]["number"] == 2

    run(look)


def test_a_journal_of_a_newer_format_is_a_state(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
        raw = writer.file.read_bytes().replace(b'"format":1', b'"format":9', 1)
        head, rest = raw.split(b"\n", 1)
        body = head[: head.rindex(b',"crc":')]
        sealed = body + b',"crc":"%08x"}' % crc32(body)
        writer.file.write_bytes(sealed + b"\n" + rest)
        async with serve(make_site(tmp_path)) as served:
            answer = await served.get(f"/api/v1/runs/{RUN}")
            assert answer.status == 200, answer.body
            assert answer.json["state"] == "newer", answer.json["problem"]
            assert answer.json["problem"]["code"] == "BT207"
            steps = await served.get(f"/api/v1/runs/{RUN}/steps")
            assert steps.status == 503

    run(look)


# Lists, steps and calls.


@pytest.mark.requirement("web-events-are-the-changes")
def test_the_list_of_runs_is_live(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as first:
            first.begin()
            async with serve(make_site(tmp_path)) as served, served.stream("/api/v1/events") as reader:
                assert (await reader.next()).name == "hello"
                await until(served.site.runs.now)
                with written_run(tmp_path, "run-20261118-101011-0123abce") as second:
                    second.begin()
                    found = await reader.named("parts")
                    assert set(parts_of(found)) == {"filters", "r2"}
                    shutil.rmtree(first.run.path)
                    assert (await reader.until(lambda one: bool(one.data.get("gone")))).data["gone"] == ["r1"]

    run(look)


@pytest.mark.requirement("web-events-are-the-changes")
def test_rows_of_steps_that_fit_are_sent_to_a_table(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            path = f"{EVENTS}?view=steps&kind=shell"
            async with serve(make_site(tmp_path)) as served, served.stream(path) as reader:
                await reader.next()
                writer.write(started(1), started(2, step="sleep"))
                parts = await reader.until(lambda one: "s0" in parts_of(one))
                assert list(parts_of(parts)) == ["s0"]

    run(look)


@pytest.mark.requirement("web-events-are-the-changes")
def test_lines_of_a_call_come_as_the_agent_writes_them(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.write(started(1, step="think"), value={"prompt": "do it", "name": "x", "agent": "ann"})
            async with serve(make_site(tmp_path)) as served:
                (call,) = (await served.get(f"/api/v1/runs/{RUN}/talk")).json["calls"]
                folder = writer.run.agents / "ann"
                folder.mkdir(parents=True)
                with (folder / "transcript.ndjson").open("a") as file:
                    _say(file, call["key"], 1, "first")
                    path = f"{EVENTS}?view=talk&talk={call['key']}&after=1"
                    async with served.stream(path) as reader:
                        await reader.next()
                        _say(file, call["key"], 2, "second\r\ndata: {}\n\n")
                        _say(file, "ik:other", 1, "not this one")
                        found = await reader.named("talk")
                        assert [(line["n"], line["text"]) for line in found.data["lines"]] == [
                            (2, "second\r\ndata: {}\n\n")
                        ]

    run(look)


def _say(file: TextIO, key: str, n: int, text: str) -> None:
    line = {"event": "agent.text", "key": key, "at": "2026-11-18T10:10:10Z", "n": n, "text": text}
    file.write(json.dumps(line) + "\n")
    file.flush()
