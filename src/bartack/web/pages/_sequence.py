"""Where the lines of a sequence diagram go: workers and peers are columns, messages are arrows.

An arrow goes from when its message was sent to when it was received. Moments are rows at equal distances: a diagram by the clock
would be blank for most of its height.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from bartack.runtime.state.spans.rows import StayStatus
from bartack.web.models._mail import MessageRow
from bartack.web.models._model import At, Model

TIMES: Final = 92
"""The width of the moments at the left."""
COLUMN: Final = 190
TOP: Final = 34
ROW: Final = 20
STUB: Final = 64
"""How long the arrow of a message is that no column receives."""
MOST_COLUMNS: Final = 24
OUTSIDE: Final = "outside"
"""The column of messages that no worker sent."""
NAME: Final = 26
"""Characters of a name above its column."""


class Party(Model, frozen=True, kw_only=True):
    """A column."""

    name: str
    short: str
    x: int


class Arrow(Model, frozen=True, kw_only=True):
    """A message."""

    x1: int
    y1: int
    x2: int
    y2: int
    status: StayStatus
    label: str
    label_x: int
    label_y: int
    anchor: Literal["start", "end"] = "start"
    title: str


class Tick(Model, frozen=True, kw_only=True):
    """A moment at the left."""

    y: int
    at: At


class SequenceDrawing(Model, frozen=True, kw_only=True):
    """A sequence diagram."""

    width: int
    height: int
    parties: list[Party]
    arrows: list[Arrow]
    ticks: list[Tick]
    left_out: int = 0


def draw_sequence(messages: Sequence[MessageRow]) -> SequenceDrawing:
    """The diagram of messages, given in the order in which they were sent."""
    names = list(
        dict.fromkeys(name for one in messages for name in (one.sender or OUTSIDE, one.receiver) if name)
    )
    places = {name: TIMES + COLUMN // 2 + COLUMN * number for number, name in enumerate(names[:MOST_COLUMNS])}
    shown = [one for one in messages if _is_drawn(one, places)]
    moments = sorted({seq: at for one in shown for seq, at in _ends(one)}.items())
    rows = {seq: TOP + ROW * number for number, (seq, _) in enumerate(moments, 1)}
    return SequenceDrawing(
        width=TIMES + COLUMN * (len(places) + 1),
        height=TOP + ROW * (len(moments) + 1),
        parties=[Party(name=name, short=_short(name), x=x) for name, x in places.items()],
        arrows=[_arrow(one, places, rows) for one in shown],
        ticks=[Tick(y=rows[seq], at=at) for seq, at in moments],
        left_out=len(messages) - len(shown),
    )


def _is_drawn(one: MessageRow, places: dict[str, int]) -> bool:
    return (one.sender or OUTSIDE) in places and (not one.receiver or one.receiver in places)


def _ends(one: MessageRow) -> list[tuple[int, int]]:
    """The entries that sent and removed a message, with their moments."""
    taken = [(one.taken_seq, one.taken_at)] if one.taken_seq and one.receiver else []
    return [(one.sent_seq, one.sent_at), *taken]


def _arrow(one: MessageRow, places: dict[str, int], rows: dict[int, int]) -> Arrow:
    x1, y1 = places[one.sender or OUTSIDE], rows[one.sent_seq]
    goes = bool(one.receiver) and bool(one.taken_seq)
    x2, y2 = (places[one.receiver], rows[one.taken_seq]) if goes else (x1 + STUB, y1)
    side = 1 if x2 >= x1 else -1
    return Arrow(
        x1=x1,
        y1=y1,
        x2=x2,
        y2=y2,
        status=one.status,
        label=_short(one.mailbox),
        label_x=x1 + 14 * side if goes else x2 + 6,
        label_y=y1 - 4 if goes else y1 + 4,
        anchor="start" if side > 0 else "end",
        title=f"{one.mailbox} {one.id}, {one.status}",
    )


def _short(name: str) -> str:
    """The end of a name, in which a worker differs from its siblings."""
    return name if len(name) <= NAME else f"…{name[1 - NAME :]}"
