"""The shim as the agent runs it: a process of its own, with whatever stdin, home and disk it finds."""

from __future__ import annotations

import ast
import ctypes
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.crash.warden import waited
from tests.unit.plugin.conftest import Tune

from bartack.core.redact import Redactor
from bartack.core.watch import open_watch
from bartack.plugin.hooks import shim_path
from bartack.resilience import Outbox, StateStore
from bartack.resilience.importing import import_spool
from bartack.resilience.spool import Header, Spool, hook_event_id, split_event

LIMIT_S = 2.0
SLACK_S = 0.5
PATIENCE_S = 60.0
BODY = b'{"session_id":"s","tool_name":"Write","tool_use_id":"t1"}'


class Ran:
    """What a run of the shim has left."""

    def __init__(self, code: int, output: bytes, took_s: float, stalled_s: float) -> None:
        self.code = code
        self.output = output
        self.took_s = took_s
        self.stalled_s = stalled_s
        """How long a busy machine kept it, or us, from continuing."""


def command(state: Path, event: str = "PostToolUse") -> list[str]:
    return [sys.executable, "-I", "-S", str(state / "bin" / "bartack-hook.py"), event]


def run(
    state: Path,
    stdin: bytes | int = BODY,
    *,
    event: str = "PostToolUse",
    environ: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Ran:
    started, before_us = time.monotonic(), waited(os.getpid())
    with subprocess.Popen(
        command(state, event),
        stdin=stdin if isinstance(stdin, int) else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        preexec_fn=before,  # noqa: PLW1509 - it calls nothing that another thread could hold
    ) as shim:
        feeder = threading.Thread(target=feed, args=(shim, stdin))
        feeder.start()
        assert shim.stdout is not None
        if not select.select([shim.stdout], [], [], PATIENCE_S)[0]:
            shim.kill()
        output = shim.stdout.read()
        os.waitid(os.P_PID, shim.pid, os.WEXITED | os.WNOWAIT)
        took_s = time.monotonic() - started
        stalled_s = waited(shim.pid) + waited(os.getpid()) - before_us
        feeder.join()
    return Ran(shim.returncode, output, took_s, stalled_s)


def feed(shim: subprocess.Popen[bytes], stdin: bytes | int) -> None:
    """Write what the shim is to read; it need not want all of it."""
    if isinstance(stdin, bytes):
        assert shim.stdin is not None
        with suppress(BrokenPipeError), shim.stdin:
            shim.stdin.write(stdin)


def check_silent(ran: Ran, limit_s: float = LIMIT_S) -> None:
    assert (ran.code, ran.output) == (0, b"")
    assert ran.took_s - ran.stalled_s < limit_s


def spooled(state: Path) -> list[bytes]:
    spool = Spool(state)
    return [spool.read(name) for name in spool.names()]


def logged(state: Path) -> list[str]:
    try:
        return (state / "daemon.log").read_text().splitlines()
    except FileNotFoundError:
        return []


NASTY = {
    "normal": BODY,
    "empty": b"",
    "invalid UTF-8": b'{"a": "\xff\xfe"}',
    "invalid JSON": b"{not json",
    "triple quotes": b'{"a": "\'\'\' \\"\\"\\" "}',
    "command substitution": b'{"a": "$(touch pwned) `touch pwned`; touch pwned"}',
    "10 MB": b'{"a": "' + b"x" * 10_000_000 + b'"}',
}


@pytest.mark.requirement("hook-is-safe")
@pytest.mark.parametrize("body", NASTY.values(), ids=NASTY.keys())
def test_whatever_is_on_stdin_is_kept_byte_for_byte_and_nothing_is_said(state: Path, body: bytes) -> None:
    ran = run(state, body)

    check_silent(ran, PATIENCE_S)
    (data,) = spooled(state)
    header, kept = split_event(data)
    assert kept == body
    assert (header.event, header.cwd) == ("PostToolUse", os.getcwd())
    assert not Path("pwned").exists()
    assert logged(state) == []


@pytest.mark.requirement("hook-is-safe")
def test_more_than_16_mib_is_cut_and_said_so(state: Path) -> None:
    ran = run(state, b"x" * 20_000_000)

    check_silent(ran, PATIENCE_S)
    (data,) = spooled(state)
    header, kept = split_event(data)
    assert header.truncated
    assert len(kept) == 16 * 1024 * 1024


@pytest.mark.requirement("hook-is-safe")
def test_stdin_that_is_never_closed_is_given_up_in_time(impatient: Path) -> None:
    reader, writer = os.pipe()
    try:
        ran = run(impatient, reader)
    finally:
        os.close(reader)
        os.close(writer)

    check_silent(ran, LIMIT_S + SLACK_S)
    assert f"\nLIMIT_S = {LIMIT_S}\n" in shim_path().read_text(encoding="utf-8")
    assert ran.took_s >= LIMIT_S * 0.9
    assert ["no time left" in line for line in logged(impatient)] == [True]


@pytest.mark.requirement("hook-is-safe")
def test_closed_stdin_and_stdout_are_harmless(state: Path) -> None:
    def close_all() -> None:
        for number in (0, 1, 2):
            os.close(number)

    ran = run(state, b"", before=close_all)

    assert ran.code == 0
    (data,) = spooled(state)
    assert split_event(data)[1] == b""


@pytest.mark.requirement("hook-is-safe")
def test_without_home_and_without_environment_it_works(state: Path) -> None:
    ran = run(state, environ={})

    check_silent(ran)
    assert len(spooled(state)) == 1


def without_privileges() -> None:
    """The administrator may write anywhere; after this the child cannot."""
    if os.getuid() == 0:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        for capability in (1, 2):  # overriding permissions for writing, and for reading and searching
            assert prctl(24, capability, 0, 0, 0) == 0


@pytest.mark.requirement("hook-is-safe")
@pytest.mark.skipif(sys.platform != "linux", reason="drops privileges the Linux way")
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read only", "no permission"])
def test_a_home_that_cannot_be_written_is_harmless(state: Path, mode: int) -> None:
    (state / "daemon.log").touch()
    (state / "spool").mkdir()
    (state / "spool").chmod(mode)

    ran = run(state, before=without_privileges)

    (state / "spool").chmod(0o700)
    check_silent(ran)
    assert spooled(state) == []
    assert ["not kept" in line for line in logged(state)] == [True]


@pytest.mark.requirement("hook-is-safe")
def test_a_full_disk_is_harmless(state: Path) -> None:
    def no_room() -> None:
        import resource  # noqa: PLC0415 - in the child only
        import signal  # noqa: PLC0415 - in the child only

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    ran = run(state, b"x" * 100_000, before=no_room)

    check_silent(ran)
    assert spooled(state) == []
    assert list((state / "spool" / "tmp").iterdir()) == []
    assert ["not kept" in line for line in logged(state)] == [True]


@pytest.mark.requirement("hook-is-safe")
def test_a_clock_set_back_is_harmless(state: Path) -> None:
    future = time.time() + 86_400 * 365
    (state / "daemon.start").touch()
    os.utime(state / "daemon.start", (future, future))

    check_silent(run(state))

    assert len(spooled(state)) == 1


def test_switched_off_it_does_nothing_at_all(state: Path) -> None:
    for word in ("false", "0", "No", "OFF"):
        check_silent(run(state, environ={"PATTERN_TRACKING_ENABLED": word}))

    assert spooled(state) == []


@contextmanager
def listening(state: Path, answer: bytes | None) -> Generator[list[bytes]]:
    """A process on the daemon's socket that takes one frame and answers, or never does."""
    frames: list[bytes] = []
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(os.path.relpath(state / "daemon.sock"))
    server.listen()
    done = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            if answer is None:
                done.wait(PATIENCE_S)
                return
            length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            frames.append(connection.recv(length, socket.MSG_WAITALL))
            with suppress(BrokenPipeError):  # who was slow to be answered has gone
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield frames
    done.set()
    thread.join(PATIENCE_S)
    server.close()


def test_with_a_daemon_the_event_goes_there_and_not_to_the_spool(state: Path, tune: Tune) -> None:
    tune(CONNECT_S=PATIENCE_S, ANSWER_S=PATIENCE_S)

    with listening(state, b"ok hk_1\n") as frames:
        check_silent(run(state))

    assert [split_event(frame)[1] for frame in frames] == [BODY]
    assert spooled(state) == []


@pytest.mark.requirement("hook-is-safe")
@pytest.mark.parametrize("answer", [None, b"error unavailable\n", b""], ids=["hangs", "cannot", "closes"])
def test_a_daemon_that_does_not_take_it_leaves_it_to_the_spool(state: Path, answer: bytes | None) -> None:
    with listening(state, answer):
        ran = run(state)

    check_silent(ran)
    assert len(spooled(state)) == 1


@pytest.mark.requirement("hook-is-safe")
def test_what_was_read_is_kept_though_the_agent_waits_no_longer(impatient: Path, tune: Tune) -> None:
    tune(ANSWER_S=PATIENCE_S)
    (impatient / "spool" / "new").mkdir(parents=True)
    event = impatient / "event"
    event.write_bytes(BODY)

    with listening(impatient, None), event.open("rb") as body:
        ran = run(impatient, body.fileno())
        before = spooled(impatient)

    check_silent(ran, LIMIT_S + SLACK_S)
    assert before == [], "the daemon had not answered when the agent continued"
    with open_watch(str(impatient / "spool" / "new")) as watch:
        assert spooled(impatient) or watch.wait(PATIENCE_S)
    assert [split_event(data)[1] for data in spooled(impatient)] == [BODY]
    assert logged(impatient) == []


def test_the_run_and_the_chosen_directory_travel_with_the_event(state: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen dir"
    environ = {"PATTERN_CACHE_DIR": str(chosen), "BARTACK_RUN": "run-20260101-000000-00000000"}

    check_silent(run(state, environ=environ))

    (data,) = spooled(chosen)
    header, _ = split_event(data)
    assert (header.run, header.home) == ("run-20260101-000000-00000000", str(chosen))


def test_the_shim_imports_only_what_starts_fast() -> None:
    tree = ast.parse(shim_path().read_text(encoding="utf-8"))
    names = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert names <= {"os", "sys", "time", "_socket", "signal"}


def test_both_writers_of_headers_agree(state: Path) -> None:
    folder = Path("with space and ü and %")
    folder.mkdir()
    os.chdir(folder)
    check_silent(run(state, event="Some_Event"))

    (data,) = spooled(state)
    header, _ = split_event(data)
    assert header.cwd == os.getcwd()
    assert header.encode() == data.split(b"\n", 1)[0]


def test_what_is_imported_twice_is_there_once(state: Path) -> None:
    run(state)
    (name,) = Spool(state).names()
    copy = Spool(state).read(name)
    with StateStore(state) as store:
        outbox = Outbox(store)
        assert import_spool(outbox, Spool(state), Redactor({})) == 1
        Spool(state).put(split_event(copy)[0], BODY)

        assert import_spool(outbox, Spool(state), Redactor({})) == 0

        assert len(outbox.rows()) == 1
        assert Spool(state).names() == []


def test_the_id_of_an_event_is_that_of_its_tool_call() -> None:
    first = Header("PostToolUse", 1, "/a").encode() + b"\n" + BODY
    second = Header("PostToolUse", 2, "/b").encode() + b"\n" + BODY.replace(b"session_id", b"sessionId")
    other = Header("PreToolUse", 1, "/a").encode() + b"\n" + BODY

    assert hook_event_id(first) == hook_event_id(second) != hook_event_id(other)
    assert hook_event_id(b"%s\n{}" % first.split(b"\n")[0]) != hook_event_id(
        b"%s\n{}" % second.split(b"\n")[0]
    )
