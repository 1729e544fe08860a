"""Four calls of Claude Code side by side, each in a git worktree of its own, in which it commits its work."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest
from tests.realcli.team import Result

from bartack.testing import ClaudeSandbox, ModelServer

TASKS: Final = ("north", "east", "south", "west")
SETTINGS: Final = """
[parallel]
tasks = 4
[pipeline]
review = false
spec = false
[tests]
command = ["true"]
[agents.claude]
roles = ["builder"]
"""
TASK: Final = '[[tasks]]\nid = "{name}"\ngoal = "[[script:{name}]] Write {name}.txt."\n'
COMMIT: Final = "git add --all && git -c user.name=A -c user.email=a@example.com commit -q -m {name} && ls -A > {name}.seen"


def script(name: str) -> list[dict[str, object]]:
    answer = {"event": "builder.completed", "payload": {"tests": {"status": "pass"}}}
    return [
        {
            "tools": [
                {"name": "Write", "input": {"file_path": f"{{{{cwd}}}}/{name}.txt", "content": f"{name}\n"}}
            ]
        },
        {"tools": [{"name": "Bash", "input": {"command": COMMIT.format(name=name), "description": "d"}}]},
        {"tools": [{"name": "StructuredOutput", "input": answer}]},
        {"text": "Done."},
    ]


SCRIPTS: Final = {name: script(name) for name in TASKS}


def git(box: ClaudeSandbox, *words: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *names, *words], cwd=box.work, text=True, capture_output=True, check=True)
    return done.stdout


def bartack(box: ClaudeSandbox, *words: str) -> Result:
    return box.run([sys.executable, "-m", "bartack", *words], timeout_s=120)


@pytest.mark.requirement("tasks-run-side-by-side")
def test_four_agents_commit_in_four_worktrees_and_no_file_crosses_over(
    sandbox: ClaudeSandbox, model_server: ModelServer, claude: list[str]
) -> None:
    assert claude
    tasks = "".join(TASK.format(name=name) for name in TASKS)
    (sandbox.work / "bartack.toml").write_text(SETTINGS + tasks, encoding="utf-8")
    git(sandbox, "init", "-q")
    git(sandbox, "add", "--all")
    git(sandbox, "commit", "-q", "-m", "Begin")

    done = bartack(sandbox, "run", "--no-input")

    assert done.returncode == 0, done.stderr
    (run,) = [path.name for path in (sandbox.work / ".bartack" / "runs").glob("run-*")]
    for name in TASKS:
        files = set(git(sandbox, "ls-tree", "-r", "--name-only", f"bartack/{run}/{name}").split())
        assert files == {"bartack.toml", f"{name}.txt", f"{name}.seen"}
        assert name in git(sandbox, "log", "--format=%s", f"bartack/{run}/{name}").split()
        seen = git(sandbox, "show", f"bartack/{run}/{name}:{name}.seen").split()
        assert [other for other in TASKS if f"{other}.txt" in seen] == [name]
    assert {len(model_server.requests_of(name)) for name in TASKS} == {3}
    assert not list(sandbox.work.glob("*.txt"))

    # What nobody has committed is never removed.
    dirty = sandbox.work / ".bartack" / "worktrees" / run / "north" / "inner"
    dirty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=dirty, check=True)
    (dirty / "kept.txt").write_text("kept", encoding="utf-8")
    cleaned = bartack(sandbox, "clean", "--yes")
    assert (dirty / "kept.txt").read_text(encoding="utf-8") == "kept", cleaned.stdout + cleaned.stderr
