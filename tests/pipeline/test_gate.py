"""Who decides whether the tests of a task pass, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import GREEN, RED, Team, built, gates, iteration_of, order, settings, wrote

from bartack.config.sections import RedactionConfig, TestsConfig
from bartack.pipeline._steps import TAIL_BYTES, judge_tests
from bartack.pipeline.records.records import KEPT_BYTES, Gate, Settings, TestRun
from bartack.runtime import ShellResult
from bartack.runtime.protocol.steps import ShellOutcome


def using_tests(**keys: object) -> Settings:
    return settings(tests=msgspec.convert(keys, type=TestsConfig))


@pytest.mark.requirement("gate-runs-the-tests-itself")
@pytest.mark.parametrize(("reported", "result", "verdict"), [("pass", RED, "fail"), ("fail", GREEN, "pass")])
def test_the_command_decides_and_not_what_the_agent_says(
    tmp_path: Path, reported: str, result: ShellResult, verdict: str
) -> None:
    results = [result, GREEN]
    team = Team(tmp_path, {"implement": built(status=reported)}, tests=lambda argv: results.pop(0))

    run = team.run(order("T-1"))

    first = gates(run)[0]
    assert (first.verdict, first.reported, first.disagreement) == (verdict, reported, True)


def test_agreement_is_no_disagreement(tmp_path: Path) -> None:
    run = Team(tmp_path).run(order("T-1"))

    assert [gate.disagreement for gate in gates(run)] == [False]


def test_a_verdict_names_the_tree_that_was_tested(tmp_path: Path) -> None:
    run = Team(tmp_path).run(order("T-1"))

    [gate] = gates(run)
    assert gate.snapshot_id.startswith("snap-")
    assert (gate.exit_code, gate.tail) == (0, "ok\n")


@pytest.mark.parametrize(
    ("payload", "finding"),
    [
        ({}, "the builder did not report"),
        ({"tests": "pass"}, "the builder did not report"),
        ({"tests": {"status": 1}}, "the builder did not report"),
        ({"tests": {"status": "skipped"}}, "the builder reported 'skipped'"),
        ({"tests": {"status": "fine"}}, "the builder reported 'fine'"),
        ({"tests": {"status": "fail", "summary": "2 failed"}}, "the tests fail: 2 failed"),
    ],
)
def test_without_a_command_only_a_report_of_pass_is_a_pass(
    tmp_path: Path, payload: dict[str, object], finding: str
) -> None:
    reply = {"events": [{"type": "builder.completed", "payload": payload}]}
    team = Team(tmp_path, {"implement": reply, "implement_changes": built(status="pass")})

    run = team.run(order("T-1", using=using_tests()))

    assert [(gate.verdict, gate.mode) for gate in gates(run)] == [("fail", "report"), ("pass", "report")]
    assert str(iteration_of(team.commands[1]).findings[0]["message"]).startswith(finding)
    assert run.commands == []


@pytest.mark.parametrize(
    ("using", "allowed", "verdict"),
    [
        (using_tests(), True, "waived"),
        (using_tests(), "yes", "fail"),
        (using_tests(command=["make", "test"], honour_waiver=True), True, "waived"),
        (using_tests(command=["make", "test"]), True, "fail"),
        (using_tests(command=["make", "test"], honour_waiver=True), False, "fail"),
    ],
)
def test_expected_failures_count_only_where_that_is_wanted(
    tmp_path: Path, using: Settings, allowed: object, verdict: str
) -> None:
    builds = [built(status="fail", allowed_failures=allowed), built(status="pass")]
    results = [RED, GREEN]
    team = Team(
        tmp_path,
        {"implement": builds[0], "implement_changes": builds[1]},
        tests=lambda argv: results.pop(0),
    )

    run = team.run(order("T-1", using=using))

    assert gates(run)[0].verdict == verdict
    assert run.error is None


def test_tests_that_are_off_pass_unchecked(tmp_path: Path) -> None:
    team = Team(tmp_path, {"implement": built()})

    run = team.run(order("T-1", using=using_tests(command=["make", "test"], mode="off")))

    assert [(gate.verdict, gate.unchecked) for gate in gates(run)] == [("pass", True)]
    assert run.commands == []


def test_the_report_can_be_taken_although_there_is_a_command(tmp_path: Path) -> None:
    run = Team(tmp_path).run(order("T-1", using=using_tests(command=["make", "test"], mode="report")))

    assert [gate.mode for gate in gates(run)] == ["report"]
    assert run.commands == []


def test_a_text_is_read_by_a_shell_and_words_are_not(tmp_path: Path) -> None:
    text = Team(tmp_path).run(order("T-1", using=using_tests(command="make test && true")))
    words = Team(tmp_path).run(order("T-1", using=using_tests(command=["make", "a test"])))

    assert text.commands == [["sh", "-c", "make test && true"]]
    assert words.commands == [["make", "a test"]]


def test_a_builder_that_touches_protected_files_fails_the_gate(tmp_path: Path) -> None:
    responses = {
        "implement": wrote("tests/test_a.py", "assert True\n"),
        "implement_changes": [wrote("src/a.py", "A = 2\n"), wrote("tests/test_a.py", "assert False\n")],
    }
    team = Team(tmp_path, responses, files={"tests/test_a.py": "assert False\n"})

    run = team.run(order("T-1", using=using_tests(command=["make", "test"], protect=["tests/**"])))

    assert [gate.verdict for gate in gates(run)] == ["fail", "fail", "pass"], "until they are as they were"
    assert "tests/test_a.py" in str(iteration_of(team.commands[1]).findings[0]["message"])


@pytest.mark.parametrize("status", [126, 127])
def test_a_command_that_cannot_run_stops_at_once_and_is_run_again_by_resume(
    tmp_path: Path, status: int
) -> None:
    results = [ShellResult([], status, "", "not found"), GREEN]
    team = Team(tmp_path, tests=lambda argv: results.pop(0))
    with team.running(order("T-1")) as run:
        assert run.error is not None
        assert run.error.kind == "TestsGateError"
        assert "cannot be run" in run.error.message
        assert [action for _, action, _, _ in team.actions] == ["implement"]

        run.resume()
        run.finish()

        assert run.status == "completed"
        assert [action for _, action, _, _ in team.actions] == ["implement", "review"]


# How a verdict is made.


def judge(
    ran: TestRun | None, report: dict[str, object] | None = None, using: Settings | None = None
) -> Gate:
    gate = Gate(task_id="T", round=1, verdict="fail", mode="command", snapshot_id="snap-0")
    made = judge_tests.function(using or settings(), gate, ran, report or {}, [])
    assert isinstance(made, Gate)
    return made


def test_a_finding_has_the_end_of_the_output(tmp_path: Path) -> None:
    gate = judge(TestRun(command="pytest", exit_code=1, output="x" * 100_000 + "the end", duration_s=11.84))

    assert len(gate.tail) == TAIL_BYTES
    assert gate.findings[0].message.startswith("pytest: ended with 1, after 11.8 s\n")
    assert gate.findings[0].message.endswith("the end")


def test_agents_and_people_do_not_see_the_secrets_that_tests_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "of-the-environment")
    told = "with of-the-environment\nOTHER_PASSWORD=unheard-of\nDATABASE of-the-settings\n"
    results = [ShellResult(["make", "test"], 1, told, "boom\n"), GREEN]
    team = Team(tmp_path, tests=lambda argv: results.pop(0))
    using = settings(
        tests=TestsConfig(command=["make", "test"], env={"DATABASE": "of-the-settings"}),
        redaction=RedactionConfig(names=["DATABASE"]),
    )

    run = team.run(order("T-1", using=using))

    journal = b"".join(bytes(entry.value) for entry in run.journal if entry.value is not None)
    assert b"of-the-environment" not in journal
    assert b"unheard-of" not in journal
    hidden = "with $env:SHOP_TOKEN\nOTHER_PASSWORD=***\nDATABASE $env:DATABASE\n"
    assert gates(run)[0].tail.startswith(hidden)
    assert hidden in str(iteration_of(team.commands[1]).findings[0]["message"])


def test_a_secret_is_not_left_in_halves_where_the_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "0123456789" * 10)

    gate = judge(TestRun(command="pytest", exit_code=1, output="0123456789" * 10 + "x" * (TAIL_BYTES - 50)))

    assert "0123456789" not in gate.tail


@pytest.mark.requirement("test-output-is-kept-bounded")
def test_of_a_long_output_the_journal_keeps_the_end_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "of-the-environment")
    long = "of-the-environment\n" * 200_000 + "the end\n"
    results = [ShellResult(["make", "test"], 1, long, long), GREEN]
    team = Team(tmp_path, tests=lambda argv: results.pop(0))
    with team.running(order("T-1")) as run:
        found = [step.seq for step in run.steps if step.kind == "shell"]
        outcome = msgspec.convert(run._load(run.journal[found[0] - 1]), type=ShellOutcome)

        assert max(len(outcome.stdout), len(outcome.stderr)) <= KEPT_BYTES
        assert outcome.stdout.endswith("$env:SHOP_TOKEN\nthe end\n")
        assert "of-the-environment" not in outcome.stdout + outcome.stderr
        assert gates(run)[0].tail.endswith("the end\n")


@pytest.mark.parametrize("problem", ["not over within 5 s, and ended", "ended by signal 9"])
def test_a_command_that_did_not_end_by_itself_is_told_so(problem: str) -> None:
    gate = judge(TestRun(command="pytest", problem=problem))

    assert gate.verdict == "fail"
    assert problem in gate.findings[0].message


def test_the_time_of_a_command_is_bounded(tmp_path: Path) -> None:
    run = Team(tmp_path).run(order("T-1", using=using_tests(command=["make", "test"], timeout_s=7)))

    started = [entry.data for entry in run.journal if entry.data.get("step") == "shell"]
    assert started[0]["timeout_s"] == 7
