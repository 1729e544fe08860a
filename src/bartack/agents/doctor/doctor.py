"""Whether agents can be used: what can be found out without asking them for anything that costs money."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from bartack.agents._commands import make_command
from bartack.agents._prices import find_price
from bartack.agents.config import AgentConfig, AgentsConfig, ScriptedConfig
from bartack.agents.contract import AgentRequest
from bartack.agents.doctor._checked_program import started
from bartack.agents.program.extra_dirs import find_bad_dirs
from bartack.agents.program.find import explain_missing, find_program
from bartack.agents.program_config import CliConfig, CodexConfig, NdjsonConfig, ProgramConfig
from bartack.agents.protocol.ids import NO_SNAPSHOT, command_key, new_message_id
from bartack.agents.protocol.lines import MAX_LINE, Line, LineReader, Read, write_line
from bartack.agents.protocol.messages import Budget, Command, Event, Hello, Retry
from bartack.agents.scripted._script import load_script
from bartack.agents.scripted.scripted import read_script
from bartack.core.clock import SystemClock
from bartack.errors import ScriptError

END_S: Final = 5.0
"""How long a program may take to end after its input has ended."""
PROBED_S: Final = 1.0
"""The same before a run; a program that takes longer is killed."""
FIRST_S: Final = 2.0
"""How long to wait for the first line of a program before a run. A silent program may be waiting for its command."""
TEXT_S: Final = 1.0
"""How long to wait for a line of the protocol after a program has printed text."""
PRINTED: Final = 400
"""Characters of what a program printed that are shown."""
ASKED_S: Final = 120.0
"""How long it may take to answer."""
STATE_DIR: Final = ".bartack"
LIVE_USD: Final = 0.05
"""What an answer may cost."""


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
    credential: str = ""
    """By what it logs in: the name of a variable, or the file of a login; empty if that is unknown."""
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
    live: bool = False,
    probe: bool = False,
    capped: bool = False,
    state_dir: str = STATE_DIR,
) -> list[DoctorReport]:
    """Look at agents.

    Args:
        config: Which there are.
        workspace: Where paths begin.
        environ: The variables they would get some of.
        names: Which to look at; all of them without it.
        start: Also start each program, and wait for it to introduce itself.
        live: Also ask each program for a word. That may cost money.
        probe: Also start each program, only to see whether it is one that speaks the line protocol: one that ends, or prints
            something else, does not. It takes a moment if the program introduces itself, else about two seconds.
        capped: Whether money is limited: an agent whose model has no known price cannot be stopped in time.
        state_dir: Where runs are kept, which no agent may change.
    """
    visit = _Visit(workspace, environ, start=start or live, live=live, probe=probe)
    reports = [
        _check(name, agent, config, visit)
        for name, agent in config.named.items()
        if names is None or name in names
    ]
    for report in reports:
        agent = config.named[report.name]
        report.problems += _find_unpriced(report.name, config) if capped else ()
        report.problems += find_bad_dirs(agent, workspace, state_dir) if isinstance(agent, CliConfig) else ()
    return reports


def add_versions(
    reports: list[DoctorReport], config: AgentsConfig, workspace: Path, environ: Mapping[str, str]
) -> None:
    """Add the versions of programs for coding that the user has installed. Nothing of the project is started."""
    from bartack.agents.doctor._coding import installed_version  # noqa: PLC0415 - other kinds are listed faster without it

    for report in reports:
        agent = config.named[report.name]
        if isinstance(agent, CliConfig):
            report.version = installed_version(agent, workspace, environ)


def _find_unpriced(name: str, config: AgentsConfig) -> Iterator[str]:
    """Codex reports tokens and no cost. If its settings name a model, its price has to be known before anything is spent."""
    agent = config.named[name]
    if isinstance(agent, CodexConfig) and agent.model and find_price(agent.model, config.prices) is None:
        yield (
            f"the price of its model {agent.model} is unknown, so that a budget in USD cannot be kept:"
            f' add "{agent.model}" to [agents.prices]'
        )


class _Visit:
    """How closely agents are checked, and from where."""

    def __init__(
        self, workspace: Path, environ: Mapping[str, str], *, start: bool, live: bool, probe: bool
    ) -> None:
        self.workspace = workspace
        self.environ = environ
        self.start = start
        self.live = live
        self.probe = probe


def _check(name: str, agent: AgentConfig, config: AgentsConfig, visit: _Visit) -> DoctorReport:
    report = DoctorReport(
        name=name,
        kind=str(type(agent).__struct_config__.tag),
        command=agent.script if isinstance(agent, ScriptedConfig) else " ".join(agent.argv),
        roles=list(agent.roles),
        default=name == config.default_name,
    )
    if isinstance(agent, ScriptedConfig):
        _check_script(report, visit.workspace / agent.script)
    elif isinstance(agent, CliConfig):
        from bartack.agents.doctor._coding import CliVisit, check_cli  # noqa: PLC0415 - other kinds are checked faster without it

        around = CliVisit(visit.workspace, visit.environ, visit.start, visit.live, visit.probe)
        found = check_cli(name, agent, around)
        report.found, report.version, report.problems, report.notes, report.credential = found
    else:
        _check_program(report, agent, visit.workspace, visit.environ)
        probed = visit.start or (visit.probe and not _is_ours(agent))
        if report.usable and probed and isinstance(agent, NdjsonConfig):
            _greet(report, agent, visit)
    return report


def _check_script(report: DoctorReport, path: Path) -> None:
    try:
        script = read_script(load_script(path, report.name), report.name, path)
    except ScriptError as error:
        report.problems.append(error.problem)
        return
    report.found = str(path)
    report.notes.append(f"{len(script.prompts)} rules for prompts, {len(script.responses)} actions")


def _check_program(
    report: DoctorReport, agent: ProgramConfig, workspace: Path, environ: Mapping[str, str]
) -> None:
    path = agent.env.get("PATH", environ.get("PATH", ""))
    report.found = find_program(agent.argv[0], workspace, path)
    if not report.found:
        report.problems.append(explain_missing(report.name, agent.argv[0], workspace, path))
    missing = [name for name in agent.pass_env if "*" not in name and name not in environ]
    report.notes += [f"{name} is not set" for name in missing]


def _greet(report: DoctorReport, agent: NdjsonConfig, visit: _Visit) -> None:
    """Start a program, read how it introduces itself, and end it by the end of its input."""
    end_s = END_S if visit.start else PROBED_S
    try:
        with (
            tempfile.TemporaryFile() as stderr,
            started(
                agent.argv, visit.workspace, _environment(report.name, agent, visit), stderr.fileno(), end_s
            ) as process,
        ):
            first = _Beginning(process, agent.start_s if visit.start else min(FIRST_S, agent.start_s))
            if first.line is None:
                _judge_silence(report, first, agent.start_s if visit.start else 0.0, _tail(stderr))
                return
            _judge_first(report, first.line)
            if visit.live and report.usable:
                _ask(report, process, first.lines(ASKED_S))
    except OSError as error:
        report.problems.append(f"it cannot be started: {error.strerror or error}")


def _is_ours(agent: ProgramConfig) -> bool:
    """Whether the program is Bartack's own scripted agent: it speaks the protocol."""
    words = agent.argv
    ours = words[1:3] == ["-m", "bartack"] or os.path.basename(words[0]) == "bartack"
    return ours and "agents" in words and "scripted" in words


class _Beginning:
    """What a program writes first: a line of the protocol, something else, or nothing.

    Args:
        process: The program.
        patience_s: How long it may be silent.
    """

    def __init__(self, process: subprocess.Popen[bytes], patience_s: float) -> None:
        self.process = process
        self._reader = LineReader()
        self.line: Line | None = None
        self.printed: list[str] = []
        self.ended = False
        self._until = time.monotonic() + patience_s
        for read in self._iter():
            if isinstance(read, Line):
                self.line = read
                break
            if not self.printed:
                self._until = min(self._until, time.monotonic() + TEXT_S)
            self.printed.append(read.excerpt.decode("utf-8", "replace"))

    def lines(self, patience_s: float) -> Iterator[Read]:
        """What it writes after that, for a while."""
        self._until = time.monotonic() + patience_s
        return self._iter()

    def _iter(self) -> Iterator[Read]:
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while (left := self._until - time.monotonic()) > 0:
            if select.select([fd], [], [], left)[0]:
                data = os.read(fd, 65_536)
                yield from self._reader.feed(data)
                if not data:
                    self.ended = True
                    rest = self._reader.close()
                    if rest is not None:
                        yield rest
                    return


def _tail(written: IO[bytes]) -> str:
    """The end of what a program wrote to stderr."""
    size = written.seek(0, os.SEEK_END)
    written.seek(max(size - 4 * PRINTED, 0))
    return written.read().decode("utf-8", "replace")


def _judge_silence(report: DoctorReport, first: _Beginning, start_s: float, stderr: str) -> None:
    """A program wrote no line of the protocol: report that, unless it may be waiting for its command."""
    printed = " ".join(f"{' '.join(first.printed)} {stderr}".split())
    shown = f"; it printed: {printed[:PRINTED]}" if printed else " and printed nothing"
    if first.ended:
        with suppress(subprocess.TimeoutExpired):
            first.process.wait(PROBED_S)
        status = first.process.poll()
        how = "it closed its output" if status is None else f"it ended with {status}"
        report.problems.append(f"{how} before it was sent anything{shown}; {_SPEAKS}")
    elif first.printed:
        report.problems.append(f"it does not speak the line protocol{shown}; {_SPEAKS}")
    elif start_s:
        report.problems.append(f"it wrote nothing within {start_s:g} s, or ended")


_SPEAKS: Final = (
    "an agent writes one JSON object a line to stdout, text to stderr, and reads stdin to its end"
)


def _judge_first(report: DoctorReport, first: Line) -> None:
    if isinstance(first.message, Hello):
        hello = first.message
        report.version = f"{hello.name} {hello.version}"
        if 1 not in hello.protocol:
            report.problems.append(f"it speaks protocol version {hello.protocol}, not 1")


def _ask(report: DoctorReport, process: subprocess.Popen[bytes], lines: Iterator[Read]) -> None:
    """Send an agent a one-word prompt, and wait for any answer."""
    assert process.stdin is not None
    command = _question(report.name)
    process.stdin.write(write_line(command))
    process.stdin.flush()
    for read in lines:
        event = read.message if isinstance(read, Line) else None
        if not isinstance(event, Event) or event.correlation_id != command.correlation_id:
            continue
        if event.event == "prompt.completed":
            report.notes.append("it answered")
            return
        if event.event == "error":
            error = event.payload or {}
            report.problems.append(f"it does not answer: {error.get('code')}: {error.get('message')}"[:512])
            return
    report.problems.append(f"it did not answer within {ASKED_S:g} s, or ended")


def _question(agent: str) -> Command:
    inputs: dict[str, object] = {"text": "Reply with the word: ready", "iteration": {"epoch": 0, "step": 0}}
    request = AgentRequest(
        run_id=f"doctor-{new_message_id()}",
        key=command_key("prompt", "doctor", NO_SNAPSHOT, inputs),
        worker="doctor",
        inputs=inputs,
        cwd="",
        budget=Budget(usd=LIVE_USD),
    )
    deadline_us = SystemClock().now_us() + int(ASKED_S * 1e6)
    retry = Retry(1, 1, "first")
    return make_command(request, agent, retry, message_id=new_message_id(), deadline_us=deadline_us)


def _environment(name: str, agent: NdjsonConfig, visit: _Visit) -> dict[str, str]:
    return {
        **agent.environment(visit.environ),
        "BARTACK_PROTOCOL": "1",
        "BARTACK_AGENT": name,
        "BARTACK_ROLE": "general",
        "BARTACK_WORKSPACE": str(visit.workspace),
        "BARTACK_MAX_LINE": str(MAX_LINE),
        "BARTACK_HEARTBEAT_S": f"{agent.heartbeat_s:g}",
    }
