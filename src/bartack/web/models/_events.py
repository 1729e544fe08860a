"""What the events of streams say."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.state.timeline import StepStatus
from bartack.web.models._model import Model, Seq
from bartack.web.models._steps import MarkData
from bartack.web.models._talk import LineData

Reason = Literal["behind", "journal", "built"]


class Hello(Model, frozen=True, kw_only=True):
    """The first event of a stream."""

    seq: Seq
    status: str = ""
    read_only: bool = False
    server: Annotated[str, Meta(description="Id of the server process; row numbers are valid only for it.")]
    built: float = 1.0


class Parts(Model, frozen=True, kw_only=True):
    """Elements of the page that changed, as the templates of the page render them."""

    seq: Seq
    set: Annotated[list[tuple[str, str]], Meta(description="Ids of elements, and their HTML.")] = []
    gone: list[str] = []


class Bars(Model, frozen=True, kw_only=True):
    """Steps that began and ended, for the timeline."""

    seq: Seq
    open: Annotated[
        list[tuple[int, int, int, int]], Meta(description="row, lane, place in the kinds, from_us.")
    ] = []
    close: Annotated[list[tuple[int, int, StepStatus]], Meta(description="row, to_us, state.")] = []
    marks: list[MarkData] = []
    kinds: Annotated[list[str], Meta(description="All kinds, if there are new ones.")] = []
    lanes: Annotated[
        list[tuple[int, str, str]], Meta(description="New lanes: number, path, path of the worker.")
    ] = []
    last_us: int = 0


class TalkLines(Model, frozen=True, kw_only=True):
    """New lines of a call."""

    key: str
    lines: list[LineData]


class Reset(Model, frozen=True, kw_only=True):
    """The page has to ask again for what it shows."""

    why: Annotated[
        Reason,
        Meta(description="It is too far back; the journal is another one; the journal was read as a whole."),
    ]


class Over(Model, frozen=True, kw_only=True):
    """There will be no more events: the page stays, and stops asking."""

    status: Annotated[
        str, Meta(description="That of the run; `deleted`; `memory`: other runs need the room.")
    ]
