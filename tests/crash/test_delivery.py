"""Whoever is killed between any two entries of a delivery: what was promised is kept.

Each program is run once, then once for every line of its journal with the hub, the sender or the receiver killed there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from tests.crash.runs import Begin, Parts, kill

from bartack import Context, worker
from bartack.errors import BroadcastError, DeliveryError, ReceiveTimeoutError
from bartack.journal import Entry
from bartack.messaging import DeadLettered, Delivered, Rejected, SendOutcome, TimedOut
from bartack.messaging.outcome import is_success
from bartack.resilience import Backoff
from bartack.runtime import WorkerCall
from bartack.testing import TestRun, assert_survives_crashes, start_worker

QUICK = Backoff(base_s=0.5, cap_s=2.0)


def told(outcome: SendOutcome) -> str:
    """An outcome without what differs between runs: ids and times."""
    match outcome:
        case Delivered():
            return f"delivered {outcome.processed}"
        case DeadLettered():
            return f"dead {outcome.reason} {outcome.attempts}"
        case Rejected():
            return f"rejected {outcome.reason} {outcome.attempts}"
        case TimedOut():
            return f"timed out {outcome.stage} {outcome.attempts}"
        case _:
            return "accepted"


async def drain(ctx: Context, name: str) -> list[object]:
    """Everything that is in a mailbox, or comes within a while."""
    found: list[object] = []
    while True:
        try:
            found.append(await ctx.mailbox[name].receive(30))
        except ReceiveTimeoutError:
            return found


@worker
async def taker(ctx: Context, count: int) -> list[object]:
    """Receives some messages, with pauses."""
    found: list[object] = []
    for _ in range(count):
        await ctx.sleep(0.7)
        async with ctx.mailbox.box.delivery(60) as delivery:
            found.append(delivery.value)
    return found


@worker
async def giver(ctx: Context) -> list[str]:
    """Waits for each level, and gives up on one."""
    box = ctx.mailbox.box
    found = [told(await box.send_supervised("accepted"))]
    found.append(
        told(await box.send_supervised("delivered", ack="delivered", timeout_s=0.5, retries=9, backoff=QUICK))
    )
    found.append(told(await box.send_supervised("processed", ack="processed", timeout_s=5)))
    void = ctx.mailbox.void
    found.append(
        told(await void.send_supervised(1, ack="delivered", timeout_s=1, retries=2, on_error="ignore"))
    )
    found.append(
        told(await void.send_supervised(2, ack="delivered", timeout_s=1, retries=1, on_error="dead_letter"))
    )
    try:
        await ctx.send_supervised("@nobody", 3, retries=1)
    except DeliveryError as error:
        found.append(told(error.outcome) if isinstance(error.outcome, Rejected) else "something else")
    return found


@worker
async def levels(ctx: Context) -> object:
    """One sends, one receives."""
    return await ctx.delegate((giver(), taker(3)))


LEVELS = [
    [
        "accepted",
        "delivered False",
        "delivered True",
        "timed out accepted 3",
        "dead timeout 2",
        "rejected no_receiver 2",
    ],
    ["accepted", "delivered", "processed"],
]


@worker
async def caster(ctx: Context) -> list[object]:
    """Broadcasts to a full mailbox, to nobody, to everybody."""
    await ctx.mailbox.declare("b", capacity=1)
    await ctx.mailbox.b.send("in the way")
    found: list[object] = []
    first = await ctx.broadcast(["a", "b", "c"], "first", timeout_s=60)
    found.append([first.ok, first.succeeded])
    try:
        await ctx.broadcast(["a", "@nobody", "c"], "never", retries=1, backoff=QUICK)
    except BroadcastError as error:
        found.append(error.succeeded)
    second = await ctx.broadcast(["a", "c", "void"], "second", "quorum(2)", ack="delivered", timeout_s=60)
    found.append([second.ok, [is_success(copy.outcome) for copy in second.results][:2]])
    return found


@worker
async def listener(ctx: Context) -> list[object]:
    """Makes room after a while, then takes everything."""
    await ctx.sleep(3)
    found: list[object] = [await ctx.mailbox.b.receive(60)]
    found += [await ctx.mailbox[name].receive(60) for name in ("a", "b", "c", "a", "c")]
    return found


@worker
async def casts(ctx: Context) -> object:
    """One broadcasts, one listens; then nothing is left."""
    done = await ctx.delegate((caster(), listener()))
    return [done, await drain(ctx, "a"), await drain(ctx, "b"), await drain(ctx, "c")]


CASTS = [
    [
        [[True, 3], 0, [True, [True, True]]],
        ["in the way", "first", "first", "first", "second", "second"],
    ],
    [],
    [],
    [],
]


@worker
async def heir(ctx: Context) -> object:
    """Takes over the name of a worker that has ended, and with it the letter to that."""
    incarnation = await ctx.register("clerk")
    return [incarnation, await ctx.mailbox.clerk.receive(3600)]


@worker
async def ancestor(ctx: Context) -> int:
    """Has a name, and ends."""
    return await ctx.register("clerk")


@worker
async def letters(ctx: Context) -> object:
    """A dead letter finds the next worker of a name; a subscriber gets what is published."""
    first = await ancestor()
    lost = await ctx.send_supervised("clerk", "the will", retries=1, on_error="dead_letter")
    await ctx.inbox.subscribe("news.*")
    published = await ctx.publish("news.today", 1, "all_or_nothing")
    later = await ctx.mailbox.box.send("later", not_before=5)
    assert later
    return [
        first,
        told(lost),
        published.succeeded,
        await ctx.inbox.receive(0),
        await heir(),
        await ctx.mailbox.box.receive(60),
    ]


LETTERS = [1, "dead no_receiver 2", 1, 1, [2, "the will"], "later"]

PROGRAMS = pytest.mark.parametrize(
    ("make", "expected"),
    [(levels, LEVELS), (casts, CASTS), (letters, LETTERS)],
    ids=["levels", "casts", "letters"],
)


@PROGRAMS
@pytest.mark.requirement("deliveries-survive")
def test_the_hub_is_killed_behind_every_line(
    make: Callable[[], WorkerCall[object]], expected: object
) -> None:
    with start_worker(make()) as whole:
        assert whole.finish().result == expected

    assert assert_survives_crashes(make(), at="entries") > 10


@PROGRAMS
@pytest.mark.parametrize("role", [0, 1, 2], ids=["first", "second", "third"])
def test_a_worker_is_killed_behind_every_line(
    make: Callable[[], WorkerCall[object]], expected: object, role: int
) -> None:
    with start_worker(make()) as whole:
        whole.finish()
        lines = len(whole.lines)
    killed = 0
    for line in range(2, lines):
        with start_worker(make()) as run:
            killed += _kill_behind(run, line, role)
            assert run.finish().result == expected, f"killed behind line {line}"
            _check_copies(run.journal)

    assert killed > 5 or role == 2


def _kill_behind(run: TestRun[object], line: int, role: int) -> bool:
    """Let a run go on until its journal has so many lines, then kill one of its workers, if that lives."""
    memory = run._run
    while len(run.lines) < line and run.status == "running":
        assert memory.turn() or memory.pass_time()
    alive = list(memory.hub.core.processes.alive)
    if run.status != "running" or role >= len(alive):
        return False
    run.crash(alive[role])
    return True


def _check_copies(entries: list[Entry]) -> None:
    """No message was put into a mailbox twice, and nothing that was withdrawn was received."""
    sent = [str(entry.data["id"]) for entry in entries if entry.kind == "message.sent"]
    assert len(sent) == len(set(sent))
    gone = {
        str(entry.data["id"])
        for entry in entries
        if entry.kind == "message.moved" and entry.data["to"] == "withdrawn"
    }
    taken = [str(entry.data["id"]) for entry in entries if entry.kind == "message.taken"]
    assert not gone & set(taken)


@worker
async def published(ctx: Context) -> list[object]:
    """Publishes to three mailboxes at once."""
    for name in ("a", "b", "c"):
        await ctx.mailbox[name].subscribe("news.*")
        await ctx.mailbox[name].subscribe("**")
    result = await ctx.publish("news.today", "first", "all_or_nothing")
    copies = [await ctx.mailbox[name].drain() for name in ("a", "b", "c")]
    return [result.succeeded, *copies]


@pytest.mark.requirement("all-or-nothing")
def test_what_is_published_to_all_arrives_once_wherever_the_hub_is_killed() -> None:
    with start_worker(published()) as whole:
        assert whole.finish().result == [3, ["first"], ["first"], ["first"]]
    assert assert_survives_crashes(published(), at="entries") > 10


@pytest.mark.requirement("all-or-nothing")
@pytest.mark.parametrize("make", [casts, published])
def test_nobody_ever_sees_half_of_a_broadcast_to_all(make: Callable[[], WorkerCall[object]]) -> None:
    with start_worker(make()) as whole:
        whole.finish()
        journal, lines = whole.journal, whole.lines
    # Whatever prefix of whole lines survives: the copies of a broadcast are all there, or none is.
    for end in lines:
        copies = [
            str(entry.data["mailbox"])
            for entry in journal[:end]
            if entry.kind == "message.sent" and entry.value is not None and bytes(entry.value) == b'"first"'
        ]
        assert sorted(copies) in ([], ["a", "b", "c"])


# Real processes.

TIMES = 8


def victims(victim: str, parts: Parts) -> list[int]:
    if victim == "zygote":
        return [parts.zygote]
    return [pid for path, pid in parts.workers.items() if path.endswith(victim)]


def is_there(victim: str, parts: Parts) -> bool:
    return any(victims(victim, parts))


@pytest.mark.requirement("deliveries-survive")
@pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")
def test_real_processes_are_killed_while_they_deliver(begin: Begin) -> None:
    run = begin("delivering", TIMES)
    random = Random(4)
    run.start()
    for victim in ("hub", "delivering", "clerk", "zygote"):
        # Each time a few deliveries further, and never behind the last.
        last = run.last_seq()
        run.api.send("go", victim)
        run.wait_entry(lambda entry: entry.kind == "message.sent", last + random.randrange(2, 16))
        if victim == "hub":
            run.kill_hub()
            run.start()
        else:
            kill(victims(victim, run.wait_parts(partial(is_there, victim)))[0])
    assert run.wait_hub() == 0

    first, second, downs, rest = run.api.result(list[list[str]])
    for place, seen in enumerate((first, second)):
        assert [value for value in seen if value[0] == "s"] == [f"s{n}" for n in range(place, TIMES, 2)]
        for kind in "bp":
            assert [value for value in seen if value[0] == kind] == [f"{kind}{n}" for n in range(TIMES)]
    assert (downs, rest) == (["normal", "normal"], [])
    letters = run.api.dead_letters
    kept = [letters.value(letter.id) for letter in letters.list_messages().letters]
    assert kept == [f"d{n}" for n in range(TIMES)]
