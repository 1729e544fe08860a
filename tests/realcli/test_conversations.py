"""Conversations with real agents: each has one speaker, forks of runs have their own, and variables of the user stay out."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.realcli.conftest import MakeSandbox
from tests.realcli.crew import CONTINUES, KINDS, Crew, Kind, send, shell
from tests.realcli.programs import require_program
from tests.waiting import until

from bartack.agents.program._lease import take_conversation
from bartack.supervision.process.system import read_command, read_environment
from bartack.testing import ClaudeSandbox, ModelServer

CANARY: Final = "yellow-bird-that-nobody-must-see"
WAITS: Final = "env > seen.txt; until [ -e go ]; do sleep 0.05; done"
SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    "plain": [{"text": "done"}],
    "first": [{"text": "I will remember blue."}],
    "second": [{"text": "It was blue."}],
    "beside": [{"text": "Beside it."}],
    **{f"{kind}-env": [{"tools": [shell(kind, WAITS)]}, {"text": "done"}] for kind in KINDS},
}
FORKED: Final = (
    "async def continued():",
    '    first = await ctx.think_reply("[[script:first]] remember blue")',
    '    return await ctx.think("[[script:second]] which colour was it?", continues=first)',
    'texts = await ctx.gather(continued(), ctx.think("[[script:beside]] something else"))',
    'return " ".join(texts)',
)


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A server that keeps what it was asked."""
    with ModelServer(SCRIPTS, bodies=True) as server:
        yield server


def kill(run: subprocess.Popen[str]) -> None:
    send(run.pid, signal.SIGKILL)
    run.communicate(timeout=30)


def continuations(server: ModelServer) -> int:
    return sum(request.prompt.startswith(CONTINUES) for request in server.requests)


@pytest.mark.requirement("conversations-have-one-speaker")
@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_that_another_process_has_is_left_alone(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server)
    with model_server.hold("plain") as hold:
        run = crew.start('return await ctx.think("[[script:plain]] do it")')
        hold.wait()
        kill(run)
    (stream,) = crew.streams()
    lease = take_conversation(kind, stream.parent)
    before, said = len(model_server.requests), stream.read_bytes()
    try:
        refused = crew.resume()
    finally:
        os.close(lease)

    assert refused.returncode != 0
    assert "another call uses this conversation" in refused.stderr
    assert len(model_server.requests) == before
    assert stream.read_bytes() == said
    done = crew.resume()
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.requirement("conversations-have-one-speaker")
def test_of_two_resumes_at_once_one_speaks(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    require_program("claude")
    crew = Crew("claude", sandbox, model_server)
    with model_server.hold("plain") as hold:
        run = crew.start('return await ctx.think("[[script:plain]] do it")')
        hold.wait()
        kill(run)
    both = [crew.begin("resume", crew.folder.name) for _ in range(2)]
    ended = [(one.communicate(timeout=60), one.returncode) for one in both]

    assert 0 in [code for _, code in ended], ended
    assert len(model_server.requests_of("plain")) == 2
    assert crew.count("step.finished") == 1


@pytest.mark.requirement("forks-have-conversations-of-their-own")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_continues_a_finished_prompt_and_asks_an_unfinished_one_again(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server)
    first, second, beside = (model_server.hold(script) for script in ("first", "second", "beside"))
    run = crew.start(*FORKED)
    beside.wait()
    first.release()
    second.wait()
    kill(run)
    second.release()
    beside.release()
    (done,) = [entry for entry in crew.journal() if entry.kind == "step.finished"]
    original = crew.folder
    before = contents(original)

    made = json.loads(
        crew.call("fork", original.name, "--at", f"{done.data['p']}:{done.data['n']}", "--json").stdout
    )
    resumed = crew.call("resume", made["run"])

    assert (resumed.returncode, resumed.stdout) == (0, "It was blue. Beside it.\n"), resumed.stderr
    assert made["asked_again"] == 1
    assert contents(original) == before
    assert len(model_server.requests_of("first")) == 1
    assert "remember blue" in json.dumps(model_server.requests_of("second")[-1].body)
    assert not model_server.requests_of("beside")[-1].prompt.startswith(CONTINUES)
    assert continuations(model_server) == 0
    continued = crew.call("resume", original.name)
    assert continued.stdout == resumed.stdout, continued.stderr
    assert shared(original, Path(made["dir"]), kind) == 1


def contents(run: Path) -> dict[str, str]:
    """What the files of a run's agents have in them."""
    files = [path for path in (run / "agents").rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def shared(run: Path, fork: Path, kind: Kind) -> int:
    """How many conversations both runs have that ended in both: only the history that they share."""
    one, other = (
        {path.parent.name: path.read_bytes() for path in (place / "agents" / kind).glob("*/stream.ndjson")}
        for place in (run, fork)
    )
    return sum(other.get(name) == text for name, text in one.items())


@pytest.mark.requirement("codex-continues")
def test_a_thread_of_codex_that_is_gone_begins_anew(
    sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]
) -> None:
    assert codex
    crew = Crew("codex", sandbox, model_server)
    with model_server.hold("plain") as hold:
        run = crew.start('return await ctx.think("[[script:plain]] do it")')
        hold.wait()
        kill(run)
    for path in (crew.folder / "agents" / "codex").rglob("rollout-*.jsonl"):
        path.unlink()

    done = crew.resume()

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert crew.named("agent.started")[-1]["generation"] == 1
    assert continuations(model_server) == 0


@pytest.mark.requirement("variables-of-the-user-stay-out")
@pytest.mark.requirement("agents-get-few-variables")
@pytest.mark.parametrize("kind", KINDS)
def test_a_variable_of_the_user_reaches_nothing(
    make_sandbox: MakeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    """Neither a command of the agent, nor a hook of the project, nor an MCP server, nor a file of the run."""
    require_program(kind)
    sandbox = make_sandbox(env={"A_VARIABLE": CANARY, "CLAUDE_CODE_ENTRYPOINT": CANARY})
    crew = Crew(kind, sandbox, model_server, 'permissions = { mode = "auto" }')
    add_hook(crew)
    add_server(crew)
    run = crew.start(
        "async def look() -> int:",
        '    "Looks."',
        "    return 1",
        f'return await ctx.think("[[script:{kind}-env]] look", tools=[look])',
    )
    until((crew.root / "seen.txt").exists, "the command runs", crew.root)
    tree = {pid: (read_command(pid), read_environment(pid)) for pid in crew.cli_tree()}
    (crew.root / "go").touch()
    out, err = run.communicate(timeout=60)

    assert out == "done\n", err
    assert [words for words, env in tree.values() if CANARY in env.values()] == []
    assert any("_bridge.py" in " ".join(words) for words, _ in tree.values()) is (kind == "acp")
    assert (crew.root / "probe.txt").exists() is (kind != "claude")
    assert "BARTACK_STEP=" in (crew.root / "seen.txt").read_text(encoding="utf-8")
    assert (crew.root / "hook.txt").exists() is (kind != "codex")
    files = [path for path in crew.root.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in json.dumps([request.body for request in model_server.requests])


def add_hook(crew: Crew) -> None:
    """A hook of the project, which agents of Claude Code execute."""
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "env > hook.txt"}]}
    (crew.root / ".claude").mkdir()
    settings = json.dumps({"hooks": {"PreToolUse": [hook]}})
    (crew.root / ".claude" / "settings.json").write_text(settings, encoding="utf-8")


def add_server(crew: Crew) -> None:
    """An MCP server of the project. Claude Code itself is told to start none but ours, which is not a process."""
    program = crew.root / "probe.sh"
    program.write_text("#!/bin/sh\nenv > probe.txt\n", encoding="utf-8")
    program.chmod(0o700)
    server = {"mcpServers": {"probe": {"command": str(program)}}}
    (crew.root / ".mcp.json").write_text(json.dumps(server), encoding="utf-8")
    if crew.kind == "codex":
        with (crew.root / "bartack.toml").open("a", encoding="utf-8") as file:
            file.write(f'"mcp_servers.probe.command" = "{program}"\n')
