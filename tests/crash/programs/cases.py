"""Small workers, each for one way in which a run can be hurt."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec

from bartack import Context, step, worker
from bartack.errors import (
    MailboxFullError,
    SessionFailedError,
    ShellError,
    StepTimeoutError,
    WorkerError,
)
from bartack.runtime import step_info
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.frames import Ask, Hello, encode
from bartack.runtime.protocol.requests import Request
from bartack.runtime.rundir.layout import RunDir

TOKEN = os.environ.get("SERVICE_TOKEN", "none")
"""A secret that the program is given when it starts, as programs often are."""


def note(line: str) -> None:
    """Append one line; a line this short is written whole."""
    fd = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


def pause_until_told() -> None:
    """Nothing but death ends this, until the file ``go`` is there."""
    if not Path("go").exists():
        signal.pause()


async def shell_note(ctx: Context, line: str) -> None:
    """The same in a command."""
    await ctx.shell("/bin/sh", "-c", 'printf "%s\\n" "$1" >> effects.txt', "sh", line)


# Steps that are under way when something dies.


@step
def guard_alone() -> str:
    """Must never be executed by two processes at the same time."""
    fd = os.open("guard", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("overlap")
        raise
    note("alone")
    pause_until_told()
    return "done"


@worker
async def guarded(ctx: Context) -> str:
    return await guard_alone()


@step
def sit_still() -> None:
    """Says that it has begun, and goes on for ever."""
    with open("begun", "w") as begun:
        begun.write("yes")
    signal.pause()


@step
def see_begun() -> str:
    """Waits until the other body has begun."""
    with open("begun") as begun:
        return begun.read()


@worker
async def sitting(ctx: Context) -> None:
    await sit_still()


@worker
async def cancelling(ctx: Context) -> str:
    """Cancels a worker in a body that does nothing by itself."""
    os.mkfifo("begun")
    handle = await ctx.spawn(sitting())
    await see_begun()
    await handle.cancel("enough")
    try:
        await handle
    except WorkerError as error:
        return str(error.error)
    return "went on"


@step
def die_now() -> None:
    """The body that kills its own process."""
    note(f"die {step_info().attempt}")
    os.kill(os.getpid(), signal.SIGKILL)


@worker
async def dying(ctx: Context) -> None:
    await die_now()


@step
def crash_in_c() -> None:
    """Says something, and dies in C code. The second attempt lives."""
    note("tried")
    if len(Path("effects.txt").read_text().splitlines()) < 2:
        os.write(2, f"the key is {os.environ['SOME_SECRET']}\n".encode())
        os.abort()


@worker
async def aborting(ctx: Context) -> None:
    await ctx.session.mailbox.orders.send("cut")
    await ctx.session.mailbox.orders.receive()
    await crash_in_c()


@step
def own_trace() -> str:
    """Where in a trace this worker's process is."""
    return os.environ.get("TRACEPARENT", "")


@worker
async def traced(ctx: Context) -> list[str]:
    own = await own_trace()
    of_command = str(await ctx.shell("/bin/sh", "-c", "echo $TRACEPARENT")).strip()
    box = ctx.session.mailbox.box
    await box.send("cloth")
    async with box.delivery() as delivery:
        carried = str(delivery.metadata.get("traceparent", ""))
    return [own, of_command, carried]


@step
async def dawdle() -> None:
    """Takes longer than anybody waits for it."""
    import asyncio  # noqa: PLC0415 - the other cases do without

    await asyncio.sleep(600)


@worker
async def dawdling(ctx: Context) -> str:
    try:
        await dawdle()
    except StepTimeoutError as error:
        return f"{error.waited_s:g}"
    return "through"


@step
def litter() -> None:
    """Starts a process and forgets it."""
    subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)


@worker
async def litterer(ctx: Context) -> None:
    await litter()


@worker
async def littering(ctx: Context) -> None:
    await litterer()
    await ctx.session.mailbox.go.receive()


@step
def leave_daemon() -> None:
    """Starts a process that hides from everybody, and looks after the one of the attempt before."""
    first = Path("effects.txt").read_text().split()[:1] if Path("effects.txt").exists() else []
    if first:
        note("the first one lives" if is_alive(int(first[0])) else "the first one is gone")
        return
    child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    note(str(child.pid))
    signal.pause()


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@worker
async def leaving(ctx: Context) -> None:
    await leave_daemon()


@step(once=True)
def charge() -> str:
    """Must not happen twice without somebody's decision."""
    note("charged")
    pause_until_told()
    return "paid"


@worker
async def charging(ctx: Context) -> str:
    return await charge()


@worker
async def commanding(ctx: Context) -> str:
    """A command that ends when somebody writes into a pipe."""
    script = 'echo started >> effects.txt; mkfifo pipe; read line < pipe; printf %s "$line"'
    return str(await ctx.shell("/bin/sh", "-c", script))


@worker
async def patient(ctx: Context, number: int) -> int:
    """Does something, waits for a message, does something else."""
    await shell_note(ctx, f"first {number}")
    got = await ctx.mailbox[f"go{number}"].receive(600, type=int)
    await shell_note(ctx, f"second {number}")
    return got


@worker
async def eight(ctx: Context) -> list[int]:
    return await ctx.delegate([patient(number) for number in range(8)])


@worker
async def waiting(ctx: Context) -> object:
    """Waits for one message."""
    return await ctx.mailbox.go.receive(600)


@worker
async def many(ctx: Context, count: int) -> list[object]:
    """Has so many workers wait for one message."""
    return await ctx.delegate([waiting() for _ in range(count)])


@worker
async def asking(ctx: Context) -> bool:
    return await ctx.ask("Go on?", type=bool)


@worker
async def ticking(ctx: Context) -> None:
    """Writes to the journal all the time, and never ends."""
    while True:
        await ctx.sleep(0.01)


# Failures.


async def need_fixed(ctx: Context) -> None:
    """Fails until somebody has made the file ``fixed``."""
    await ctx.shell("/usr/bin/test", "-e", "fixed")


@worker
async def tidying(ctx: Context) -> str:
    """Tidies up behind a failing step, and passes the failure on."""
    await shell_note(ctx, "before")
    try:
        await need_fixed(ctx)
    except ShellError:
        await shell_note(ctx, "tidied")
        raise
    await shell_note(ctx, "after")
    return "fixed"


@worker
async def careful(ctx: Context) -> object:
    """Waits, and tidies up however that ends."""
    try:
        return await ctx.mailbox.go.receive(600)
    finally:
        await shell_note(ctx, "finally")


@worker
async def failing(ctx: Context) -> str:
    await ctx.mailbox.fail.receive(600)
    await need_fixed(ctx)
    return "fixed"


@worker
async def siblings(ctx: Context) -> tuple[object, str]:
    return await ctx.delegate((careful(), failing()))


@worker
async def blocked(ctx: Context, number: int) -> None:
    """Says what it learns when the session fails."""
    try:
        await ctx.mailbox[f"never{number}"].receive(600)
    except SessionFailedError as failure:
        await shell_note(ctx, f"{number} {type(failure).__name__} {failure.worker}")
        raise


@worker
async def nine(ctx: Context) -> None:
    await ctx.delegate([*(blocked(number) for number in range(8)), failing()])


# Values.


@worker
async def unfit(ctx: Context) -> object:
    """Returns what no journal can hold."""
    return object()


@worker
async def huge(ctx: Context, size: int) -> str:
    return "x" * size


@worker
async def vast(ctx: Context, size: int) -> bytes:
    return bytes(size)


@step
def make_text(size: int) -> str:
    return "y" * size


@worker
async def sending(ctx: Context, size: int) -> int:
    """A message to itself."""
    await ctx.mailbox.big.send(await make_text(size))
    return len(await ctx.mailbox.big.receive(600, type=str))


@worker
async def flooding(ctx: Context, capacity: int, count: int) -> int:
    """Sends until it is refused; returns how many were taken."""
    await ctx.mailbox.declare("flood", capacity=capacity, overflow="reject")
    for number in range(count):
        try:
            await ctx.mailbox.flood.send(number)
        except MailboxFullError:
            return number
    return count


@worker
async def producer(ctx: Context, count: int) -> None:
    for number in range(count):
        await ctx.mailbox.flow.send([number, "z" * 1000])


@worker
async def consumer(ctx: Context, count: int) -> list[int]:
    """What came out of order."""
    wrong: list[int] = []
    for number in range(count):
        got = await ctx.mailbox.flow.receive(600, type=tuple[int, str])
        if got[0] != number:
            wrong.append(got[0])
    return wrong


@worker
async def flowing(ctx: Context, count: int) -> list[int]:
    """More messages than the mailbox holds: whoever sends has to wait for whoever receives."""
    await ctx.mailbox.declare("flow", capacity=20)
    _, wrong = await ctx.delegate((producer(count), consumer(count)))
    return wrong


@worker
async def stepping(ctx: Context, count: int) -> None:
    """Many steps of every kind between two messages."""
    await ctx.mailbox.begin.receive(600)
    for number in range(count):
        await ctx.shell("/bin/true")
        await make_text(number)
        await ctx.mailbox.loop.send(number)
        await ctx.mailbox.loop.receive(600)
        await ctx.sleep(0)
        await ctx.write("file.txt", str(number))
    await ctx.mailbox.end.receive(600)


@worker
async def filling(ctx: Context, count: int) -> int:
    """Writes much into the journal."""
    for _ in range(count):
        await make_text(40_000)
    return count


# Places and secrets.


@worker
async def telling(ctx: Context) -> object:
    """Uses its secret and its place, then waits."""
    await ctx.shell("/bin/sh", "-c", 'echo "$1 $2" >> effects.txt', "sh", TOKEN, os.getcwd())
    await ctx.shell("/bin/sh", "-c", "echo again >> effects.txt", timeout_s=30)
    return await ctx.mailbox.go.receive(600)


# Rights.


@worker
async def inside(ctx: Context, script: str) -> object:
    """A command of the run that tries what it may not do."""
    out = await ctx.shell(sys.executable, script)
    return json.loads(str(out))


@step
def try_from_body() -> list[str]:
    """What a process without a token is told."""
    refused: list[str] = []
    for do in ("answer", "fail", "cancel", "send", "interrupt", "ps"):
        with HubClient(RunDir(os.environ["BARTACK_RUN_DIR"])) as hub:
            try:
                hub.ask(do, Request(mailbox="box", question="q1", message="from inside"), b"true")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                refused.append(f"{do} {type(error).__name__}")
    return refused


def is_socket(fd: int) -> bool:
    """Whether it is one, and open at all: the list of descriptors is one itself."""
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


@step
def steal_socket() -> None:
    """Says on the worker's own socket that it comes from outside."""
    note("stolen")
    for name in os.listdir("/proc/self/fd"):
        if not is_socket(int(name)):
            continue
        hello = Hello(role="foreign", pid=os.getpid())
        ask = Ask(i=1, do="cancel", a=msgspec.Raw(b"{}"))
        os.write(int(name), encode(hello) + encode(ask))
    signal.pause()


@worker
async def stealing(ctx: Context) -> None:
    await steal_socket()


@worker
async def trying(ctx: Context) -> list[str]:
    return await try_from_body()


@worker
async def inside_failing(ctx: Context) -> None:
    """A command of the run that fails the session, which it may."""
    script = (
        "import os; from bartack.runtime.client.connection import HubClient; from bartack.runtime.rundir.layout import RunDir;"
        "from bartack.runtime.kernel.foreign import Request;"
        "HubClient(RunDir(os.environ['BARTACK_RUN_DIR'])).ask('fail', Request(message='from inside'))"
    )
    await ctx.shell(sys.executable, "-c", script)
    await ctx.mailbox.never.receive(600)


# Long histories.


@step
def tick() -> None:
    """Nothing, but it counts."""


@worker
async def ticker(ctx: Context, count: int) -> int:
    for _ in range(count):
        await tick()
    return count


@worker
async def long(ctx: Context, workers: int, count: int) -> list[int]:
    """As many steps as there can be."""
    return await ctx.delegate([ticker(count) for _ in range(workers)])


# Tools of a prompt.


@worker(agent="scripted")
async def tooling(ctx: Context) -> list[object]:
    """Each call waits for a message in the middle: whoever kills something has the time to."""
    count = 0
    heard: list[object] = []

    async def more() -> int:
        nonlocal count
        await shell_note(ctx, f"more {count}")
        heard.append(await ctx.mailbox.go.receive(600))
        count += 1
        return count

    reply = await ctx.think("Count.", tools=[more])
    return [reply, count, heard]


# For clients outside.


@worker
async def echoing(ctx: Context, times: int) -> int:
    """Sends back what it is sent."""
    for _ in range(times):
        await ctx.mailbox.back.send(await ctx.mailbox.to.receive(600))
    return times


@worker
async def clerk(ctx: Context) -> list[object]:
    """Takes what it is sent until it is told to stop."""
    await ctx.inbox.subscribe("news.*")
    await ctx.mailbox.ready.send(ctx.path)
    seen: list[object] = []
    while True:
        async with ctx.inbox.delivery(600) as delivery:
            if delivery.value == "stop":
                return seen
            seen.append(delivery.value)


@worker
async def delivering(ctx: Context, times: int) -> list[object]:
    """Supervised sends, broadcasts, topics, dead letters and monitors, to two clerks; every second time when told to go on."""
    clerks = [await ctx.spawn(clerk()) for _ in range(2)]
    paths = sorted([str(await ctx.mailbox.ready.receive(600)) for _ in clerks])
    async with ctx.monitor(clerks[0]) as first, ctx.monitor(clerks[1]) as second:
        for number in range(times):
            if number % 2 == 0:
                await ctx.mailbox.go.receive(600)
            await ctx.send_supervised(paths[number % 2], f"s{number}", ack="processed", timeout_s=600)
            await ctx.broadcast(paths, f"b{number}", ack="delivered", timeout_s=600)
            await ctx.publish("news.today", f"p{number}")
            await ctx.send_supervised(
                "void", f"d{number}", ack="delivered", timeout_s=0, retries=1, on_error="dead_letter"
            )
        await ctx.broadcast(paths, "stop")
        downs = [(await watch.down(600))["reason"] for watch in (first, second)]
    return [await clerks[0], await clerks[1], downs, await ctx.inbox.drain()]


# A worker that begins anew.


SEEN: list[int] = []
"""What this process has seen: nothing of it may reach a new history."""


@step
def note_turn(turn: int, pause: bool) -> int:
    """Says in which process a turn is taken, and may wait for its death."""
    note(f"turn {turn}")
    if pause:
        pause_until_told()
    return os.getpid()


@worker
async def beginning_anew(ctx: Context, turn: int = 1, pids: list[int] | None = None) -> list[int]:
    SEEN.append(turn)
    ctx.print(f"turn {turn} after {len(SEEN) - 1} in this process")
    pid = await note_turn(turn, turn == 3)
    if turn < 4:
        await ctx.restart(turn + 1, [*(pids or []), pid])
    return [*(pids or []), pid]
