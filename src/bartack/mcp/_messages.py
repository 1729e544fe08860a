"""``send_message`` and ``receive_message``: mailboxes of runs, for a client whose replies can be lost.

A message that was received is held on an open connection to the hub. It is acknowledged when the client calls with its id or, with
another call, receives the next one. If this process ends before, the hub puts the message back, and it is delivered again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec

from bartack.errors import ReceiveTimeoutError, RunNotActiveError
from bartack.mcp._report import fit
from bartack.runtime.client import requests, sending
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.steps import Held
from bartack.runtime.protocol.values import encode
from bartack.runtime.rundir.layout import RunDir

SLICE_S: Final = 2.0
"""How long one request for a message waits, before the call is looked at again."""


def send_message(run: RunDir, mailbox: str, value: object, key: str) -> dict[str, object]:
    """Put a message into a mailbox; durable when it returns. Without a hub it is left for the next one.

    Raises:
        BartackError: The mailbox refuses it.
    """
    sent = sending.send_message(run, mailbox, encode(value), key)
    if sent.is_kept:
        return {"message_id": sent.id, "kept": True, "resume_hint": f"bartack resume {run.id}"}
    return {"message_id": sent.id}


class Inbox:
    """One mailbox, as one client receives from it."""

    def __init__(self, run: RunDir, mailbox: str) -> None:
        self._run, self._mailbox = run, mailbox
        self._stack = ExitStack()
        self._hub: HubClient | None = None
        self._held: Held | None = None
        self._received_by = ""
        self._was_seen = False
        """The client was sent the message that is held."""
        self._turn = threading.Lock()

    def receive(
        self, call_id: str, timeout_s: float, ack: str, is_withdrawn: Callable[[], bool]
    ) -> dict[str, object]:
        """The next message, or the same one again if the client cannot have seen it.

        Args:
            call_id: What the client calls this call; the same for a repetition of it.
            timeout_s: How long to wait.
            ack: A message that the client has handled.
            is_withdrawn: Whether the client has given the call up.

        Raises:
            BartackError: The mailbox cannot be received from.
        """
        until = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=max(timeout_s, 0.0)):
            return {"empty": True}
        try:
            self._settle(call_id, ack)
            held = self._held or self._wait(until, ack, is_withdrawn)
        except RunNotActiveError:
            self._leave()
            raise
        finally:
            self._turn.release()
        if held is None:
            return {"empty": True}
        self._received_by = call_id
        return fit({"message": msgspec.json.decode(held.value), "message_id": held.id})

    def seen(self, message_id: object) -> None:
        """The client was sent a message."""
        self._was_seen = self._was_seen or (self._held is not None and self._held.id == message_id)

    def close(self) -> None:
        """Leave the run; a message that is held goes back."""
        self._leave()

    # Inside.

    def _settle(self, call_id: str, ack: str) -> None:
        """Acknowledge the message that is held, if the client has it."""
        if self._held is None or self._hub is None:
            return
        repeated = bool(call_id) and call_id == self._received_by
        if ack == self._held.id or (self._was_seen and not repeated):
            self._hub.do(requests.acknowledge(self._held.id))
            self._held = None

    def _wait(self, until: float, ack: str, is_withdrawn: Callable[[], bool]) -> Held | None:
        """Take the next message. One that the client has handled comes again if an earlier server died before it knew."""
        hub = self._connection()
        while not is_withdrawn():
            left = max(until - time.monotonic(), 0.0)
            try:
                held = hub.do(requests.receive(self._mailbox, min(left, SLICE_S)))
            except ReceiveTimeoutError:
                if left <= SLICE_S:
                    return None
                continue
            if held.id == ack:
                hub.do(requests.acknowledge(held.id))
                continue
            self._held, self._was_seen = held, False
            return held
        return None

    def _connection(self) -> HubClient:
        if self._hub is None:
            self._hub = self._stack.enter_context(HubClient(self._run))
            self._stack.enter_context(self._hub.renewing())
        return self._hub

    def _leave(self) -> None:
        self._held = self._hub = None
        self._stack.close()
