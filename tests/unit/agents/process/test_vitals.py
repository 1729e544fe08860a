"""An agent that says nothing is not stalled as long as its processes work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import request_for

from bartack.agents._record import AgentRecord, Link
from bartack.agents.config import ProtocolConfig
from bartack.agents.conversation._actions import NeedProcess
from bartack.agents.ndjson._dialect import open_line_conversation
from bartack.agents.process._vitals import Activity, Vitals
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.messages import Abilities, Hello
from bartack.testing import VirtualClock

OBEYS = """
import subprocess, sys, time
for line in sys.stdin:
    if line.strip() == "compute":
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
    elif line.strip() == "write":
        with open("/dev/null", "wb") as file:
            file.write(b"x" * 200_000)
    elif line.strip() == "start":
        child = subprocess.Popen(["sleep", "60"])
    print("done", flush=True)
"""


@contextmanager
def obeying() -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", OBEYS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this kernel does not tell")
def test_the_kernel_tells_what_a_tree_does() -> None:
    with obeying() as process:
        vitals = Vitals()

        def after(word: str) -> Activity:
            assert process.stdin is not None
            assert process.stdout is not None
            print(word, file=process.stdin, flush=True)
            process.stdout.readline()
            return vitals.look(process.pid)

        assert vitals.look(process.pid) == "none", "there is nothing to compare with"
        after("begin")
        assert vitals.look(process.pid) == "none"
        assert after("compute") == "much"
        assert after("write") == "much"
        assert after("start") == "much"
        assert vitals.look(process.pid) == "none", "it waits, and so does its child"
        assert vitals.look(0) == "none"


class Silent:
    """A command to an agent that says nothing, and what the kernel says of it."""

    def __init__(self, root: Path, *, beats: bool, heard: bool = True) -> None:
        self.clock = VirtualClock()
        self.activity: Activity = "none"
        config = msgspec.convert(
            {"kind": "ndjson", "command": "x", "stall_s": 300, "heartbeat_s": 0}, type=NdjsonConfig
        )
        self.talk = open_line_conversation(
            "stub", request_for("implement", root), config, ProtocolConfig(), AgentRecord("stub"), clock=self.clock,
            look=lambda pid: self.activity,
        )  # fmt: skip
        link = Link(pid=17)
        link.has_written = heard
        if beats:
            link.take_hello(
                Hello(protocol=[1], name="n", version="1", capabilities=Abilities(heartbeat=True))
            )
        self.talk.begin()
        assert any(isinstance(action, NeedProcess) for action in self.talk.take())
        self.talk.attached(link)
        self.talk.take()

    @property
    def state(self) -> str:
        return self.talk.state

    def pass_time(self, seconds: float) -> None:
        until = self.clock.monotonic_ns() / 1e9 + seconds
        while (due := self.talk.next_due()) is not None and due <= until and self.talk.state == "running":
            self.clock.advance(max(due - self.clock.monotonic_ns() / 1e9, 0.0))
            self.talk.tick()
            self.talk.take()
        if self.talk.state == "running":
            self.clock.advance(max(until - self.clock.monotonic_ns() / 1e9, 0.0))


@pytest.mark.requirement("silent-work-is-not-a-stall")
@pytest.mark.parametrize("heard", [True, False])
def test_an_agent_that_works_silently_is_let_be_and_one_that_stops_is_not(
    tmp_path: Path, *, heard: bool
) -> None:
    silent = Silent(tmp_path, beats=False, heard=heard)
    silent.activity = "some"
    silent.pass_time(1500)
    assert silent.state == "running"

    silent.activity = "none"
    silent.pass_time(290 if heard else 29)
    assert silent.state == "running"
    silent.pass_time(45)
    assert silent.state == "stopping", "it is ended, and asked once more"


@pytest.mark.requirement("silent-work-is-not-a-stall")
@pytest.mark.parametrize(("activity", "state"), [("some", "stopping"), ("much", "running")])
def test_heartbeats_alone_are_no_work(tmp_path: Path, activity: Activity, state: str) -> None:
    silent = Silent(tmp_path, beats=True)
    silent.activity = activity
    silent.pass_time(400)

    assert silent.state == state
