"""The live view as lines: one pure function, ``draw``. What is to be seen is a ``Picture``, made by ``_picture.py``.

Lines are made of pieces with a style each, one column shorter than the terminal. ``_board.py`` puts them on the screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.cli.app._terminal import Style, cells, graphemes, shorten

Doing = Literal["failed", "agent", "busy", "waits", "none", "done"]
"""What a worker does: it failed, its agent works, it works itself, it waits, it has nothing to show, or it has ended."""

HIGHEST: Final = 18
"""The largest number of lines of the view."""
PROMPT: Final = "> "
NAMES: Final = 24
"""The widest column of names."""
_WIDE: Final = 100
_MEDIUM: Final = 60
_BARS: Final = 8
_TURN: Final = 8
_COST: Final = 10
_BOXES: Final = 6


class Piece(NamedTuple):
    """A part of a line in one style."""

    text: str
    style: Style | None = None


Line = tuple[Piece, ...]


class Signs(NamedTuple):
    """The signs of a terminal."""

    busy: str = "●"
    waits: str = "○"
    failed: str = "✗"
    done: str = "✓"
    dots: str = "…"
    dot: str = "·"
    bar: str = "▮"


UTF8: Final = Signs()
ASCII: Final = Signs("*", "o", "x", "ok", "...", ".", "|")


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker, or a task of the pipeline that has no worker yet.

    Attributes:
        name: What distinguishes it from its siblings.
        depth: How many workers are above it.
        doing: What it does.
        kind: What it does, in words that several workers can have in common.
        verb: What it does, in a word or two.
        text: The rest of that: the last line of an agent, a command, a mailbox.
        turn: The turn that its agent is in; 0: it has none.
        usd: What it has cost; ``None``: nothing that is known.
        since_s: For how long it has done that; ``None``: that is not shown.
    """

    name: str
    depth: int = 0
    doing: Doing = "busy"
    kind: str = ""
    verb: str = ""
    text: str = ""
    turn: int = 0
    usd: float | None = None
    since_s: float | None = None


class Box(NamedTuple):
    """A mailbox: how many messages are queued, and for how long the oldest."""

    name: str
    queued: int
    oldest_s: float = 0.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The question that is asked now.

    Attributes:
        number: Its number.
        place: Which of the open questions it is, as ``1 of 3``; empty if it is the only one.
        asker: Who asks.
        lines: Its text.
        expected: Which kind of answer it expects.
        options: What can be chosen, by number.
        use: What an agent wants to use its tool with.
        problem: Why the last answer was not taken.
    """

    number: str
    place: str = ""
    asker: str = ""
    lines: Sequence[str] = ()
    expected: str = ""
    options: Sequence[str] = ()
    use: str = ""
    problem: str = ""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All that the live view shows of a run. Texts are without control characters.

    Attributes:
        title: What runs.
        run: The id of the run.
        status: Its status in a word.
        elapsed_s: How long it has been active.
        steps: How many steps have an outcome.
        usd: What agents have cost.
        limit_usd: What they may cost; ``None``: there is no limit.
        estimated: Whether what they cost was computed from prices.
        tokens: How many tokens they have used.
        rows: The workers, each below its parent.
        hidden: How many workers have ended and are not in the rows.
        names: The width of the column of names. It never gets smaller.
        paid: Whether an agent was ever called: then there are columns for turns and cost.
        boxes: The mailboxes.
        letters: How many dead letters there are.
        warning: What a person should know.
        hint: What can be typed.
        asked: The question that is asked now.
        signs: The signs of the terminal.
    """

    title: str
    run: str
    status: str
    elapsed_s: float = 0.0
    steps: int = 0
    usd: float = 0.0
    limit_usd: float | None = None
    estimated: bool = False
    tokens: int = 0
    rows: Sequence[Row] = ()
    hidden: int = 0
    names: int = 0
    paid: bool = False
    boxes: Sequence[Box] = ()
    letters: int = 0
    warning: str = ""
    hint: str = ""
    asked: Asked | None = None
    signs: Signs = UTF8


_STATUS: Final[dict[str, tuple[str, Style]]] = {
    "running": ("busy", "cyan"),
    "waiting": ("waits", "yellow"),
    "interrupted": ("waits", "yellow"),
    "failing": ("failed", "red"),
    "failed": ("failed", "red"),
    "completed": ("done", "green"),
}
_DOING: Final[dict[Doing, tuple[str, Style | None]]] = {
    "failed": ("failed", "red"),
    "agent": ("busy", "cyan"),
    "busy": ("busy", "cyan"),
    "waits": ("waits", "dim"),
    "none": ("", None),
    "done": ("done", "green"),
}
_RANKS: Final[dict[Doing, int]] = {"failed": 0, "agent": 1, "busy": 2, "waits": 2, "none": 2, "done": 3}


def draw(picture: Picture, width: int, height: int) -> list[Line]:
    """Draw a picture for a terminal with this many columns and rows; with a question, its prompt belongs below the lines."""
    return _Drawing(picture, max(width - 1, 1)).lines(max(min(height - 2, HIGHEST), 1))


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(piece.text for piece in line)


def clock(seconds: float, *, short: bool = False) -> str:
    """A duration as on a clock; a short one of hours has no seconds."""
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24} d" if short else f"{hours // 24} days"
    if hours and short:
        return f"{hours}h{minutes:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def count(number: int) -> str:
    """A large number in short."""
    for unit, sign in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number / unit:.{0 if number >= 10 * unit else 1}f}{sign}"
    return str(number)


class _Drawing:
    def __init__(self, picture: Picture, width: int) -> None:
        self._picture = picture
        self._signs = picture.signs
        self._width = width
        self._sign = max(map(len, picture.signs[:4]))
        self._names = min(picture.names, NAMES, max(width // 3, 8))

    def lines(self, height: int) -> list[Line]:
        """All lines: the head and the question first, then as much of the rest as there is room for."""
        asked = self._question(max(height - 2, 1)) if self._picture.asked is not None else []
        room = height - 1 - len(asked) - (1 if asked else 0)
        foot = self._foot()
        foot = foot[: max(min(len(foot), room // 3), 0)]
        workers = self._workers(room - len(foot))
        return [self._fit(line) for line in (self._head(), *workers, *foot, *asked)]

    # The head.

    def _head(self) -> Line:
        picture = self._picture
        sign, style = _STATUS.get(picture.status, ("", "dim"))
        mark = f"{getattr(self._signs, sign)} " if sign else ""
        status = Piece(f"{mark}{picture.status} {clock(picture.elapsed_s)}", style)
        facts = [f"{picture.steps:,} step{'' if picture.steps == 1 else 's'}", *self._money()]
        left = [Piece(picture.title, "bold"), Piece(f"  {self._run_id()}", "dim")]
        while True:
            right = (status, *(Piece(f"   {fact}") for fact in facts))
            free = self._width - _cells(left) - _cells(right)
            if free >= 2:
                return (*left, Piece(" " * free), *right)
            if facts:
                facts.pop()
            elif len(left) > 1:
                left.pop()
            else:
                room = max(self._width - _cells(right) - 2, 0)
                return (Piece(self._cut(picture.title, room), "bold"), Piece("  " if room else ""), *right)

    def _run_id(self) -> str:
        kind, _, rest = self._picture.run.partition("-")
        return f"{kind}-{self._signs.dots}{rest.rpartition('-')[2]}" if rest else kind

    def _money(self) -> list[str]:
        picture = self._picture
        if not picture.paid:
            return []
        limit = "" if picture.limit_usd is None else f" of {picture.limit_usd:.2f}"
        tokens = [f"{count(picture.tokens)} tokens"] if picture.tokens else []
        estimated = " (estimated)" if picture.estimated else ""
        return [f"{picture.usd:.2f}{limit} USD{estimated}", *tokens]

    # Workers.

    def _workers(self, room: int) -> list[Line]:
        rows = self._picture.rows
        if room <= 0:
            return []
        if len(rows) + bool(self._picture.hidden) <= room:
            rest = [self._others([])] if self._picture.hidden else []
            return [*(self._worker(row) for row in rows), *rest]
        order = sorted(range(len(rows)), key=lambda place: _rank(rows[place]))
        shown, others = sorted(order[: room - 1]), order[room - 1 :]
        return [*(self._worker(rows[place]) for place in shown), self._others([rows[i] for i in others])]

    def _worker(self, row: Row) -> Line:
        sign, style = _DOING[row.doing]
        mark = getattr(self._signs, sign) if sign else ""
        indent = " " * (1 + min(row.depth, 4))
        name = self._pad(f"{indent}{mark:<{self._sign}} {row.name}", self._names + self._sign + 2)
        start = len(indent) + len(mark)
        right = self._right(row) if row.usd is not None or row.turn or row.since_s is not None else []
        room = self._width - cells(name) - 2 - _cells(right)
        verb = self._cut(row.verb, max(room, 0))
        text = self._cut(row.text, max(room - cells(verb) - 2, 0)) if row.text else ""
        doing = f"{verb}  {text}" if verb and text else verb or text
        faint: Style | None = "dim" if row.doing == "done" else None
        return (
            Piece(name[: len(indent)]),
            Piece(name[len(indent) : start], style),
            Piece(f"{name[start:]}  ", faint),
            Piece(self._pad(doing, room) if right else doing, faint),
            *right,
        )

    def _right(self, row: Row) -> list[Piece]:
        """The columns on the right: turn and cost if agents are called and there is room, and the time."""
        wide = self._width >= _MEDIUM
        took = "" if row.since_s is None else clock(row.since_s, short=not wide)
        pieces: list[Piece] = []
        if self._picture.paid and self._width >= _WIDE:
            pieces.append(Piece(f"{f'turn {row.turn}' if row.turn else '':>{_TURN}}", "dim"))
        if self._picture.paid and wide:
            pieces.append(Piece(f"{'' if row.usd is None else f'{row.usd:.2f} USD':>{_COST}}"))
        return [*pieces, Piece(f"{took:>{8 if wide else 6}}", "dim")]

    def _others(self, rows: Sequence[Row]) -> Line:
        kinds = Counter(row.kind for row in rows)
        done = kinds.pop("done", 0) + self._picture.hidden
        counts = [*kinds.most_common(), *([("done", done)] if done else [])]
        text = ", ".join(f"{number:,} {kind}" for kind, number in counts)
        return (Piece(f" {kinds.total() + done:,} more: {text}", "dim"),)

    # Below the workers.

    def _foot(self) -> list[Line]:
        picture = self._picture
        lines: list[Line] = []
        if picture.warning:
            lines.append((Piece(f" {picture.warning}", "yellow"),))
        if picture.boxes or picture.letters:
            lines.append(self._mailboxes())
        if picture.hint:
            lines.append((Piece(f" {picture.hint}", "dim"),))
        return lines

    def _mailboxes(self) -> Line:
        pieces: list[Piece] = []
        for box in self._picture.boxes[:_BOXES]:
            bar = f" {self._signs.bar * min(box.queued, _BARS)}" if box.queued else ""
            oldest = f"  oldest {clock(box.oldest_s)}" if box.queued else ""
            pieces += [Piece(f" {box.name} {box.queued}"), Piece(bar, "cyan"), Piece(f"{oldest}  ", "dim")]
        more = len(self._picture.boxes) - _BOXES
        if more > 0:
            pieces.append(Piece(f" {more} more  ", "dim"))
        if self._picture.letters:
            letters = "dead letter" if self._picture.letters == 1 else "dead letters"
            pieces.append(Piece(f" {self._picture.letters} {letters}", "red"))
        return tuple(pieces)

    # The question.

    def _question(self, most: int) -> list[Line]:
        """The lines of the question, at most this many; what is too long for one line is broken."""
        asked = self._picture.asked
        assert asked is not None
        head = f" {asked.number} {asked.asker}: "
        first, *rest = [
            line
            for place, text in enumerate(asked.lines or [""])
            for line in wrap(text, self._width - 3, cells(head) - 1 if not place else 0)
        ]
        lines: list[list[Piece]] = [
            [Piece(" "), Piece("?", "cyan"), Piece(head, "dim"), Piece(first, "bold")]
        ]
        lines += [[Piece(f"   {line}", "bold")] for line in rest]
        wanted = asked.expected if not asked.options else ""
        for more in (wanted, f"({asked.place})" if asked.place else ""):
            if more and _cells(lines[-1]) + 2 + cells(more) <= self._width:
                lines[-1].append(Piece(f"  {more}", "dim"))
            elif more:
                lines.append([Piece(f"   {more}", "dim")])
        if asked.use:
            lines += [[Piece(f"   {line}")] for line in wrap(asked.use, self._width - 3)]
        found = [*map(tuple, lines), *self._options(asked.options)]
        if asked.problem:
            found.append((Piece(f"   {asked.problem}", "red"),))
        return found if len(found) <= most else self._shortened(found, most)

    def _shortened(self, lines: list[Line], most: int) -> list[Line]:
        """A long question without its middle: how it begins is kept, and what can be chosen."""
        first, last = most // 2, max(most - most // 2 - 1, 0)
        left = len(lines) - first - last
        where = f"   {self._signs.dots} {left} more lines: bartack answer {self._picture.run}"
        return [*lines[:first], (Piece(where, "yellow"),), *lines[len(lines) - last :]]

    def _options(self, options: Sequence[str]) -> list[Line]:
        """The options by number: in one line if they fit, else one a line."""
        named = [f"{place} {option}" for place, option in enumerate(options, 1)]
        together = "   " + "   ".join(named)
        if not named or cells(together) <= self._width:
            return [(Piece(together),)] if named else []
        return [(Piece(f"   {one}"),) for one in named]

    # Widths.

    def _fit(self, line: Line) -> Line:
        if sum(len(piece.text) for piece in line) <= self._width and all(
            piece.text.isascii() for piece in line
        ):
            return line
        left, kept = self._width, list[Piece]()
        for piece in line:
            text = self._cut(piece.text, left)
            kept.append(Piece(text, piece.style))
            left -= cells(text)
            if text is not piece.text:
                break
        return tuple(kept)

    def _cut(self, text: str, width: int) -> str:
        return shorten(text, width, self._signs.dots)

    def _pad(self, text: str, width: int) -> str:
        text = self._cut(text, max(width, 0))
        return text + " " * (width - cells(text))


def wrap(text: str, width: int, used: int = 0) -> list[str]:
    """Break a text into lines of this many columns; of the first line, some are used already."""
    lines, line, left = list[str](), "", width - used
    for word in text.split(" "):
        more = f" {word}" if line else word
        if cells(line) + cells(more) <= left:
            line += more
            continue
        if line or left < width:
            lines.append(line)
        line, left = "", width
        for grapheme, wide in graphemes(word):
            if cells(line) + wide > width:
                lines.append(line)
                line = ""
            line += grapheme
    return [*lines, line]


def _rank(row: Row) -> tuple[int, float]:
    return _RANKS[row.doing], -(row.since_s or 0.0)


def _cells(pieces: Iterable[Piece]) -> int:
    return sum(cells(piece.text) for piece in pieces)
