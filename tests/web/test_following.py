"""Followers: one for each run, shared; dropped when nobody reads, or for memory; read in slices while others are answered."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from bench._spans import write_long_run
from tests.web.journals import RUN, started, written_run
from tests.web.live import Reader, Served, run, serve, until
from tests.web.pages import Markup
from tests.web.sites import make_site

from bartack.runtime.rundir.layout import RunDir
from bartack.web.following import _follow
from bartack.web.following._follow import Followed, Followers
from bartack.web.following._memory import size_of_spans

OTHER = "run-20261118-101011-0123abce"


def long_run(workspace: Path, name: str, entries: int) -> RunDir:
    """A run with many entries."""
    place = workspace / ".bartack" / "runs"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.parent.chmod(0o700)
    write_long_run(str(place / name), entries)
    return RunDir(place / name)


@pytest.mark.requirement("web-followers-are-shared")
def test_all_readers_of_a_run_share_one_follower_which_is_dropped_after_the_last_left(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            site = make_site(tmp_path)
            site.followers = Followers(256, keep_s=0.3)
            async with serve(site) as served:
                path = f"/api/v1/runs/{RUN}/events"
                async with served.stream(path) as one, served.stream(path) as other:
                    await one.next()
                    await other.next()
                    followed = site.followers.find(writer.run)
                    assert followed is not None
                    await asyncio.sleep(0.5)
                    assert site.followers.find(writer.run) is followed, "it is read"
                assert site.followers.find(writer.run) is followed, "it stays for a moment"
                await until(lambda: site.followers.find(writer.run) is None)
                assert followed.follower.entry(1) is None, "the journal is closed"
                assert (await served.get(f"/api/v1/runs/{RUN}")).status == 200

    run(look)


@pytest.mark.requirement("web-memory-is-bounded")
def test_the_run_that_was_looked_at_least_recently_goes_first_when_memory_is_short(tmp_path: Path) -> None:
    async def look() -> None:
        runs = [long_run(tmp_path, f"run-20261118-10101{n}-0123abcd", 20_000) for n in range(3)]
        site = make_site(tmp_path)
        async with serve(site) as served:
            first = await _read(served, runs[0])
            size = size_of_spans(first.follower.spans)
            site.followers._most_bytes = int(size * 2.5)
            second = await _read(served, runs[1])
            await _read(served, runs[0])
            third = await _read(served, runs[2])
            await until(lambda: site.followers.find(runs[1]) is None)
            assert site.followers.find(runs[0]) is first
            assert site.followers.find(runs[2]) is third
            assert second.over == "memory"
            assert site.followers.size_bytes <= size * 2.5

    run(look)


async def _read(served: Served, place: RunDir) -> Followed:
    answer = await served.get(f"/api/v1/runs/{place.id}/steps")
    assert answer.status == 200, answer.body
    followed = served.site.followers.find(place)
    assert followed is not None
    await until(lambda: followed.size_bytes > 0)
    return followed


@pytest.mark.requirement("web-memory-is-bounded")
def test_a_stream_of_a_run_that_has_to_go_is_over(tmp_path: Path) -> None:
    async def look() -> None:
        runs = [long_run(tmp_path, f"run-20261118-10101{n}-0123abcd", 5_000) for n in range(2)]
        site = make_site(tmp_path)
        site.followers._most_bytes = 1
        async with serve(site) as served, AsyncExitStack() as stack:
            readers: list[Reader] = []
            for place in runs:
                readers.append(
                    await stack.enter_async_context(served.stream(f"/api/v1/runs/{place.id}/events"))
                )
                await readers[-1].named("hello")
            assert (await readers[0].named("over")).data == {"status": "memory"}
            assert site.followers.find(runs[1]) is not None, "one run stays, whatever it takes"

    run(look)


@pytest.mark.requirement("web-answers-while-reading")
def test_others_are_answered_while_a_long_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_follow, "SOON_BYTES", 0)

    async def look() -> None:
        long = long_run(tmp_path, OTHER, 20_000)
        with written_run(tmp_path) as writer:
            writer.begin()
            async with (
                serve(make_site(tmp_path)) as served,
                served.stream(f"/api/v1/runs/{long.id}/events") as reader,
            ):
                assert (await reader.next()).data["built"] < 1
                followed = served.site.followers.find(long)
                assert followed is not None
                answered = 0
                while followed.follower.built < 1 and answered < 5:
                    steps = await served.get(f"/api/v1/runs/{long.id}/steps")
                    head = await served.get(f"/api/v1/runs/{long.id}")
                    last = await served.get(f"/api/v1/runs/{long.id}/entries?limit=5")
                    pages = [await served.get(f"/r/{long.id}{path}") for path in ("", "/journal", "/steps")]
                    assert (await served.get(f"/api/v1/runs/{RUN}/steps")).status in {200, 503}
                    if followed.follower.built == 1:
                        break
                    assert steps.status == 503
                    assert steps.json["error"]["code"] == "BT1023"
                    assert head.json["state"] == "building"
                    assert 0 <= head.json["built"] <= 1
                    assert head.json["tail"][1] == last.json["entries"][-1]["seq"] == 20_000
                    for page in pages:
                        listed = Markup(page.body.decode())
                        listed.check()
                        assert "The journal is being read." in listed.text
                        shown = [
                            one.attributes["href"] for one in listed.find("a") if "title" in one.attributes
                        ]
                        assert shown == [f"/r/{long.id}?at={seq}" for seq in range(19_801, 20_001)]
                    answered += 1
                assert answered >= 3
                assert (await reader.named("reset")).data == {"why": "built"}
                assert (await served.get(f"/api/v1/runs/{long.id}/steps")).json["total"] > 10_000

    run(look)


@pytest.mark.requirement("web-answers-while-reading")
def test_long_journals_are_read_in_many_turns_of_the_loop(tmp_path: Path) -> None:
    async def look() -> None:
        runs = [long_run(tmp_path, f"run-20261118-10101{n}-0123abcd", 20_000) for n in range(3)]
        site = make_site(tmp_path)
        async with serve(site):
            all_followed = [site.followers.look_at(one) for one in runs]
            turns = 0
            while any(one.follower.state == "building" for one in all_followed):
                await asyncio.sleep(0)
                turns += 1
            assert turns > 20

    run(look)


@pytest.mark.requirement("web-events-are-bounded")
def test_the_descriptor_of_a_busy_run_is_not_left_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level-triggered reader that stays registered is called over and over while a run writes."""

    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with (
                serve(make_site(tmp_path)) as served,
                served.stream(f"/api/v1/runs/{RUN}/events") as reader,
            ):
                await reader.next()
                followed = served.site.followers.find(writer.run)
                assert followed is not None
                reads = 0
                whole = followed.follower.read

                def counted(slice_s: float = 0.01) -> bool:
                    nonlocal reads
                    reads += 1
                    return whole(slice_s)

                monkeypatch.setattr(followed.follower, "read", counted)
                loop = asyncio.get_running_loop()
                end = loop.time() + 1.0
                n = 0
                while loop.time() < end:
                    n += 1
                    writer.write(started(n))
                    await asyncio.sleep(0.002)
                assert n > 50
                assert 2 <= reads <= 15

    run(look)


def test_the_size_of_spans_grows_with_them(tmp_path: Path) -> None:
    small, large = (
        Followed(long_run(tmp_path, f"run-20261118-10101{n}-0123abcd", count), 0.0)
        for n, count in enumerate((5_000, 50_000))
    )
    for followed in (small, large):
        followed.follower.read_all()

    assert 3 < size_of_spans(large.follower.spans) / size_of_spans(small.follower.spans) < 12
    for followed in (small, large):
        followed.close()
