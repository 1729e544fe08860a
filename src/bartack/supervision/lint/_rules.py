"""The rules, as tables: which calls start something that is never stopped, wait without a limit, or do not replay."""

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
"""By the name of the method, on any object: only without arguments that could be a limit."""

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
    **dict.fromkeys(
        (
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.localtime",
            "time.gmtime",
            "time.ctime",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
        ),
        "ctx.now()",
    ),
    "time.sleep": "ctx.sleep()",
    "uuid.uuid1": "ctx.uuid()",
    "uuid.uuid4": "ctx.uuid()",
    "os.environ": "ctx.env()",
    "os.environb": "ctx.env()",
    "os.getenv": "ctx.env()",
    **dict.fromkeys(("os.listdir", "os.scandir", "os.walk", "os.fwalk"), "ctx.list()"),
    **dict.fromkeys(
        (
            "os.path.exists",
            "os.path.lexists",
            "os.path.isfile",
            "os.path.isdir",
            "os.path.islink",
            "os.path.ismount",
            "os.access",
        ),
        "ctx.exists()",
    ),
    **dict.fromkeys(("os.system", "os.popen"), "ctx.shell()"),
    **dict.fromkeys(
        (
            "os.path.getmtime",
            "os.path.getatime",
            "os.path.getctime",
            "os.path.getsize",
            "os.path.samefile",
            "os.path.expanduser",
            "os.path.realpath",
            "os.path.abspath",
            "os.stat",
            "os.lstat",
            "os.open",
            "os.read",
            "os.write",
            "os.remove",
            "os.unlink",
            "os.rename",
            "os.renames",
            "os.replace",
            "os.mkdir",
            "os.makedirs",
            "os.rmdir",
            "os.removedirs",
            "os.symlink",
            "os.link",
            "os.readlink",
            "os.chmod",
            "os.chown",
            "os.utime",
            "os.truncate",
            "os.chdir",
            "os.getcwd",
            "os.getpid",
            "os.getppid",
            "os.getlogin",
            "os.cpu_count",
            "os.getloadavg",
            "os.kill",
            "pathlib.Path.cwd",
            "pathlib.Path.home",
            "socket.create_connection",
            "socket.gethostname",
            "platform.node",
            "getpass.getuser",
            "urllib.request.urlopen",
        ),
        "a step",
    ),
    "os.urandom": "ctx.random()",
    "asyncio.sleep": "ctx.sleep()",
    "asyncio.gather": "ctx.gather()",
    "asyncio.create_task": "ctx.task_group()",
    "asyncio.ensure_future": "ctx.task_group()",
    "asyncio.TaskGroup": "ctx.task_group()",
    "asyncio.wait_for": "ctx.timeout()",
    "asyncio.timeout": "ctx.timeout()",
    "open": "ctx.read(), ctx.write() or a step",
    "io.open": "ctx.read() or ctx.write()",
    "input": "ctx.ask()",
}
"""What worker code must not use outside of a step, with what it has instead."""

NONDETERMINISTIC_MODULES: Final = {
    "random": "ctx.random()",
    "secrets": "ctx.random()",
    "glob": "ctx.list()",
    "subprocess": "ctx.shell()",
    "shutil": "a step",
    "tempfile": "a step, or ctx.session.dir",
    "socket": "a step",
    "sqlite3": "a step",
    "threading": "ctx.gather()",
    "multiprocessing": "ctx.delegate()",
    "concurrent.futures": "ctx.gather()",
    "urllib.request": "a step",
    "http.client": "a step",
    "requests": "a step",
    "httpx": "a step",
    "aiohttp": "a step",
    "urllib3": "a step",
    "asyncio": "a function with @step; workers are not run by asyncio",
}
"""The same of all functions of a module."""

DETERMINISTIC: Final = frozenset({"random.Random"})
"""Those that are not, as long as they are given the same."""

ANY_PATH_METHODS: Final = frozenset({"read_text", "write_text", "write_bytes", "iterdir", "rglob"})
"""Methods that only paths have."""

PATH_METHODS: Final = {
    "read_text": "ctx.read()",
    "read_bytes": "ctx.read_bytes()",
    "write_text": "ctx.write()",
    "write_bytes": "ctx.write()",
    **dict.fromkeys(("iterdir", "glob", "rglob", "walk"), "ctx.list()"),
    **dict.fromkeys(("exists", "is_file", "is_dir", "is_symlink"), "ctx.exists()"),
    "open": "ctx.read() or ctx.write()",
    **dict.fromkeys(
        (
            "stat",
            "lstat",
            "mkdir",
            "rmdir",
            "touch",
            "unlink",
            "rename",
            "replace",
            "chmod",
            "readlink",
            "symlink_to",
            "hardlink_to",
            "samefile",
            "owner",
            "group",
            "expanduser",
        ),
        "a step",
    ),
}
"""Methods of ``pathlib.Path`` that look at the disk or change it."""

CTX_AWAITED: Final = frozenset(
    {
        "abort",
        "append",
        "ask",
        "broadcast",
        "budget",
        "command",
        "deadline",
        "delegate",
        "env",
        "exists",
        "fail",
        "gather",
        "link",
        "list",
        "now",
        "pipe",
        "publish",
        "random",
        "read",
        "read_bytes",
        "register",
        "restart",
        "restart_step",
        "send_supervised",
        "shell",
        "sleep",
        "sleep_until",
        "spawn",
        "step",
        "think",
        "think_reply",
        "trap",
        "unlink",
        "uuid",
        "version",
        "write",
    }
)
"""Members of ``ctx`` that do nothing before they are awaited."""

CTX_BLOCKS: Final = {
    "monitor": "async with",
    "task_group": "async with",
    "timeout": "async with",
    "timeouts": "with",
}
"""Members of ``ctx`` that are for a block, and the words that open it."""

CTX_TAKES_CALLS: Final = frozenset({"gather", "delegate", "spawn", "step"})
"""Members of ``ctx`` that take what is still to be awaited."""

MAILBOX_AWAITED: Final = frozenset(
    {
        "answer",
        "call",
        "close",
        "drain",
        "hold",
        "receive",
        "send",
        "send_supervised",
        "settle",
        "stats",
        "subscribe",
        "unsubscribe",
        "withdraw",
    }
)
MAILBOX_BLOCKS: Final = frozenset({"delivery"})

SHOWN_BY: Final = frozenset(
    {
        "all",
        "any",
        "bool",
        "bytes",
        "dict",
        "enumerate",
        "float",
        "format",
        "int",
        "len",
        "max",
        "min",
        "print",
        "repr",
        "sorted",
        "str",
        "sum",
    }
)
"""Functions of Python that use what they are given at once."""
