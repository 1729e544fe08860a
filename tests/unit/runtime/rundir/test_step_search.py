"""One step that is searched for is the step that reading everything finds."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from bartack import Context, ShellResult, step, worker
from bartack.errors import JournalCorruptError, ShellError
from bartack.journal import Draft, Entry, open_journal, open_reader
from bartack.runtime.client.manage import SKIPPED
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.step_search import find_step
from bartack.runtime.state.timeline import Timeline
from bartack.testing import ScriptedAgent, TestRun, start_worker


@step
def double(number: int) -> int:
    return number * 2


@worker
async def child(ctx: Context, text: str) -> str:
    await ctx.mailbox.box.send({"p": "team", "n": 1, "text": text})
    return text


async def branch(ctx: Context, number: int) -> int:
    await ctx.sleep(number)
    return await double(number)


@worker
async def team(ctx: Context, turn: int = 1) -> str:
    """Something of each kind of step, with a failure, a rewind and a new history."""

    async def look(where: str) -> str:
        ctx.log(where)
        return str(await double(len(where)))

    ctx.print("begin")
    await ctx.gather(branch(ctx, 1), branch(ctx, 2), ctx.shell("beside"), return_soon(ctx))
    await ctx.delegate([child("a"), child("b")])
    taken = await ctx.mailbox.box.receive(0)
    try:
        await ctx.shell("fails")
    except ShellError:
        await ctx.mailbox.box.send(taken)
    reply = await ctx.think("Look around.", tools=[look])
    if turn == 1:
        await ctx.restart(2)
    await ctx.shell("sometimes")
    return reply


async def return_soon(ctx: Context) -> None:
    await ctx.now()


def played() -> TestRun[str]:
    """A run of it that fails, is killed, resumed, and ends."""
    tries = iter([1, 0])

    def commands(words: list[str]) -> ShellResult:
        status = {"fails": 1, "beside": 0}.get(words[0])
        return ShellResult(words, next(tries) if status is None else status, "out", "")

    rule = {"pattern": "", "text": "seen", "call": [{"tool": "look", "arguments": {"where": "x"}}]}
    agent = ScriptedAgent([rule, rule])
    with start_worker(team(), shell=commands, agent=agent) as run:
        assert run.finish().status == "failed"
        run.resume()
        assert run.finish().status == "completed"
        return run


def write(entries: list[Entry], place: Path) -> RunDir:
    """The same journal in a file, each commit as one line."""
    journal = open_journal(place, durability="process")
    with journal:
        for _, together in groupby(entries[1:], lambda entry: entry.commit):
            journal.stage(*map(draft, together))
            journal.commit()
    return RunDir(place)


def draft(entry: Entry) -> Draft:
    kind = SKIPPED if entry.kind.startswith("journal.") else entry.kind
    return Draft(kind, entry.data, None if entry.value is None else bytes(entry.value), entry.ref)


def test_a_step_that_is_searched_for_is_the_one_that_reading_everything_finds(tmp_path: Path) -> None:
    run = write(played().journal, tmp_path)
    whole = Timeline()
    with open_reader(run.path) as reader:
        whole.add_all(reader.read())
    names = {record.name for record in whole.steps}
    assert len(names) > 30
    assert {"undone", "failed", "finished"} <= {record.status for record in whole.steps}

    for name in names:
        path, _, number = name.rpartition(":")
        found = find_step(run, name, large=0)

        assert found.step == whole.step(path, int(number)), name
        assert found == find_step(run, name), name


def test_a_step_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    run = write(played().journal, tmp_path)

    assert find_step(run, "team:4711", large=0).step is None
    assert find_step(run, "nonsense", large=0).step is None


@pytest.mark.parametrize("byte", [b"x", b"\n"])
def test_a_damaged_line_is_not_shown(tmp_path: Path, byte: bytes) -> None:
    run = write(played().journal, tmp_path)
    text = (run.path / "journal.ndjson").read_bytes()
    place = text.index(b'"begin"')
    (run.path / "journal.ndjson").write_bytes(text[:place] + byte + text[place + 1 :])

    with pytest.raises(JournalCorruptError):
        find_step(run, "team:1", large=0)
