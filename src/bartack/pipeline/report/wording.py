"""The sentences of a report that its forms share: counts, verdicts and costs. They have no words of agents in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bartack.pipeline.report.report import (
    AgentUse,
    FileLines,
    Resumed,
    Takeover,
    TakeoverState,
    TaskReport,
    TestsReport,
)

LINE: Final = 300
"""Characters of a text of an agent that are shown; the rest is in the journal."""

TAKEOVER: Final[dict[TakeoverState, str]] = {
    "applies": "checked: this works now",
    "conflicts": "checked: this does not apply without conflicts",
    "blocked": "checked: this does not work yet",
    "done": "nothing to do",
    "unchecked": "not checked",
    "nothing": "nothing to do",
}


def one_line(text: str, most: int = LINE) -> str:
    """A text as one line that is not too long; what is in it besides is up to the caller to escape."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


def number_of(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_file(file: FileLines) -> str:
    """How many lines of a file were added and removed."""
    if file.added is None or file.removed is None:
        return "lines not known"
    return f"+{file.added} -{file.removed}"


def describe_changes(task: TaskReport) -> str:
    """How much a task has changed."""
    if not task.files:
        return "no files"
    parts = [number_of(len(task.files), "file"), f"+{task.added} -{task.removed} lines"]
    if task.uncounted == len(task.files):
        parts[1] = "lines not known"
    elif task.uncounted:
        parts[1] += f" ({number_of(task.uncounted, 'file')} not counted)"
    if task.commits:
        parts.append(number_of(len(task.commits), "commit"))
    return ", ".join(parts)


def describe_tests(tests: TestsReport) -> str:
    """The result of tests, without their command."""
    if tests.mode == "off":
        return "off"
    parts = ["passed" if tests.verdict == "pass" else "waived" if tests.verdict == "waived" else "failed"]
    if tests.mode == "report":
        parts.append("as the builder reports")
    elif tests.exit_code is not None:
        parts.append(f"exit code {tests.exit_code}")
    if tests.mode == "command":
        parts.append(f"{tests.duration_s:.1f} s")
    if tests.runs > 1:
        parts.append(f"{tests.runs} runs, {tests.failed} failed")
    if tests.disagreement:
        parts.append("the builder reported something else")
    return ", ".join(parts)


def describe_use(use: AgentUse) -> str:
    """What an agent, or all of them, have used."""
    parts = [number_of(use.calls, "call")]
    if use.failed:
        parts.append(f"{use.failed} failed")
    if use.usd:
        parts.append(f"{use.usd:.2f} USD{' (estimated)' if use.estimated else ''}")
    if use.tokens:
        parts.append(number_of(use.tokens, "token"))
    return ", ".join(parts)


def sum_up(uses: Iterable[AgentUse]) -> AgentUse:
    """What several agents have used together."""
    found = list(uses)
    return AgentUse(
        agent="",
        calls=sum(use.calls for use in found),
        failed=sum(use.failed for use in found),
        usd=sum(use.usd for use in found),
        tokens=sum(use.tokens for use in found),
        turns=sum(use.turns for use in found),
        wall_s=sum(use.wall_s for use in found),
        estimated=any(use.estimated for use in found),
    )


def describe_resumes(resumed: Resumed) -> str:
    """What resumes have not paid again; empty if the run was not resumed."""
    if not resumed.times:
        return ""
    times = "once" if resumed.times == 1 else f"{resumed.times} times"
    spent = [f"{resumed.usd:.2f} USD"] if resumed.usd else []
    spent += [number_of(resumed.tokens, "token")] if resumed.tokens else []
    paid = f" ({', '.join(spent)})" if spent else ""
    verb = "was" if resumed.answers == 1 else "were"
    return f"resumed {times}; {number_of(resumed.answers, 'recorded answer')}{paid} {verb} not paid for again"


def describe_takeover(takeover: Takeover) -> str:
    """Whether work can be taken over."""
    return TAKEOVER[takeover.state]
