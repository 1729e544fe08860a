"""Workers to be measured. Times are taken inside them: that is what a program waits for."""

from __future__ import annotations

import os
import signal
import time

from bartack import Context, step, worker


@step
def do_nothing(number: int) -> int:
    """A step that costs nothing by itself."""
    return number


@worker
async def sequential(ctx: Context, count: int) -> float:
    """Seconds for steps one after the other."""
    await do_nothing(0)
    began = time.perf_counter()
    for number in range(count):
        await do_nothing(number)
    return time.perf_counter() - began


async def _branch(count: int) -> None:
    for number in range(count):
        await do_nothing(number)


@worker
async def branches(ctx: Context, many: int, count: int) -> float:
    """Seconds for branches of one worker, each with steps one after the other."""
    began = time.perf_counter()
    await ctx.gather(*[_branch(count) for _ in range(many)])
    return time.perf_counter() - began


@worker
async def member(ctx: Context, count: int) -> tuple[float, float]:
    """When its steps began and ended."""
    await ctx.mailbox.ready.send(None)
    await ctx.mailbox[f"go-{ctx.path.rpartition('.')[2].partition(':')[0]}"].receive(120)
    began = time.monotonic()
    for number in range(count):
        await do_nothing(number)
    return began, time.monotonic()


@worker
async def starter(ctx: Context, many: int) -> None:
    """Lets all workers start at once."""
    for _ in range(many):
        await ctx.mailbox.ready.receive(120)
    for number in range(1, many + 1):
        await ctx.mailbox[f"go-{number}"].send(None)


@worker
async def processes(ctx: Context, many: int, count: int) -> float:
    """Seconds from the first step to the last of workers in processes of their own."""
    await ctx.spawn(starter(many))
    spans = await ctx.delegate([member(count) for _ in range(many)])
    return max(span[1] for span in spans) - min(span[0] for span in spans)


@worker
async def echo(ctx: Context, count: int) -> None:
    """Sends back what it receives."""
    for _ in range(count):
        await ctx.mailbox.back.send(await ctx.mailbox.out.receive(60))


@worker
async def caller(ctx: Context, count: int) -> list[float]:
    """Seconds of each round trip."""
    times: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await ctx.mailbox.out.send(number)
        await ctx.mailbox.back.receive(60)
        times.append(time.perf_counter() - began)
    return times


@worker
async def round_trips(ctx: Context, count: int) -> list[float]:
    """Two workers, one message to and fro at a time."""
    times, _ = await ctx.delegate((caller(count), echo(count)))
    return times


@worker
async def producer(ctx: Context, count: int) -> tuple[float, float, float]:
    """When it began and ended, and its worst send."""
    worst = 0.0
    first = time.monotonic()
    for number in range(count):
        began = time.monotonic()
        await ctx.mailbox.crowd.send(number)
        worst = max(worst, time.monotonic() - began)
    return first, time.monotonic(), worst


@worker
async def consumer(ctx: Context, count: int) -> None:
    """Takes what is there."""
    taken = 0
    while taken < count:
        await ctx.mailbox.crowd.receive(60)
        taken += 1 + len(await ctx.mailbox.crowd.drain())


@worker
async def crowd(ctx: Context, many: int, count: int) -> tuple[float, float]:
    """Messages per second of producers together, and the worst send."""
    await ctx.spawn(consumer(many * count))
    spans = await ctx.delegate([producer(count) for _ in range(many)])
    seconds = max(span[1] for span in spans) - min(span[0] for span in spans)
    return many * count / seconds, max(span[2] for span in spans)


@worker
async def trivial(ctx: Context) -> float:
    """When its first line ran."""
    return time.monotonic()


@worker
async def starts(ctx: Context, count: int) -> list[float]:
    """Seconds from asking for a worker to its first line."""
    times: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        times.append(await trivial() - began)
    return times


@worker
async def blocked(ctx: Context, number: int) -> None:
    """Waits for nothing; notes when it learns of the failure."""
    await ctx.mailbox.here.send(number)
    # Open before it counts: on two cores everything that one of them does keeps the others waiting.
    seen = os.open(f"seen-{number}", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        await ctx.mailbox.never.receive(600)
    finally:
        os.write(seen, str(time.monotonic()).encode())
        os.close(seen)


@worker
async def raiser(ctx: Context, many: int) -> None:
    """Raises when all other workers are blocked."""
    for _ in range(many):
        await ctx.mailbox.here.receive(60)
    with open("raised", "w") as file:  # noqa: ASYNC230 - the measurement
        file.write(str(time.monotonic()))
    raise RuntimeError("as measured")


@worker
async def failure(ctx: Context, many: int) -> None:
    """One fails, the others are blocked."""
    await ctx.delegate([*(blocked(number) for number in range(many)), raiser(many)])


@worker
async def long_history(ctx: Context, count: int) -> float:
    """Many steps, then a question: killed there, it has all of them to replay; then one new step."""
    for number in range(count):
        await do_nothing(number)
    await ctx.mailbox.wait.receive(600)
    await do_nothing(count)
    return time.monotonic()


@worker
async def plain_sends(ctx: Context, count: int) -> float:
    """Seconds for plain sends, one after the other."""
    box = ctx.mailbox.box
    await box.send(0)
    began = time.perf_counter()
    for number in range(count):
        await box.send({"number": number})
    return time.perf_counter() - began


@worker
async def supervised_sends(ctx: Context, count: int) -> float:
    """Seconds for supervised sends, one after the other."""
    box = ctx.mailbox.box
    await box.send_supervised(0)
    began = time.perf_counter()
    for number in range(count):
        await box.send_supervised({"number": number})
    return time.perf_counter() - began


@worker
async def broadcasts(ctx: Context, many: int, count: int) -> float:
    """Seconds for broadcasts to many mailboxes, one after the other."""
    names = [f"box-{number}" for number in range(many)]
    await ctx.broadcast(names, 0)
    began = time.perf_counter()
    for number in range(count):
        await ctx.broadcast(names, {"number": number})
    return time.perf_counter() - began


@worker
async def sends_to_many(ctx: Context, many: int, count: int) -> float:
    """Seconds for plain sends to many mailboxes, one after the other."""
    boxes = [ctx.mailbox[f"box-{number}"] for number in range(many)]
    began = time.perf_counter()
    for number in range(count):
        for box in boxes:
            await box.send({"number": number})
    return time.perf_counter() - began


@worker
async def victim(ctx: Context) -> None:
    """Records its process id and waits; its next process continues from there."""
    await ctx.mailbox.pid.send(await own_pid())
    await ctx.mailbox.enough.receive(60)


@step
def own_pid() -> int:
    """The process that this runs in."""
    return os.getpid()


@step
def kill(pid: int) -> int:
    """Kill a process; when, in microseconds since 1970."""
    now = time.time_ns() // 1000
    os.kill(pid, signal.SIGKILL)
    return now


@worker
async def death(ctx: Context) -> int:
    """When another worker's process was killed."""
    handle = await ctx.spawn(victim())
    killed = await kill(await ctx.mailbox.pid.receive(60, type=int))
    await ctx.sleep(0.2)
    await ctx.mailbox.enough.send(None)
    await handle
    return killed


@step
def moment() -> float:
    """When it was executed, by the clock that all processes share."""
    return time.monotonic()


@worker
async def living(ctx: Context) -> None:
    """Says that it is there, waits, and says so again."""
    await ctx.mailbox.here.send(None)
    await ctx.mailbox.go.receive(600)
    await ctx.mailbox.here.send(None)


@worker
async def conductor(ctx: Context, many: int) -> list[float]:
    """When all of them were there, and when all were there again; it waits in between."""
    moments: list[float] = []
    for again in (False, True):
        if again:
            await ctx.mailbox.wait.receive(600)
            for _ in range(many):
                await ctx.mailbox.go.send(None)
        for _ in range(many):
            await ctx.mailbox.here.receive(600)
        moments.append(await moment())
    return moments


@worker
async def all_living(ctx: Context, many: int) -> list[float]:
    """When many workers were asked for, when all of them waited, and when all had received something."""
    began = await moment()
    handle = await ctx.spawn(conductor(many))
    await ctx.delegate([living() for _ in range(many)])
    return [began, *await handle]


@worker
async def full_mailbox(ctx: Context, many: int, count: int) -> None:
    """Fills a mailbox while other workers wait, and waits with them."""
    handles = [await ctx.spawn(living()) for _ in range(many)]
    for _ in range(many):
        await ctx.mailbox.here.receive(600)
    for number in range(count):
        await ctx.mailbox.full.send({"number": number})
    await ctx.mailbox.wait.receive(600)
    for handle in handles:
        await handle


@worker
async def restarting(ctx: Context, count: int, done: int = 0) -> float:
    """As ``long_history``, with a new history after each thousand steps."""
    for number in range(min(1000, count - done)):
        await do_nothing(number)
    done = min(done + 1000, count)
    if done < count:
        await ctx.restart(count, done)
    await ctx.mailbox.wait.receive(600)
    await do_nothing(count)
    return time.monotonic()
