"""Entries of a journal as they are, and the transcript."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.web.models._model import At, Model, Seq, Shown
from bartack.web.models._steps import BlobFacts


class EntryRow(Model, frozen=True, kw_only=True):
    """An entry of the journal."""

    seq: Seq
    commit: Annotated[Seq, Meta(description="The first entry that became durable together with it.")]
    at: At
    kind: str
    data: dict[str, object] = {}
    value: Annotated[Shown | None, Meta(description="Its value, if it is in the entry.")] = None
    blob: BlobFacts | None = None


class Entries(Model, frozen=True, kw_only=True):
    """Entries of a journal, in order."""

    entries: list[EntryRow]
    next: Annotated[
        Seq, Meta(description="Give it as `from` to get those after them; 0: there are none.")
    ] = 0
    last_seq: Seq


class LogLine(Model, frozen=True, kw_only=True):
    """A line of the transcript."""

    seq: Seq
    at: At
    worker: str = ""
    channel: Literal["print", "log", "note"] = "note"
    text: str


class Log(Model, frozen=True, kw_only=True):
    """The end of the transcript, or the part before a line."""

    lines: list[LogLine]
    next: Annotated[
        Seq, Meta(description="Give it as `before` to get the lines before these; 0: there are none.")
    ] = 0
    seq: Seq
