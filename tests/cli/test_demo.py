from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.waiting import until
from tests.web.visits import enter_by

from bartack.cli.app._terminal import Screen
from bartack.cli.demo._project import PRICE_USD, _toml, prepare
from bartack.cli.demo._stage import _show_end
from bartack.cli.demo._story import Ack, Death, Life, iter_lives, plan, prove
from bartack.cli.demo._team import ANSWERS, KILLED_AFTER, Facts, Stage
from bartack.cli.demo._team import prove as prove_team
from bartack.cli.demo._worker import MOMENTS, Acknowledged, Finished, key_of, result_of
from bartack.journal import open_journal
from bartack.pipeline.report.report import AgentUse, Resumed, RunReport, StepCounts
from bartack.runtime import Run
from bartack.runtime.rundir.receipts import Attempt, Receipt, ReceiptAgent
from bartack.runtime.state.timeline import StepRecord
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.tree import find_by_environment

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]

TEAM_CHECKS = ["killed", "feature", "paid once", "not paid again", "receipts", "nothing left"]
CHECKS = ["killed", "complete", "nothing lost", "nothing twice", "same result", "journal intact"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its directory."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture(scope="module")
def lives_and_directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Life], Path]:
    """One real story of ten steps, to be told again with something wrong in it."""
    directory = tmp_path_factory.mktemp("demo")
    return list(iter_lives(str(directory), 10, as_json=False)), directory


def failed_checks(lives: list[Life], directory: Path) -> list[str]:
    return [check.name for check in prove(lives, str(directory), 10) if not check.ok]


@pytest.mark.requirement("demo-takes-an-agent")
def test_the_demo_with_a_configured_agent_is_killed_once_and_its_work_can_be_merged(
    run: Call, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    monkeypatch.chdir(place)
    scripts = prepare_scripts(place)
    (place / "bartack.toml").write_text(f'[agents.mine]\nkind = "scripted"\nscript = "{scripts}"\n')

    shown = run("demo", "--agent", "mine", "--keep", "--json")

    facts = json.loads(shown.stdout)
    assert (shown.returncode, facts["ok"], facts["kept"]) == (0, True, True), shown.stdout + shown.stderr
    assert [check["name"] for check in facts["checks"]] == TEAM_CHECKS
    assert [event["killed"] for event in facts["events"]] == [False, True, False]
    project = Path(facts["directory"])
    subprocess.run(facts["merge"].split(), cwd=project, check=True, capture_output=True, timeout=60)
    assert "discount" in (project / "prices.py").read_text()


@pytest.mark.requirement("newcomers-know-what-is-next")
def test_the_end_of_the_demo_names_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = cast("Run", SimpleNamespace(id="run-1"))

    def end(*, kept: bool) -> list[str]:
        screen = Screen(sys.stdout)
        _show_end(screen, run, team_facts(), tmp_path / "shop", kept=kept)
        screen.flush()
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    kept, removed = end(kept=True), end(kept=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    without_path = end(kept=False)

    assert f"cd {tmp_path / 'shop'}" in kept
    assert {line.split()[1] for line in kept if line.startswith("bartack ")} >= {"show", "web", "report"}
    assert not [line for line in removed if line.startswith(("bartack show", "bartack web", "cd "))]
    assert "bartack demo --keep keep its repository: look with bartack show or bartack web" in removed
    assert any(line.startswith("bartack init --example -C ") for line in removed)
    activation = f". {sys.prefix}/bin/activate put bartack on the path of this shell"
    assert (activation in without_path, activation in removed) == (True, False)


@pytest.fixture
def demo_with_page(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """``bartack demo --web`` where no browser can be shown, with a pipe that stands for the keyboard."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "bartack", "demo", "--web"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=temporary.parent,
    )
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    yield process
    watchdog.cancel()
    process.kill()
    with process:
        pass


def next_link(process: subprocess.Popen[str]) -> str:
    """The link in the next line that has one."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if "/enter#" in line:
            return line.rpartition(" ")[2].strip()
    pytest.fail("the demo printed no link")


@pytest.mark.requirement("demo-has-a-page")
def test_the_page_beside_the_demo_shows_its_run_and_nothing_is_left_of_it(
    demo_with_page: subprocess.Popen[str], temporary: Path
) -> None:
    with enter_by(next_link(demo_with_page)) as (browser, to):
        assert browser.get(to, follow_redirects=True).status_code == 200
    with enter_by(next_link(demo_with_page)) as (browser, to):
        page = browser.get(to)
        steps = browser.get(f"{to}/talk").text
    (project,) = temporary.glob("bartack-demo-*/shop")
    (run,) = (project / ".bartack/runs").glob("run-*")
    assert (to, page.status_code) == (f"/r/{run.name}", 200)
    assert "completed" in page.text
    assert all(word in steps for word in ("builder", "reviewer", "spec_maintainer"))
    assert "csrf" not in page.text.partition("<main")[2], "there is a form: the page is to be read-only"
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_below(pid, temporary)] != []

    assert demo_with_page.stdout is not None
    assert "press Enter to end it" in demo_with_page.stdout.readline()

    demo_with_page.communicate("\n", timeout=60)

    assert demo_with_page.returncode == 0
    assert [path.name for path in temporary.iterdir() if path.name.startswith("bartack-demo-")] == []
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_below(pid, temporary)]


@pytest.mark.requirement("demo-has-a-page")
def test_an_interrupt_ends_the_page_with_the_demo(
    demo_with_page: subprocess.Popen[str], temporary: Path
) -> None:
    next_link(demo_with_page)
    demo_with_page.send_signal(signal.SIGINT)
    demo_with_page.communicate(timeout=60)

    assert demo_with_page.returncode == 130
    assert [path.name for path in temporary.iterdir() if path.name.startswith("bartack-demo-")] == []
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_below(pid, temporary)]


@pytest.mark.requirement("demo-has-a-page")
def test_nothing_is_left_of_a_demo_that_is_killed(
    demo_with_page: subprocess.Popen[str], temporary: Path
) -> None:
    next_link(demo_with_page)
    until(lambda: list(temporary.glob("bartack-demo-*/shop/.bartack/runs/run-*")), "there is a run")

    demo_with_page.kill()

    until(lambda: not processes_of(temporary), "no process of the demo is left")
    assert list(temporary.glob("bartack-demo-*")) == []


@pytest.mark.requirement("demo-has-a-page")
def test_a_page_that_does_not_start_is_one_clear_error(
    call: Call, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bartack.cli.demo._page.COMMAND", [sys.executable, "-c", "raise SystemExit('no port')"]
    )

    shown = call("demo", "--web")

    assert shown.returncode != 0
    assert "the page of the demo does not start: no port" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert list(temporary.iterdir()) == []


def team_facts() -> Facts:
    """The facts of a demo of the team that went well."""
    report = RunReport(
        schema=1, run="run-1", kind="pipeline", status="completed", program="", goal="", created_at="", updated_at="",
        took_s=9.0, tasks=[], tests=None, open=[], agents=[], total=AgentUse(agent="", usd=ANSWERS * PRICE_USD),
        resumed=Resumed(times=2, answers=4, usd=4 * PRICE_USD), steps=StepCounts(finished=9, failed=0, open=0),
        waits_for=[], problem="", result="", takeover=None,
    )  # fmt: skip
    receipts = [
        Receipt(
            schema=1, run_id="run-1", task_id="discount", step=step, action="review", round=1, cause="start",
            idempotency_key=f"ik:{step}", correlation_id="", command_message_id="", event_message_id="",
            agent=ReceiptAgent(agent_type="reviewer", agent_id="bob"),
            attempts=[Attempt(attempt=1, cause="first", started_at="")], snapshot_id="", result_snapshot_id="",
            changes=[], event="review.completed", artifacts=[], clarifications=[], conflict_resolutions=[], created_at="",
        )
        for step in range(ANSWERS)
    ]  # fmt: skip
    calls = [StepRecord("main", step, "think", "finished") for step in range(ANSWERS)]
    return Facts(report, calls, receipts, {"prices.py": "same"}, "ran 3 tests", True, [8, 9], ANSWERS, 0)


def test_each_part_of_the_proof_of_the_team_can_fail(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {}, KILLED_AFTER, 0.0, quiet=True, scripted=True)
    good = team_facts()

    def failed(facts: Facts) -> list[str]:
        return [check.name for check in prove_team(facts, stage) if not check.ok]

    assert failed(good) == []
    assert failed(good._replace(killed=[8])) == ["killed"]
    assert failed(good._replace(tests_passed=False)) == ["feature"]
    assert failed(good._replace(calls=good.calls * 2)) == ["paid once"]
    assert failed(good._replace(asked=ANSWERS + 1)) == ["paid once"]
    assert failed(good._replace(receipts=good.receipts[:1] * 6)) == ["paid once"]
    unsaved = msgspec.structs.replace(good.report, resumed=Resumed(times=2))
    assert failed(good._replace(report=unsaved)) == ["not paid again"]
    assert failed(good._replace(verified={"prices.py": "changed"})) == ["receipts"]
    assert failed(good._replace(left=1)) == ["nothing left"]


def prepare_scripts(place: Path) -> str:
    """One script for all roles, named from its directory."""
    prepare(place / "shop", place / "agents", pause_s=0.0, agent=None, configured_in=place)
    responses: dict[str, object] = {}
    for script in (place / "agents").iterdir():
        responses |= json.loads(script.read_text())["responses"]
    (place / "agents/all.json").write_text(json.dumps({"version": 1, "responses": responses}))
    return "agents/all.json"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--agent", "nobody"), "there is no agent 'nobody': bartack.toml configures no agent"),
        (("journal", "--agent", "mine"), "--agent is for the demo 'team'"),
        (("journal", "--web"), "--web is for the demo 'team', without --json"),
        (("--web", "--json"), "--web is for the demo 'team', without --json"),
    ],
)
@pytest.mark.requirement("demo-takes-an-agent")
def test_options_that_do_not_fit_the_demo_are_a_usage_error(
    call: Call, temporary: Path, words: tuple[str, ...], problem: str
) -> None:
    shown = call("demo", *words)

    assert shown.returncode == 2
    assert problem in shown.stderr
    assert list(temporary.iterdir()) == []


def test_sections_of_agents_are_written_as_toml() -> None:
    value = {"text": 'a "b" \\ ü', "list": [1, 2.5, True], "table": {"key with space": ["x"]}}

    assert tomllib.loads(f"value = {_toml(value)}")["value"] == value


@pytest.mark.requirement("demo-proves-it")
def test_the_demo_shows_that_nothing_was_lost_or_done_twice(run: Call, temporary: Path) -> None:
    shown = run("demo", "journal")

    assert shown.returncode == 0
    assert shown.stderr == ""
    assert shown.stdout.count("kill -9: ") == len(MOMENTS)
    assert [
        line.split("  ")[2].strip() for line in shown.stdout.splitlines() if line.startswith("  ok")
    ] == CHECKS
    assert "FAIL" not in shown.stdout
    assert list(temporary.iterdir()) == []


def test_the_demo_proves_it_for_programs(run: Call, temporary: Path) -> None:
    shown = run("demo", "journal", "--json", "--steps", "12", "--keep")

    told = json.loads(shown.stdout)
    assert shown.returncode == 0
    assert told["ok"] is True
    assert [check["name"] for check in told["checks"]] == CHECKS
    assert [life["ended_with"] for life in told["processes"]] == [-signal.SIGKILL] * 4 + [0]
    assert [life["killed"] and life["killed"]["moment"] for life in told["processes"]] == [*MOMENTS, None]
    acknowledged = [ack["step"] for life in told["processes"] for ack in life["acknowledged"]]
    assert acknowledged == sorted(set(acknowledged))
    assert set(range(1, 13)) - set(acknowledged) == {7, 9}
    assert sum(life["cut_bytes"] > 0 for life in told["processes"]) == 1
    assert Path(told["directory"]).parent == temporary


def test_a_kept_journal_can_be_looked_at(run: Call, temporary: Path) -> None:
    shown = run("demo", "journal", "--keep", "--steps", "5")

    commands = [line.split() for line in shown.stdout.splitlines() if line.startswith("  bartack ")]
    assert [command[1:3] for command in commands] == [["journal", "show"], ["journal", "verify"]]
    for command in commands:
        assert run(*command[1:]).returncode == 0
    (directory,) = temporary.iterdir()
    assert run("journal", "show", str(directory), "--kind", "step.finished").stdout.count("\n") == 5
    assert len((directory / "effects.log").read_text().splitlines()) == 5


def test_many_steps_are_told_in_few_lines(run: Call, temporary: Path) -> None:
    shown = run("demo", "journal", "--steps", "400")

    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) < 45
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("steps", [5, 6, 20, 100])
def test_every_moment_has_a_step_of_its_own(steps: int) -> None:
    deaths = plan(steps)

    assert [death.moment for death in deaths] == list(MOMENTS)
    assert len({death.step for death in deaths}) == len(deaths)
    assert all(1 <= death.step < steps for death in deaths)


def test_each_kill_leaves_what_its_moment_says(lives_and_directory: tuple[list[Life], Path]) -> None:
    lives, directory = lives_and_directory

    deaths = [life.death for life in lives]
    assert deaths == [Death(2, "done"), Death(4, "half"), Death(6, "written"), Death(8, "durable"), None]
    # What the next process found: not the steps that were done or half written, but those that were written.
    assert [life.found for life in lives] == [0, 1, 3, 6, 8]
    assert [life.cut_bytes > 0 for life in lives] == [False, False, True, False, False]
    again = [ack.message.step for life in lives for ack in life.acks if ack.message.again]
    assert again == [2, 4]
    assert list(directory.glob("journal.torn-*")) != []
    assert failed_checks(lives, directory) == []


def with_acks(life: Life, acks: list[Ack]) -> Life:
    return life._replace(acks=acks)


def test_an_acknowledgement_that_is_not_in_the_journal_fails_the_proof(
    lives_and_directory: tuple[list[Life], Path],
) -> None:
    lives, directory = lives_and_directory
    invented = Ack(1, 0.0, Acknowledged(step=6, seq=999, result="", again=False))

    assert failed_checks([*lives[:-1], with_acks(lives[-1], [invented])], directory) == ["nothing lost"]


def test_a_step_acknowledged_twice_fails_the_proof(lives_and_directory: tuple[list[Life], Path]) -> None:
    lives, directory = lives_and_directory
    twice = with_acks(lives[-1], lives[-1].acks * 2)

    assert failed_checks([*lives[:-1], twice], directory) == ["nothing lost"]


def test_a_process_that_was_not_killed_fails_the_proof(lives_and_directory: tuple[list[Life], Path]) -> None:
    lives, directory = lives_and_directory

    assert failed_checks([lives[0]._replace(code=0), *lives[1:]], directory) == ["killed"]
    assert failed_checks(lives[1:], directory) == ["killed"]


@pytest.mark.parametrize("change", ["again", "missing"])
def test_an_effect_too_many_or_too_few_fails_the_proof(tmp_path: Path, change: str) -> None:
    lives = list(iter_lives(str(tmp_path), 10, as_json=False))
    log = tmp_path / "effects.log"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines + lines[-1:] if change == "again" else lines[:-1]))

    assert failed_checks(lives, tmp_path) == ["nothing twice"]


def test_a_step_in_the_journal_twice_fails_the_proof(tmp_path: Path) -> None:
    lives = list(iter_lives(str(tmp_path), 10, as_json=False))
    with open_journal(tmp_path) as journal:
        journal.append("step.finished", Finished(10, key_of(10), result_of(10, "")))

    assert failed_checks(lives, tmp_path) == ["complete", "same result"]


def test_a_torn_journal_fails_the_proof(tmp_path: Path) -> None:
    lives = list(iter_lives(str(tmp_path), 10, as_json=False))
    with (tmp_path / "journal.ndjson").open("ab") as journal:
        journal.write(b'{"seq":')

    assert failed_checks(lives, tmp_path) == ["journal intact"]


def test_a_proof_that_fails_ends_with_1_and_keeps_the_directory(
    call: Call, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_holds(lives: list[Life], directory: str, steps: int) -> list[object]:
        return [check._replace(ok=False) for check in prove(lives, directory, steps)]

    monkeypatch.setattr("bartack.cli.demo._demo.prove", nothing_holds)

    shown = call("demo", "journal", "--steps", "5")

    assert shown.returncode == 1
    assert shown.stdout.count("  FAIL  ") == len(CHECKS)
    assert len(list(temporary.iterdir())) == 1


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(("syncs", "code"), [(0, "BT204"), (3, "BT204")], ids=["at first", "later"])
def test_a_full_disk_ends_the_demo_with_one_clear_error(
    run: Call, tmp_path: Path, options: tuple[str, ...], syncs: int, code: str
) -> None:
    shown = run("demo", "journal", *options, TMPDIR=str(tmp_path), PYTHONPATH=str(sabotage(tmp_path, syncs)))

    assert shown.returncode == 6
    assert shown.stderr.startswith(f'{{"error": {{"code": "{code}"' if options else f"error[{code}]")
    assert "Traceback" not in shown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["sabotage"]


def sabotage(folder: Path, syncs: int) -> Path:
    """A start-up module that lets a worker sync so many times, and then fail as on a full disk."""
    home = folder / "sabotage"
    home.mkdir()
    (home / "sitecustomize.py").write_text(
        "import errno, os, sys\n"
        f"left = [{syncs}]\n"
        "def full(fd):\n"
        "    if not left[0]:\n"
        "        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "    left[0] -= 1\n"
        "if any('demo._worker' in word for word in sys.orig_argv):\n"
        "    os.fdatasync = full\n"
    )
    return home


def test_an_interrupt_leaves_no_process_and_no_directory(
    start: Callable[..., subprocess.Popen[str]], temporary: Path
) -> None:
    process = start("demo", "journal", "--steps", "100000")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert list(temporary.iterdir()) == []
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_below(pid, temporary)]


def test_an_interrupt_of_the_team_leaves_no_process_and_no_directory(
    start: Callable[..., subprocess.Popen[str]], temporary: Path
) -> None:
    process = start("demo")
    assert process.stderr is not None
    while "implement" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert [path.name for path in temporary.iterdir() if path.name.startswith("bartack-demo-")] == []
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and is_worker_below(pid, temporary)]


def test_an_interrupt_while_a_worker_is_being_started_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def start_interrupted(command: list[str], stdout: int) -> subprocess.Popen[bytes]:
        started.append(real(command, stdout=stdout))
        os.kill(os.getpid(), signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start_interrupted)

    with pytest.raises(KeyboardInterrupt):
        list(iter_lives(str(tmp_path / "run"), 10, as_json=False))

    (worker,) = started
    ended_with = worker.poll()
    worker.kill()
    with worker:
        assert ended_with == -signal.SIGKILL


def processes_of(folder: Path) -> list[ProcessFacts]:
    """Every process of a demo that makes its directory in ``folder``."""
    return find_by_environment("TMPDIR", str(folder))


def is_worker_below(pid: str, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False
