"""``bartack report``: what a run has done, for the person who takes its work over. At the end of a run, the same in short."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import latest_argument, locate, paint_status, workspace_option
from bartack.cli.app._terminal import Screen, Style, human_time, printable
from bartack.errors import UsageError
from bartack.pipeline.report.markdown import report_markdown
from bartack.pipeline.report.read import read_report
from bartack.pipeline.report.report import (
    AgentUse,
    OpenPoint,
    RunReport,
    Takeover,
    TaskReport,
    TestsReport,
)
from bartack.pipeline.report.wording import (
    describe_changes,
    describe_file,
    describe_resumes,
    describe_takeover,
    describe_tests,
    describe_use,
    number_of,
    one_line,
)

MOST_FILES: Final = 30
"""How many files of a task are listed."""
_STYLES: Final[dict[str, Style]] = {
    "applies": "green",
    "done": "green",
    "conflicts": "red",
    "blocked": "yellow",
    "unchecked": "yellow",
    "nothing": "dim",
}


@click.command(short_help="Report what a run has done, and how to take its work over.")
@latest_argument
@click.option("--markdown", is_flag=True, help="Print Markdown, for the description of a pull request.")
@shows_database
@workspace_option
@json_option
def report(run: str, workspace: str, *, markdown: bool, as_json: bool) -> None:
    """Report what a run has done: of each task what was asked and changed, its tests, reviews, open points and cost.

    Without RUN the command reports on the latest run. The last lines are the one command that takes the work over, and whether that
    command works now. The command tries a merge without changing the repository or the workspace; if it does not apply, the report
    names the files that are in conflict.

    Of a run that is active, interrupted or failed, the command reports what there is so far, and what the run waits for. Of a run
    that is not one of the pipeline it reports steps, agents, cost and result.

    --markdown shows texts of agents as code, so that no mention, link or image in them takes effect.
    """
    if markdown and as_json:
        raise UsageError("bartack report", "--markdown and --json exclude each other")
    found = read_report(locate(run, workspace))
    if as_json:
        write_json(msgspec.to_builtins(found))
    elif markdown:
        sys.stdout.write(report_markdown(found))
    else:
        write_report(Screen(sys.stdout), found)


def write_report(screen: Screen, found: RunReport) -> None:
    """Write a report for people."""
    _write_head(screen, found)
    for task in found.tasks:
        screen.line()
        _write_task(screen, task)
    if found.tests is not None:
        screen.line()
        screen.line(f"{screen.paint('All tasks together', 'bold')}  {_tests(found.tests)}")
    if found.open:
        screen.line()
        screen.line(screen.paint("Other open points", "bold"))
        screen.listing([_point(point) for point in found.open])
    if found.agents:
        screen.line()
        screen.line(f"{screen.paint('Cost', 'bold')}  {describe_use(found.total)}")
        screen.listing([_use(use) for use in found.agents])
    resumed = describe_resumes(found.resumed)
    if resumed:
        screen.line(f"  {resumed}")
    _write_waits(screen, found)
    if found.takeover is not None:
        screen.line()
        screen.line(screen.paint("Take the work over", "bold"))
        _write_takeover(screen, found.takeover)


def write_short(screen: Screen, found: RunReport) -> None:
    """Write a report in few lines: one for each task, and the check of the takeover."""
    screen.listing([_short(screen, task) for task in found.tasks])
    points = sum(len(task.open) for task in found.tasks) + len(found.open)
    takeover = found.takeover
    if takeover is not None and takeover.command:
        # The command that merges a branch is part of what every run of parallel tasks shows.
        if not takeover.branch:
            screen.line(f"  take it over: {printable(takeover.command)}")
        screen.line(f"  {_check(screen, takeover)}")
        _write_list(screen, takeover.files)
    left = f"{number_of(points, 'open point')}; " if points else ""
    browser = "" if screen.width is None else ", or bartack web"
    screen.line(f"  {left}report: bartack report {found.run}{browser}")


def _short(screen: Screen, task: TaskReport) -> tuple[str, ...]:
    tests = "no tests" if task.tests is None else f"tests {describe_tests(task.tests).partition(',')[0]}"
    review = next((one for one in reversed(task.reviews) if one.stage == "review"), None)
    verdict = "not reviewed" if review is None else printable(_said(review.verdict))
    rounds = sum(one.stage == "review" for one in task.reviews)
    more = f" in round {rounds}" if rounds > 1 else ""
    points = number_of(len(task.open), "open point") if task.open else ""
    parts = [describe_changes(task), tests, f"{verdict}{more}", points]
    return printable(task.id), paint_status(screen, task.status), ", ".join(filter(None, parts))


# The parts of a report.


def _write_head(screen: Screen, found: RunReport) -> None:
    status = paint_status(screen, found.status)
    screen.line(f"{found.run}  {status}  {printable(found.program)}  {human_time(found.took_s)}")
    if found.kind == "program":
        steps = found.steps
        counts = [f"{number_of(steps.finished, 'step')} finished", f"{steps.failed} failed"]
        counts += [f"{steps.open} open"] if steps.open else []
        screen.line(f"  {', '.join(counts)}")
    if found.problem:
        screen.line(f"  {screen.paint('problem', 'red')}: {_text(found.problem)}")
    if found.result:
        screen.line(f"  result: {_text(found.result)}")


def _write_task(screen: Screen, task: TaskReport) -> None:
    title = f"  {_text(task.title)}" if task.title else ""
    screen.line(f"{screen.paint(printable(task.id), 'bold')}  {paint_status(screen, task.status)}{title}")
    screen.table([(screen.paint(name, "dim"), text) for name, text in _rows(task)])
    screen.listing([(printable(f.path), f.change, describe_file(f)) for f in task.files[:MOST_FILES]], 4)
    if len(task.files) > MOST_FILES:
        screen.line(f"    and {number_of(len(task.files) - MOST_FILES, 'more file')}")
    if task.open:
        screen.line(f"  {screen.paint(number_of(len(task.open), 'open point'), 'yellow')}")
        screen.listing([_point(point) for point in task.open], 4)


def _rows(task: TaskReport) -> Iterator[tuple[str, str]]:
    yield "asked", _text(task.goal)
    if task.tests is not None:
        yield "tests", _tests(task.tests)
    for stage in ("review", "spec"):
        rounds = [one for one in task.reviews if one.stage == stage]
        if rounds:
            said = [f"round {one.round} {_said(one.verdict)} by {one.agent}" for one in rounds]
            yield stage, printable(", ".join(said))
    if task.agents:
        used = [f"{use.agent or 'unknown'} {describe_use(use)}" for use in task.agents]
        yield "cost", printable("; ".join(used))
    where = f" on {printable(task.branch)}" if task.branch else ""
    yield "changed", f"{describe_changes(task)}{where}"


def _said(verdict: str) -> str:
    return one_line(verdict, 40).replace("_", " ")


def _tests(tests: TestsReport) -> str:
    command = f"{_text(tests.command)}: " if tests.command else ""
    return f"{command}{describe_tests(tests)}"


def _point(point: OpenPoint) -> tuple[str, str]:
    place = point.path if point.line is None else f"{point.path}:{point.line}"
    return point.kind.replace("_", " "), _text(f"{place}: {point.text}" if point.path else point.text)


def _use(use: AgentUse) -> tuple[str, str]:
    return printable(use.agent or "unknown"), describe_use(use)


def _write_waits(screen: Screen, found: RunReport) -> None:
    if not found.waits_for:
        return
    screen.line()
    screen.line(screen.paint("Waits for", "bold"))
    for wait in found.waits_for:
        screen.line(f"  {_text(wait.text)}")
        if wait.command:
            screen.line(f"    {printable(wait.command)}")


def _write_takeover(screen: Screen, takeover: Takeover) -> None:
    if takeover.command:
        screen.line(f"  {printable(takeover.command)}")
    screen.line(f"  {_check(screen, takeover)}")
    _write_list(screen, takeover.files)
    for text in (takeover.advice, takeover.remark):
        if text:
            screen.paragraph(_text(text))


def _check(screen: Screen, takeover: Takeover) -> str:
    return screen.paint(describe_takeover(takeover), _STYLES[takeover.state])


def _write_list(screen: Screen, paths: list[str]) -> None:
    for path in paths[:MOST_FILES]:
        screen.line(f"    {printable(path)}")
    if len(paths) > MOST_FILES:
        screen.line(f"    and {len(paths) - MOST_FILES} more")


def _text(text: str) -> str:
    """A text of an agent or a person: one line that cannot control a terminal."""
    return printable(one_line(text))
