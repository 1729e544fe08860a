r"""A report in Markdown, for the description of a pull request.

Titles, findings, file names and commands are texts of agents, and such a page is rendered: an image, a mention of a user,
"fixes #1" or a piece of HTML would take effect. So each of them is one line in a code span whose fence is longer than any in the
text. There nothing is interpreted. The page may become a commit message, where nothing is rendered and ``@name`` and ``#1`` count
again, so an invisible character follows ``@`` and ``#``. Everything else on the page is our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from bartack.pipeline.report.report import OpenPoint, ReviewRound, RunReport, Takeover, TaskReport
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

MOST_FILES: Final = 50
JOINER: Final = "\u2060"
_LIVE: Final = re.compile(r"(?<=[@#!])(?=\w)|(?<=:)(?=//)|(?<=\bGH)(?=-\d)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_FENCES: Final = re.compile("`+")


def report_markdown(report: RunReport) -> str:
    """A report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def code(text: str, most: int = 300) -> str:
    """A text from outside as a code span of one line, in which nothing takes effect."""
    plain = _LIVE.sub(JOINER, _visible(one_line(text, most)))
    if not plain:
        return "(empty)"
    fence = "`" * (1 + max((len(run) for run in _FENCES.findall(plain)), default=0))
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _visible(text: str) -> str:
    """Without characters that cannot be seen, or that change the direction of a text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def _cell(text: str) -> str:
    """The same in a cell of a table, where a bar would end the cell."""
    return code(text, 80).replace("|", r"\|")


def _block(text: str) -> list[str]:
    """One line as a block of code, to be pasted: it is shown as it is, or not at all."""
    if _LIVE.search(text):
        return ["`bartack report` prints the command: a name of a file in it could take effect on this page."]
    plain = _visible(one_line(text, 2000))
    fence = "`" * max(3, 1 + max((len(run) for run in _FENCES.findall(plain)), default=0))
    return [f"{fence}sh", plain, fence]


def _lines(report: RunReport) -> Iterator[str]:
    yield f"## Report of {code(report.run)}"
    yield ""
    yield from _head(report)
    if report.tasks:
        yield ""
        yield from _table(report)
    for task in report.tasks:
        yield ""
        yield from _task(task)
    if report.tests is not None:
        yield ""
        yield f"Tests of all tasks together: {code(report.tests.command)} {describe_tests(report.tests)}."
    if report.open:
        yield ""
        yield "### Other open points"
        yield ""
        yield from _points(report.open)
    if report.agents:
        yield ""
        yield "### Cost"
        yield ""
        yield from (f"- {code(use.agent or 'unknown')}: {describe_use(use)}" for use in report.agents)
        yield f"- together: {describe_use(report.total)}"
    resumed = describe_resumes(report.resumed)
    if resumed:
        yield ""
        yield f"The run was {resumed}."
    if report.takeover is not None:
        yield ""
        yield from _takeover(report.takeover)


def _head(report: RunReport) -> Iterator[str]:
    parts = [report.status]
    if report.kind == "pipeline":
        parts.append(number_of(len(report.tasks), "task"))
    else:
        steps = report.steps
        parts += [
            code(report.program),
            f"{number_of(steps.finished, 'step')} finished, {steps.failed} failed",
        ]
    yield f"{', '.join(parts)}."
    if report.problem:
        yield ""
        yield f"Problem: {code(report.problem)}"
    if report.result:
        yield ""
        yield f"Result: {code(report.result)}"
    if report.waits_for:
        yield ""
        yield "It waits for:"
        yield ""
        for wait in report.waits_for:
            then = f": {code(wait.command)}" if wait.command else ""
            yield f"- {code(wait.text)}{then}"


def _table(report: RunReport) -> Iterator[str]:
    yield "| task | status | changes | tests | review | open points |"
    yield "|---|---|---|---|---|---|"
    for task in report.tasks:
        tests = "none" if task.tests is None else describe_tests(task.tests).partition(",")[0]
        review = next((one for one in reversed(task.reviews) if one.stage == "review"), None)
        verdict = "none" if review is None else _cell(review.verdict)
        cells = [_cell(task.id), task.status, describe_changes(task), tests, verdict, str(len(task.open))]
        yield f"| {' | '.join(cells)} |"


def _task(task: TaskReport) -> Iterator[str]:
    title = f": {code(task.title)}" if task.title else ""
    yield f"### {code(task.id)}{title}"
    yield ""
    yield f"- Asked: {code(task.goal)}"
    branch = f", on {code(task.branch)}" if task.branch else ""
    yield f"- Changed: {describe_changes(task)}{branch}"
    for file in task.files[:MOST_FILES]:
        yield f"  - {code(file.path)} {file.change}, {describe_file(file)}"
    if len(task.files) > MOST_FILES:
        yield f"  - {number_of(len(task.files) - MOST_FILES, 'more file')}"
    if task.tests is not None:
        command = f"{code(task.tests.command)} " if task.tests.command else ""
        yield f"- Tests: {command}{describe_tests(task.tests)}"
    for stage, rounds in groupby(sorted(task.reviews, key=lambda one: one.stage), lambda one: one.stage):
        yield f"- {stage.capitalize()}: {', '.join(map(_round, rounds))}"
    if task.agents:
        used = "; ".join(f"{code(use.agent or 'unknown')} {describe_use(use)}" for use in task.agents)
        yield f"- Cost: {used}"
    yield "- Open points: none" if not task.open else f"- {number_of(len(task.open), 'open point')}:"
    yield from (f"  {line}" for line in _points(task.open))


def _round(review: ReviewRound) -> str:
    return f"round {review.round} {code(review.verdict)} by {code(review.agent)}"


def _points(points: list[OpenPoint]) -> Iterator[str]:
    for point in points:
        place = point.path if point.line is None else f"{point.path}:{point.line}"
        where = f" in {code(place)}" if point.path else ""
        yield f"- {point.kind.replace('_', ' ')}{where}: {code(point.text)}"


def _takeover(takeover: Takeover) -> Iterator[str]:
    yield "### Take the work over"
    yield ""
    if takeover.command:
        yield from _block(takeover.command)
        yield ""
    yield f"{describe_takeover(takeover).capitalize()}."
    if takeover.files:
        yield ""
        yield from (f"- {code(path)}" for path in takeover.files[:MOST_FILES])
    if takeover.advice:
        yield ""
        yield takeover.advice
    if takeover.remark:
        yield ""
        yield code(takeover.remark, 600)
