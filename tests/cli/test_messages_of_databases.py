"""Mailboxes, dead letters and sessions of a run in a database, from a machine that has never seen it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import new_database
from tests.waiting import until

from bartack import Run, Session
from bartack.runtime import AsyncRun, AsyncSession

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> object:
    await ctx.send_supervised("@nobody", "lost", retries=0, on_error="dead_letter")
    await ctx.send_supervised("@nobody", "gone", retries=0, on_error="dead_letter")
    await ctx.mailbox.news.subscribe("news.*")
    for number in range(3):
        await ctx.mailbox.out.send(f"ready {number}")
    await ctx.mailbox.calls.send("begins")
    return await ctx.mailbox.gate.receive(timeout_s=300)
"""


@pytest.fixture
def on(start: Start, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A database with an active run of another machine."""
    place = tmp_path / "there"
    place.mkdir()
    (place / "main.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(place)
    url = new_database()
    start("run", "--on", url, "--here", "main.py")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))

    def is_ready() -> bool:
        listed = call("mailbox", "peek", "latest", "calls", "--on", url)
        return listed.returncode == 0 and "begins" in listed.stdout

    until(is_ready, "the program to wait")
    return "--on", url


@pytest.mark.requirement("database-messages")
def test_commands_reach_mailboxes_and_dead_letters_of_an_active_run(
    call: Call, on: tuple[str, str], tmp_path: Path
) -> None:
    def done(*words: str) -> str:
        ended = call(*words, *on)
        assert ended.returncode == 0, (words, ended.stderr)
        return ended.stdout

    assert [
        line["value"]
        for line in map(json.loads, done("mailbox", "peek", "latest", "out", "--json").splitlines())
    ] == [f"ready {number}" for number in range(3)]
    assert "ready 0" in done("mailbox", "receive", "latest", "out", "--timeout", "30")
    assert "ready 0" not in done("mailbox", "peek", "latest", "out")
    done("mailbox", "publish", "latest", "news.today", '"extra"')
    assert "extra" in done("mailbox", "peek", "latest", "news")

    letters = [json.loads(line) for line in done("dlq", "list", "latest", "--json").splitlines()]
    assert len(letters) == 2
    first, second = (str(letter["id"]) for letter in letters)
    assert "@nobody" in done("dlq", "show", "latest", first)
    done("dlq", "export", "latest", "-o", "letters.ndjson")
    assert len(Path("letters.ndjson").read_text().splitlines()) == 2
    assert "rejected (no_receiver)" in call("dlq", "retry", "latest", first, *on).stdout, (
        "its receiver is not there yet"
    )
    assert "Removed 1 dead letter" in done("dlq", "purge", "latest", second, "--yes")
    assert second not in done("dlq", "list", "latest", "--json")

    done("mailbox", "send", "latest", "gate", '"open"')
    until(lambda: "completed" in call("status", "latest", *on).stdout, "the run to end")


@pytest.mark.requirement("database-messages")
def test_programs_reach_an_active_run(on: tuple[str, str]) -> None:
    url = on[1]
    (listed,) = Run.list(on=url)
    with Session.join("latest", on=url) as session:
        assert session.mailbox.out.receive(30) == "ready 0"
        session.mailbox.results.send("one")

    async def ask() -> str:
        (found,) = await AsyncRun.list(on=url)
        assert found.id == listed.id
        async with await AsyncSession.join(found.id, on=url) as joined:
            assert await joined.mailbox.out.receive(30) == "ready 1"
            assert await joined.mailbox.results.receive(30) == "one"
        opened = await AsyncRun.open("latest", on=url)
        await opened.send("gate", "open")
        return (await opened.wait(60)).status

    assert asyncio.run(ask()) == "completed"
    assert Run.open(listed.id, on=url).state().status == "completed"
