"""``do`` blocks of a Patchwork program in the turn of a real agent: called once, twice, together, never, and after the end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.realcli.crew import KINDS, Crew, Kind, own_tool
from tests.realcli.programs import require_program
from tests.waiting import until

from bartack.agents.bridge import TOKEN_VARIABLE, bridge_argv
from bartack.supervision.process.system import read_environment
from bartack.testing import ClaudeSandbox, ModelServer

pytestmark = pytest.mark.requirement("tools-run-in-the-worker")

PROGRAM: Final = """
worker main() {{
    var first = 0
    var second = 0
    var third = 0
    var said = think {{
        [[script:{kind}]] Count, with:
        do {{
            first = first + 1
            first
        }}
        do {{
            second = second + 1
            $ echo second >> second.txt
            second
        }}
        do {{
            third = third + 1
            third
        }}
    }}
    {after}
    return "$said $first $second $third"
}}
"""
AFTER: Final = "$ sh -c 'until test -e {gates}/go; do sleep 0.05; done'"


def script(kind: Kind) -> list[dict[str, object]]:
    """Two blocks in one reply, one of them again, and the third one never."""
    return [
        {"tools": [own_tool(kind, "do_1"), own_tool(kind, "do_2")]},
        {"tools": [own_tool(kind, "do_1")], "expect": {"tool_result": "1"}},
        {"text": "done", "expect": {"tool_result": "2"}},
    ]


SCRIPTS: Final = {str(kind): script(kind) for kind in KINDS}


def write(crew: Crew, after: str = "") -> None:
    (crew.root / "team.pw").write_text(PROGRAM.format(kind=crew.kind, after=after), encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_run_as_often_as_they_are_called(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, is_wrapped=False)
    write(crew)

    done = crew.call("run", "team.pw", "--no-input")

    assert (done.returncode, done.stdout) == (0, "done 2 1 0\n"), done.stderr
    called = [
        (entry.data["call"], entry.data["tool"]) for entry in crew.journal() if entry.kind == "tool.called"
    ]
    assert called == [(1, "do_1"), (2, "do_2"), (3, "do_1")]
    assert crew.count("tool.finished") == 3
    assert (crew.root / "second.txt").read_text(encoding="utf-8") == "second\n"
    assert "do_3: not called" in crew.call("show", crew.folder.name, "main:1").stdout


def test_a_block_that_is_called_after_the_end_of_its_step_does_not_run(
    sandbox: ClaudeSandbox, model_server: ModelServer, acp: list[str]
) -> None:
    """Only the bridge of an ACP agent is a process that could outlive the step: another one is started with its token."""
    assert acp
    crew = Crew("acp", sandbox, model_server)
    write(crew, AFTER.format(gates=crew.gates))
    with model_server.hold("acp", 2) as hold:
        run = crew.begin("run", "team.pw", "--no-input")
        hold.wait()
        found = [read_environment(facts.pid).get(TOKEN_VARIABLE, "") for facts in sandbox.processes()]
        (token,) = filter(None, found)
    until(lambda: crew.count("step.finished") > 1, "the prompt has its outcome")
    params: dict[str, object] = {"name": "do_3", "arguments": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    words = bridge_argv(str(Path(crew.folder) / "hub.sock"))
    late = subprocess.run(
        words,
        input=json.dumps(call),
        env={TOKEN_VARIABLE: token},
        text=True,
        capture_output=True,
        check=False,
    )
    (crew.gates / "go").touch()
    out, err = run.communicate(timeout=60)

    assert (late.returncode, late.stdout) == (1, "")
    assert "this step has ended" in late.stderr
    assert out == "done 2 1 0\n", err
