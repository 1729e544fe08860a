"""The rules, as tables: which calls start something nobody ends, wait without a limit, or do not replay."""

from __future__ import annotations

from typing import Final, NamedTuple

TASKS: Final = frozenset({"asyncio.create_task", "asyncio.ensure_future"})
LOOP_TASKS: Final = frozenset({"create_task", "ensure_future"})
"""Called on a loop; on a task group they are fine."""

PROCESSES: Final = frozenset(
    {
        "subprocess.Popen",
        "os.fork",
        "os.forkpty",
        "os.system",
        "os.posix_spawn",
        "os.posix_spawnp",
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
        "multiprocessing.Process",
        "pty.fork",
        "pty.spawn",
    }
)
SPAWN: Final = "os.spawn"
"""The names of a whole family begin like this."""

THREADS: Final = frozenset({"threading.Thread", "threading.Timer"})

MONITORS: Final = frozenset(
    {"bartack.supervision.monitor", "bartack.monitor", "bartack.supervision.MonitorManager.monitor"}
)


class Wait(NamedTuple):
    """A call that takes a limit: the keyword of it, and its place among the arguments."""

    keyword: str = "timeout"
    place: int = 0


WAITS: Final = {
    "subprocess.run": Wait(place=99),
    "subprocess.call": Wait(place=99),
    "subprocess.check_call": Wait(place=99),
    "subprocess.check_output": Wait(place=99),
    "urllib.request.urlopen": Wait(place=2),
    "concurrent.futures.wait": Wait(place=1),
    "select.select": Wait("timeout", 3),
    **{
        f"requests.{verb}": Wait(place=99)
        for verb in ("get", "post", "put", "patch", "delete", "head", "request")
    },
}
"""By full name."""

WAIT_METHODS: Final = {
    "wait": Wait(),
    "join": Wait(),
    "result": Wait(),
    "acquire": Wait("timeout", 1),
    "communicate": Wait(place=1),
    "call": Wait("timeout_s", 1),
}
"""By the name of the method, whoever it is called on: only without arguments that could be a limit."""

QUEUES: Final = frozenset(
    {
        "queue.Queue",
        "queue.LifoQueue",
        "queue.PriorityQueue",
        "queue.SimpleQueue",
        "asyncio.Queue",
        "multiprocessing.Queue",
        "multiprocessing.JoinableQueue",
        "multiprocessing.SimpleQueue",
    }
)

HTTPX: Final = "httpx."
"""These have a limit unless it is taken away."""

LIMITED: Final = frozenset(
    {"asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for", "bartack.supervision.timeouts.override"}
)
LIMITED_METHODS: Final = frozenset({"timeout", "override"})
"""``ctx.timeout(…)`` and ``timeouts.override(…)``."""

NONDETERMINISTIC: Final = {
    "time.time": "ctx.now()",
    "time.time_ns": "ctx.now()",
    "time.monotonic": "ctx.now()",
    "time.perf_counter": "ctx.now()",
    "time.sleep": "ctx.sleep()",
    "datetime.datetime.now": "ctx.now()",
    "datetime.datetime.utcnow": "ctx.now()",
    "datetime.datetime.today": "ctx.now()",
    "datetime.date.today": "ctx.now()",
    "uuid.uuid1": "ctx.uuid()",
    "uuid.uuid4": "ctx.uuid()",
    "os.environ": "ctx.env()",
    "os.getenv": "ctx.env()",
    "os.listdir": "ctx.list()",
    "os.scandir": "ctx.list()",
    "os.urandom": "ctx.random()",
    "os.getpid": "a step",
    "open": "ctx.read() or ctx.write()",
    "input": "ctx.ask()",
    "socket.create_connection": "a step",
    "urllib.request.urlopen": "a step",
}
"""What a worker must not use outside of a step, with what it has instead."""

NONDETERMINISTIC_MODULES: Final = {
    "random": "ctx.random()",
    "secrets": "ctx.random()",
    "requests": "a step",
    "httpx": "a step",
    "aiohttp": "a step",
    "asyncio": "a step; workers are not run by asyncio",
}
