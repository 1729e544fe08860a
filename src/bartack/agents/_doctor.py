"""Whether agents can be used: what can be found out without asking them for anything that costs money."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents._config import AgentConfig, AgentsConfig, NdjsonConfig, ScriptedConfig
from bartack.agents._lines import Line, LineReader, Read
from bartack.agents._messages import Hello
from bartack.agents._script import load_script
from bartack.agents._scripted import read_script
from bartack.errors import ScriptError

PATIENCE_S: Final = 5.0
"""How long a program may take to introduce itself."""


class DoctorReport(msgspec.Struct, kw_only=True):
    """What was found out about an agent."""

    name: str
    kind: str
    command: str
    roles: list[str]
    default: bool
    found: str = ""
    """Where its program or its script is."""
    version: str = ""
    problems: list[str] = []
    notes: list[str] = []

    @property
    def usable(self) -> bool:
        """Whether nothing stands against using it."""
        return not self.problems


def check_agents(
    config: AgentsConfig,
    workspace: Path,
    environ: Mapping[str, str],
    names: Sequence[str] | None = None,
    *,
    start: bool = False,
) -> list[DoctorReport]:
    """Look at agents.

    Args:
        config: Which there are.
        workspace: Where paths begin.
        environ: The variables they would get some of.
        names: Which to look at; all of them without it.
        start: Also start each program, and wait for it to introduce itself.
    """
    return [
        _check(name, agent, config, workspace, environ, start=start)
        for name, agent in config.named.items()
        if names is None or name in names
    ]


def _check(
    name: str,
    agent: AgentConfig,
    config: AgentsConfig,
    workspace: Path,
    environ: Mapping[str, str],
    *,
    start: bool,
) -> DoctorReport:
    report = DoctorReport(
        name=name,
        kind="scripted" if isinstance(agent, ScriptedConfig) else "ndjson",
        command=agent.script if isinstance(agent, ScriptedConfig) else " ".join(agent.argv),
        roles=list(agent.roles),
        default=name == config.default_name,
    )
    if isinstance(agent, ScriptedConfig):
        _check_script(report, workspace / agent.script)
    else:
        _check_program(report, agent, workspace, environ)
        if start and report.usable:
            _greet(report, agent, workspace, environ)
    return report


def _check_script(report: DoctorReport, path: Path) -> None:
    try:
        script = read_script(load_script(path, report.name), report.name, path)
    except ScriptError as error:
        report.problems.append(error.problem)
        return
    report.found = str(path)
    report.notes.append(f"{len(script.prompts)} rules for prompts, {len(script.responses)} actions")


def find_program(program: str, workspace: Path, path: str) -> str:
    """Where a program is, as it would be started; empty if it is nowhere."""
    if "/" in program:
        whole = workspace / program
        return str(whole) if whole.is_file() and os.access(whole, os.X_OK) else ""
    return shutil.which(program, path=path) or ""


def _check_program(
    report: DoctorReport, agent: NdjsonConfig, workspace: Path, environ: Mapping[str, str]
) -> None:
    path = agent.env.get("PATH", environ.get("PATH", ""))
    report.found = find_program(agent.argv[0], workspace, path)
    if not report.found:
        report.problems.append(
            f"{agent.argv[0]!r} is not found in {path}; set agents.{report.name}.command in bartack.toml"
        )
    missing = [name for name in agent.pass_env if "*" not in name and name not in environ]
    report.notes += [f"{name} is not set" for name in missing]


def _greet(report: DoctorReport, agent: NdjsonConfig, workspace: Path, environ: Mapping[str, str]) -> None:
    """Start a program, hear how it introduces itself, and end it by the end of its input."""
    try:
        with _started(agent, workspace, environ) as process:
            first = _first_line(process)
    except OSError as error:
        report.problems.append(f"it cannot be started: {error.strerror or error}")
        return
    if first is None:
        report.problems.append(f"it said nothing within {PATIENCE_S:g} s, or ended")
    elif not isinstance(first, Line):
        report.problems.append(f"its first line is not of the line protocol ({first.case})")
    elif isinstance(first.message, Hello):
        hello = first.message
        report.version = f"{hello.name} {hello.version}"
        if 1 not in hello.protocol:
            report.problems.append(f"it speaks protocol version {hello.protocol}, not 1")


@contextmanager
def _started(
    agent: NdjsonConfig, workspace: Path, environ: Mapping[str, str]
) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(  # noqa: S603 - the project's own words  # bartack: allow[unsupervised_process] ended below
        agent.argv,
        cwd=workspace,
        env={**environ, **agent.env, "BARTACK_PROTOCOL": "1", "BARTACK_WORKSPACE": str(workspace)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)
        process.stdout.close()


def _first_line(process: subprocess.Popen[bytes]) -> Read | None:
    assert process.stdout is not None
    fd = process.stdout.fileno()
    reader = LineReader()
    until = time.monotonic() + PATIENCE_S
    while (left := until - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            data = os.read(fd, 65_536)
            for read in reader.feed(data):
                return read
            if not data:
                return None
    return None
