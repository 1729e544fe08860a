"""The server of ``bartack mcp`` as a process: hostile input, kills, several servers, and what it loads."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.mcp.peer import PATIENCE_S, Peer

from bartack import Run
from bartack.mcp import _starter
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.line import read_line
from bartack.testing import wait_for

PERMITTED_MB = 25
PERMITTED_MS = 100.0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", -32700),
        (b"\xff\xfe\x00\n", -32700),
        (b"[" * 200_000 + b"\n", -32700),
        (b"[]\n", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', -32600),
    ],
)
def test_a_hostile_line_is_answered_and_the_server_goes_on(peer: Peer, line: bytes, code: int) -> None:
    peer.send(line)

    assert peer.read()["error"]["code"] == code
    assert peer.request("ping")["result"] == {}


def test_ten_megabytes_in_a_line_are_answered(peer: Peer) -> None:
    text = peer.refused("run_status", run="x" * 10_000_000)

    assert len(text) < 1000
    assert peer.request("ping")["result"] == {}


def test_a_line_without_end_is_skipped(peer: Peer) -> None:
    peer.send(b"x" * (17 * 1024 * 1024) + b"\n")

    assert peer.read()["error"]["code"] == -32600
    assert peer.request("ping")["result"] == {}


def test_unknown_tools_and_arguments_are_refused(peer: Peer) -> None:
    unknown = peer.request("tools/call", {"name": "delete_everything", "arguments": {}})

    assert unknown["error"]["code"] == -32602
    assert "$.path" in peer.refused("list_runs", path="/")
    assert "at most 50" in peer.refused("wait_run", run="run-2026", timeout_s=51)


def test_the_end_of_the_input_ends_the_server_during_a_wait(project: Path) -> None:
    with Peer(project) as peer:
        run = peer.call("start_run", entry="gated")["run"]
        peer.begin_call("wait_run", run=run)

        assert peer.close() == 0
    assert Run.open(run, project).state().status == "running"


@pytest.mark.requirement("mcp-run-outlives-its-server")
def test_a_run_goes_on_when_its_server_is_killed_and_another_one_reports_it(project: Path) -> None:
    with Peer(project, session="first") as peer:
        run = peer.call("start_run", entry="gated")["run"]
        peer.begin_call("wait_run", run=run)
        os.kill(peer.process.pid, signal.SIGKILL)
    with Peer(project, session="second") as peer:
        peer.call("send_message", run=run, mailbox="gate", message="go")
        found = peer.finish(run)

    assert found["status"] == "completed"
    assert found["lines"] == ["gated: before", "gated: after"]


@pytest.mark.requirement("mcp-run-outlives-its-server")
def test_the_hub_is_not_a_descendant_of_the_server_and_has_a_session_of_its_own(
    peer: Peer, project: Path
) -> None:
    run = peer.call("start_run", entry="gated")["run"]
    hub = json.loads((project / ".bartack/runs" / run / "run.json").read_text())["pid"]

    assert peer.process.pid not in [facts.pid for facts in read_line(hub) or []]
    assert os.getsid(hub) not in {os.getsid(0), os.getsid(peer.process.pid)}
    if sys.platform == "linux":
        streams = [os.readlink(f"/proc/{hub}/fd/{number}") for number in range(3)]
        assert streams[0] == os.devnull
        assert streams[1].endswith("hub.log")


def wait_until(look: Callable[[], list[Run]]) -> list[Run]:
    """What is there, once there is something."""
    until = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < until, "it takes too long"
        select.select([], [], [], 0.05)
    return found


@pytest.mark.requirement("mcp-start-is-not-repeated")
def test_a_start_whose_server_is_killed_takes_effect_once(project: Path) -> None:
    with Peer(project) as peer:
        peer.begin_call("start_run", entry="gated")
        peer.begin_call("start_run", entry="gated")
        # The starters are at work when the directory of the runs is made.
        while not (project / ".bartack").exists():
            assert peer.process.poll() is None
        os.killpg(peer.process.pid, signal.SIGKILL)
    (run,) = wait_until(lambda: Run.list(project))
    wait_for(run, "message.sent", count=2)
    with Peer(project) as peer:
        again = peer.call("start_run", entry="gated")
        assert (again["run"], again["existing"]) == (run.id, True)
        peer.call("send_message", run=again["run"], mailbox="gate", message=1)

        assert peer.finish(again["run"])["status"] == "completed"
    assert [run.id for run in Run.list(project)] == [again["run"]]


def leave_alone(run: RunDir) -> None:
    """Start nothing, as if the starter had been killed."""


@pytest.mark.requirement("mcp-start-is-not-repeated")
def test_a_run_whose_starter_was_killed_before_its_hub_is_started_by_the_repetition(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _starter.StartRequest(project=str(project), program="desk.py", member="gated", key="ab" * 32)
    with monkeypatch.context() as patch:
        patch.setattr(_starter, "start_hub", leave_alone)
        first = _starter.start(request)
    second = _starter.start(request)

    assert (first.existing, second.existing) == (False, True)
    assert (first.status, second.status) == ("interrupted", "running")
    assert first.run == second.run


@pytest.mark.requirement("mcp-start-is-not-repeated")
def test_a_repeated_start_returns_the_run_until_its_end_was_reported(project: Path) -> None:
    args = {"folder": "a", "limit": 2}
    with Peer(project) as peer:
        first = peer.call("start_run", entry="sort", args=args)
        Run.open(first["run"], project).wait(30)
    with Peer(project) as peer:  # the same conversation, resumed
        ended = peer.call("start_run", entry="sort", args={"limit": 2, "folder": "a"})
        peer.finish(first["run"])
        second = peer.call("start_run", entry="sort", args=args)
        another = peer.call("start_run", entry="sort", args=args, new=True)
    with Peer(project, session="another") as peer:
        third = peer.call("start_run", entry="sort", args=args)

    assert (ended["run"], ended["existing"], ended["status"]) == (first["run"], True, "completed")
    assert len({first["run"], second["run"], another["run"], third["run"]}) == 4
    assert not any(started["existing"] for started in (first, second, another, third))


@pytest.mark.requirement("mcp-start-is-not-repeated")
def test_two_servers_of_one_conversation_start_one_run(project: Path) -> None:
    with Peer(project) as one, Peer(project) as two:
        calls = [(peer, peer.begin_call("start_run", entry="gated")) for peer in (one, two)]
        started = [peer.result(number) for peer, number in calls]

    assert started[0]["run"] == started[1]["run"]
    assert sorted(found["existing"] for found in started) == [False, True]


def test_several_servers_wait_for_one_run(project: Path) -> None:
    with Peer(project, session="a") as one, Peer(project, session="b") as two:
        run = one.call("start_run", entry="gated")["run"]
        waits = [(peer, peer.begin_call("wait_run", run=run)) for peer in (one, two)]
        two.call("send_message", run=run, mailbox="gate", message=7)

        assert [peer.result(number)["value"] for peer, number in waits] == [7, 7]


@pytest.mark.requirement("mcp-keeps-the-session-out")
def test_variables_of_the_session_reach_neither_the_run_nor_its_files(project: Path) -> None:
    (project / "desk.py").write_text(
        "import os\nfrom bartack import Context, worker\n\n@worker\nasync def main(ctx: Context, folder: str) -> list:\n"
        "    return sorted(name for name in os.environ if 'CLAUDE' in name)\n"
    )
    canary = "canary-7f3a9b"
    env = {"CLAUDE_CODE_SSE_PORT": canary, "CLAUDECODE": canary, "CLAUDE_MESSAGING_SOCKET": canary}
    with Peer(project, session=canary, **env) as peer:
        run = peer.call("start_run", entry="sort", args={"folder": "a"})["run"]
        found = peer.finish(run)

    assert found["value"] == []
    files = [path for path in (project / ".bartack").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [str(path) for path in files if canary.encode() in path.read_bytes()] == []


@pytest.mark.requirement("mcp-starts-only-entries")
def test_without_entries_nothing_can_be_started(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("raise SystemExit")
    with Peer(tmp_path) as peer:
        text = peer.refused("start_run", entry="desk.py")
        path = peer.refused("run_status", run=str(tmp_path))

    assert "BT1016" in text
    assert "[mcp.entries]" in text
    assert "at least 8 characters" in path


@pytest.mark.requirement("runs-do-not-steer-runs")
def test_inside_a_run_the_server_cannot_answer_or_cancel_that_run(project: Path) -> None:
    (project / "desk.py").write_text(
        "import json, sys\nfrom bartack import Context, worker\n\n@worker\nasync def main(ctx: Context) -> list:\n"
        "    calls = [('answer_question', {'question': 'q1', 'answer': 'x'}), ('cancel_run', {})]\n"
        "    lines = [{'jsonrpc': '2.0', 'id': n, 'method': 'tools/call', 'params': {'name': name, 'arguments':"
        " {'run': ctx.session.id, **more}}} for n, (name, more) in enumerate(calls)]\n"
        "    stdin = ''.join(json.dumps(line) + '\\n' for line in lines)\n"
        '    script = \'import subprocess, sys; p = subprocess.Popen([sys.executable, "-m", "bartack", "mcp"],'
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE); p.stdin.write(sys.argv[1].encode()); p.stdin.flush();"
        ' [print(p.stdout.readline().decode(), end="") for _ in range(2)]; p.stdin.close(); p.wait()\'\n'
        "    done = await ctx.shell(sys.executable, '-c', script, stdin)\n"
        "    return [json.loads(line)['result'] for line in done.stdout.splitlines()]\n"
    )
    done = Run.start("desk.py", workspace=project)
    done.wait(60)
    results: list[dict[str, object]] = done.result(list[dict[str, object]])

    assert [result["isError"] for result in results] == [True, True]
    assert all("BT328" in json.dumps(result) for result in results)


AGENT = """
import json, subprocess, sys
for line in sys.stdin:
    command = json.loads(line)
    if command.get("kind") != "command":
        continue
    server = subprocess.Popen([sys.executable, "-m", "bartack", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    call = {"name": "start_run", "arguments": {"entry": "gated"}}
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\\n")
    server.stdin.flush()
    started = json.loads(server.stdout.readline())["result"]["structuredContent"]["run"]
    same = {name: command[name] for name in ("correlation_id", "idempotency_key", "task_id")}
    print(json.dumps({
        "kind": "event", "message_id": "e-1", **same, "in_reply_to": command["message_id"],
        "from": {"agent_type": command["to"]["agent_type"]}, "event": "prompt.completed",
        "payload": {"text": started}, "occurred_at": "2026-01-01T00:00:00Z",
    }), flush=True)
"""
ASKS = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return await ctx.think("start a run", agent="nested")
"""


@pytest.mark.requirement("nested-runs-end-with-their-step")
def test_a_run_that_an_agent_starts_ends_with_its_step_and_can_be_resumed(project: Path) -> None:
    (project / "agent.py").write_text(AGENT)
    (project / "asks.py").write_text(ASKS)
    with (project / "bartack.toml").open("a") as file:
        file.write(f"[agents.nested]\ncommand = {json.dumps([sys.executable, 'agent.py'])}\n")

    outer = Run.start("asks.py", workspace=project)
    outer.wait(60)

    nested = Run.open(outer.result(str), workspace=project)
    assert nested.wait(30).status == "interrupted"
    nested.resume()
    nested.send("gate", "opened")
    nested.wait(60)
    assert nested.result(str) == "opened"


@pytest.mark.requirement("mcp-is-ready-at-once")
def test_the_first_answers_need_neither_runs_nor_settings(project: Path) -> None:
    with Peer(project, PYTHONPROFILEIMPORTTIME="1") as peer:
        peer.request("tools/list")
        peer.close()
        stderr = peer.process.stderr
        assert stderr is not None
        loaded = stderr.read().decode()

    assert "bartack.mcp._stdio" in loaded
    assert [
        name for name in ("bartack.runtime", "bartack.journal", "bartack.config", "msgspec") if name in loaded
    ] == []


@pytest.mark.requirement("mcp-is-ready-at-once")
@pytest.mark.skipif(sys.platform != "linux", reason="memory and time are read from /proc")
def test_a_server_is_ready_within_its_bounds(project: Path) -> None:
    """CPU time, the best of a few: other work on the machine makes it only larger."""
    best, memory = float("inf"), 0.0
    for _ in range(5):
        with Peer(project, "--plugin", str(project)) as peer:
            fields = Path(f"/proc/{peer.process.pid}/stat").read_text().rpartition(")")[2].split()
            best = min(best, (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK"))
            status = Path(f"/proc/{peer.process.pid}/status").read_text()
            memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024

    assert memory <= PERMITTED_MB
    assert best <= PERMITTED_MS


def test_a_question_left_open_by_a_stopped_run_takes_an_answer(project: Path) -> None:
    with Peer(project) as peer:
        run = peer.call("start_run", entry="asking")["run"]
        wait_for(Run.open(run, project), "step.started", question="q1")
        Run.open(run, project).interrupt()
        Run.open(run, project).wait(30)
        kept = peer.call("answer_question", run=run, question="q1", answer="green")
        late = peer.call("answer_question", run=run, question="q1", answer="red")
        Run.open(run, project).resume()

        assert (kept["accepted"], kept["kept"], late["accepted"]) == (True, True, False)
        assert peer.finish(run)["value"] == "green"
