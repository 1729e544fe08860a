"""The limits of a call of Codex: turns and time, its credential, and the processes that it leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from tests.realcli.conftest import MakeSandbox
from tests.realcli.crew import Crew, shell
from tests.realcli.team import Team
from tests.waiting import until

from bartack.testing import ClaudeSandbox, ModelServer


def command(text: str) -> dict[str, object]:
    return {"tools": [shell("codex", text)]}


SCRIPTS: dict[str, list[dict[str, object]]] = {
    "turns": [command("echo one"), command("echo two"), command("echo three"), {"text": "done"}],
    "sleep": [command("touch sleeping.txt; sleep 611"), {"text": "done"}],
}


KEY = "test-not-a-key-of-anyone"


@pytest.fixture
def crew(sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]) -> Crew:
    assert codex
    return Crew("codex", sandbox, model_server, 'permissions = { mode = "auto" }', is_wrapped=False)


@pytest.mark.requirement("budgets-end-calls")
@pytest.mark.parametrize("cap", ["max_turns=1", "max_tokens=100"])
def test_a_call_over_its_cap_is_interrupted_between_two_replies(
    cap: str, crew: Crew, model_server: ModelServer
) -> None:
    done = crew.run(f'return await ctx.think("[[script:turns]] go", {cap})')

    assert done.returncode != 0
    assert "BT821" in done.stderr
    assert len(model_server.requests) <= 3


def test_a_call_that_takes_too_long_is_ended_with_its_commands(crew: Crew) -> None:
    done = crew.run('return await ctx.think("[[script:sleep]] go", timeout_s=4)')

    assert (crew.root / "sleeping.txt").exists()
    assert done.returncode != 0
    assert "BT817" in done.stderr
    assert crew.sandbox.processes() == []


def test_a_run_that_is_cancelled_ends_codex_and_its_commands(crew: Crew) -> None:
    run = crew.start('return await ctx.think("[[script:sleep]] go")')
    until((crew.root / "sleeping.txt").exists, "the command runs", crew.root)

    cancelled = crew.call("cancel", crew.folder.name)
    run.communicate(timeout=60)

    assert cancelled.returncode == 0, cancelled.stderr
    assert crew.sandbox.processes() == []


class Refusing(BaseHTTPRequestHandler):
    """A vendor that refuses every request, and remembers who asked."""

    seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        self.seen.add(self.headers.get("Authorization", ""))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Write nothing."""


@pytest.fixture
def vendor() -> Iterator[str]:
    Refusing.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.requirement("codex-credentials")
def test_a_key_in_a_variable_is_enough_and_is_written_nowhere(
    make_sandbox: MakeSandbox, codex: list[str], vendor: str
) -> None:
    assert codex
    sandbox = make_sandbox(network="shared", env={"OPENAI_API_KEY": KEY})
    (sandbox.work / "bartack.toml").write_text(
        f'[agents.codex]\nconfig = {{ openai_base_url = "{vendor}" }}\n', encoding="utf-8"
    )
    team = Team.__new__(Team)
    team.sandbox, team.root = sandbox, sandbox.work

    done = team.run('return await ctx.think("hello")')

    assert "BT810" in done.stderr
    assert "its home is" in done.stderr
    assert Refusing.seen == {f"Bearer {KEY}"}
    files = [path for path in team.folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
