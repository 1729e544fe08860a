"""What people see of a call: ``show`` prints its transcript, and nothing prints or packs raw streams and homes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.programs.fakes import KINDS, SECRET
from tests.cli.programs.workspace import Project

PASSED = (
    'pass_env = ["CANARY_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"]\npermissions = { deny = ["Bash"] }'
)


@pytest.mark.requirement("calls-are-shown")
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_shown_with_what_its_agent_did(kind: str, tmp_path: Path) -> None:
    project = Project(tmp_path, kind, "tools", PASSED)
    done = project.run()
    assert done.stdout == "fine\n", done.stderr
    raw = project.runs[0] / "agents" / "a"
    (stream,) = raw.glob("*/stream.ndjson")
    (stream.parent / "home").mkdir(exist_ok=True)
    (stream.parent / "home" / "settings.json").write_text('"in-the-home"', encoding="utf-8")

    shown = project.call("show", "latest", "1").stdout
    told = json.loads(project.call("show", "latest", "1", "--json").stdout)["transcript"]

    lines = shown.split("Call of agent a\n")[1].splitlines()
    words = [line.split(None, 2)[1:] for line in lines]
    conversation = stream.parent.name
    assert words[0][0] == "attempt"
    assert words[0][1].startswith("1: process ")
    assert conversation in words[0][1]
    assert ["permission", "Bash denied by rule"] in [[what, text.rstrip(" 1")] for what, text in words], lines
    (began,) = [text for what, text in words if what == "tool" and text.startswith('Bash {"command":"touch')]
    assert len(began) < 300
    assert began.endswith("characters)")
    assert any(what == "tool" and text.startswith("Bash f") for what, text in words)
    assert any(what == "text" and text.endswith("fine") for what, text in words)
    assert any(what == "used" for what, _ in words)
    assert words[-1][0] == "end"
    assert words[-1][1].startswith("completed after ")
    assert [event["event"] for event in told][-1] == "agent.finished"
    assert SECRET not in shown + json.dumps(told)

    log = project.call("log", "latest").stdout
    project.call("bundle", "latest", "-o", "report.tar.gz")
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        names = archive.getnames()
        packed = b"".join(file.read() for name in names if (file := archive.extractfile(name)) is not None)
    assert not [name for name in names if "stream" in name or "home" in name or "stderr" in name]
    for text in (log.encode(), packed):
        assert b"in-the-home" not in text
        assert b"jsonrpc" not in text
        assert b"hook_callback" not in text
        assert SECRET.encode() not in text


@pytest.mark.requirement("calls-are-shown")
def test_a_failed_step_is_shown_with_its_attempts(tmp_path: Path) -> None:
    project = Project(tmp_path, "claude", "die")
    project.run()

    shown = project.call("show", "latest", "1").stdout

    assert "retry       attempt 1 ended: its process was killed by signal 9 [agent_exited]" in shown
    assert "attempt     2: process " in shown
