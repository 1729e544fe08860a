"""Plugins in the real Claude Code: validated, installed, and started by commands, skills and repeated calls."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.realcli.conftest import MakeSandbox

from bartack.core.watch import open_watch
from bartack.testing import ClaudeSandbox, ModelServer, find_program

PROGRAM: Final = """\
# Sorts what comes in at night.
export trait NightDesk: Agent {
    # Sort the inbox of a folder into queues.
    # @arg folder where to look
    # @arg limit how many at most
    @skill
    @command
    fun sort_inbox(folder: string, limit: int = 10) {
        print("sorting $folder")
        return { folder, limit }
    }

    # Wait for a file.
    # @arg path the file
    @command
    fun await_file(path: string) {
        print("waiting")
        while !exists(path) {
            sleep(50)
        }
        return "there"
    }
}

# Triage one letter.
export worker triage(letter: string) {
    return letter
}
"""
SETTINGS: Final = "[daemon]\nautostart = false\n[plugin.hooks]\nguard = {guard}\nrecord = {record}\n"
TOOL: Final = "mcp__plugin_night-desk_bartack__"
HOSTILE: Final = "a; touch PWNED `touch PWNED` $(touch PWNED) \"q\" 'z'"

Step = dict[str, Any]


def start(entry: str, **args: object) -> Step:
    return {"tools": [{"name": f"{TOOL}start_run", "input": {"entry": entry, "args": args}}]}


WAIT: Final[Step] = {"tools": [{"name": f"{TOOL}wait_run", "input": {"run": "{{result.run}}"}}]}


def end(expected: str) -> Step:
    return {"text": "Done.", "expect": {"tool_result": expected}}


SCRIPTS: Final[dict[str, list[Step]]] = {
    "command": [
        start("sort-inbox", folder="letters", limit=3),
        WAIT,
        end(r'"value": ?\{"folder": ?"letters", ?"limit": ?3\}'),
    ],
    "hostile": [start("sort-inbox", folder=HOSTILE), WAIT, end("touch PWNED")],
    "skill": [
        {"tools": [{"name": "Skill", "input": {"skill": "night-desk:sort-inbox", "args": "letters 3"}}]},
        start("sort-inbox", folder="letters", limit=3),
        WAIT,
        end(r'"value": ?\{"folder": ?"letters", ?"limit": ?3\}'),
    ],
    "killed": [start("await-file", path="{{cwd}}/flag"), {"hang_s": 120}],
    "again": [
        {"tools": [{"name": f"{TOOL}list_runs", "input": {}}]},
        {"tools": [{"name": f"{TOOL}wait_run", "input": {"run": "{{result.runs.0.run}}", "cursor": 0}}]},
        {"text": "Done.", "expect": {"tool_result": '"value": ?"there"'}},
    ],
    "once": [start("sort-inbox", folder="letters", limit=3), {"text": "Started."}],
    "twice": [start("sort-inbox", folder="letters", limit=3), end('"existing": ?true')],
    "tools": [
        {"tools": [{"name": "Bash", "input": {"command": "true"}}]},
        {"tools": [{"name": "Bash", "input": {"command": "false"}}]},
        {"text": "Done."},
    ],
}


@pytest.fixture
def project(sandbox: ClaudeSandbox) -> ClaudeSandbox:
    """A sandbox with a project in its working directory, and a plugin that was built from it."""
    write_project(sandbox)
    return sandbox


def write_project(sandbox: ClaudeSandbox, *, guard: bool = False, record: bool = False) -> None:
    (sandbox.work / "desk.pw").write_text(PROGRAM, encoding="utf-8")
    settings = SETTINGS.format(guard=str(guard).lower(), record=str(record).lower())
    (sandbox.work / "bartack.toml").write_text(settings, encoding="utf-8")
    bartack(sandbox, "plugin", "build", "desk.pw", "-o", "built")


def bartack(sandbox: ClaudeSandbox, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = sandbox.run([sys.executable, "-I", "-m", "bartack", *words])
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def on_path(tmp_path: Path) -> str:
    """A PATH with the program ``bartack``, which a plugin needs that is not installed."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "bartack").write_text(
        f"#!{sys.executable} -I\nfrom bartack.cli import main\nraise SystemExit(main())\n"
    )
    (place / "bartack").chmod(0o755)
    return f"{place}:/usr/bin:/bin"


def ask(sandbox: ClaudeSandbox, prompt: str, *arguments: str, path: str = "") -> list[dict[str, Any]]:
    """The lines that Claude Code writes; the last one is a result without an error."""
    done = sandbox.run(
        [*find_program("claude"), "-p", prompt, "--output-format", "stream-json", "--verbose", *arguments],
        env={"PATH": path} if path else None,
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    assert lines[-1]["type"] == "result", done.stdout
    assert not lines[-1]["is_error"], done.stdout
    return lines


def runs(sandbox: ClaudeSandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bartack(sandbox, "status", "--json").stdout)
    return found


@pytest.mark.requirement("plugin-is-accepted")
def test_a_built_plugin_is_valid_for_bartack_and_for_claude_code(
    sandbox: ClaudeSandbox, claude: list[str]
) -> None:
    write_project(sandbox, guard=True, record=True)
    bartack(sandbox, "plugin", "build", "desk.pw", "-o", "again")
    bartack(sandbox, "plugin", "build", "desk.pw", "-o", "market", "--marketplace")

    ours = [
        json.loads(bartack(sandbox, "plugin", "validate", name, "--json").stdout)
        for name in ("built", "market")
    ]
    theirs = sandbox.claude("plugin", "validate", "--strict", str(sandbox.work / "built"))

    assert [(one["ok"], bool(one["claude"])) for one in ours] == [(True, True), (True, True)]
    assert theirs.returncode == 0, theirs.stdout
    compared = shutil.which("diff")
    assert compared
    assert (
        subprocess.run(
            [compared, "-r", sandbox.work / "built", sandbox.work / "again"], check=False
        ).returncode
        == 0
    )


def test_what_claude_code_refuses_is_reported(project: ClaudeSandbox, claude: list[str]) -> None:
    file = project.work / "built/.claude-plugin/plugin.json"
    file.write_text(file.read_text().replace('"author": {', '"authors": {'))

    report = json.loads(bartack(project, "plugin", "validate", "built", "--json", code=1).stdout)

    assert [one for one in report["findings"] if one["key"] == "claude plugin validate"]


@pytest.mark.requirement("plugin-starts-runs")
def test_a_command_starts_a_run_with_its_arguments(
    project: ClaudeSandbox, claude: list[str], on_path: str
) -> None:
    ask(project, "/night-desk:sort-inbox letters 3 [[script:command]]", "--plugin-dir", "built", path=on_path)

    (run,) = runs(project)
    assert run["status"] == "completed"


@pytest.mark.requirement("plugin-starts-runs")
def test_dev_starts_claude_code_with_the_plugin_of_a_program(
    sandbox: ClaudeSandbox, claude: list[str]
) -> None:
    assert claude
    (sandbox.work / "desk.pw").write_text(PROGRAM, encoding="utf-8")
    prompt = "/night-desk:sort-inbox letters 3 [[script:command]]"

    done = bartack(sandbox, "plugin", "dev", "desk.pw", "--", "-p", prompt)

    assert done.stdout.strip() == "Done."
    assert [run["status"] for run in runs(sandbox)] == ["completed"]
    assert sorted(path.name for path in sandbox.work.iterdir()) == [".bartack", "desk.pw"]


@pytest.mark.requirement("plugin-arguments-are-data")
def test_arguments_are_never_executed(make_sandbox: MakeSandbox, claude: list[str], on_path: str) -> None:
    sandbox = make_sandbox(bypass=True)
    write_project(sandbox)

    ask(
        sandbox,
        f"/night-desk:sort-inbox {HOSTILE} [[script:hostile]]",
        "--plugin-dir",
        "built",
        "--permission-mode",
        "bypassPermissions",
        path=on_path,
    )

    (run,) = runs(sandbox)
    assert run["status"] == "completed"
    assert list(sandbox.work.rglob("PWNED")) == []
    said = "".join(path.read_text() for path in sandbox.claude_home.rglob("*.jsonl"))
    assert f"<arguments>\\n{json.dumps(HOSTILE)[1:-1]} [[script:hostile]]\\n</arguments>" in said


@pytest.mark.requirement("plugin-starts-runs")
def test_a_model_starts_the_same_run_by_the_skill(
    project: ClaudeSandbox, claude: list[str], on_path: str
) -> None:
    ask(
        project,
        "Sort them. [[script:skill]]",
        "--plugin-dir",
        "built",
        "--allowedTools",
        "Skill",
        path=on_path,
    )

    (run,) = runs(project)
    assert run["status"] == "completed"


@pytest.mark.requirement("plugin-install-is-whole")
@pytest.mark.requirement("plugin-verify-finds-it")
def test_a_plugin_is_installed_used_verified_and_uninstalled_in_an_empty_home(
    sandbox: ClaudeSandbox, claude: list[str]
) -> None:
    """In between its guard is switched off, by a file of the project and by a program that is not there: both are named."""
    write_project(sandbox, guard=True)
    settings = sandbox.work / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  "cleanupPeriodDays": 9\n}\n')

    installed = json.loads(bartack(sandbox, "plugin", "install", "built", "--json").stdout)
    listed = json.loads(sandbox.claude("plugin", "list", "--json").stdout)
    ask(sandbox, "/night-desk:sort-inbox letters 3 [[script:command]]")
    verified = json.loads(bartack(sandbox, "plugin", "verify", "night-desk", "--json").stdout)
    doctor = json.loads(bartack(sandbox, "doctor", "--json").stdout)
    check_switched_off(sandbox)
    check_missing_program(sandbox)
    bartack(sandbox, "plugin", "uninstall", "night-desk")

    assert installed["changed"]
    assert [(one["id"], one["enabled"], one["scope"]) for one in listed] == [
        (installed["id"], True, "project")
    ]
    assert [run["status"] for run in runs(sandbox)] == ["completed"]
    assert [one["problems"] for one in verified] == [[]]
    assert [one["level"] for one in doctor["findings"] if one["check"] == "plugin night-desk"] == ["ok"]
    assert {name: value for name, value in json.loads(settings.read_text()).items() if value} == {
        "cleanupPeriodDays": 9
    }
    assert not (sandbox.work / ".bartack/marketplace").exists()
    assert json.loads(sandbox.claude("plugin", "marketplace", "list", "--json").stdout) == []
    assert json.loads(sandbox.claude("plugin", "list", "--json").stdout) == []


def check_switched_off(sandbox: ClaudeSandbox) -> None:
    """A settings file with ``disableAllHooks`` is named by install, verify and doctor."""
    file = sandbox.work / ".claude/settings.local.json"
    file.write_text('{"disableAllHooks": true}')
    said = [
        bartack(sandbox, "plugin", "install", "built", code=1).stderr,
        bartack(sandbox, "plugin", "verify", "night-desk", code=1).stdout,
        bartack(sandbox, "doctor", code=1).stdout,
    ]
    file.unlink()
    assert [str(file) in text.replace("\n", "") for text in said] == [True] * 3


def check_missing_program(sandbox: ClaudeSandbox) -> None:
    """A guard whose program is missing is named by verify and doctor."""
    (file,) = (sandbox.work / ".bartack/marketplace").rglob("hooks.json")
    right = file.read_text()
    file.write_text(right.replace(sys.executable, "/no/such/python"))
    said = [
        bartack(sandbox, "plugin", "verify", "night-desk", code=1).stdout,
        bartack(sandbox, "doctor", code=1).stdout,
    ]
    file.write_text(right)
    assert ["/no/such/python" in text.replace("\n", "") for text in said] == [True] * 2


@pytest.mark.requirement("plugin-install-is-whole")
def test_a_newer_build_replaces_the_installed_version(project: ClaudeSandbox, claude: list[str]) -> None:
    bartack(project, "plugin", "install", "built", "--scope", "local")
    settings = project.work / "bartack.toml"
    settings.write_text(settings.read_text() + '[plugin]\nversion = "0.2.0"\n')
    bartack(project, "plugin", "build", "desk.pw", "-o", "built")

    changed = json.loads(bartack(project, "plugin", "install", "built", "--scope", "local", "--json").stdout)

    listed = json.loads(project.claude("plugin", "list", "--json").stdout)
    assert (changed["changed"], changed["version"]) == (True, "0.2.0")
    assert [(one["version"], one["folderVersion"], one["scope"]) for one in listed] == [
        ("0.2.0", "0.2.0", "local")
    ]
    bartack(project, "plugin", "uninstall", "night-desk", "--scope", "local")
    assert not (project.work / ".bartack/marketplace").exists()


def test_two_projects_do_not_take_each_others_plugins_away(project: ClaudeSandbox, claude: list[str]) -> None:
    other = project.work / "other"
    other.mkdir()
    bartack(project, "plugin", "install", "built")
    done = project.run([sys.executable, "-I", "-m", "bartack", "plugin", "install", "../built"], cwd=other)

    assert done.returncode == 0, done.stderr
    assert "works" in bartack(project, "plugin", "verify", "night-desk").stdout


EVENTS: Final = ("SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd")


def recorded(sandbox: ClaudeSandbox) -> Counter[str]:
    """The events in the spool, by name."""
    spool = sandbox.home / ".local/state/bartack/spool/new"
    return Counter(file.read_bytes().split(b" ", 3)[2].decode() for file in spool.glob("*.evt"))


def wait_for_record(sandbox: ClaudeSandbox, event: str) -> None:
    spool = sandbox.home / ".local/state/bartack/spool/new"
    with open_watch(str(spool)) as watch:
        for _ in range(60):
            if recorded(sandbox)[event]:
                return
            watch.wait(0.5)
    raise AssertionError(f"{event} was not recorded: {recorded(sandbox)}")


@pytest.mark.requirement("events-are-recorded-once")
@pytest.mark.parametrize("first", ["plugin", "hooks", "none"])
def test_each_event_is_recorded_once_whichever_hooks_were_installed_first(
    sandbox: ClaudeSandbox, claude: list[str], first: str
) -> None:
    write_project(sandbox, record=True)
    if first == "hooks":
        bartack(sandbox, "hook", "install")
    bartack(sandbox, "plugin", "install", "built")
    if first == "plugin":
        bartack(sandbox, "hook", "install")

    ask(sandbox, "Try both. [[script:tools]]", "--allowedTools", "Bash")
    for event in EVENTS:
        wait_for_record(sandbox, event)

    assert recorded(sandbox) == dict.fromkeys(EVENTS, 1)
    spool = sandbox.home / ".local/state/bartack/spool/new"
    assert b"test-not-a-key" not in b"".join(file.read_bytes() for file in spool.iterdir())


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout
    for line in process.stdout:
        yield json.loads(line)


@pytest.mark.requirement("plugin-runs-outlive-claude-code")
def test_a_run_continues_after_claude_code_was_killed_and_another_session_reports_it(
    project: ClaudeSandbox, claude: list[str], on_path: str, model_server: ModelServer
) -> None:
    words = [*claude, "-p", "/night-desk:await-file flag [[script:killed]]", "--plugin-dir", "built"]
    process = project.start([*words, "--output-format", "stream-json", "--verbose"], env={"PATH": on_path})
    for line in lines_of(process):
        if line["type"] == "user" and "run" in json.dumps(line) and "tool_result" in json.dumps(line):
            break
    process.kill()
    process.communicate(timeout=30)
    (run,) = runs(project)
    assert run["status"] in {"running", "waiting", "active"}
    (project.work / "flag").touch()

    ask(
        project,
        "What came of it? [[script:again]]",
        "--plugin-dir",
        "built",
        "--allowedTools",
        f"{TOOL}list_runs,{TOOL}wait_run",
        path=on_path,
    )

    (run,) = runs(project)
    assert run["status"] == "completed"
    assert model_server.requests


@pytest.mark.requirement("plugin-starts-once")
def test_a_start_that_a_resumed_session_repeats_finds_the_run(
    project: ClaudeSandbox, claude: list[str], on_path: str
) -> None:
    lines = ask(
        project, "/night-desk:sort-inbox letters 3 [[script:once]]", "--plugin-dir", "built", path=on_path
    )
    session = lines[-1]["session_id"]

    allowed = ("--plugin-dir", "built", "--allowedTools", f"{TOOL}start_run")
    ask(project, "Again. [[script:twice]]", "--resume", session, *allowed, path=on_path)

    assert len(runs(project)) == 1
