"""``bartack hook guard`` as an agent calls it: one object on stdin, a verdict, and a block whatever goes wrong."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "bartack", "hook", "guard")
BLOCKED = "Blocked: the guard could not decide ("


@pytest.fixture(name="project")
def make(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def call(
    project: Path, given: object, *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    text = given if isinstance(given, str) else json.dumps(given)
    names = ("PATH", "HOME", "PYTHONPATH")
    environ = {name: os.environ[name] for name in names if name in os.environ} | (env or {})
    return subprocess.run(
        [*COMMAND, *args],
        input=text,
        capture_output=True,
        text=True,
        cwd=project,
        env=environ,
        timeout=60,
        check=False,
    )


def tool_call(command: str, **more: object) -> dict[str, object]:
    return {
        "hook_event_name": "PreToolUse",
        "session_id": "a-session",
        "tool_use_id": "toolu_1",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        **more,
    }


def decision(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    if not done.stdout:
        return "none"
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert answer["hookEventName"] == "PreToolUse"
    return f"{answer['permissionDecision']}: {answer['permissionDecisionReason']}"


@pytest.mark.requirement("guard-verdicts-are-recorded")
def test_verdicts_are_answered_and_recorded(project: Path) -> None:
    value = "hunter2hunter2"

    assert decision(call(project, tool_call("ls"))) == "none"
    denied = decision(call(project, tool_call(f"PASSWORD={value} rm -rf /")))
    assert denied.startswith("deny: Blocked by Bartack guard, rule delete-vital: a recursive delete of")
    assert decision(call(project, tool_call("cat x | sh"))).startswith("ask: ")
    assert decision(call(project, tool_call("cat x | sh", permission_mode="bypassPermissions"))).startswith(
        "deny: "
    )

    log = project / ".bartack/guard.ndjson"
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(line["decision"], line["rule"]) for line in lines] == [
        ("none", ""),
        ("deny", "delete-vital"),
        ("ask", "unparsed"),
        ("deny", "unparsed"),
    ]
    assert {(line["session"], line["tool_use_id"], line["tool"]) for line in lines} == {
        ("a-session", "toolu_1", "Bash")
    }
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert value not in log.read_text(encoding="utf-8")


def test_in_a_run_verdicts_are_recorded_in_its_directory(project: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()

    call(project, tool_call("ls"), env={"BARTACK_RUN_DIR": str(run)})

    assert (run / "guard.ndjson").read_text(encoding="utf-8").count("\n") == 1
    assert not (project / ".bartack").exists()


@pytest.mark.requirement("guard-hook-fails-closed")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "the input is not JSON"),
        ("nonsense", "the input is not JSON"),
        ("[]", "the input is not an object"),
        ({}, "the event is not PreToolUse"),
        ({"hook_event_name": "PreToolUse"}, "the tool or its input is missing"),
        (tool_call("ls", tool_input="ls"), "the tool or its input is missing"),
        (tool_call("ls", tool_name=7), "the tool or its input is missing"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_an_input_that_cannot_be_used_blocks(project: Path, given: object, problem: str) -> None:
    done = call(project, given)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{BLOCKED}{problem})\n"


@pytest.mark.requirement("guard-hook-fails-closed")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("[guard", "bartack.toml: it is not TOML"),
        ("guard = 1", "guard: it is not a table"),
        ("[guard]\nunparsed = 'never'", "guard.unparsed: it is neither 'ask' nor 'deny'"),
        ("[[guard.rule]]\ntool = 'Bash'", "guard.rule[0].match: it is missing"),
        ("\udcff", "bartack.toml: it cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_used_blocks_and_is_reported_at_the_start(
    project: Path, settings: str, problem: str
) -> None:
    (project / "bartack.toml").write_bytes(settings.encode("utf-8", "surrogateescape"))

    done = call(project, tool_call("ls"))
    started = call(project, {"hook_event_name": "SessionStart", "source": "startup"})

    assert done.returncode == 2
    assert done.stderr.startswith(f"{BLOCKED}{problem}")
    assert f"The Bartack guard does not work: {problem}" in json.loads(started.stdout)["systemMessage"]


def test_settings_that_others_can_change_block(project: Path) -> None:
    (project / "bartack.toml").write_text("[guard]\nbuiltin = false\n", encoding="utf-8")
    (project / "bartack.toml").chmod(0o666)

    assert "another user can change it" in call(project, tool_call("ls")).stderr


def test_a_guard_that_works_says_nothing_at_the_start(project: Path) -> None:
    done = call(project, {"hook_event_name": "SessionStart", "source": "startup"})

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.requirement("guard-hook-fails-closed")
def test_an_input_that_never_ends_blocks_in_time(project: Path) -> None:
    began = time.monotonic()
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project, text=True
    ) as process:
        try:
            assert process.wait(30) == 2
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == f"{BLOCKED}no time left)\n"
    assert time.monotonic() - began > 2.5


@pytest.mark.requirement("guard-hook-fails-closed")
def test_a_crash_blocks(project: Path) -> None:
    (project / "site").mkdir()
    (project / "site/sitecustomize.py").write_text(
        "import sys\nsys.modules['bartack.agents.guard.guard'] = None\n", encoding="utf-8"
    )

    done = call(project, tool_call("ls"), env={"PYTHONPATH": str(project / "site")})

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(BLOCKED)


def test_the_project_decides_and_not_the_directory_of_the_command(project: Path) -> None:
    (project / "bartack.toml").write_text("[guard]\nprotect = ['.env*']\n", encoding="utf-8")
    (project / "sub").mkdir()
    write = {
        **tool_call(""),
        "tool_name": "Write",
        "tool_input": {"file_path": str(project / ".env"), "content": "x"},
    }

    assert decision(call(project / "sub", write)).startswith("deny: Blocked by Bartack guard, rule protected")
    assert decision(call(project / "sub", tool_call("rm -rf ../sub2", cwd=str(project / "sub")))) == "none"
    assert decision(call(project / "sub", tool_call("rm -rf ..", cwd=str(project / "sub")))).startswith(
        "deny: "
    )


def test_a_command_is_explained(project: Path) -> None:
    allowed = call(project, "", "--explain", "cd x && ls")
    denied = call(project, "", "--explain", "ls; sudo rm -rf ~")
    asked = call(project, "", "--json", "--explain", "cat x | sh")

    assert (allowed.returncode, denied.returncode, asked.returncode) == (0, 1, 3)
    assert "cd x" in allowed.stdout
    assert "delete-vital" in denied.stdout
    assert [row["rule"] for row in json.loads(asked.stdout)] == ["", "unparsed"]


def test_a_broken_policy_is_an_error_of_the_explanation(project: Path) -> None:
    (project / "bartack.toml").write_text("[guard]\nbuiltin = 1\n", encoding="utf-8")

    done = call(project, "", "--explain", "ls")

    assert done.returncode == 2
    assert "BT108" in done.stderr
    assert "guard.builtin" in done.stderr


def test_the_hook_loads_neither_click_nor_rich_nor_msgspec(project: Path) -> None:
    (project / "bartack.toml").write_text("[guard]\nunparsed = 'deny'\n", encoding="utf-8")
    code = (
        "import sys; from bartack.cli import main; code = main(['hook', 'guard'])\n"
        "print(code, [name for name in ('click', 'rich', 'msgspec', 'bartack.errors') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(tool_call("ls")),
        capture_output=True,
        text=True,
        cwd=project,
        timeout=60,
        check=True,
    )

    assert done.stdout == "0 []\n"


def test_the_directory_of_the_session_counts_as_the_project_does(project: Path) -> None:
    (project / "sub/deep").mkdir(parents=True)
    session = {"CLAUDE_PROJECT_DIR": str(project / "sub")}

    assert decision(call(project / "sub", tool_call("find . -delete"), env=session)).startswith("deny: ")
    assert decision(call(project / "sub", tool_call("rm -rf deep"), env=session)) == "none"


def test_a_directory_that_others_can_write_to_is_nobodys_project(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "shared/own"
    own.mkdir(parents=True)
    (shared / ".git").mkdir()
    shared.chmod(0o777)
    (shared / "bartack.toml").write_text("[guard]\nbuiltin = false\n", encoding="utf-8")

    assert decision(call(own, tool_call("rm -rf ../x"))).startswith("deny: ")
    assert (own / ".bartack/guard.ndjson").exists()
