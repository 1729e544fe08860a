"""``bartack notices``: what people are notified of, and whether it reached them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
import msgspec

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, workspace_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.config.load import load_config, own_settings_file
from bartack.core.redact import Redactor
from bartack.notices import (
    Delivered,
    Fact,
    Notice,
    Sent,
    Subject,
    Way,
    list_notices,
    make_notice,
    open_outbox,
    quoted,
    send,
    ways_of,
)


@click.group(cls=PlainGroup, short_help="List notices, or test how they are sent.")
def notices() -> None:
    """List the notices that people got of runs, or test how they are sent.

    A notice is sent when a run waits for an answer, ends, fails, has used up its budget or is paused by a rate limit. The section
    notices of your own settings says how.
    """


@notices.command(name="list", short_help="List the latest notices with the state of their delivery.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="Show at most N."
)
@json_option
def list_(limit: int, *, as_json: bool) -> None:
    """List the latest notices of all runs, newest last: one line for each way by which a notice is sent.

    The state is waiting, sending, sent or failed. Notices are listed for a week after they were sent. A question that was answered
    before its notice was due is not listed.
    """
    found = list_notices(open_outbox(), limit)
    if as_json:
        for one in found:
            write_json(msgspec.to_builtins(one))
        return
    screen = Screen(sys.stdout)
    if not found:
        screen.line("no notices")
    for one in found:
        screen.line(printable(_line(one)))
        if one.problem:
            screen.line(printable(f"    {one.problem}"))


def _line(one: Delivered) -> str:
    attempts = f" (attempts: {one.attempts})" if one.attempts else ""
    return f"{one.at}  {one.state:7}  {one.way}{attempts}  {one.id}  {one.title}"


@notices.command(short_help="Send a sample by each way that the settings name.")
@workspace_option
@json_option
def test(workspace: str, *, as_json: bool) -> int:
    """Send a sample by each way that the settings name, at once, and report what happened.

    Quiet hours do not count, and nothing is repeated. The exit code is 0 if all ways worked, 1 if one did not, 2 if the settings
    name none.
    """
    config = load_config(Path(workspace))
    ways = ways_of(config.notices)
    redactor = Redactor(os.environ, config.redaction.rule)
    now_us = time.time_ns() // 1000
    fact = Fact(
        kind="question", place="sample", at=now_us, question="q0", text="A sample: nothing waits for you."
    )
    subject = Subject(run="sample", run_dir="", project=config.project_name(Path(workspace)))
    notice = make_notice(subject, fact, config.notices.link, redactor.redact_text)
    outcomes = [(way, quoted(_send_sample(way, notice).problem, redactor.redact_text)) for way in ways]
    if as_json:
        for way, problem in outcomes:
            write_json({"way": way.recipient, "sent": not problem, "problem": problem})
    else:
        _report(outcomes)
    if not ways:
        return Exit.USAGE
    return Exit.FAILED if any(problem for _, problem in outcomes) else Exit.OK


def _send_sample(way: Way, notice: Notice) -> Sent:
    return send(way, notice, 0, os.environ, time.time())


def _report(outcomes: list[tuple[Way, str]]) -> None:
    screen = Screen(sys.stdout)
    if not outcomes:
        Screen(sys.stderr).line(
            printable(
                f"no notification channel is configured; set notices.desktop, command or webhook in {own_settings_file()}"
            )
        )
    for way, problem in outcomes:
        screen.line(printable(f"{way.recipient}: {problem or 'sent'}"))
