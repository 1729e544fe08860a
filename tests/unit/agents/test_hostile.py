"""Agents that mean no good, or are badly broken: what they write, say and leave harms nobody."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.unit.agents.loop import Sink, open_loop
from tests.unit.agents.stage import Stage, request_for

from bartack.agents import BadLine, Line, read_line
from bartack.agents.artifacts import total_size, verify_artifacts
from bartack.agents.contract import VerifiedArtifact
from bartack.agents.ndjson._files import STREAM_BYTES, CallFiles
from bartack.agents.process._stderr import StderrLog
from bartack.agents.process.process import WAITING_LINES, AgentProcess, Launch
from bartack.agents.protocol.lines import MAX_LINE, LineReader, Read
from bartack.agents.protocol.messages import Artifact, ToolResult, ToolSpec
from bartack.core.clock import Clock, SystemClock
from bartack.core.redact import Redactor
from bartack.errors import AgentPlaceError, AgentTransientError

SECRET = "hunter2-\u00e4nd-a-half-of-it"  # noqa: S105 - opens nothing
REDACT = Redactor({"DOOR_KEY": SECRET}).redact_bytes
EVENT: dict[str, object] = {
    "kind": "event",
    "message_id": "m",
    "correlation_id": "c",
    "task_id": "T",
    "from": {"agent_type": "general"},
    "event": "prompt.completed",
    "occurred_at": "2026-01-01T00:00:00Z",
}


# Numbers.


@pytest.mark.requirement("bad-lines-are-borne")
@pytest.mark.parametrize(
    ("member", "case"),
    [
        ('"usage":{"cost_usd":1e999}', "malformed"),
        ('"usage":{"cost_usd":1e300}', "schema"),
        (f'"usage":{{"output_tokens":1{"0" * 400}}}', "schema"),
        ('"payload":{"result":[-1e999]}', "malformed"),
    ],
)
def test_a_number_that_nobody_can_keep_is_refused(member: str, case: str) -> None:
    line = json.dumps(EVENT)[:-1] + f",{member}}}"

    read = read_line(line.encode())

    assert isinstance(read, BadLine)
    assert read.case == case


@pytest.mark.requirement("terminal-errors-are-not-repeated")
def test_an_agent_that_wants_to_rest_for_ever_rests_until_the_deadline(tmp_path: Path) -> None:
    error = {"code": "overloaded", "message": "no", "retry_after_s": 10**400}
    script: dict[str, object] = {
        "responses": {"implement": {"events": [{"type": "error", "payload": error}]}}
    }

    outcome = Stage(tmp_path, script).ask(request_for("implement", tmp_path, timeout_s=60.0))

    assert type(outcome).__name__ == "AgentDeadlineError"
    assert not isinstance(outcome, AgentTransientError)


# Secrets.


@pytest.mark.requirement("agents-leave-no-secrets")
def test_a_secret_does_not_hide_in_escapes() -> None:
    hidden = "".join(f"\\u{ord(character):04x}" for character in SECRET)
    line = json.dumps({**EVENT, "payload": {"text": "@"}}).replace("@", hidden)

    (read,) = LineReader(REDACT).feed(line.encode() + b"\n")

    assert isinstance(read, Line)
    assert SECRET not in str(read.message)
    assert b"$env:DOOR_KEY" in read.raw


@pytest.mark.requirement("agents-leave-no-secrets")
@pytest.mark.parametrize("before", [4090, 4096 - len(SECRET.encode()) // 2])
def test_a_secret_at_the_edge_of_what_is_kept_of_a_long_line_does_not_show(before: int) -> None:
    line = b"x" * before + SECRET.encode() + b"y" * MAX_LINE + b"\n"

    (read,) = LineReader(REDACT).feed(line)

    assert isinstance(read, BadLine)
    assert SECRET.encode()[:4] not in read.excerpt
    assert len(read.excerpt) == 4096


@pytest.mark.requirement("agents-leave-no-secrets")
@pytest.mark.parametrize("before", [0, 10, 65_530, 131_070])
@pytest.mark.parametrize("cut", [1, 9, 20])
def test_a_secret_that_comes_in_two_pieces_is_not_stored(before: int, cut: int, tmp_path: Path) -> None:
    secret = SECRET.encode()
    stderr = StderrLog(REDACT)
    stderr.store_in(tmp_path)

    stderr.feed(b"x" * before + secret[:cut])
    stderr.feed(secret[cut:] + b"y" * 70_000 + b"\nthe end")
    tail = stderr.tail()
    stderr.close()

    stored = (tmp_path / "stderr.txt").read_bytes()
    assert stored == b"x" * before + b"$env:DOOR_KEY" + b"y" * 70_000 + b"\nthe end"
    assert tail[-1] == "the end"


# Floods.


def test_what_agents_make_us_say_does_not_fill_the_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("call")
    files = CallFiles.open("stub", tmp_path, SystemClock(), REDACT)
    files._copied = STREAM_BYTES

    for _ in range(3):
        files.copy_out(b'{"kind":"tool_result"}\n')
    files.copy_out(b'{"kind":"command"}\n')
    files.close()

    stored = (tmp_path / "stream.ndjson").read_text()
    assert stored.count("\n") == 1
    assert '"command"' in stored


@pytest.mark.requirement("bad-lines-are-borne")
def test_an_agent_that_calls_tools_without_end_gets_errors(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"prompt": {"inject": [{"do": "hang", "at": "start"}]}}})
    stage.tools = lambda _: None
    stage.begin(request_for("prompt", tmp_path, tools=[ToolSpec("t", "", {})]))
    for number in range(70):
        call: dict[str, object] = {
            "kind": "tool_call",
            "message_id": f"m{number}",
            "correlation_id": stage.commands()[-1].correlation_id,
            "call_id": f"c{number}",
            "name": "t",
            "arguments": {},
            "timestamp": "2026-01-01T00:00:00Z",
        }
        read = read_line(json.dumps(call).encode())
        stage.hear(read)

    told = [message for message in stage.sent if isinstance(message, ToolResult)]
    assert [message.error.code for message in told if message.error] == ["too_many_calls"] * 6


class Pipes:
    """A host whose process is this test; and whoever hears the process."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[], None]] = {}
        self.heard_lines = 0
        self.stdin = self.stdout = -1

    @property
    def clock(self) -> Clock:
        return SystemClock()

    def start(
        self,
        owner: AgentProcess[Read],
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        fds: tuple[int, int, int],
        *,
        relayed: bool = False,
    ) -> int:
        self.stdin, self.stdout = os.dup(fds[0]), os.dup(fds[1])
        return 1

    def stop(self, number: int, grace_s: float) -> None: ...

    def sweep(self, number: int) -> None: ...

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        assert fd not in self.watched
        self.watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        del self.watched[fd]

    def line_came(self, process: AgentProcess[Read], read: Read) -> None:
        """Every line makes us say something."""
        self.heard_lines += 1
        process.send(b"x" * 10_000 + b"\n")

    def started(self, process: AgentProcess[Read]) -> None: ...

    def ended(self, process: AgentProcess[Read], status: int | None) -> None: ...

    def not_started(self, process: AgentProcess[Read], reason: str) -> None: ...


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    os.close(made.stdin)
    os.close(made.stdout)


def test_an_agent_that_does_not_read_is_not_read_any_more(pipes: Pipes) -> None:
    process = AgentProcess(pipes, pipes, Launch(["x"], "/", {}, LineReader(REDACT)), REDACT)
    read_stdout = next(iter(pipes.watched.values()))
    lines = WAITING_LINES + 20
    os.write(pipes.stdout, b"{}\n" * lines)

    read_stdout()
    waits = read_stdout in pipes.watched.values()
    (write_stdin,) = [ready for ready in pipes.watched.values() if ready == process._write_lines]
    taken = 0
    while process._write_lines in pipes.watched.values():
        taken += len(os.read(pipes.stdin, 65_536))
        write_stdin()

    assert not waits
    assert read_stdout in pipes.watched.values()
    assert pipes.heard_lines == lines
    process.close()
    assert pipes.watched == {}


def test_what_was_ready_when_a_process_was_closed_is_not_read(pipes: Pipes) -> None:
    process = AgentProcess(pipes, pipes, Launch(["x"], "/", {}, LineReader(REDACT)), REDACT)
    ready = list(pipes.watched.values())

    process.failed("it is not there")
    for call in ready:
        call()

    assert process.over
    assert pipes.heard_lines == 0


# Files.


def test_files_are_as_large_as_they_are_and_not_as_an_agent_says(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1000)
    said = [Artifact("big", "sha256:" + "0" * 64, 1), Artifact("none\0", "sha256:" + "0" * 64, 7)]

    assert total_size(request_for("implement", tmp_path), said) == 1000


def test_a_file_that_grows_while_it_is_looked_at_is_read_as_far_as_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"begun")
    real_read = os.read

    def read_and_grow(fd: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"more" * 10)
        return real_read(fd, size)

    monkeypatch.setattr(os, "read", read_and_grow)
    begun = f"sha256:{hashlib.sha256(b'begun').hexdigest()}"

    verdict = verify_artifacts(request_for("implement", tmp_path), [Artifact("growing", begun, 5)])

    assert verdict == [VerifiedArtifact("growing", begun, 5)]
    assert path.stat().st_size == 45


@pytest.mark.requirement("agents-are-supervised")
def test_a_call_whose_files_cannot_be_made_fails_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file where a directory should be")

    with open_loop(tmp_path) as loop, pytest.raises(AgentPlaceError):
        loop.agent(["true"]).start(request_for("implement", tmp_path), Sink())
