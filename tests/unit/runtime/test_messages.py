"""Messages of every size, and crowds of them: each arrives once, as it was sent."""

from __future__ import annotations

from random import Random

import pytest

from bartack import Context, worker
from bartack.errors import MessageTooLargeError
from bartack.journal.contract import INLINE_LIMIT
from bartack.messaging.mailboxes import MAX_MESSAGE
from bartack.testing import TestRun, run_worker

PRODUCERS, RECEIVERS, EACH, KILLS = 8, 3, 20, 12


@worker
async def producer(ctx: Context, mine: int) -> None:
    for number in range(EACH):
        await ctx.mailbox.crowd.send([mine, number])


@worker
async def receiver(ctx: Context) -> list[list[int]]:
    found: list[list[int]] = []
    while message := await ctx.mailbox.crowd.receive(600, type=list[int]):
        found.append(message)
    return found


@worker
async def crowd(ctx: Context) -> list[list[list[int]]]:
    handles = [await ctx.spawn(receiver()) for _ in range(RECEIVERS)]
    await ctx.delegate([producer(mine) for mine in range(PRODUCERS)])
    for _ in handles:
        await ctx.mailbox.crowd.send([])
    return [await handle for handle in handles]


def is_busy(run: TestRun[list[list[list[int]]]], path: str) -> bool:
    found = run._run.state.workers.get(path)
    return found is not None and not found.ended


@pytest.mark.requirement("messages-arrive-once")
@pytest.mark.parametrize("kills", [0, KILLS])
def test_many_senders_and_receivers_share_a_mailbox_whoever_is_killed(kills: int) -> None:
    random = Random(kills)
    with TestRun(crowd()) as run:
        run.start()
        for _ in range(kills):
            for _ in range(random.randrange(1, 2 * PRODUCERS * EACH // KILLS)):
                run.wait_for("message.*")
            victims = [path for path in run._run.state.workers if is_busy(run, path)]
            victim = random.choice([None, *victims])
            run.crash(victim)
            if victim is None:
                run.resume()
        run.finish()
        received = run.result

    everything = [message for messages in received for message in messages]
    assert sorted(everything) == [[mine, number] for mine in range(PRODUCERS) for number in range(EACH)]
    for messages in received:
        for mine in range(PRODUCERS):
            numbers = [number for sender, number in messages if sender == mine]
            assert numbers == sorted(numbers)


@worker
async def echo(ctx: Context, length: int) -> int:
    """Sends itself a text that takes so many bytes in JSON; returns how long it was when it came."""
    try:
        await ctx.inbox.send("x" * (length - 2))
    except MessageTooLargeError:
        return 0
    return len(str(await ctx.inbox.receive(0))) + 2


@pytest.mark.parametrize(
    ("length", "is_blob"),
    [
        (INLINE_LIMIT - 1, False),
        (INLINE_LIMIT, False),
        (INLINE_LIMIT + 1, True),
        (MAX_MESSAGE, True),
        (MAX_MESSAGE + 1, None),
    ],
)
def test_a_message_arrives_whole_up_to_the_limit(length: int, is_blob: bool | None) -> None:
    run = run_worker(echo(length))

    sent = [entry for entry in run.journal if entry.kind == "message.sent"]
    assert run.result == (0 if is_blob is None else length)
    assert [entry.ref is not None for entry in sent] == ([] if is_blob is None else [is_blob])


NAMES = [
    "k",
    "i",
    "p",
    "n",
    "d",
    "v",
    "a",
    "e",
    "ref",
    "body",
    "sha256",
    "size",
    "kind",
    "entries",
    "seq",
    "crc",
]


@worker
async def reflect(ctx: Context) -> list[object]:
    value = {
        "ref": {"sha256": "sha256:" + "0" * 64, "size": 100_000},
        "error": None,
        **dict.fromkeys(NAMES, 1),
    }
    await ctx.inbox.send(value)
    return [value, await ctx.inbox.receive(0)]


def test_a_message_may_have_keys_that_are_named_like_fields_of_ours() -> None:
    sent, received = run_worker(reflect()).result

    assert sent == received
