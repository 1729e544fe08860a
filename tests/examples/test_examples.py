"""The examples do what their pages say, are clean, and survive being killed."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import warm
from tests.crash.runs import PATIENCE_S, RealRun
from tests.docs.test_examples import Step, as_shown, check_console, console_blocks, run_commands
from tests.language.test_run_programs import run_real

from bartack.cli import main
from bartack.config.load import load_config
from bartack.core.watch import open_watch
from bartack.plugin import build_plugin, validate_plugin
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.frames import TOGETHER
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import ScriptedAgent, assert_survives_crashes

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md") if [*path.parent.glob("*.pw")])
"""Those that need no real agent; ``tests/realcli/test_first_run.py`` runs the others."""
KILLED_AFTER = (3, 6)
"""How many commits a hub makes before it is killed: the first one, and the one that takes over."""
QUIET = "2>/dev/null"
QUIET_S = 1.0
"""A run with an open question that does nothing for so long waits for the answer; if it is only slow, a kill does no harm."""
IN_MEMORY = ["hello", "mailboxes", "modules", "tools", "triage"]
"""Those that a run in memory can run: no pipes, no redirects, and no file that grows with every run."""


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an example, as a user would make one."""
    folder = tmp_path / str(request.param)
    shutil.copytree(EXAMPLES / folder.name, folder, ignore=shutil.ignore_patterns(".bartack", "repo"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return folder


def steps_of(folder: Path) -> list[Step]:
    return [step for block in console_blocks(folder / "README.md").values() for step in block]


def test_there_are_examples_and_a_page_that_lists_them() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    assert len(NAMES) >= 8
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert sorted([*NAMES, "claude-code"]) == folders
    assert all(f"({name}/README.md)" in listed for name in folders)


def test_an_example_does_what_its_page_says(example: Path) -> None:
    for block in console_blocks(example / "README.md").values():
        check_console(block, example)


def test_examples_are_clean_and_in_canonical_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", str(EXAMPLES)]) == 0, capsys.readouterr().out
    assert main(["fmt", "--check", str(EXAMPLES)]) == 0, capsys.readouterr().out


@pytest.mark.requirement("examples-survive-kills")
def test_an_example_that_is_killed_again_and_again_ends_as_its_page_says(example: Path) -> None:
    steps = steps_of(example)
    first = next(index for index, step in enumerate(steps) if step.command.startswith("bartack run"))
    run_commands([step.command for step in steps[:first]], example)
    shown = [steps[first], *(step for step in steps if step.command.startswith("bartack resume"))]
    expected = "".join(step.output or "" for step in shown)

    with created(steps[first].command, example) as run:
        ends: list[int] = []
        for commits in KILLED_AFTER:
            run.start_doomed("after:commit", commits)
            ends.append(end_of_hub(run))
        assert ends[0] == -signal.SIGKILL
        resume(example)
        for step in steps[first + 1 :]:
            if step.command.startswith("bartack answer"):
                run_commands([step.command, f"bartack resume {QUIET}"], example)

        told = "".join(printed(run))
        assert as_shown(expected).fullmatch(told), f"{told}\n{run.story()}"
    check_rest(steps[first + 1 :], example)


@pytest.mark.requirement("examples-survive-kills")
@pytest.mark.parametrize("example", IN_MEMORY, indirect=True)
def test_an_example_that_is_killed_behind_any_step_ends_as_if_it_had_not_been(example: Path) -> None:
    program = next(iter(sorted(example.glob("*.pw"))))
    finding = probe(ProbeRequest(str(program), str(example)), example)
    script = example / "replies.toml"
    text = script.read_text(encoding="utf-8") if script.exists() else ""
    rules: list[dict[str, object]] = tomllib.loads(text).get("prompts", [])

    assert_survives_crashes(
        load_worker(finding.worker, str(example))(),
        agent=ScriptedAgent(rules),
        answers={"*": "soon"},
        shell=run_real,
    )


def end_of_hub(run: RealRun) -> int:
    """How the hub of a run ended; one that waits for an answer instead of making its last commit is killed here."""
    assert run.hub is not None
    pidfd = os.pidfd_open(run.hub.pid)
    with open_watch(str(run.run.path)) as watch:
        changes = watch.fileno()
        assert changes is not None
        while run.hub.poll() is None:
            asks = bool(run.api.questions())
            ready, _, _ = select.select([pidfd, changes], [], [], QUIET_S if asks else PATIENCE_S)
            assert ready or asks, run.story()
            if not ready:
                run.kill_hub()
            watch.wait(0)
    os.close(pidfd)
    return run.hub.returncode


def created(command: str, folder: Path) -> RealRun:
    """The run that a command would make; nothing runs yet."""
    words = [word for word in shlex.split(command)[2:] if word != QUIET]
    program, *rest = words
    rest, argv = (rest[: rest.index("--")], rest[rest.index("--") + 1 :]) if "--" in rest else (rest, [])
    workers = [word for word in rest if word != "--worker"]
    request = RunRequest(program=program, worker=TOGETHER.join(workers), argv=argv)
    return RealRun(create_run(request, folder, load_config(folder)), folder)


def resume(folder: Path) -> None:
    command = [sys.executable, "-m", "bartack", "resume"]
    warm.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300)


def printed(run: RealRun) -> Iterator[str]:
    """What a run has printed in all its lives, and its result, as the command line shows them."""
    for entry in run.entries():
        if entry.kind == "output":
            yield f"{json.loads(bytes(entry.value or b''))}\n"
    result = run.api.result()
    if result is not None:
        yield f"{result if isinstance(result, str) else json.dumps(result, indent=2)}\n"


def check_rest(steps: list[Step], folder: Path) -> None:
    """Run what a page does after its run, up to the next one."""
    rest: list[Step] = []
    for step in steps:
        if step.command.startswith(("bartack", "echo", "cp")):
            break
        rest.append(step)
    if rest:
        check_console(rest, folder)


@pytest.mark.parametrize("example", ["rewrite-branch"], indirect=True)
def test_an_example_is_a_plugin_whose_builds_are_byte_equal(example: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("one", "two")]
    for out in outs:
        build_plugin(example / "team.pw", out)

    first, second = (read_files(out) for out in outs)
    assert len(first) == 7
    assert first == second
    assert validate_plugin(outs[0], use_claude=False).ok


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
