"""What agents write takes no effect in a report for a pull request: it stays in code spans, which nothing gets out of."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bartack.pipeline.report.markdown import _LIVE, JOINER, code, report_markdown
from bartack.pipeline.report.report import (
    AgentUse,
    FileLines,
    OpenPoint,
    ReportedFinding,
    Resumed,
    ReviewRound,
    RunReport,
    StepCounts,
    Takeover,
    TaskReport,
    TestsReport,
    WaitsFor,
    WorkCommit,
)

HOSTILE = (
    "@octocat fixes #1",
    "<img src=x onerror=alert(1)>",
    "</code></pre><script>alert(1)</script>",
    "![x](https://evil.example/pixel.png)",
    "[x]: https://evil.example\n\n[x]",
    "`` ` ``` ```` `",
    "``` \n```\n# Heading\n<b>",
    "`<b>` `",
    "| a | b |\n|---|---|",
    "- [ ] task\n1. one\n> quote\n---",
    "<!-- hidden",
    "https://evil.example www.evil.example GH-12 org/repo#3 !4",
    "\\`<b>\\`",
    "\x1b]0;title\x07\u202etxt\u2028<b>",
    "",
    "   ",
    "&lt;b&gt; &#64;octocat",
    "$`<b>`$",
)


def hostile_report(text: str) -> RunReport:
    """A report in which every text from outside is this one."""
    use = AgentUse(agent=text, calls=1, usd=0.5, tokens=3)
    tests = TestsReport(
        mode="command",
        command=text,
        verdict="fail",
        exit_code=1,
        duration_s=1.0,
        runs=2,
        failed=2,
        disagreement=True,
    )
    finding = ReportedFinding(message=text, severity=text, path=text, line=1)
    review = ReviewRound(stage="review", round=1, agent=text, verdict=text, findings=[finding])
    points = [OpenPoint(kind="finding", text=text, path=text, line=3), OpenPoint(kind="left_out", text=text)]
    task = TaskReport(
        id=text,
        title=text,
        goal=text,
        status="done",
        files=[FileLines(path=text, change="added", added=1, removed=0)],
        added=1,
        removed=0,
        uncounted=0,
        branch=text,
        commits=[WorkCommit(id="0" * 40, subject=text)],
        tests=tests,
        reviews=[review],
        open=points,
        agents=[use],
    )
    return RunReport(
        schema=1,
        run=text,
        kind="pipeline",
        status="failed",
        program=text,
        goal=text,
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-01T00:00:00Z",
        took_s=1.0,
        tasks=[task],
        tests=tests,
        open=points,
        agents=[use],
        total=use,
        resumed=Resumed(times=1, answers=1),
        steps=StepCounts(),
        waits_for=[WaitsFor(text=text, command=text)],
        problem=text,
        result=text,
        takeover=Takeover(state="conflicts", command=text, files=[text], advice="Do it.", remark=text),
    )


def tokens(text: str) -> Iterator[Token]:
    for token in MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text):
        yield token
        yield from token.children or []


def shape(text: str) -> list[str]:
    """What a page consists of, without the text in it."""
    return [token.type for token in tokens(report_markdown(hostile_report(text)))]


@pytest.mark.requirement("report-text-takes-no-effect")
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: re.sub(r"\W+", "-", text)[:30])
def test_no_text_of_an_agent_takes_effect(text: str) -> None:
    page = report_markdown(hostile_report(text))

    found = list(tokens(page))
    assert {token.type for token in found}.isdisjoint({"html_inline", "html_block", "link_open", "image"})
    outside = "".join(token.content for token in found if token.type == "text")
    assert re.search(r"[@#<`!]|evil|GH-", outside) is None, outside
    if text.strip():
        assert shape(text) == shape("@x" if _LIVE.search(text) else "x")


@pytest.mark.requirement("report-text-takes-no-effect")
def test_a_page_that_becomes_a_commit_message_mentions_no_one() -> None:
    page = report_markdown(hostile_report("@octocat fixes #1, see https://evil.example and GH-12"))

    assert re.search(r"@\w|#\d|://|GH-\d", page) is None
    assert f"@{JOINER}octocat fixes #{JOINER}1" in page


@pytest.mark.requirement("report-text-takes-no-effect")
@given(st.text(st.characters()))
def test_a_code_span_holds_any_text(text: str) -> None:
    span = code(text)

    [inline] = [
        token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(f"a {span} b") if token.children
    ]
    assert [token.type for token in inline.children or []][1:-1] in (["code_inline"], [])
    assert "\n" not in span
    assert all(c.isprintable() or c == JOINER for c in span)


def test_a_command_to_paste_is_shown_as_it_is() -> None:
    page = report_markdown(hostile_report("git merge bartack/run-1/result"))

    assert "```sh\ngit merge bartack/run-1/result\n```" in page


def test_plain_text_stays_as_it_is() -> None:
    assert code("src/a.py") == "`src/a.py`"
    assert code("say `please`") == "`` say `please` ``"
    assert code("two\n lines") == "`two lines`"
    assert code("") == "(empty)"
