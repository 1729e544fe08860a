"""What a blocking and an asyncio connection to a hub have in common: the frames of requests, and the failure of the session.

The connections themselves are in ``connection.py`` and ``asynchronous/connection.py``.
"""

from __future__ import annotations

import itertools
import os

import msgspec

from bartack.errors import RunNotActiveError, SessionFailedError
from bartack.journal import BlobRef
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_failure
from bartack.runtime.protocol.requests import BY_ID, Request, new_request_id
from bartack.runtime.rundir.layout import RunDir


class HubPeer:
    """One end of a connection to the hub of a run.

    Attributes:
        failure: The failure of the session, once the hub has reported it.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._blobs = run.open_blobs()
        self._frames = f.FrameReader()
        self._numbers = itertools.count(1)
        self._is_lost = False
        """Whether the connection was lost."""
        self.failure: SessionFailedError | None = None

    def _hello(self) -> f.Hello:
        return f.Hello(role="foreign", pid=os.getpid(), token=os.environ.get("BARTACK_STEP_TOKEN", ""))

    def _frame(self, do: str, request: Request | None, value: bytes | None, by_id: str = "") -> f.Ask:
        """The frame of a request; one that changes the run has an id. It writes a large value to a file."""
        ref: BlobRef | None = None
        if value is not None and len(value) > INLINE_LIMIT:
            ref, value = self._blobs.put(value), None
        raw = None if value is None else msgspec.Raw(value)
        by_id = by_id or (new_request_id() if do in BY_ID else "")
        return f.Ask(i=next(self._numbers), do=do, a=encode_request(request), v=raw, ref=ref, id=by_id)

    def _load(self, frame: f.Answer) -> bytes:
        """The result in an answer. It reads a large result from a file."""
        if frame.ref is not None:
            return self._blobs.get(frame.ref)
        return b"null" if frame.v is None else bytes(frame.v)

    def _note_failure(self, frame: f.SessionFailed) -> None:
        """Keep the first failure: it is the cause."""
        self.failure = self.failure or revive_failure(frame.e)

    def _gone(self) -> RunNotActiveError:
        self._is_lost = True
        return RunNotActiveError(self._run.id, "its process is gone")


def encode_request(request: Request | None) -> msgspec.Raw:
    """The arguments of a request, as they are in its frame."""
    return msgspec.Raw(msgspec.json.encode(request or Request()))
