"""``bartack dlq``: the dead letters of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TypeVar, get_args

import click
import msgspec

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._database import shows_database
from bartack.cli.app._export import open_output
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import RunFirst, iso, latest_argument, locate_or_newest, pretty, workspace_option
from bartack.cli.app._terminal import Screen, printable
from bartack.errors import UsageError
from bartack.messaging import DeadLetter, DeadLetterQueue, Reason
from bartack.messaging.letter import LetterState
from bartack.messaging.outcome import describe_outcome, is_success
from bartack.runtime.client.dead_letters import open_letters

C = TypeVar("C", bound=Callable[..., None])

_SHOWN: Final = 20

_FILTERS: Final = (
    click.option(
        "--mailbox", default="", metavar="NAME", help="Only letters for this mailbox; * and ? are wildcards."
    ),
    click.option("--reason", type=click.Choice(get_args(Reason)), help="Only letters with this reason."),
    click.option("--sender", default="", metavar="PATH", help="Only letters from this worker."),
    click.option("--state", type=click.Choice(get_args(LetterState)), help="Only letters in this state."),
    click.option(
        "--older-than",
        type=click.FloatRange(min=0),
        metavar="S",
        help="Only letters that first failed at least S seconds ago.",
    ),
    click.option(
        "--newer-than",
        type=click.FloatRange(min=0),
        metavar="S",
        help="Only letters that first failed at most S seconds ago.",
    ),
    click.option(
        "--min-attempts",
        type=click.IntRange(min=0),
        metavar="N",
        help="Only letters with at least N attempts.",
    ),
    click.option("--key", default="", metavar="KEY", help="Only letters sent with this key."),
)

letters_argument = click.argument("letters", nargs=-1, metavar="[LETTER]...")
all_option = click.option("--all", "everything", is_flag=True, help="Choose all letters.")


def filter_options(command: C) -> C:
    """Add the options that choose letters to a command."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group(cls=PlainGroup, short_help="Inspect, retry, remove or export dead letters.")
def dlq() -> None:
    """Inspect, retry, remove or export the dead letters of a run: messages that could not be delivered or processed.

    Each letter keeps its message, its recipient, the reason and its delivery attempts. All commands work for active runs and for
    all others, and without RUN for the newest run.
    """


@dlq.command(cls=RunFirst, name="list", short_help="List the dead letters.")
@latest_argument
@filter_options
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=100,
    show_default=True,
    help="Show at most N.",
)
@shows_database
@workspace_option
@json_option
def list_letters(run: str, workspace: str, limit: int, *, as_json: bool, **chosen: object) -> None:
    """List the dead letters of a run, the oldest first.

    --state redelivered lists letters that a retry has delivered. With --json each letter is one line, without its message.
    """
    page = _open(run, workspace).list_messages(limit, None, **_fields(chosen))
    if as_json:
        for letter in page.letters:
            write_json(_facts(letter))
        return
    screen = Screen(sys.stdout)
    if not page.letters:
        screen.line("There are no dead letters.")
        return
    rows = [
        (
            letter.id,
            printable(letter.mailbox),
            letter.reason,
            letter.state,
            str(letter.attempts),
            _next(letter),
        )
        for letter in page.letters
    ]
    heads = ("letter", "mailbox", "reason", "state", "attempts", "next attempt")
    screen.table([[screen.paint(head, "dim") for head in heads], *rows], indent=0)
    if page.cursor:
        screen.line(f"There are more; -n {limit * 2} shows more of them.")


@dlq.command(cls=RunFirst, short_help="Show a dead letter with its message.")
@latest_argument
@click.argument("letter")
@shows_database
@workspace_option
@json_option
def show(run: str, letter: str, workspace: str, *, as_json: bool) -> None:
    """Show one dead letter: its message, its recipient, the reason and its delivery attempts."""
    queue = _open(run, workspace)
    found = queue.show(letter)
    if as_json:
        write_json({**_facts(found), "value": queue.value(letter)})
        return
    screen = Screen(sys.stdout)
    facts = [
        ("mailbox", printable(found.mailbox)),
        ("state", found.state),
        ("reason", f"{found.reason} {printable(found.error)}".rstrip()),
        ("attempts", str(found.attempts)),
        ("sender", printable(found.sender)),
        ("message", found.message_id),
        ("first failed", iso(found.first_failed_at)),
        ("next attempt", _next(found)),
    ]
    screen.table([(screen.paint(name, "dim"), value) for name, value in facts if value], indent=0)
    screen.line()
    screen.line(pretty(msgspec.json.encode(queue.value(letter))))
    screen.line()
    for note in found.history:
        screen.line(f"{iso(note.at)}  {note.event} {printable(note.detail)}".rstrip())


@dlq.command(cls=RunFirst, short_help="Retry dead letters.")
@latest_argument
@letters_argument
@filter_options
@all_option
@shows_database
@workspace_option
@json_option
def retry(
    run: str, letters: tuple[str, ...], workspace: str, *, everything: bool, as_json: bool, **chosen: object
) -> None:
    """Put dead letters back into their mailboxes: the named ones, those that match all options, or --all.

    Each letter keeps the id and the key of its message. Letters that are being retried already, or have expired, are left alone.
    The exit code is 1 if a mailbox is closed or has no room.
    """
    fields = _chosen("retry", letters, chosen, everything=everything)
    results = _open(run, workspace).retry_messages(fields)
    if as_json:
        for result in results:
            write_json(msgspec.to_builtins(result))
    else:
        screen = Screen(sys.stdout)
        if not results:
            screen.line("There is nothing to retry.")
        for result in results:
            screen.line(f"{result.id}  {describe_outcome(result.outcome)}")
    if not all(is_success(result.outcome) for result in results):
        click.get_current_context().exit(1)


@dlq.command(cls=RunFirst, short_help="Remove dead letters.")
@latest_argument
@letters_argument
@filter_options
@all_option
@click.option("--yes", is_flag=True, help="Remove without asking.")
@shows_database
@workspace_option
@json_option
def purge(
    run: str,
    letters: tuple[str, ...],
    workspace: str,
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
    **chosen: object,
) -> None:
    """Remove dead letters: the named ones, those that match all options, or --all. The command asks before it removes them.

    Their entries in the journal stay.
    """
    fields = _chosen("purge", letters, chosen, everything=everything)
    queue = _open(run, workspace)
    count = 0
    if yes or _agrees(queue, fields, as_json=as_json):
        count = queue.purge_messages(fields)
    if as_json:
        write_json({"purged": count})
    else:
        Screen(sys.stdout).line(f"Removed {_count(count)}.")


@dlq.command(cls=RunFirst, short_help="Write dead letters to a file.")
@latest_argument
@filter_options
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout.")
@shows_database
@workspace_option
@json_option
def export(run: str, workspace: str, output: str | None, *, as_json: bool, **chosen: object) -> None:
    """Write dead letters with their messages, one JSON object a line. The letters are not removed."""
    del as_json  # the output is always JSON
    found = locate_or_newest(run, workspace)
    queue = open_letters(found)
    page = queue.list_messages(sys.maxsize, None, **_fields(chosen))
    with open_output(output, beside=str(found.path)) as out:
        for line in queue.lines(page.letters):
            out.write(line + b"\n")


def _open(run: str, workspace: str) -> DeadLetterQueue:
    return open_letters(locate_or_newest(run, workspace))


def _fields(chosen: dict[str, object]) -> dict[str, object]:
    """The given options, as fields of a filter. Zero seconds are a limit, too."""
    return {name: value for name, value in chosen.items() if value not in (None, "")}


def _chosen(
    command: str, letters: tuple[str, ...], chosen: dict[str, object], *, everything: bool
) -> dict[str, object]:
    """The filter of a command that changes letters; the user has to choose explicitly."""
    fields = _fields(chosen)
    if letters:
        fields["ids"] = list(letters)
    if not fields and not everything:
        raise UsageError(f"bartack dlq {command}", "name letters, choose them with options, or give --all")
    return fields


def _agrees(queue: DeadLetterQueue, fields: dict[str, object], *, as_json: bool) -> bool:
    page = queue.list_messages(sys.maxsize, None, **fields)
    if not page.letters:
        return True
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "bartack dlq purge", "there is no terminal to confirm on; --yes removes without asking"
        )
    for letter in page.letters[:_SHOWN]:
        sys.stderr.write(f"{letter.id}  {printable(letter.mailbox)}  {letter.reason}\n")
    return click.confirm(f"Remove {_count(len(page.letters))}?", err=True)


def _count(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def _next(letter: DeadLetter) -> str:
    return iso(letter.next_retry_at) if letter.next_retry_at else ""


def _facts(letter: DeadLetter) -> dict[str, object]:
    """A letter without its message."""
    plain: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(letter, value=None, ref=None))
    return {"state": letter.state, "attempts": letter.attempts, "history": [], **plain}
