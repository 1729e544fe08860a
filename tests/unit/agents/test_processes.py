"""Agents that are real processes: each kind of failure once, and what is left of it."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.unit.agents.loop import Loop, Sink, open_loop
from tests.unit.agents.stage import ANSWERS, request_for

from bartack.agents import AgentQuestion, AgentResult
from bartack.agents.process._memory import MemoryWatch
from bartack.errors import (
    AgentBusyError,
    AgentCancelledError,
    AgentDeadlineError,
    AgentError,
    AgentStartError,
)
from bartack.supervision.process.tree import find_by_environment

pytestmark = pytest.mark.requirement("agents-are-supervised")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with open_loop(tmp_path) as made:
        yield made


def write_script(tmp_path: Path, *inject: dict[str, object], **reply: object) -> Path:
    script = {"responses": {"implement": {"inject": list(inject), "events": [ANSWERS["implement"]], **reply}}}
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script))
    return path


def folder_of(tmp_path: Path) -> Path:
    (folder,) = [path.parent for path in (tmp_path / "agents").rglob("stream.ndjson")]
    return folder


@pytest.mark.parametrize(
    ("inject", "attempts"),
    [
        ({"do": "crash", "at": "start"}, 2),
        ({"do": "exit", "code": 0}, 2),
        ({"do": "torn", "then": "exit"}, 2),
        ({"do": "hang"}, 2),
        ({"do": "malformed", "instead": True}, 2),
    ],
    ids=lambda value: "" if isinstance(value, int) else str(value),
)
def test_a_process_that_fails_once_is_asked_again_under_the_same_key(
    inject: dict[str, object], attempts: int, loop: Loop, tmp_path: Path
) -> None:
    script = write_script(tmp_path, inject)
    state = str(tmp_path / "state.json")
    agent = loop.scripted(script, "--state", state, heartbeat_s=0.2, missed_heartbeats=25)

    result = loop.result(agent, request_for("implement", tmp_path))

    assert result.attempts == attempts
    sent = [json.loads(line) for line in (folder_of(tmp_path) / "stream.ndjson").read_text().splitlines()]
    commands = [copy["line"] for copy in sent if copy["dir"] == "out" and copy["line"]["kind"] == "command"]
    assert len(commands) == attempts
    assert len({command["idempotency_key"] for command in commands}) == 1


def test_bad_lines_floods_and_doubles_beside_an_answer_change_nothing(loop: Loop, tmp_path: Path) -> None:
    beside: list[dict[str, object]] = [
        {"do": name}
        for name in ("oversize", "malformed", "null", "not_utf8", "blank", "unknown_kind", "unknown_event")
    ]
    wrong: list[dict[str, object]] = [
        {"do": f"wrong_{name}"} for name in ("key", "correlation", "sender", "task")
    ]
    floods: list[dict[str, object]] = [
        {"do": "log_flood", "count": 10_000},
        {"do": "stderr_flood", "bytes": 100_000_000},
        {"do": "duplicate", "count": 3},
    ]
    agent = loop.scripted(write_script(tmp_path, *beside, *wrong, *floods))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    result = loop.result(agent, request_for("implement", tmp_path))

    assert result.attempts == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
    assert (folder_of(tmp_path) / "stderr.txt").stat().st_size == 1024 * 1024
    assert len(loop.warnings) < 25


def test_a_cancel_ends_a_process_that_hangs_with_everything_it_started(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.agents.process.process.EOF_GRACE_S", 0.1)
    late = tmp_path / "late.txt"
    script = write_script(
        tmp_path,
        {"do": "ignore_eof", "at": "start"},
        {"do": "spawn", "at": "start", "seconds": 60, "writes": str(late)},
        {"do": "hang", "at": "start", "heartbeats": True},
    )
    agent = loop.scripted(script, cancel_grace_s=0.1)
    sink = Sink()
    call = agent.start(request_for("implement", tmp_path), sink)
    loop.until(lambda: bool(agent.pids()) and len(_family(tmp_path)) == 2)

    call.cancel("user")
    loop.until(lambda: bool(sink.outcomes))

    assert isinstance(sink.outcomes[0], AgentCancelledError)
    assert _family(tmp_path) == []


def _family(tmp_path: Path) -> list[int]:
    return [facts.pid for facts in find_by_environment("BARTACK_WORKSPACE", str(tmp_path)) if not facts.dead]


def test_a_kept_process_serves_two_commands_and_ends_when_it_is_idle(loop: Loop, tmp_path: Path) -> None:
    agent = loop.scripted(write_script(tmp_path), idle_stop_s=0.1)
    loop.result(agent, request_for("implement", tmp_path))
    first = agent.pids()
    loop.result(agent, request_for("implement", tmp_path, key="ik:" + "1" * 64, step=2))
    assert agent.pids() == first

    loop.until(lambda: not agent.pids())

    assert _family(tmp_path) == []


def test_without_keep_no_process_is_left(loop: Loop, tmp_path: Path) -> None:
    agent = loop.scripted(write_script(tmp_path), keep=False)

    loop.result(agent, request_for("implement", tmp_path))

    assert (agent.pids(), _family(tmp_path)) == ([], [])


def test_a_program_that_is_not_there_is_told_with_the_setting_to_change(loop: Loop, tmp_path: Path) -> None:
    outcome = loop.ask(loop.agent(["no-such-agent"]), request_for("implement", tmp_path))

    assert isinstance(outcome, AgentStartError)
    assert "agents.stub.command" in outcome.message
    assert "no-such-agent" in outcome.message


def test_an_agent_that_does_not_read_keeps_nobody(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.agents.process.process.EOF_GRACE_S", 0.1)
    deaf = loop.agent([sys.executable, "-S", "-c", "import time; time.sleep(60)"], cancel_grace_s=0.1)
    sink = Sink()
    big = request_for("implement", tmp_path, inputs={"goal": "x" * 200_000}, timeout_s=0.5)
    deaf.start(big, sink)

    loop.until(lambda: bool(sink.outcomes))

    assert isinstance(sink.outcomes[0], AgentDeadlineError)


@pytest.mark.requirement("agents-get-few-variables")
def test_an_agent_gets_the_variables_it_is_given_and_no_others(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-secret-value")
    monkeypatch.setenv("PASSED_ON", "yes")
    report = tmp_path / "env.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(report)!r}, 'w'))"
    agent = loop.agent([sys.executable, "-c", code], env={"OWN": "1"}, pass_env=["PASSED_*"], retries=1)

    loop.ask(agent, request_for("implement", tmp_path))

    seen = json.loads(report.read_text())
    assert "CANARY_TOKEN" not in seen
    assert (seen["OWN"], seen["PASSED_ON"]) == ("1", "yes")
    assert seen["BARTACK_PROTOCOL"] == "1"
    assert (seen["BARTACK_AGENT"], seen["BARTACK_ROLE"]) == ("stub", "builder")
    assert seen["BARTACK_STEP"].startswith("ik:")
    assert seen["BARTACK_MAX_LINE"] == "262144"


@pytest.mark.requirement("agents-leave-no-secrets")
def test_secrets_are_in_no_file_of_a_call(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter22hunter22")
    answer = {
        "type": "builder.completed",
        "payload": {"summary": "used hunter22hunter22", "list": [["hunter22hunter22"]]},
    }
    script = write_script(tmp_path, {"do": "malformed", "text": "hunter22hunter22"}, events=[answer])
    argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", str(script)]
    code = f"import os, sys; os.write(2, b'hunter22hunter22\\n'); os.execv(sys.executable, {argv!r})"
    agent = loop.agent([sys.executable, "-c", code])

    result = loop.result(agent, request_for("implement", tmp_path))

    assert result.payload["summary"] == "used $env:DEPLOY_TOKEN"
    agent.close()
    kept = [path for path in (tmp_path / "agents").rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"transcript.ndjson", "stream.ndjson", "stderr.txt"}
    assert [path.name for path in kept if b"hunter22" in path.read_bytes()] == []


class Listening(Sink):
    """Takes questions, too."""

    def ask(self, question: AgentQuestion) -> None:
        """Leave it open."""


@pytest.mark.requirement("agents-questions-survive-crashes")
@pytest.mark.parametrize("asks", [True, False])
def test_an_agent_that_waits_for_a_person_does_not_notice_that_it_is_stopped(
    loop: Loop, tmp_path: Path, *, asks: bool
) -> None:
    begun, noticed = tmp_path / "begun", tmp_path / "noticed"
    code = f"import sys; open({str(begun)!r}, 'w'); sys.stdin.read(); open({str(noticed)!r}, 'w')"
    agent = loop.agent([sys.executable, "-S", "-c", code])
    call = agent.start(request_for("implement", tmp_path), Listening())
    loop.until(begun.exists)
    if asks:
        call.talk.questions.ask(AgentQuestion(id="a", text="May it?", kind="permission"))

    agent.stop_all()
    loop.until(lambda: not agent.pids())

    assert noticed.exists() != asks


def test_one_conversation_is_used_by_one_call_at_a_time(loop: Loop, tmp_path: Path) -> None:
    agent = loop.agent([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    agent.start(request_for("implement", tmp_path), Sink())

    with pytest.raises(AgentBusyError):
        agent.start(request_for("implement", tmp_path), Sink())


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_an_answer_that_was_copied_is_found_by_the_next_hub(loop: Loop, tmp_path: Path) -> None:
    first = loop.scripted(write_script(tmp_path))
    loop.result(first, request_for("implement", tmp_path))
    first.close()
    second = loop.agent(["no-such-agent"])

    result = loop.result(second, request_for("implement", tmp_path, attempt=2))

    assert result.harvested is True


def test_the_last_words_of_a_process_are_in_the_error(loop: Loop, tmp_path: Path) -> None:
    agent = loop.agent(
        [sys.executable, "-S", "-c", "import sys; sys.stderr.write('no licence\\n'); sys.exit(3)"], retries=1
    )

    outcome = loop.ask(agent, request_for("implement", tmp_path))

    assert isinstance(outcome, AgentError)
    assert outcome.stderr_tail == ("no licence",)
    assert "ended with 3" in outcome.message


def test_a_process_that_was_killed_while_memory_was_short_is_reported_so(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = count()

    def count_one(_watch: MemoryWatch) -> int:
        return next(kills)

    monkeypatch.setattr(MemoryWatch, "_count", count_one)
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    outcome = loop.ask(
        loop.agent([sys.executable, "-S", "-c", dies], retries=1), request_for("implement", tmp_path)
    )

    assert isinstance(outcome, AgentError)
    assert (
        "killed by signal 9; meanwhile the kernel has killed processes for lack of memory" in outcome.message
    )


def test_calls_at_the_same_time_have_processes_of_their_own(loop: Loop, tmp_path: Path) -> None:
    agent = loop.scripted(write_script(tmp_path))
    sinks = [Sink(), Sink()]
    for number, sink in enumerate(sinks):
        agent.start(request_for("implement", tmp_path, key=f"ik:{number}" + "0" * 63, step=number), sink)

    loop.until(lambda: all(sink.outcomes for sink in sinks))

    assert all(isinstance(sink.outcomes[0], AgentResult) for sink in sinks)
    assert len(agent.pids()) == 2
    assert len(os.listdir(tmp_path / "agents/stub")) == 3


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_an_answer_that_was_refused_is_not_found_again(loop: Loop, tmp_path: Path) -> None:
    agent = loop.scripted(write_script(tmp_path))
    loop.result(agent, request_for("implement", tmp_path))

    loop.result(agent, request_for("implement", tmp_path, rejected="spec_edit"))
    again = loop.result(agent, request_for("implement", tmp_path, rejected="spec_edit"))
    found = loop.result(agent, request_for("implement", tmp_path, rejected="spec_edit", attempt=2))

    assert (again.harvested, found.harvested) == (False, True)
    sent = [json.loads(line) for line in (folder_of(tmp_path) / "stream.ndjson").read_text().splitlines()]
    retries = [copy["line"]["retry"] for copy in sent if copy["dir"] == "out"]
    assert [retry["cause"] for retry in retries] == ["first", "rejected", "rejected"]
    assert retries[1]["code"] == "spec_edit"


LITTERING = """
import json, subprocess, sys
print('{"kind":"hello","protocol":[1],"name":"litter","version":"1"}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["kind"] == "command":
        left = "sleep 300 > /dev/null 2>&1 < /dev/null & echo $!"
        pid = subprocess.run(["/bin/sh", "-c", left], capture_output=True, text=True).stdout.strip()
        kept = subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answer = {
            "kind": "event", "message_id": command["message_id"] + "-answer", "task_id": command["task_id"],
            "correlation_id": command["correlation_id"], "from": {"agent_type": command["to"]["agent_type"]},
            "event": "builder.completed", "payload": {"summary": f"{pid} {kept.pid}", "tests": {"status": "pass"}},
            "occurred_at": "2026-01-01T00:00:00Z",
        }
        print(json.dumps(answer), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans come to us as on Linux")
def test_a_kept_process_stays_and_what_it_has_left_behind_is_ended(loop: Loop, tmp_path: Path) -> None:
    agent = loop.agent([sys.executable, "-S", "-c", LITTERING])

    result = loop.result(agent, request_for("implement", tmp_path))

    orphan, child = map(int, str(result.payload["summary"]).split())
    loop.until(lambda: not is_running(orphan))
    assert is_running(child)
    assert [is_running(pid) for pid in agent.pids()] == [True]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False
