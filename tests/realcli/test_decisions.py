"""What real agents may do: a tool call gets the same verdict with Claude Code, Codex and an ACP agent, and none gets around it.

The table is in ``tests/unit/agents/decision_table.py``; ``decision_calls.py`` has the calls by which an agent tries it. A verdict
is seen by the transcript, by what the agent tells its model, and by what is on disk afterwards.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from tests.realcli.conftest import MakeSandbox
from tests.realcli.crew import KINDS, Crew, Kind
from tests.realcli.decision_calls import (
    CANNOT,
    NEEDS_PATH,
    NOT_READING,
    NOTEBOOK,
    ONLY_READING,
    Deed,
    Outcome,
    command,
    deeds_of,
    impossible_of,
    name_of,
    outcomes,
    write,
)
from tests.realcli.other_user import NOBODY, as_nobody, give_away
from tests.realcli.programs import require_program
from tests.unit.agents.decision_table import (
    ALLOW,
    ALWAYS,
    DENY,
    EDITS,
    MODES,
    NEVER,
    PROTECT,
    RUNS,
    TABLE,
)

from bartack.agents._permissions import Mode
from bartack.agents.claude._lines import DECISION_S
from bartack.testing import ClaudeSandbox, ModelServer

pytestmark = pytest.mark.requirement("verdicts-hold-for-real-agents")

THINK: Final = 'return await ctx.think("[[script:{}]] do it")'
COMMAND: Final = """
from bartack.errors import AgentError
inputs = {{"goal": "x", "task_files": [], "clarifications": [], "conflict_resolutions": []}}
inputs["iteration"] = {{"round": 1, "cause": "start", "findings": []}}
try:
    await ctx.command("implement", inputs, task_id="T-1", refused_paths=["state"], prompt="[[script:{}]] do it")
except AgentError:
    return "its answer has no value"
"""
LEAST: Final[dict[Kind, int]] = {"claude": 42, "codex": 34, "acp": 40}
"""How many rows of the table each agent tries."""
RAISES: Final = """
from bartack.agents._tool_permissions import ToolPermissions
def decide(self, use):
    raise RuntimeError("out of order")
ToolPermissions.decide = decide
"""
LATE: Final = """
import pathlib, time
import bartack.agents.claude._lines as lines
from bartack.agents._tool_permissions import ToolPermissions
lines.DECISION_S = {limit_s}
right = ToolPermissions.decide
def decide(self, use):
    if use.command.endswith("> plain.txt"):
        began = time.time()
        time.sleep({late_s})
        pathlib.Path("silence.txt").write_text(f"{{began}} {{time.time()}}")
    return right(self, use)
ToolPermissions.decide = decide
"""
FIRST: Final[dict[Kind, list[Deed]]] = {
    kind: [
        command(kind, "echo x > plain.txt", "plain.txt", RUNS),
        command(kind, "touch denied1.txt", "denied1.txt", NEVER),
        write(kind, "written.txt", EDITS),
    ]
    for kind in KINDS
}
DEEDS: Final[dict[Kind, list[Deed]]] = {kind: [*FIRST[kind], *deeds_of(kind)] for kind in KINDS}
EMPTY: Final = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
LOOK: Final[dict[str, object]] = {"name": "Read", "input": {"file_path": f"{{{{cwd}}}}/{NOTEBOOK}"}}
"""A notebook has to be read before it can be changed."""


def script(*deeds: Deed) -> list[dict[str, object]]:
    """One reply for each deed, then a last one."""
    steps: list[dict[str, object]] = [{"tools": [deed.call]} for deed in deeds]
    return [*steps, {"text": "done"}]


def all_of(kind: Kind) -> list[dict[str, object]]:
    """All deeds of an agent; one that has a tool for it reads the notebook first."""
    steps = script(*DEEDS[kind])
    return steps if kind == "codex" else [{"tools": [LOOK]}, *steps]


def settings_file(kind: Kind) -> dict[str, str]:
    """A file of a project that wants to switch off what decides, by its name."""
    claude = {
        "disableAllHooks": True,
        "permissions": {"allow": ["Bash", "Write", "Edit"], "defaultMode": "bypassPermissions"},
    }
    codex = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    return {".codex/config.toml": codex} if kind == "codex" else {".claude/settings.json": json.dumps(claude)}


def rewrite(kind: Kind) -> str:
    """A shell script by which an agent rewrites its own settings: those of the project, and those in its home."""
    ((name, text),) = settings_file(kind).items()
    home = "$CODEX_HOME/config.toml" if kind == "codex" else "$CLAUDE_CONFIG_DIR/settings.json"
    lines = [f"mkdir -p {name.partition('/')[0]}", f"echo '{text}' > {name}", f"echo '{text}' > \"{home}\""]
    return "\n".join([*lines, "touch rewritten.txt", ""])


SIMPLE: Final = FIRST
SCRIPTS: Final = {
    **{f"{kind}-all": all_of(kind) for kind in KINDS},
    **{f"{kind}-impossible": script(*impossible_of(kind)) for kind in KINDS},
    **{f"{kind}-refused": script(write(kind, "state/a", NEVER)) for kind in KINDS},
    **{f"{kind}-simple": script(*SIMPLE[kind]) for kind in KINDS},
    **{
        f"{kind}-rewrite": script(
            command(kind, "sh rewrite.sh", "rewritten.txt", ALWAYS),
            *reversed(SIMPLE[kind][:2]),
        )
        for kind in KINDS
    },
    **{f"{kind}-late": script(*SIMPLE[kind][:2]) for kind in KINDS},
}


def rules(mode: Mode, *more: str) -> str:
    allow = json.dumps([*ALLOW, *more])
    permissions = f'mode = "{mode}", on_ask = "deny", allow = {allow}, deny = {json.dumps(DENY)}'
    return f"permissions = {{ {permissions} }}"


def program(kind: Kind) -> list[str]:
    """A program that has an agent do all of its deeds, with a tool of ours."""
    prompt = f'return await ctx.think("[[script:{kind}-all]] do it", tools=[add])'
    return ["async def add() -> int:", '    """Add."""', "    return 2", prompt]


EXTRA: Final = 'extra_dirs = ["../more"]'


def make_project(crew: Crew) -> None:
    """The files and directories that the deeds are about, and the settings of the guard."""
    for name in (".git/hooks", "docs", "build", "../elsewhere", "../more"):
        (crew.root / name).mkdir(parents=True)
    (crew.root / "link").symlink_to(crew.root.parent / "elsewhere")
    for name, text in {"a.txt": "x\n", "secret.txt": "x\n", NOTEBOOK: EMPTY}.items():
        (crew.root / name).write_text(text, encoding="utf-8")
    with (crew.root / "bartack.toml").open("a", encoding="utf-8") as file:
        file.write(f"[guard]\nprotect = {json.dumps(PROTECT)}\n")


def done(root: Path, deeds: list[Deed]) -> list[str]:
    return [deed.trace for deed in deeds if deed.trace and (root / deed.trace).exists()]


def wanted(deeds: list[Deed], mode: Mode) -> list[str]:
    return [deed.trace for deed in deeds if deed.trace and deed.verdict(mode) == "a"]


THROUGH_A_LINK: Final = "Write link/a"
"""What Claude Code refuses by itself although it was allowed: a write through a link that leads out of the directory."""


def expected(kind: Kind, mode: Mode, deed: Deed) -> Outcome:
    """What has to become of a call."""
    reads = mode == "read"
    if kind == "claude" and ((deed.row in ONLY_READING and not reads) or (deed.row in NOT_READING and reads)):
        return "missing"
    if "NUL" in deed.row:
        return "invalid"
    if kind == "claude" and mode == "all" and deed.row == THROUGH_A_LINK:
        return "deny"
    return "allow" if deed.verdict(mode) == "a" else "deny"


def check_verdicts(crew: Crew, mode: Mode) -> None:
    """Check what became of each call, and which files there are."""
    kind, deeds = crew.kind, DEEDS[crew.kind]
    requests = crew.server.requests_of(f"{kind}-all")
    found = outcomes(requests, crew.events, first=0 if kind == "codex" else 1)
    became = {deed.row: found.get(number) for number, deed in enumerate(deeds)}
    assert became == {deed.row: expected(kind, mode, deed) for deed in deeds}
    assert done(crew.root, deeds) == [
        deed.trace for deed in deeds if deed.trace and expected(kind, mode, deed) == "allow"
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mode_means_the_same_with_every_agent(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind, mode: Mode
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, f"{rules(mode)}\n{EXTRA}", is_wrapped=False)
    make_project(crew)

    ran = crew.run(*program(kind))

    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    check_verdicts(crew, mode)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start programs as another user")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_another_user_than_root_gets_the_same_verdicts(
    model_server: ModelServer, kind: Kind, mode: Mode, slot: int
) -> None:
    become = as_nobody(require_program(kind))
    with TemporaryDirectory() as place, ClaudeSandbox(Path(place) / "s", model_server) as sandbox:
        crew = Crew(kind, sandbox, model_server, f"{rules(mode)}\n{EXTRA}", is_wrapped=False)
        make_project(crew)
        crew.program(*program(kind))
        give_away(Path(place))

        ran = sandbox.run([*become, sys.executable, "-m", "bartack", "run", "team.py", "--no-input"])

        assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
        check_verdicts(crew, mode)
        assert (crew.root / "allowed.txt").stat().st_uid == NOBODY


@pytest.mark.parametrize("kind", KINDS)
def test_the_calls_that_an_agent_cannot_make_are_not_possible(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    """With a newer version of an agent they may be: then the table has to have them tried."""
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, rules("all"), is_wrapped=False)
    make_project(crew)

    ran = crew.run(THINK.format(f"{kind}-impossible"))

    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    found = outcomes(model_server.requests_of(f"{kind}-impossible"), crew.events)
    became = {deed.row: found.get(number) for number, deed in enumerate(impossible_of(kind))}
    invalid = {row for row, reason in CANNOT[kind].items() if reason == NEEDS_PATH}
    assert became == {row: "invalid" if row in invalid else "missing" for row in became}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_tried_or_has_a_reason(kind: Kind) -> None:
    rows = [name_of(row) for row in TABLE]
    tried = [deed.row for deed in deeds_of(kind)]

    assert len(set(rows)) == len(rows)
    assert sorted([*tried, *CANNOT[kind]]) == sorted(rows)
    assert all(CANNOT[kind].values())
    assert len(tried) >= LEAST[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_refuses_paths(sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, rules("edit"), is_wrapped=False)
    make_project(crew)

    ran = crew.run(*COMMAND.format(f"{kind}-refused").splitlines())

    assert ran.returncode == 0, ran.stderr
    assert outcomes(model_server.requests_of(f"{kind}-refused"), crew.events)[0] == "deny"
    assert not (crew.root / "state/a").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_a_project_has_or_an_agent_rewrites_widen_nothing(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    """The project has a hostile file; the first prompt writes another one where its own settings are, the second begins with it."""
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, rules("edit", "Bash(sh rewrite.sh)"), is_wrapped=False)
    ((name, text),) = settings_file(kind).items()
    (crew.root / name).parent.mkdir()
    (crew.root / name).write_text(text, encoding="utf-8")
    (crew.root / "rewrite.sh").write_text(rewrite(kind), encoding="utf-8")

    ran = crew.run(
        f'await ctx.think("[[script:{kind}-rewrite]] first")',
        THINK.format(f"{kind}-simple"),
    )

    assert ran.returncode == 0, ran.stderr
    assert (crew.root / "rewritten.txt").exists()
    assert done(crew.root, SIMPLE[kind]) == wanted(SIMPLE[kind], "edit")


@pytest.mark.requirement("claude-is-held-to-permissions")
@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_that_raises_is_a_denial(
    make_sandbox: MakeSandbox, tmp_path: Path, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    (tmp_path / "sitecustomize.py").write_text(RAISES, encoding="utf-8")
    sandbox = make_sandbox(env={"PYTHONPATH": str(tmp_path)})
    crew = Crew(kind, sandbox, model_server, rules("all"), is_wrapped=False)

    ran = crew.run(THINK.format(f"{kind}-simple"))

    assert ran.returncode == 0, ran.stderr
    assert done(crew.root, SIMPLE[kind]) == []


@pytest.mark.parametrize(
    ("limit_s", "late_s"), [(1, 2.0), pytest.param(30, 31.5, marks=pytest.mark.soak)], ids=["short", "real"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_silence_in_place_of_a_decision_lets_nothing_run(
    make_sandbox: MakeSandbox,
    tmp_path: Path,
    model_server: ModelServer,
    kind: Kind,
    limit_s: int,
    late_s: float,
) -> None:
    """Claude Code waits for a while, and then blocks the call. The others wait for the decision as long as it takes."""
    require_program(kind)
    (tmp_path / "sitecustomize.py").write_text(LATE.format(limit_s=limit_s, late_s=late_s), encoding="utf-8")
    sandbox = make_sandbox(env={"PYTHONPATH": str(tmp_path)})
    crew = Crew(kind, sandbox, model_server, rules("all"), is_wrapped=False)

    ran = crew.run(THINK.format(f"{kind}-late"))

    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    early, decided = (float(word) for word in (crew.root / "silence.txt").read_text().split())
    assert decided - early >= late_s
    made = (crew.root / "plain.txt").stat().st_mtime if (crew.root / "plain.txt").exists() else 0.0
    assert (made == 0.0) if kind == "claude" else (made >= decided)
    assert not (crew.root / "denied.txt").exists()


def test_the_limit_of_the_silence_is_the_real_one() -> None:
    assert DECISION_S == 30
