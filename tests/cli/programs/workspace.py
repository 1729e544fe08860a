"""A small project whose agent is one of the programs of ``fakes.py``, used through the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import warm
from tests.cli.programs.fakes import SECRET, alive, settings, started, write_fake

Result = subprocess.CompletedProcess[str]
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "key-of-the-test-1",
    "OPENAI_API_KEY": "key-of-the-test-2",
    "CANARY_TOKEN": SECRET,
}
THINKS = "return await ctx.think('say it')"


class Project:
    """See the module.

    Args:
        root: An empty directory.
        kind: The kind of the agent.
        behaviour: What its program does.
        more: Further lines of its settings.
    """

    def __init__(self, root: Path, kind: str, behaviour: str = "ok", more: str = "") -> None:
        self.root = root
        self.kind = kind
        write_fake(root)
        self.configure(behaviour, more=more)
        self.program(THINKS)

    def configure(
        self, behaviour: str, command: list[str] | None = None, more: str = "", home: str = "run"
    ) -> None:
        """Write the settings."""
        text = settings(self.kind, behaviour, command, more, home)
        (self.root / "bartack.toml").write_text(text, encoding="utf-8")

    def program(self, body: str, before: str = "") -> None:
        """Write the program: the lines of its worker, and what stands before it."""
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        head = f"from bartack import Context, worker\n\n{before}\n\n"
        text = f"{head}@worker\nasync def main(ctx: Context) -> object:\n{lines}\n"
        (self.root / "team.py").write_text(text, encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the command line."""
        passed = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {**passed, "HOME": str(self.root / "nobody"), **ENVIRONMENT}

    def call(self, *words: str) -> Result:
        """Run a command to its end. No traceback is ever printed, and no program is left."""
        done = warm.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self) -> Result:
        """Run the program; nothing that was started outlives it."""
        done = self.call("run", "team.py", "--no-input")
        assert alive(self.root) == []
        return done

    def resume(self) -> Result:
        """Resume the only run."""
        done = self.call("resume", self.run_id)
        assert alive(self.root) == []
        return done

    @property
    def runs(self) -> list[Path]:
        """The directories of the runs."""
        return sorted((self.root / ".bartack" / "runs").glob("run-*"))

    @property
    def run_id(self) -> str:
        """The only run."""
        (found,) = self.runs
        return found.name

    @property
    def starts(self) -> list[str]:
        """What was started, and what that has left behind."""
        return [what for what, _ in started(self.root)]

    @property
    def transcript(self) -> list[dict[str, object]]:
        """The events of the agent."""
        path = self.runs[0] / "agents" / "a" / "transcript.ndjson"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
