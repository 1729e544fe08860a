"""Runs of the pipeline that are resumed: from Python as from the command line, and with other settings than they began with."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
import pytest
from tests.crash.runs import wait_until
from tests.pipeline.studio import REPORT, Studio
from tests.pipeline.team import GREEN, RED, Team, begin, order, settings, statuses

from bartack import Run
from bartack.config.sections import TestsConfig
from bartack.errors import ConfigError, WorkspaceBusyError
from bartack.pipeline.lock import hold_workspace
from bartack.pipeline.settings import settings_file
from bartack.runtime import ShellResult

FAILS = f"{REPORT}pathlib.Path('README.md').write_text('mine\\n')\nanswer['artifacts'] = [artifact('README.md')]\n"
TWO_TASKS = """
[pipeline]
spec = false
{bounds}
[tests]
command = "echo {word} >> {home}/gates"
[[tasks]]
id = "one"
goal = "do one"
[[tasks]]
id = "two"
goal = "do two"
"""


def held(studio: Studio) -> bool:
    """Whether a run works in the workspace."""
    try:
        with hold_workspace(studio.place, studio.place / ".bartack"):
            return False
    except WorkspaceBusyError:
        return True


@pytest.mark.requirement("python-resumes-pipelines-whole")
def test_resume_from_python_holds_the_workspace_and_does_what_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tempfile, "tempdir", None
    )  # a socket with a long path is below it, for the hub as for us
    studio = Studio(tmp_path, review=FAILS)
    assert studio.bartack("run", "--goal", "do it").returncode == 1
    [receipt] = studio.run_dir.glob("receipts/*/*.json")
    content = receipt.read_bytes()
    receipt.unlink()
    run = Run.open("latest", studio.place)

    with hold_workspace(studio.place, studio.place / ".bartack"), pytest.raises(WorkspaceBusyError):
        run.resume()
    with pytest.raises(ConfigError, match=r"spec\.file"):
        run.resume(sets=["spec.file=OTHER.md"])
    assert run.state().status == "failed"
    assert studio.calls == ["implement", "review"]

    studio.act("review", studio.wait_here())
    run.resume(sets=["tests.timeout_s=7"])
    with studio.meanwhile():
        assert receipt.read_bytes() == content
        assert held(studio)
    state = run.wait(60)

    assert state.status == "completed"
    wait_until(lambda: not held(studio))  # the process of the run ends a moment after the run
    assert json.loads((run.dir / "run.json").read_text())["pipeline"]["stage"] == "complete"
    assert "was missing and is written again" in (run.dir / "hub.log").read_text()
    assert "tests.timeout_s" in (run.dir / "sets.json").read_text()


@pytest.mark.requirement("settings-hold-after-resume")
def test_settings_that_are_changed_hold_for_later_tasks_and_for_the_tests(tmp_path: Path) -> None:
    home = tmp_path / "home"
    began = TWO_TASKS.format(word="old", home=home, bounds="")
    studio = Studio(tmp_path, began, review=FAILS)
    assert studio.bartack("run").returncode == 1
    (studio.place / "README.md").write_text("hello\n")
    bounds = 'max_fix_rounds = 7\n[spec]\nfile = "OTHER.md"'
    changed = TWO_TASKS.format(word="new", home=home, bounds=bounds)
    (studio.place / "bartack.toml").write_text(f"{studio.settings}{changed}")
    studio.act("review", "")

    done = studio.bartack("resume", "--set", "parallel.tasks=2")

    assert done.returncode == 0, done.stderr
    assert (home / "gates").read_text().split() == ["old", "new"]
    before = done.stderr.partition("two")[0]
    for told in (
        'tests.command is now "echo new',
        "pipeline.max_fix_rounds is now 7; it was 2",
        'spec.file stays "SPEC.md", not "OTHER.md"',
        "parallel.tasks stays 1, not 2",
    ):
        assert told in before, done.stderr


@pytest.mark.requirement("settings-hold-after-resume")
def test_a_run_that_is_killed_in_its_tests_is_resumed_with_the_new_command(tmp_path: Path) -> None:
    home = tmp_path / "home"
    waits = f"mkdir {home}/once && : > {home}/begun && : < {home}/continue"
    began = f"[tests]\ncommand = 'echo old >> {home}/gates; {waits}; true'\n"
    studio = Studio(tmp_path, began)
    studio.wait_here()
    run = studio.start("run", "--goal", "do it")
    (home / "begun").open().close()
    run.kill()
    run.communicate(timeout=60)
    changed = began.replace("echo old", "echo new")
    (studio.place / "bartack.toml").write_text(f"{studio.settings}{changed}")

    done = studio.bartack("resume")

    assert done.returncode == 0, done.stderr
    assert (home / "gates").read_text().split() == ["old", "old", "new"]
    assert "the test command that was interrupted is run once more as it was" in done.stderr
    assert studio.calls == ["implement", "review"]


@pytest.mark.requirement("settings-hold-after-resume")
def test_an_agent_cannot_change_how_it_is_judged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    studio = Studio(tmp_path, TWO_TASKS.format(word="old", home=home, bounds=""), review=FAILS)
    changes = (
        "import pathlib\nfile = pathlib.Path('bartack.toml')\n"
        "file.write_text(file.read_text().replace('echo old', 'echo bad'))\n"
    )
    studio.act("implement", changes)
    assert studio.bartack("run", "--task", "one").returncode == 1
    studio.act(
        "review",
        "answer['status'] = 'changes_requested'\nanswer['payload'] = {'findings': [{'message': 'x'}]}\n",
    )

    done = studio.bartack("resume", "--set", "pipeline.max_review_rounds=2")

    assert set((home / "gates").read_text().split()) == {"old"}
    assert 'tests.command stays "echo old' in done.stderr
    assert "because an agent has changed bartack.toml" in done.stderr


@pytest.mark.requirement("settings-hold-after-resume")
def test_tests_that_were_under_way_are_run_again_when_their_command_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    using = settings()
    changed = msgspec.structs.replace(using, tests=TestsConfig(command=["make", "check"]), hub=2)
    ran: list[list[str]] = []

    def resumed_meanwhile(argv: list[str]) -> ShellResult:
        ran.append(argv)
        if len(ran) == 1:
            settings_file(run._scratch.name, 2).write_bytes(msgspec.json.encode(changed))
            monkeypatch.setenv("BARTACK_HUB", "2")
        return RED if argv[1] == "test" else GREEN

    team = Team(tmp_path, tests=resumed_meanwhile)
    with team.start(order("one", "two", using=using)) as run:
        begin(run)

        assert statuses(run) == [("one", "done"), ("two", "done")]
        assert ran == [["make", "test"], ["make", "check"], ["make", "check"]]
        assert [action for _, action, _, _ in team.actions] == ["implement", "review"] * 2


@pytest.mark.requirement("settings-hold-after-resume")
def test_resume_says_which_earlier_set_still_beats_the_file(tmp_path: Path) -> None:
    studio = Studio(tmp_path, review=FAILS)
    sets = ["--set", "budget.turns=30", "--set", "tests.timeout_s=9", "--set", "review.strict=true"]
    assert studio.bartack("run", "--goal", "do it", *sets).returncode == 1
    (studio.place / "README.md").write_text("hello\n")
    later = "[budget]\nturns = 500\nwall_s = 900\n[tests]\ntimeout_s = 100\n[review]\nstrict = true\n"
    (studio.place / "bartack.toml").write_text(f"{studio.settings}{later}")

    done = studio.bartack("resume", "--set", "tests.timeout_s=8")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "from --set" in line] == [
        "budget.turns stays 30 (from --set); bartack.toml has 500"
    ]
    assert "budget.wall_s is now 900.0; it was not set\n" in done.stderr
    assert "tests.timeout_s is now 8.0; it was 9.0\n" in done.stderr


def test_a_setting_that_is_taken_away_is_not_called_null(tmp_path: Path) -> None:
    studio = Studio(tmp_path, "[budget]\nturns = 30\n", review=FAILS)
    assert studio.bartack("run", "--goal", "do it").returncode == 1
    (studio.place / "README.md").write_text("hello\n")
    (studio.place / "bartack.toml").write_text(studio.settings)

    done = studio.bartack("resume")

    assert done.returncode == 0, done.stderr
    assert "budget.turns is no longer set; it was 30\n" in done.stderr
