"""Reports and differences of a run whose agents are hostile: no text, no file name and no content steers the terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.security.terminals import HOSTILE, on_terminal
from tests.unit.pipeline.repository import make

SETTINGS = """\
durability = "process"
[pipeline]
spec = false
on_limit = "fail"
max_review_rounds = 1
[tests]
mode = "off"
[agents.evil]
kind = "scripted"
script = "evil.json"
roles = ["builder", "reviewer"]
"""
NAME = "evil \x1b]0;name\x07 `x` $(touch sprung).txt"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run whose builder and reviewer are hostile."""
    built = {"type": "builder.completed", "payload": {"tests": {"status": "pass", "summary": HOSTILE}}}
    finding = {"message": f"finding {HOSTILE}", "path": f"a{HOSTILE}", "line": 1}
    review = {"type": "review.completed", "status": "changes_requested", "payload": {"findings": [finding]}}
    responses = {
        "implement": {"write": [{"path": NAME, "content": f"content {HOSTILE}\n"}], "events": [built]},
        "review": {"events": [review]},
    }
    content = {"evil.json": json.dumps({"version": 1, "responses": responses}), "bartack.toml": SETTINGS}
    place = make(tmp_path_factory.mktemp("evil"), {**content, ".gitignore": ".bartack/\n"})
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "run", "--goal", f"goal {HOSTILE}"],
        cwd=place,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return place


@pytest.mark.requirement("terminal-is-not-steered")
@pytest.mark.parametrize(
    "words",
    [
        ("report",),
        ("report", "--markdown"),
        ("report", "--json"),
        ("diff",),
        ("diff", "--no-pager"),
        ("diff", "--stat"),
        ("diff", "--name-only"),
        ("diff", "--json"),
        ("resume",),
    ],
    ids=" ".join,
)
def test_hostile_agents_do_not_steer_the_terminal(project: Path, words: tuple[str, ...]) -> None:
    seen = on_terminal(*words, cwd=project, GIT_PAGER="tee /dev/null")

    assert "Traceback" not in seen.text
    assert "evil" in seen.text or "finding" in seen.text
    assert seen.steering == []
    assert not (project / "sprung").exists()


@pytest.mark.requirement("diff-shows-the-work")
def test_a_pager_is_started_on_a_terminal_only_and_gets_escaped_text(project: Path, tmp_path: Path) -> None:
    paged = tmp_path / "paged"

    on_terminal("diff", cwd=project, GIT_PAGER=f"tee '{paged}'")
    piped = subprocess.run(
        [sys.executable, "-m", "bartack", "diff"], cwd=project, capture_output=True, timeout=120, check=True
    )

    assert b"content " in paged.read_bytes()
    assert b"\x1b]0;" not in paged.read_bytes()
    assert f"content {HOSTILE}".encode() in piped.stdout, "on a pipe it is a patch"


@pytest.mark.requirement("takeover-is-checked")
def test_a_line_to_paste_executes_nothing_that_a_file_is_called(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "report", "--json"],
        cwd=project,
        capture_output=True,
        timeout=120,
        check=True,
    )
    command = json.loads(done.stdout)["takeover"]["command"]

    assert command == "git add -- . && git commit"
