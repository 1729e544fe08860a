"""The lint: what it finds, what it leaves alone, and how it is silenced."""

from __future__ import annotations

import errno
import os
import textwrap
from pathlib import Path

import pytest

from bartack.supervision.lint import TYPES, check_python, check_text

IMPORTS = """\
import asyncio, datetime, httpx, multiprocessing, os, pty, queue, random, requests, subprocess, threading, time, uuid
import subprocess as sp
from asyncio import create_task
from threading import Thread
from urllib.request import urlopen
from bartack import Context, step, worker
from bartack.supervision import monitor
"""


def found(code: str) -> list[tuple[int, str]]:
    """Line within the code, and type, of everything that is found."""
    findings = check_text(IMPORTS + textwrap.dedent(code), "f.py")
    return [(finding.line - IMPORTS.count("\n"), finding.type) for finding in findings]


def types(code: str) -> list[str]:
    return [name for _, name in found(code)]


BAD = [
    ("unsupervised_task", "async def f():\n    asyncio.create_task(g())"),
    ("unsupervised_task", "async def f():\n    create_task(g())"),
    ("unsupervised_task", "async def f():\n    t = asyncio.ensure_future(g())"),
    ("unsupervised_task", "async def f():\n    asyncio.get_running_loop().create_task(g())"),
    ("unsupervised_task", "def f(loop):\n    loop.create_task(g())"),
    ("unsupervised_process", "p = subprocess.Popen(['x'])"),
    ("unsupervised_process", "p = sp.Popen(['x'])"),
    ("unsupervised_process", "os.fork()"),
    ("unsupervised_process", "os.spawnlp(os.P_NOWAIT, 'x')"),
    ("unsupervised_process", "os.system('x')"),
    ("unsupervised_process", "multiprocessing.Process(target=f).start()"),
    ("unsupervised_process", "async def f():\n    await asyncio.create_subprocess_exec('x')"),
    ("unsupervised_process", "pty.fork()"),
    ("unsupervised_thread", "threading.Thread(target=f).start()"),
    ("unsupervised_thread", "t = Thread(target=f)\nt.start()"),
    ("wait_without_deadline", "subprocess.run(['x'])"),
    ("wait_without_deadline", "subprocess.run(['x'], timeout=None)"),
    ("wait_without_deadline", "process.wait()"),
    ("wait_without_deadline", "thread.join()"),
    ("wait_without_deadline", "def f(future):\n    return future.result()"),
    ("wait_without_deadline", "lock.acquire()"),
    ("wait_without_deadline", "jobs = queue.Queue()\njobs.get()"),
    (
        "wait_without_deadline",
        "class A:\n    def __init__(self):\n        self.jobs = queue.Queue()\n    def f(self):\n        self.jobs.get()",
    ),
    ("wait_without_deadline", "requests.get(url)"),
    ("wait_without_deadline", "httpx.get(url, timeout=None)"),
    ("wait_without_deadline", "urlopen(url)"),
    ("wait_without_deadline", "async def f(ctx):\n    await ctx.mailbox.work.call(1)"),
    ("missing_cleanup", "async def f():\n    m = monitor(target)"),
    ("missing_cleanup", "async def f(manager):\n    ref = manager.monitor(target)"),
    ("missing_cleanup", "async def f(ctx):\n    m = ctx.monitor('main')"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return time.time()"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return datetime.datetime.now()"),
    ("nondeterminism", "@worker(name='x')\nasync def w(ctx: Context):\n    return random.choice([1])"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return uuid.uuid4()"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return os.environ['A']"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return open('f').read()"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    await asyncio.sleep(1)"),
    ("nondeterminism", "@worker\nasync def w(ctx: Context):\n    return [os.listdir('.') for _ in x]"),
    ("forgotten_await", "@worker\nasync def w(ctx: Context):\n    ctx.sleep(1)"),
    ("version_name", "@worker\nasync def w(ctx: Context, x: str):\n    await ctx.version(f'v{x}')"),
    ("version_name", "@worker\nasync def w(ctx: Context):\n    await ctx.version('')"),
    ("version_name", f"@worker\nasync def w(ctx: Context):\n    await ctx.version('{'x' * 101}')"),
    ("version_name", "@worker\nasync def w(ctx: Context):\n    await ctx.version()"),
    ("forgotten_await", "@worker\nasync def w(ctx: Context):\n    if ctx.version('a'):\n        pass"),
    (
        "caught_failure",
        "@worker\nasync def w(ctx: Context):\n    try:\n        await w()\n    except Exception:\n        pass",
    ),
    (
        "swallowed_cancel",
        "async def f():\n    try:\n        await g()\n    except BaseException:\n        pass",
    ),
    ("swallowed_cancel", "async def f():\n    try:\n        await g()\n    except:\n        log()"),
    (
        "swallowed_cancel",
        "async def f():\n    try:\n        await g()\n    except (OSError, asyncio.CancelledError):\n        pass",
    ),
    (
        "swallowed_cancel",
        "async def f():\n    try:\n        async with g():\n            pass\n    except BaseException:\n        pass",
    ),
]


@pytest.mark.parametrize(("kind", "code"), BAD)
def test_what_supervision_cannot_see_is_found_once(kind: str, code: str) -> None:
    assert types(code).count(kind) == 1


GOOD = [
    "@worker\nasync def w(ctx: Context):\n    await ctx.version('a', 2, oldest=1)",
    "@worker\nasync def w(ctx: Context):\n    await ctx.version(name='a')\n    await ctx.version(NAME)",
    "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())",
    "async def f():\n    t = asyncio.create_task(g())\n    await t",
    "async def f(self):\n    self.t = asyncio.create_task(g())",
    "async def f():\n    tasks.add(asyncio.create_task(g()))",
    "t = threading.Thread(target=f)\nt.start()\nt.join(5)",
    "class A:\n    def f(self):\n        self.t = Thread(target=f)\n    def g(self):\n        self.t.join(1)",
    "all = [Thread(target=f) for _ in x]\nfor t in all:\n    t.join(1)",
    "subprocess.run(['x'], timeout=5)",
    "subprocess.run(['x'], **options)",
    "process.wait(5)",
    "text = ', '.join(parts)",
    "def f(sep, parts):\n    return sep.join(parts)",
    "lock.acquire(timeout=1)",
    "lock.acquire(False)",
    "lock.acquire(blocking=False)",
    "jobs = queue.Queue()\njobs.get(timeout=1)",
    "jobs = queue.Queue()\njobs.get(block=False)",
    "d = {}\nd.get('a')",
    "async def f(task):\n    return task.result()",
    "async def f():\n    async with asyncio.timeout(5):\n        await event.wait()",
    "async def f():\n    await asyncio.wait_for(event.wait(), 5)",
    "async def f(ctx):\n    async with ctx.timeout(5):\n        await event.wait()",
    "async def f(ctx):\n    await ctx.mailbox.work.call(1, timeout_s=5)",
    "def f(thing):\n    thing.call()",
    "httpx.get(url)",
    "async def f():\n    async with monitor(target) as m:\n        await m.down(1)",
    (
        "async def f(manager):\n    ref = manager.monitor(target)\n    try:\n"
        "        pass\n    finally:\n        manager.demonitor(ref)"
    ),
    "@step\ndef s():\n    return time.time()",
    "@worker\nasync def w(ctx: Context):\n    return await ctx.now()",
    "@worker\nasync def w(ctx: Context):\n    @step\n    def s():\n        return time.time()\n    return await s()",
    "def helper():\n    return random.random()",
    "async def f():\n    try:\n        await g()\n    except BaseException:\n        tidy()\n        raise",
    (
        "async def f():\n    try:\n        await g()\n    except asyncio.CancelledError:\n"
        "        raise\n    except BaseException:\n        pass"
    ),
    "async def f():\n    try:\n        await g()\n    except Exception:\n        pass",
    "def f():\n    try:\n        g()\n    except BaseException:\n        pass",
    "async def f():\n    try:\n        g()\n    except BaseException:\n        pass",
    "class asyncio2:\n    pass\nasyncio2.create_task(1)",
]


@pytest.mark.parametrize("code", GOOD)
def test_what_is_seen_to_is_left_alone(code: str) -> None:
    assert types(code) == []


def test_a_finding_names_its_place_and_what_to_do() -> None:
    (finding,) = check_text("import os\nif True:\n    os.system('x')\n", "dir/f.py")

    assert (finding.file, finding.line, finding.column) == ("dir/f.py", 3, 5)
    assert finding.message == "the process that os.system starts is never stopped"
    assert "shell step" in finding.suggestion


def test_a_comment_with_a_reason_silences_a_line() -> None:
    assert types("os.fork()  # bartack: allow[unsupervised_process] the parent waits below") == []
    assert types("os.fork()  # bartack: allow[unsupervised_thread] wrong type") == ["unsupervised_process"]
    assert (
        types(
            "os.system('x'); thread.join()  # bartack: allow[unsupervised_process, wait_without_deadline] why"
        )
        == []
    )


def test_silence_may_stand_after_another_comment() -> None:
    assert types("os.fork()  # noqa: S1 - why  # bartack: allow[unsupervised_process] the parent waits") == []


def test_silence_without_a_reason_or_for_nothing_is_a_finding_itself() -> None:
    assert types("os.fork()  # bartack: allow[unsupervised_process]") == ["allow_without_reason"]
    assert types("x = 1  # bartack: allow[unsupervised] because") == ["allow_without_reason"]
    assert types("x = '# bartack: allow[unsupervised_process]'") == []


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "(" * 5000, "x = '''"])
def test_what_is_not_python_is_one_finding(text: str) -> None:
    assert [finding.type for finding in check_text(text, "f.py")] == ["file_error"]


def test_every_type_of_finding_has_a_case_here() -> None:
    here = {kind for kind, _ in BAD} | {"file_error", "allow_without_reason"}

    assert here == set(TYPES)


def test_directories_are_looked_through_without_environments_and_hidden_folders(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", "env/pyvenv.cfg", "env/c.py", ".hidden/d.py", "notes.txt", "gen/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import os\nos.fork()\n")
    (tmp_path / "bad.py").write_bytes(b"\xff")

    report = check_python([tmp_path], exclude=["gen"])

    assert [Path(finding.file).name for finding in report.findings] == ["a.py", "bad.py", "b.py"]
    assert (report.totals.files, report.totals.findings) == (3, 3)
    assert report.totals.by_type == {"unsupervised_process": 2, "file_error": 1}
    assert list(report.per_file.values()) == [1, 1, 1]


def test_types_can_be_chosen_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\nos.fork()\nthread.join()\n")

    chosen = check_python([tmp_path / "a.py"], select=["wait_without_deadline"])
    rest = check_python([tmp_path / "a.py"], ignore=["wait_without_deadline"])

    assert [finding.type for finding in chosen.findings] == ["wait_without_deadline"]
    assert [finding.type for finding in rest.findings] == ["unsupervised_process"]


def test_a_file_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    (finding,) = check_python([tmp_path / "gone.py"]).findings

    assert (finding.type, finding.message) == (
        "file_error",
        f"this cannot be read: {os.strerror(errno.ENOENT)}",
    )
