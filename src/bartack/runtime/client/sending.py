"""Sends a message to a run from outside, with or without a process that runs it."""

from __future__ import annotations

from typing import NamedTuple

from bartack.core import typed
from bartack.errors import RunNotActiveError
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.remote import store
from bartack.runtime.protocol.requests import Request, new_request_id
from bartack.runtime.rundir.inbox import leave_message
from bartack.runtime.rundir.layout import RunDir


class SentMessage(NamedTuple):
    """A message that was sent."""

    id: str
    """Its id; if it is kept, its key, or the id of the request."""
    is_kept: bool
    """Whether it waits for the next process that runs the run."""


def send_message(run: RunDir, mailbox: str, value: bytes, key: str = "") -> SentMessage:
    """Put a message into a mailbox, once; without a process that runs the run it is left for the next one.

    Args:
        run: The run.
        mailbox: The name of the mailbox.
        value: The message, as encoded JSON.
        key: At most one message of this key is ever in the mailbox.

    Raises:
        BartackError: The mailbox does not take it.
        PeerRefusedError: This process belongs to a run.
    """
    request = new_request_id()
    asked = Request(mailbox=mailbox, key=key)
    try:
        with HubClient(run) as hub:
            sent = hub.ask("send", asked, value, by_id=request)
    except RunNotActiveError:
        if not store(run, request, "send", asked, value):
            leave_message(run, mailbox, request, value, key)
        return SentMessage(key or request, is_kept=True)
    return SentMessage(typed.decode(sent, type=str), is_kept=False)
