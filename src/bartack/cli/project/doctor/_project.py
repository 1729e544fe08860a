"""The checks of ``bartack doctor`` for a project: settings, agents, tests, spec and runs. Only ``--live`` starts an agent."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bartack.agents.doctor.doctor import DoctorReport, check_agents
from bartack.cli.app._terminal import printable
from bartack.cli.project.check._config import examine_settings
from bartack.cli.project.doctor._finding import Finding
from bartack.config.load import Config, load_config
from bartack.config.problem import CONFIG_FILE, SettingProblem
from bartack.core.git import find_git, git_command, git_environment
from bartack.errors import BartackError, GitError
from bartack.pipeline.snapshot.sections import missing_titles
from bartack.pipeline.worktree.old_worktrees import check_repository, count_trees, has_trees
from bartack.runtime.rundir.find import TERMINAL, UNREADABLE, list_runs, summarise
from bartack.runtime.rundir.layout import RunDir

GIT_TIMEOUT_S: Final = 10.0


def examine_project(workspace: Path, *, live: bool = False) -> list[Finding]:
    """Return all findings about a project; none if it has no settings."""
    if not (workspace / CONFIG_FILE).is_file():
        return []
    problems = examine_settings(workspace).problems
    try:
        config = load_config(workspace)
    except BartackError:
        return [_judge_setting(found) for found in problems]
    own = [found for found in problems if not found.setting.startswith(_ELSEWHERE)]
    return [
        *([_judge_setting(found) for found in own] or [_SETTINGS_FINE]),
        *_check_agents(config, workspace, live=live),
        check_tests(config, problems),
        *check_spec(config, workspace),
        *check_ignored(config, workspace),
        *check_worktrees(config, workspace),
        *check_runs(workspace),
    ]


_SETTINGS_FINE: Final = Finding("settings", "ok", f"{CONFIG_FILE} is valid")
_ELSEWHERE: Final = ("agents.", "tests.command", "parallel.tasks")
"""Settings with checks of their own."""


def _judge_setting(found: SettingProblem) -> Finding:
    return Finding("settings", "fail", printable(f"{found.place}: {found.problem}"), "Fix the setting.")


def _check_agents(config: Config, workspace: Path, *, live: bool) -> list[Finding]:
    reports = check_agents(
        config.agents,
        workspace,
        os.environ,
        probe=live,
        capped=config.budget.limits_money,
        state_dir=config.directory,
    )
    return [_judge_agent(report) for report in reports]


def _judge_agent(report: DoctorReport) -> Finding:
    name = f"agent {printable(report.name)}"
    if not report.usable:
        remedy = f"'bartack agents doctor {printable(report.name)}' shows the details."
        return Finding(name, "fail", printable("; ".join(report.problems)), remedy)
    if report.notes and report.kind != "scripted":
        return Finding(
            name, "warn", printable("; ".join(report.notes)), "Set the variable, or remove it from pass_env."
        )
    return Finding(name, "ok", printable(report.found))


def check_tests(config: Config, problems: Sequence[SettingProblem] = ()) -> Finding:
    """Whether Bartack runs the tests, and whether it can."""
    tests = config.tests
    if tests.judged_by == "off":
        return Finding(
            "tests", "warn", "the work is not tested", 'Set tests.command, and tests.mode = "auto".'
        )
    if tests.judged_by == "report":
        remedy = "Set tests.command, so that Bartack runs the tests itself."
        return Finding("tests", "warn", "the agent's own test results are accepted unchecked", remedy)
    for found in problems:
        if found.setting == "tests.command":
            return Finding("tests", "fail", printable(found.problem), "Fix tests.command.")
    return Finding("tests", "ok", "Bartack runs the tests itself")


def check_spec(config: Config, workspace: Path) -> list[Finding]:
    """Whether the spec file has the editable sections."""
    if not config.pipeline.spec:
        return []
    try:
        text = (workspace / config.spec.file).read_bytes()
    except OSError:
        problem = f"{printable(config.spec.file)} is missing: the pipeline skips the spec"
        remedy = "Write it, or set spec.create = true or pipeline.spec = false."
        return [Finding("spec", "warn", problem, remedy)]
    missing = missing_titles(text, config.spec.sections)
    if missing:
        problem = f"{printable(config.spec.file)} has no section {printable(' or '.join(missing))}"
        remedy = "Fix spec.sections, or add the sections: agents can edit only these."
        return [Finding("spec", "warn", problem, remedy)]
    return [Finding("spec", "ok", f"{printable(config.spec.file)} has all editable sections")]


def check_ignored(config: Config, workspace: Path) -> list[Finding]:
    """Whether git ignores the runs."""
    git = find_git()
    if git is None:
        return []
    done = subprocess.run(  # noqa: S603 - fixed words, and a setting after the end of the options
        git_command(git, ["check-ignore", "--quiet", "--", f"{config.directory}/runs"]),
        cwd=workspace,
        env=git_environment(),
        timeout=GIT_TIMEOUT_S,
        capture_output=True,
        check=False,
    )
    if done.returncode == 1:
        remedy = "Run 'bartack init': it adds the line to .gitignore."
        return [Finding("git ignore", "warn", f"git does not ignore {printable(config.directory)}", remedy)]
    return []


def check_worktrees(config: Config, workspace: Path) -> list[Finding]:
    """Whether tasks can run in parallel, if they are configured to; and worktrees of runs that have ended."""
    found: list[Finding] = []
    if config.parallel.tasks > 1:
        try:
            check_repository(workspace)
            found.append(Finding("worktrees", "ok", f"{config.parallel.tasks} tasks can run at a time"))
        except GitError as error:
            found.append(Finding("worktrees", "fail", printable(error.problem), error.remedy))
    ended = [run for run in list_runs(workspace) if has_trees(run.path) and summarise(run).status in TERMINAL]
    left = [run.id for run in ended if _has_readable_trees(run)]
    if left:
        problem = f"runs that have ended still have worktrees: {', '.join(left[:3])}"
        remedy = "'bartack clean --worktrees' saves their content and removes them."
        found.append(Finding("worktrees", "warn", problem, remedy))
    return found


def _has_readable_trees(run: RunDir) -> bool:
    try:
        return count_trees(run.path) > 0
    except OSError:
        return False


def check_runs(workspace: Path) -> list[Finding]:
    """Whether runs are unreadable, or wait for an answer or a resume."""
    found = [summarise(run) for run in list_runs(workspace)]
    findings = [
        Finding(
            "runs", "warn", printable(f"{summary.run} is unreadable: {summary.error}"), _UNREADABLE_REMEDY
        )
        for summary in found
        if summary.status == UNREADABLE
    ]
    left = [summary for summary in found if summary.status in _WAITING]
    if left:
        names = ", ".join(f"{summary.run} {summary.status}" for summary in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        remedy = "'bartack status' shows them, 'bartack resume' resumes one."
        findings.append(Finding("runs", "warn", f"{names}{more}", remedy))
    return findings or [Finding("runs", "ok", "no run waits for an answer or a resume")]


_UNREADABLE_REMEDY: Final = (
    "Commands skip it; all other runs work. Read it as its owner, or with the version that wrote it."
)
_WAITING: Final = frozenset({"interrupted", "failed", "waiting"})
