"""Where in its journal a run is shown, and where one can go from there."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bartack.web.models._model import At, Model, Seq


class Outcome(Model, frozen=True, kw_only=True):
    """The outcome that a fork begins after."""

    step: str
    p: str
    n: int
    kind: str
    about: str = ""
    seq: Seq


class Travel(Model, frozen=True, kw_only=True):
    """An entry of a run, its neighbours, and the marks around it."""

    run: str
    seq: Seq
    last_seq: Seq
    at: At
    first_at: At
    live: bool = False
    mark_before: Seq = 0
    mark_after: Seq = 0
    has_outcome: Annotated[bool, Meta(description="Whether a fork can begin here.")] = False
    outcome: Annotated[
        Outcome | None, Meta(description="Absent: there is none, or too many steps to look at.")
    ] = None
