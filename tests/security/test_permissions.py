"""Attacks of an agent on the questions that it asks: its own processes must not answer them, nor get them out of the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests import warm

from bartack.runtime.rundir.find import list_runs, read_state
from bartack.runtime.rundir.inbox import Left, _key, _seal

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the attacks are made with tools of Linux"),
    pytest.mark.requirement("permissions-need-a-person"),
]
TIMEOUT_S = 120

PROGRAM = """
from bartack import Context, worker
from bartack.errors import AgentError

@worker
async def main(ctx: Context) -> str:
    async def attacked() -> None:
        try:
            await ctx.think("Attack.", agent="attacker")
        except AgentError:
            pass

    reply, _ = await ctx.gather(ctx.think("Tidy up.", agent="tidy"), attacked())
    return reply
"""
SCRIPT = {
    "prompts": [
        {
            "text": "tidied up",
            "ask": {"question": "May it?", "kind": "permission", "tool": "Bash", "expect": "allow"},
        }
    ]
}
ATTACKER = '''
"""An agent that does not answer its prompt: when the question is open, it types what only a person may, and ends."""
import json, os, subprocess, sys, time

run = os.environ["BARTACK_RUN_DIR"]
until = time.monotonic() + 30
while "question.asked" not in open(f"{run}/journal.ndjson").read() and time.monotonic() < until:
    time.sleep(0.05)
with open(f"{run}/inbox/q-q1.json", "w") as planted:
    json.dump({"value": "allow", "question": "q1", "at": 1, "asked": 1, "seal": "f" * 64}, planted)
told = []
for words in (["answer", run, "q1", "allow"], ["fail", run, "no"], ["cancel", run]):
    done = subprocess.run([sys.executable, "-m", "bartack", *words], capture_output=True, text=True)
    told.append("BT328" if done.returncode and "BT328" in done.stderr else done.stderr)
with open("told.json.new", "w") as file:
    json.dump(told, file)
os.replace("told.json.new", "told.json")
'''


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an agent that asks for a permission, and one that attacks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CI", raising=False)
    place = tmp_path / "work"
    place.mkdir()
    (place / "tidy.py").write_text(PROGRAM)
    (place / "script.json").write_text(json.dumps(SCRIPT))
    (place / "attacker.py").write_text(ATTACKER)
    argv = json.dumps([sys.executable, "attacker.py"])
    (place / "bartack.toml").write_text(
        '[agents.tidy]\nkind = "scripted"\nscript = "script.json"\n'
        f'[agents.attacker]\nkind = "ndjson"\ncommand = {argv}\nmax_restarts = 0\n'
    )
    return place


def bartack(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "bartack", *words],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_an_agent_can_neither_allow_itself_something_nor_end_the_run_that_asks(workspace: Path) -> None:
    stopped = bartack(workspace, "run", "tidy.py")

    assert stopped.returncode == 3, stopped.stderr
    assert json.loads((workspace / "told.json").read_text()) == ["BT328"] * 3
    run = list_runs(workspace)[0]
    assert list(read_state(run).questions) == ["q1"]
    again = bartack(workspace, "resume")
    assert (again.returncode, "ignored inbox/q-q1.json" in again.stderr) == (3, True)
    assert bartack(workspace, "answer", run.id, "q1", "allow").returncode == 0
    done = bartack(workspace, "resume")
    assert (done.returncode, done.stdout) == (0, "tidied up\n"), done.stderr


def test_not_even_a_file_with_the_seal_of_the_person_is_a_permission(workspace: Path) -> None:
    assert bartack(workspace, "run", "tidy.py").returncode == 3
    run = list_runs(workspace)[0]
    asked = read_state(run).questions["q1"].seq
    left = Left(value=msgspec.Raw(b'"allow"'), question="q1", asked=asked, at=1)
    left.seal = _seal(_key(), run, "q-q1", left)
    (run.inbox / "q-q1.json").write_bytes(msgspec.json.encode(left))

    resumed = bartack(workspace, "resume")

    assert resumed.returncode == 3, resumed.stderr
    assert "ignored inbox/q-q1.json: a question of an agent is not answered by a file" in resumed.stderr
    assert list(read_state(run).questions) == ["q1"]
