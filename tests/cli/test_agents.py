from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import warm

Result = subprocess.CompletedProcess[str]

SCRIPT = """
version = 1
[[prompts]]
text = "fine"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    argv = json.dumps([sys.executable, "-m", "bartack", "agents", "scripted", "--script", "replies.toml"])
    (tmp_path / "bartack.toml").write_text(
        f'[agents]\ndefault = "program"\n[agents.program]\nkind = "ndjson"\ncommand = {argv}\nroles = ["builder"]\n'
        '[agents.scripted]\nscript = "replies.toml"\n'
    )
    (tmp_path / "replies.toml").write_text(SCRIPT)
    return tmp_path


def test_agents_are_listed(call: Callable[..., Result], workspace: Path) -> None:
    shown = call("agents", "list", "-C", str(workspace))
    assert call("agents", "-C", str(workspace)).stdout == shown.stdout
    assert call("agents", "--help").stdout.startswith("Usage: bartack agents")
    listed = json.loads(call("agents", "list", "-C", str(workspace), "--json").stdout)

    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [
        ["program", "ndjson"],
        ["scripted", "scripted"],
    ]
    assert [(agent["name"], agent["default"], agent["roles"]) for agent in listed] == [
        ("program", True, ["builder"]),
        ("scripted", False, []),
    ]


def test_no_agents_is_said(call: Callable[..., Result], tmp_path: Path) -> None:
    assert "No agent is configured" in call("agents", "list", "-C", str(tmp_path)).stdout
    assert "No agent is configured" in call("agents", "doctor", "-C", str(tmp_path)).stdout
    assert call("agents", "list", "-C", str(tmp_path), "--json").stdout == "[]\n"


@pytest.mark.requirement("doctor-finds-what-is-missing")
def test_the_doctor_starts_programs_and_reads_scripts(call: Callable[..., Result], workspace: Path) -> None:
    shown = call("agents", "doctor", "-C", str(workspace))
    reports = json.loads(call("agents", "doctor", "-C", str(workspace), "--json").stdout)

    assert shown.returncode == 0
    assert shown.stdout.count("usable") == 2
    assert [(report["version"], report["usable"]) for report in reports] == [
        ("scripted 1", True),
        ("", True),
    ]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["no-such-agent"], "not found"),
        (
            [sys.executable, "-S", "-c", "print('hello')"],
            "it ended with 0 before it was sent anything; it printed: hello",
        ),
        ([sys.executable, "-S", "-c", ""], "it ended with 0 before it was sent anything and printed nothing"),
        (
            [sys.executable, "-S", "-c", "import sys; print('Welcome!', flush=True); sys.stdin.read()"],
            "it does not speak the line protocol; it printed: Welcome!",
        ),
        (
            [sys.executable, "-S", "-c", "raise SystemExit('no')"],
            "it ended with 1 before it was sent anything; it printed: no",
        ),
        (
            [
                sys.executable,
                "-S",
                "-c",
                """print('{"kind":"hello","protocol":[2],"name":"n","version":"2"}')""",
            ],
            "protocol version [2]",
        ),
    ],
)
@pytest.mark.requirement("doctor-finds-what-is-missing")
def test_the_doctor_says_why_an_agent_cannot_be_used(
    command: list[str], told: str, call: Callable[..., Result], workspace: Path
) -> None:
    (workspace / "bartack.toml").write_text(f"[agents.bad]\ncommand = {json.dumps(command)}\n")

    done = call("agents", "doctor", "bad", "-C", str(workspace))

    assert done.returncode == 1
    assert told in done.stdout


@pytest.mark.requirement("doctor-finds-what-is-missing")
def test_the_doctor_waits_for_the_first_word_as_long_as_a_run_does(
    call: Callable[..., Result], workspace: Path
) -> None:
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    (workspace / "bartack.toml").write_text(f"[agents.bad]\ncommand = {json.dumps(command)}\nstart_s = 0.2\n")

    done = call("agents", "doctor", "bad", "-C", str(workspace))

    assert done.returncode == 1
    assert "it wrote nothing within 0.2 s" in done.stdout


@pytest.mark.requirement("doctor-finds-what-is-missing")
@pytest.mark.parametrize(("rule", "told"), [('text = "ready"', "it answered"), ('pattern = "x"', "no rule")])
def test_the_doctor_asks_for_a_word_if_it_is_told_to(
    rule: str, told: str, call: Callable[..., Result], workspace: Path
) -> None:
    (workspace / "replies.toml").write_text(f"[[prompts]]\n{rule}\n")

    done = call("agents", "doctor", "program", "--live", "-C", str(workspace))

    assert done.returncode == (0 if "text" in rule else 1)
    assert told in done.stdout


@pytest.mark.requirement("agents-get-few-variables")
def test_the_doctor_gives_a_program_no_more_variables_than_a_run_does(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_THE_PARENT", "tweet")
    program = "import os; open('seen', 'w').write(' '.join(os.environ))"
    command = json.dumps([sys.executable, "-S", "-c", program])
    (tmp_path / "bartack.toml").write_text(f"[agents.nosy]\ncommand = {command}\n")

    call("agents", "doctor", "-C", str(tmp_path))

    seen = (tmp_path / "seen").read_text().split()
    assert "BARTACK_AGENT" in seen
    assert "CANARY_OF_THE_PARENT" not in seen


@pytest.mark.requirement("run-looks-at-agents-first")
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("ask.py", "from bartack import worker\n@worker\nasync def main(ctx):\n    await ctx.think('x')\n"),
        ("ask.pw", "worker main() {\n  think { Hello }\n}\n"),
        ("named.pw", '@agent "bad"\nworker main() {\n  think { Hello }\n}\n'),
    ],
)
def test_a_run_whose_agent_cannot_work_is_not_made(
    name: str, program: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(program)
    other = "" if name != "named.pw" else '[agents.good]\nscript = "good.toml"\n[agents]\ndefault = "good"\n'
    (tmp_path / "good.toml").write_text("[[prompts]]\ntext = 'fine'\n")
    (tmp_path / "bartack.toml").write_text(f'[agents.bad]\ncommand = "no-such-agent"\n{other}')

    done = call("run", str(tmp_path / name), "-C", str(tmp_path))

    assert done.returncode == 2, done.stderr
    assert "no-such-agent" in done.stderr
    assert not list(tmp_path.glob(".bartack/runs/*"))


def test_a_program_that_asks_nobody_runs_with_an_agent_that_cannot_work(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "quiet.pw").write_text('print("quiet")\n')
    (tmp_path / "bartack.toml").write_text('[agents.bad]\ncommand = "no-such-agent"\n')

    assert run("run", str(tmp_path / "quiet.pw"), "-C", str(tmp_path)).returncode == 0


@pytest.mark.requirement("doctor-finds-what-is-missing")
def test_the_doctor_of_the_machine_looks_at_the_project_too(
    call: Callable[..., Result], workspace: Path
) -> None:
    with (workspace / "bartack.toml").open("a") as settings:
        settings.write("[pipeline]\nreview = false\nspec = false\n")
    fine = call("doctor", "--path", str(workspace))
    (workspace / "bartack.toml").write_text('[agents.bad]\ncommand = "no-such-agent"\n')
    bad = call("doctor", "--path", str(workspace))
    (workspace / "bartack.toml").write_text("[agents.bad]\ncomand = 1\n")
    wrong = call("doctor", "--path", str(workspace))

    assert (fine.returncode, bad.returncode, wrong.returncode) == (0, 1, 1)
    assert "agent program" in fine.stdout
    assert "no-such-agent" in bad.stdout
    assert "settings" in wrong.stdout


def test_an_agent_that_is_not_there_is_refused_with_those_that_are(
    call: Callable[..., Result], workspace: Path
) -> None:
    done = call("agents", "doctor", "nobody", "-C", str(workspace))

    assert done.returncode == 2
    assert "program, scripted" in done.stderr


@pytest.mark.requirement("settings-of-agents-are-checked")
def test_a_mistake_in_the_settings_is_told_with_what_was_meant(
    call: Callable[..., Result], workspace: Path
) -> None:
    (workspace / "bartack.toml").write_text('[agents.program]\ncommand = "x"\nstal_s = 3\n')

    done = call("agents", "list", "-C", str(workspace))

    assert done.returncode == 2
    assert "did you mean 'stall_s'" in done.stderr


def test_the_scripted_agent_ends_with_its_input(run: Callable[..., Result], workspace: Path) -> None:
    done = run("agents", "scripted", "--script", str(workspace / "replies.toml"), "--heartbeat-s", "0")

    assert done.returncode == 0
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["hello"]
    assert done.stderr == ""


def test_a_script_with_a_mistake_ends_the_scripted_agent_with_2(
    call: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text('{"prompts": [{"txt": "x"}]}')

    done = call("agents", "scripted", "--script", str(tmp_path / "bad.json"))

    assert done.returncode == 2
    assert "$.prompts[0]" in done.stderr


@pytest.mark.requirement("output-validates")
def test_schemas_are_listed_printed_and_written(call: Callable[..., Result], tmp_path: Path) -> None:
    names = call("schema").stdout.split()

    assert {"command", "event", "script", "config"} <= set(names)
    assert json.loads(call("schema", "--json").stdout) == names
    assert json.loads(call("schema", "event").stdout)["$id"] == "urn:bartack:schema:event:v1"
    assert json.loads(call("schema", "event", "--json").stdout)["$id"] == "urn:bartack:schema:event:v1"
    assert call("schema", "--all", "--out", str(tmp_path / "s"), "--closed").returncode == 0
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == sorted(f"{n}.v1.json" for n in names)
    assert b'"additionalProperties": false' in (tmp_path / "s/log.v1.json").read_bytes()


def test_a_schema_that_is_not_there_is_refused_with_a_near_one(call: Callable[..., Result]) -> None:
    done = call("schema", "evnt")

    assert done.returncode == 2
    assert "did you mean event?" in done.stderr
    assert call("schema", "--all").returncode == 2


ASKS = """\
from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    return await ctx.think("x", agent="a")
"""


@pytest.mark.requirement("run-probes-agents")
@pytest.mark.parametrize("words", [["run", "team.py"], ["run", "--goal", "do it"], ["doctor", "--live"]])
def test_a_command_that_does_not_speak_the_protocol_is_found_before_a_run(
    words: list[str], run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team.py").write_text(ASKS)
    roles = 'roles = ["builder", "reviewer", "spec_maintainer"]'
    (tmp_path / "bartack.toml").write_text(
        f'[agents.a]\nkind = "ndjson"\ncommand = ["echo", "Usage: echo"]\n{roles}\n'
    )

    monkeypatch.chdir(tmp_path)
    done = run(*words)

    assert done.returncode == (1 if words[0] == "doctor" else 2)
    assert "it ended with 0 before it was sent anything; it printed: Usage: echo" in done.stdout + done.stderr
    assert not list(tmp_path.glob(".bartack/runs/run-*"))


SILENT = """
import json, sys, time
print('{"kind":"hello","protocol":[1],"name":"silent","version":"1"}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    until = time.process_time() + 2.5
    while time.process_time() < until:
        sum(i * i for i in range(10_000))
    print(json.dumps({
        "kind": "event", "message_id": command["message_id"] + "-1", "correlation_id": command["correlation_id"],
        "task_id": command["task_id"], "from": {"agent_type": "general"}, "event": "prompt.completed",
        "payload": {"result": f"attempt {command['retry']['attempt']}"}, "occurred_at": "2026-01-01T00:00:00Z",
    }), flush=True)
"""


@pytest.mark.requirement("silent-work-is-not-a-stall")
def test_an_agent_that_computes_silently_is_not_taken_for_stalled(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team.py").write_text(ASKS)
    (tmp_path / "silent.py").write_text(SILENT)
    command = json.dumps([sys.executable, "-S", "silent.py"])
    (tmp_path / "bartack.toml").write_text(
        f'[agents.a]\nkind = "ndjson"\ncommand = {command}\nstall_s = 1.0\n'
    )

    monkeypatch.chdir(tmp_path)
    done = run("run", "team.py")

    assert done.returncode == 0, done.stderr
    assert "attempt 1" in done.stdout


TEAM = """
from bartack import Context, worker


async def add(x: int, y: int) -> int:
    "Add."
    return x + y


@worker
async def main(ctx: Context) -> list[object]:
    first = await ctx.think("Say hello (to the world)", type=str)
    count = await ctx.think("How many? Use the tool.", type=int, tools=[add])
    return [first, count]
"""
REPLIES = {
    "version": 1,
    "prompts": [
        {"pattern": "hello", "text": "hello, world", "usd": 0.5},
        {"pattern": "How", "value": 5, "call": [{"tool": "add", "arguments": {"x": 2, "y": 3}}]},
    ],
}


def run_team(place: Path) -> Result:
    argv = [sys.executable, "-m", "bartack", "run", "team.py", "--json", "-C", str(place)]
    return warm.run(argv, capture_output=True, text=True, timeout=60, check=False)


def result_of(run: Result) -> object:
    return json.loads(run.stdout.splitlines()[-1])["value"]


def test_a_run_is_repeated_from_what_was_recorded_of_it(call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "bartack.toml").write_text('[agents.s]\nkind = "scripted"\nscript = "replies.json"\n')
    (tmp_path / "replies.json").write_text(json.dumps(REPLIES))
    place = ("-C", str(tmp_path))
    first = run_team(tmp_path)
    assert first.returncode == 0, first.stderr

    recorded = call("agents", "record", "latest", "-o", str(tmp_path / "recorded.json"), "--json", *place)
    other = call("agents", "record", "latest", "-o", str(tmp_path / "other.json"), "--agent", "t", *place)

    assert json.loads(recorded.stdout)["prompts"] == 2
    assert "Wrote 0 replies" in other.stdout
    (tmp_path / "replies.json").write_text((tmp_path / "recorded.json").read_text())
    again = run_team(tmp_path)
    assert result_of(again) == result_of(first) == ["hello, world", 5]
