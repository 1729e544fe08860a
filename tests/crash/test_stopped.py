"""A hub that is stopped (Ctrl-Z, SIGSTOP) hangs nothing that asks it, and continues as if no time had passed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.crash.runs import PATIENCE_S, Begin, RealRun, wait_until

from bartack import Run, Session
from bartack.errors import HubStoppedError, ReceiveTimeoutError
from bartack.runtime import AsyncRun, AsyncSession
from bartack.supervision.process.system import read_facts

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc"),
    pytest.mark.requirement("stopped-hub-hangs-nothing"),
]

JOIN_S = 0.3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_TIMEOUT_HUB_JOIN", str(JOIN_S))


def pid_of(run: RealRun) -> int:
    """The process of the hub."""
    assert run.hub is not None
    return run.hub.pid


def stop(run: RealRun) -> int:
    """Stop the hub; returns its process, once it is stopped."""
    pid = pid_of(run)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (facts := read_facts(pid)) is not None and facts.state == "T")
    return pid


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    """A run whose hub stays stopped, for all tests that only ask it: each of them finds it as it was."""
    folder = tmp_path_factory.mktemp("stopped")
    with RealRun.create(folder, "cases.py", "waiting", ()) as made:
        made.start()
        made.wait_open("receive")
        stop(made)
        yield made


@pytest.fixture
def run(begin: Begin) -> Iterator[RealRun]:
    """A run that waits for a message, whose hub a test may stop and continue."""
    made = begin("waiting")
    made.start()
    made.wait_open("receive")
    yield made
    assert made.hub is not None
    with suppress(ProcessLookupError):
        os.kill(made.hub.pid, signal.SIGCONT)


COMMANDS = {
    "ps": ["ps", "RUN"],
    "ps of all": ["ps"],
    "answer": ["answer", "RUN", "q1", "yes"],
    "cancel": ["cancel", "RUN"],
    "fail": ["fail", "RUN", "enough"],
    "mailbox send": ["mailbox", "send", "RUN", "go", "1"],
    "mailbox receive": ["mailbox", "receive", "RUN", "go"],
    "dlq retry": ["dlq", "retry", "RUN", "--all"],
    "resume": ["resume", "RUN"],
    "resume --update": ["resume", "RUN", "--update"],
}


def bartack(run: RealRun, *words: str) -> subprocess.CompletedProcess[str]:
    given = [run.run.id if word == "RUN" else word for word in words]
    return subprocess.run(
        [sys.executable, "-P", "-s", "-m", "bartack", *given],
        cwd=run.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_asks_a_stopped_hub_ends_and_says_what_to_do(stopped: RealRun, name: str) -> None:
    before = stopped.last_seq()

    done = bartack(stopped, *COMMANDS[name])

    assert (done.returncode, "BT342" in done.stderr) == (8, True), done.stderr
    assert stopped.run.id in done.stderr
    assert f"kill -CONT {pid_of(stopped)}" in done.stderr
    assert stopped.last_seq() == before


@pytest.mark.parametrize("name", ["status", "show", "log"])
def test_a_command_that_only_reads_does_so_while_the_hub_is_stopped(stopped: RealRun, name: str) -> None:
    done = bartack(stopped, name, "RUN")

    assert done.returncode == 0, done.stderr
    assert (f"kill -CONT {pid_of(stopped)}" in done.stdout) == (name == "status")


def test_nothing_that_was_refused_happens_when_the_hub_continues(run: RealRun) -> None:
    pid = stop(run)
    assert bartack(run, "cancel", "RUN").returncode == 8

    os.kill(pid, signal.SIGCONT)
    run.api.send("go", 1)

    assert run.wait_hub() == 0
    assert run.api.result() == 1


def test_a_request_waits_for_a_hub_that_continues_in_time(
    run: RealRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARTACK_TIMEOUT_HUB_JOIN", str(PATIENCE_S))
    pid = stop(run)
    script = f"import os, select; select.select([], [], [], 0.5); os.kill({pid}, 18)"
    with subprocess.Popen([sys.executable, "-c", script]):
        run.api.send("go", 2)

    assert run.wait_hub() == 0
    assert run.api.result() == 2


REQUESTS: dict[str, Callable[[Run], object]] = {
    "answer": lambda run: run.answer("q1", True),
    "send": lambda run: run.send("go", 1),
    "receive": lambda run: run.receive("other", 0),
    "cancel": lambda run: run.cancel(),
    "fail": lambda run: run.fail("enough"),
    "interrupt": lambda run: run.interrupt(),
    "resume": lambda run: run.resume(),
    "join": lambda run: run.join(),
    "dead letter": lambda run: run.dead_letters.purge_messages("all"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_of_a_stopped_hub_raises(stopped: RealRun, name: str) -> None:
    before, seq = time.monotonic(), stopped.last_seq()

    with pytest.raises(HubStoppedError) as raised:
        REQUESTS[name](stopped.api)

    assert (raised.value.pid, raised.value.asked) == (pid_of(stopped), "")
    assert time.monotonic() - before >= JOIN_S / 2
    assert stopped.last_seq() == seq


def test_a_session_whose_hub_stops_raises_and_continues_with_it(run: RealRun) -> None:
    with Session.join(run.run.path) as session:
        pid = stop(run)
        with pytest.raises(HubStoppedError) as raised:
            session.mailbox.other.send(1)
        assert raised.value.asked == "send"

        os.kill(pid, signal.SIGCONT)

        # What was asked of it before is done now.
        assert session.mailbox.other.receive(PATIENCE_S) == 1


def test_an_asynchronous_client_of_a_stopped_hub_raises(run: RealRun) -> None:
    async def play() -> None:
        async with (
            await AsyncRun.open(run.run.path) as client,
            await AsyncSession.join(run.run.path) as session,
        ):
            pid = stop(run)
            for request in (
                client.send("go", 1),
                client.cancel(),
                client.join(),
                session.mailbox.other.receive(PATIENCE_S),
            ):
                with pytest.raises(HubStoppedError):
                    await request
            os.kill(pid, signal.SIGCONT)
            # The receive that was given up takes no message away.
            await session.mailbox.other.send(1)
            assert await session.mailbox.other.receive(PATIENCE_S) == 1

    asyncio.run(play())


def test_more_connections_than_a_stopped_hub_has_room_for_hang_nothing(run: RealRun) -> None:
    pid = stop(run)
    waiting: list[socket.socket] = []
    with suppress(BlockingIOError):
        while len(waiting) < 1000:
            waiting.append(run.run.socket.connect(0.0))
    assert len(waiting) < 1000

    with pytest.raises(HubStoppedError) as raised:
        run.api.send("go", 1)

    assert raised.value.pid == pid
    assert run.api.state().status == "running"
    for sock in waiting:
        sock.close()


def test_a_slow_hub_that_is_not_stopped_is_waited_for(run: RealRun) -> None:
    with pytest.raises(ReceiveTimeoutError):
        run.api.receive("other", 4 * JOIN_S)


def test_ps_of_all_runs_shows_those_that_answer(run: RealRun, begin: Begin) -> None:
    other = begin("waiting")
    other.start()
    other.wait_open("receive")
    stop(run)

    done = bartack(run, "ps", "--json")

    assert [told["run"] for told in json.loads(done.stdout)] == [other.run.id]
    assert (done.returncode, run.run.id in done.stderr) == (8, True)
