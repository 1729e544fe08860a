"""The same small project for each of the three agents, with gates at which its agent's process waits for the test.

A gate is a file: while ``hold-start`` is there, the agent does not begin; while ``hold-end`` is there, its process does not end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, cast

import pytest
from tests.crash.runs import Parts
from tests.realcli.team import Result, Team
from tests.waiting import until

from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage
from bartack.supervision.process.system import read_command
from bartack.supervision.process.tree import descendants
from bartack.testing import ClaudeSandbox, ModelRequest, ModelServer, find_program
from bartack.testing.sandbox._environment import CODEX_MODEL, MARK

Kind = Literal["claude", "codex", "acp"]
KINDS: Final[tuple[Kind, ...]] = ("claude", "codex", "acp")
PRICES: Final = {CODEX_MODEL: Price(input=1.25, output=10.0)}
"""Of the model of Codex: Bartack has no price of it."""
CONTINUES: Final = "The process that ran this session ended"
PATIENT: Final = 1.0 if os.getloadavg()[0] < 2 else 5.0
"""How many times as long something may take as it does on a machine that is not busy."""

_WRAPPER: Final = """#!/bin/sh
case "$*" in *--version*) exec {program} "$@";; esac
echo $$ >> {gates}/starts
while [ -e {gates}/hold-start ]; do sleep 0.05; done
[ -e {gates}/hold-end ] || exec {program} "$@"
{program} "$@"
status=$?
: > {gates}/ended
while [ -e {gates}/hold-end ]; do sleep 0.05; done
exit $status
"""


def shell(kind: Kind, command: str) -> dict[str, object]:
    """A call of the agent's own tool for commands."""
    if kind == "codex":
        return {"name": "exec_command", "input": {"cmd": command}}
    return {"name": "Bash", "input": {"command": command, "description": "work"}}


def own_tool(kind: Kind, name: str, **given: object) -> dict[str, object]:
    """A call of a tool of ours."""
    return {"name": name if kind == "codex" else f"mcp__bartack__{name}", "input": given}


class Crew(Team):
    """A workspace with one program, whose agent is of one kind.

    Args:
        kind: Which agent; also its name.
        sandbox: Where it runs.
        server: What answers for the model.
        settings: Further lines of the agent's table.
        is_wrapped: Whether the agent's process has gates.
        before: What starts the agent's program.
        model: Of Codex: the newest ones have a single tool, which runs JavaScript.
    """

    def __init__(
        self,
        kind: Kind,
        sandbox: ClaudeSandbox,
        server: ModelServer,
        settings: str = "",
        *,
        is_wrapped: bool = True,
        before: Sequence[str] = (),
        model: str = "",
    ) -> None:
        self._model = model or CODEX_MODEL
        self.kind: Kind = kind
        self.sandbox = sandbox
        self.server = server
        self.root = sandbox.work
        self.gates = sandbox.home.parent / "gates"
        self.gates.mkdir(exist_ok=True)
        words = [*before, *(self._wrap(find_program(kind)) if is_wrapped else find_program(kind))]
        lines = [
            "[agents]",
            f'default = "{kind}"',
            f"[agents.{kind}]",
            f"command = {json.dumps(words)}",
            *(["backoff_initial_s = 0.01"] if "backoff_initial_s" not in settings else []),
            *self._own_settings(),
            settings,
            *self._tables(),
        ]
        (self.root / "bartack.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _wrap(self, words: list[str]) -> list[str]:
        path = self.gates / "agent"
        path.write_text(_WRAPPER.format(program=" ".join(words), gates=self.gates), encoding="utf-8")
        path.chmod(0o700)
        return [str(path)]

    def _own_settings(self) -> Iterator[str]:
        if self.kind == "codex":
            yield f'model = "{self._model}"'
            yield f'pass_env = ["OPENAI_API_KEY", "{MARK}"]'
            return
        yield f'pass_env = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "{MARK}"]'
        if self.kind == "acp":
            (claude,) = find_program("claude")
            yield 'home = "run"'
            yield f'env = {{ CLAUDE_CODE_EXECUTABLE = "{claude}" }}'

    def _tables(self) -> Iterator[str]:
        if self.kind == "codex":
            yield "[agents.prices]"
            yield from (
                f'"{name}" = {{ input = {one.input}, output = {one.output} }}' for name, one in PRICES.items()
            )
            yield "[agents.codex.config]"  # the last table: tests add lines to it
            yield '"sandbox_workspace_write.exclude_slash_tmp" = true'
            yield 'model_provider = "scripted"'
            facts = {
                "name": "scripted",
                "base_url": f"{self.server.url}/v1",
                "wire_api": "responses",
                "env_key": "OPENAI_API_KEY",
            }
            yield from (f'"model_providers.scripted.{name}" = "{value}"' for name, value in facts.items())
            yield from (
                f'"model_providers.scripted.{what}_max_retries" = 1' for what in ("request", "stream")
            )

    # Processes.

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of Bartack."""
        return self.sandbox.start([sys.executable, "-m", "bartack", *words])

    def resume(self, *words: str) -> Result:
        """Resume the only run."""
        return self.call("resume", self.folder.name, *words)

    def cli_pid(self) -> int:
        """The process of the agent, as soon as there is one."""
        starts = self.gates / "starts"
        until(starts.exists, "the agent is started", self.gates)
        until(lambda: starts.read_text(encoding="utf-8").endswith("\n"), "the agent is started", self.gates)
        return int(starts.read_text(encoding="utf-8").split()[-1])

    def cli_tree(self) -> list[int]:
        """The process of the agent and all below it."""
        pid = self.cli_pid()
        return [pid, *(facts.pid for facts in descendants(pid))]

    def pids_of(self, word: str) -> list[int]:
        """The processes of the sandbox whose command line has a word in it."""
        found = [(facts.pid, read_command(facts.pid)) for facts in self.sandbox.processes()]
        return [pid for pid, words in found if any(word in one for one in words)]

    def parts(self, hub: int) -> Parts:
        """The other processes of a run."""
        return Parts(hub)

    # What is on disk.

    def conversation_has(self, text: str) -> bool:
        """Whether a file in which the agent itself keeps a conversation has a text in it."""
        folder = self.folder / "agents" / self.kind
        files = [
            Path(at, name) for at, _, names in os.walk(folder) for name in names
        ]  # folders may go meanwhile
        return _have(
            [path for path in files if path.suffix == ".jsonl" and "home" in path.relative_to(folder).parts],
            text,
        )

    def agent_has(self, text: str) -> bool:
        """Whether such a file, or what the agent writes for us, has a text in it."""
        return self.conversation_has(text) or (self.kind != "codex" and _have([*self.streams()], text))

    @property
    def events(self) -> list[dict[str, object]]:
        """The transcript of the agent."""
        path = self.folder / "agents" / self.kind / "transcript.ndjson"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [cast("dict[str, object]", json.loads(line)) for line in lines]

    def streams(self) -> Iterator[Path]:
        """The streams of its conversations."""
        yield from (self.folder / "agents" / self.kind).glob("*/stream.ndjson")


def _have(files: list[Path], text: str) -> bool:
    return any(text in path.read_text(encoding="utf-8", errors="replace") for path in files)


def price(request: ModelRequest) -> float:
    """What a reply costs that the model server has sent, at the list price of its model."""
    listed, usage = find_price(request.model, PRICES), request.usage
    assert listed is not None
    return cost_usd(Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens), listed)


def check_reported(usd: float, requests: Sequence[ModelRequest], *, is_estimated: bool) -> None:
    """Check what an ACP agent was charged with: all that the server counted, or, marked, all but a title that came too late."""
    counted = sum(price(one) for one in requests)
    titles = sum(price(one) for one in requests if not one.script)
    assert usd == pytest.approx(counted) or (is_estimated and usd == pytest.approx(counted - titles))


def send(pids: list[int] | int, number: signal.Signals) -> None:
    """Send processes a signal; those that are gone do not matter."""
    for pid in [pids] if isinstance(pids, int) else pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
