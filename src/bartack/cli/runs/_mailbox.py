"""``bartack mailbox``: inspect the mailboxes of a run, send and receive messages from a shell."""

from __future__ import annotations

import sys
from collections import Counter

import click
import msgspec

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, with_on, write_json
from bartack.cli.app._runs import (
    RunFirst,
    iso,
    latest_argument,
    load_value,
    locate_or_newest,
    workspace_option,
)
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.core import typed
from bartack.errors import ReceiveTimeoutError, RunNotActiveError, UsageError
from bartack.messaging import BroadcastResult, Mailbox, Message
from bartack.messaging.mailboxes import check_name
from bartack.messaging.outcome import is_success
from bartack.messaging.topic import check_topic
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.sending import send_message
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.steps import Held
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.inbox import LeftMessage, left_messages
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.worker_state import Value

name_argument = click.argument("name")


@click.group(cls=PlainGroup, short_help="Inspect mailboxes, send and receive messages.")
def mailbox() -> None:
    """Inspect the mailboxes of a run, send and receive messages.

    A mailbox is created by its first use. Messages are JSON values. Without RUN all commands are for the newest run. A first
    word is a run if it is 'latest', begins with 'run-' or with a date (20261116-), or is a path.
    """


@mailbox.command(cls=RunFirst, name="list", short_help="List the mailboxes.")
@latest_argument
@shows_database
@workspace_option
@json_option
def list_mailboxes(run: str, workspace: str, *, as_json: bool) -> None:
    """List the mailboxes of a run, or of the newest run, with their counts and topics.

    The column 'kept' counts messages that were sent while the run was not active; they are queued when it is resumed.
    """
    found = locate_or_newest(run, workspace)
    boxes = read_state(found).mailboxes
    kept = Counter(left.mailbox for left in left_messages(found))
    boxes = {**{name: Mailbox(name) for name in kept}, **boxes}
    counts = {
        name: {
            "queued": len(box),
            "kept": kept[name],
            "scheduled": box.scheduled,
            "held": box.held,
            "sent": box.sent,
            "received": box.delivered,
            "dropped": box.dropped,
            "size_bytes": box.size_bytes,
            "closed": box.closed,
            "owner": box.owner,
            "topics": box.patterns,
        }
        for name, box in sorted(boxes.items())
    }
    if as_json:
        write_json(counts)
        return
    screen = Screen(sys.stdout)
    if not counts:
        screen.line("The run has no mailboxes yet.")
        return
    heads = ["mailbox", "queued", *(["kept"] if kept else []), "scheduled", "held", "sent", "received"]
    rows = [
        [printable(name), *(f"{has[head]:>{len(head)}}" for head in heads[1:])]
        for name, has in counts.items()
    ]
    if any(box.patterns for box in boxes.values()):
        heads.append("topics")
        rows = [[*row, " ".join(boxes[name].patterns)] for row, name in zip(rows, counts, strict=True)]
    screen.table([[screen.paint(head, "dim") for head in heads], *rows], indent=0)


@mailbox.command(cls=RunFirst, short_help="Show queued messages without receiving them.")
@latest_argument
@name_argument
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=20,
    show_default=True,
    help="Show at most N.",
)
@shows_database
@workspace_option
@json_option
def peek(run: str, name: str, limit: int, workspace: str, *, as_json: bool) -> None:
    """Show the messages that are queued in a mailbox, the oldest first, without receiving them.

    After them the command lists messages that were sent while the run was not active; they are queued when it is resumed.
    """
    check_name(name)
    found = locate_or_newest(run, workspace)
    box = read_state(found).mailboxes.get(name)
    messages = [] if box is None else box.queued()
    messages = [*messages, *(_kept(left) for left in left_messages(found) if left.mailbox == name)][:limit]
    if as_json:
        for message in messages:
            write_json(_facts(found, message))
        return
    screen = Screen(sys.stdout)
    screen.listing(
        [
            (
                message.id,
                iso(message.at),
                printable(message.sender),
                printable(load_value(found, Value(message.value, message.ref)).decode()),
            )
            for message in messages
        ],
        indent=0,
    )


def _kept(left: LeftMessage) -> Message:
    """A message that was stored for a run, as it will be in its mailbox."""
    return Message(
        id=left.key, order=0, sender="kept", size=len(left.value), at=left.at, value=left.value, key=left.key
    )


def _facts(run: RunDir, message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "at": message.at,
        "sender": message.sender,
        "attempt": message.attempt,
        "value": msgspec.json.decode(load_value(run, Value(message.value, message.ref))),
    }


@mailbox.command(cls=RunFirst, short_help="Send a message.")
@latest_argument
@name_argument
@click.argument("value", default="-")
@click.option("--text", is_flag=True, help="Send VALUE as a text, not as JSON.")
@click.option("--key", default="", metavar="KEY", help="Send at most one message with this key.")
@shows_database
@workspace_option
@json_option
def send(run: str, name: str, value: str, key: str, workspace: str, *, text: bool, as_json: bool) -> None:
    """Send VALUE, which is JSON, to a mailbox and print the id of the message. VALUE is read from stdin if it is missing or '-'.

    The message is durable when the command returns. If the run is not active, the message is stored and delivered when the run
    is resumed. The nodes of a database resume one of theirs that rests at once.
    """
    check_name(name)
    found = locate_or_newest(run, workspace)
    encoded = _encode(sys.stdin.read() if value == "-" else value, is_text=text)
    sent, kept = send_message(found, name, encoded, key)
    queued = kept and found.is_awaited()
    if as_json:
        more = {"queued": True} if queued else {}
        write_json({"run": found.id, "id": sent, "kept": kept, **more})
    else:
        sys.stdout.write(f"{sent}\n")
        if queued:
            write_note(f"stored for {found.id}; a node continues the run, which delivers it")
        elif kept:
            resume = with_on(f"bartack resume {found.id}")
            write_note(f"stored for {found.id}, which is not active; '{resume}' delivers it")


def _encode(value: str, *, is_text: bool) -> bytes:
    if is_text:
        return msgspec.json.encode(value)
    try:
        return msgspec.json.encode(msgspec.json.decode(value))
    except msgspec.DecodeError as error:
        raise UsageError(
            "bartack mailbox send", f"VALUE is not JSON ({error}); --text sends it as a text"
        ) from None


@mailbox.command(cls=RunFirst, short_help="Publish a message to a topic.")
@latest_argument
@click.argument("topic")
@click.argument("value", default="-")
@click.option("--text", is_flag=True, help="Send VALUE as a text, not as JSON.")
@shows_database
@workspace_option
@json_option
def publish(run: str, topic: str, value: str, workspace: str, *, text: bool, as_json: bool) -> None:
    """Send VALUE, which is JSON, to every mailbox that is subscribed to a topic, and print the mailboxes that accepted it.

    VALUE is read from stdin if it is missing or '-'. The exit code is 9 if the run is not active.
    """
    check_topic(topic)
    found = locate_or_newest(run, workspace)
    encoded = _encode(sys.stdin.read() if value == "-" else value, is_text=text)
    request = Request(topic=topic, strategy="best_effort")
    with HubClient(found, wakes=True) as hub:
        result = typed.decode(hub.ask("publish", request, encoded), type=BroadcastResult)
    if as_json:
        write_json(msgspec.to_builtins(result))
        return
    for copy in result.results:
        if is_success(copy.outcome):
            sys.stdout.write(f"{copy.recipient}\n")


@mailbox.command(cls=RunFirst, short_help="Receive messages.")
@latest_argument
@name_argument
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Wait at most S seconds.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Receive N messages.",
)
@click.option("--follow", is_flag=True, help="Receive until the run ends.")
@shows_database
@workspace_option
@json_option
def receive(
    run: str, name: str, timeout: float | None, count: int, workspace: str, *, follow: bool, as_json: bool
) -> None:
    """Receive messages from a mailbox and print each as one line of JSON. --json adds its id, sender and attempt.

    The command acknowledges a message after it has written its line. If the command is killed before that, the message stays in
    the mailbox, so a message can be printed twice. The exit code is 8 if no message arrives in time, and 9 if the run is not
    active.
    """
    check_name(name)
    request = Request(mailbox=name, timeout_s=timeout)
    with HubClient(locate_or_newest(run, workspace), wakes=True) as hub:
        if follow:
            _follow(hub, request, as_json=as_json)
            return
        for _ in range(count):
            _receive(hub, request, as_json=as_json)


def _follow(hub: HubClient, request: Request, *, as_json: bool) -> None:
    while True:
        try:
            _receive(hub, request, as_json=as_json)
        except ReceiveTimeoutError:
            if request.timeout_s is not None:
                raise
        except RunNotActiveError:
            return


def _receive(hub: HubClient, request: Request, *, as_json: bool) -> None:
    held = typed.decode(hub.ask("receive", request), type=Held)
    _print(held, as_json=as_json)
    hub.ask("ack", Request(id=held.id))


def _print(held: Held, *, as_json: bool) -> None:
    line = bytes(msgspec.json.encode(held)) if as_json else bytes(held.value)
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
