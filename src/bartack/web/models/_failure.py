"""Why a run failed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.protocol.frames import ErrorData
from bartack.web.models._model import At, Model, Seconds, Seq
from bartack.web.models._steps import SourcePlace


class FailureLink(Model, frozen=True, kw_only=True):
    """A worker that failed, or waited for one that did: at which step, and where in the program."""

    worker: str
    how: Annotated[Literal["failed", "delegated", "spawned"], Meta(description="What it did there.")]
    step: str = ""
    site: SourcePlace | None = None


class Raised(Model, frozen=True, kw_only=True):
    """An error, with its places in the program; then its causes."""

    type: str
    message: str
    code: str = ""
    worker: str = ""
    stack: Annotated[list[SourcePlace], Meta(description="The innermost last.")] = []
    left_out: Annotated[int, Meta(description="Places in the middle that are left out.")] = 0


class Crash(Model, frozen=True, kw_only=True):
    """A crash of the process of a worker."""

    at: At
    seq: Seq
    path: str
    reason: str
    last_step: str = ""
    last_message: str = ""
    stderr_tail: str = ""
    uptime_s: Seconds = 0.0
    peak_memory_bytes: int = 0
    restarts: int = 0
    decision: Literal["restart", "escalate", "none"] = "restart"


class Failure(Model, frozen=True, kw_only=True):
    """Why a run failed, from the failing step outwards."""

    worker: str = ""
    p: str = ""
    n: int = 0
    at: At = 0
    seq: Seq = 0
    error: ErrorData | None = None
    causes: Annotated[
        list[Raised], Meta(description="The error and what caused it, each with its source lines.")
    ] = []
    suppressed: Annotated[list[Raised], Meta(description="Failures that came after it.")] = []
    suppressed_more: int = 0
    chain: list[FailureLink] = []
    crashes: list[Crash] = []
    help: str = ""
    commands: Annotated[list[str], Meta(description="What to type next.")] = []
