"""How diagnostics look: for people, with the source and carets, and for programs, as JSON.

Columns of the picture are those of a terminal: a tab is four wide, a wide character two, a combining one none. Places
are code points. Both come from the same span, so they always agree.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from bartack.language.syntax._diagnostics import MOST_SHOWN, Diagnostic
from bartack.language.syntax._source import DIRECTIONS, Place, Source, Span

WIDEST = 160
TAB = "    "
LONG = 4 * WIDEST
"""Of a line longer than this only the part around the span is looked at."""

Escape = Callable[[str], str]
COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "bar": "1;34", "strong": "1"}


class Mark(NamedTuple):
    """What is drawn below one line: a sign from one offset to another, and words after it."""

    start: int
    end: int
    sign: str
    label: str


class Ink:
    """Colours text, or leaves it alone."""

    def __init__(self, escape: Escape | None) -> None:
        self.escape = escape

    def __call__(self, kind: str, text: str) -> str:
        """The text in the colour of its kind."""
        if self.escape is None or not text:
            return text
        return self.escape(f"\x1b[{COLOURS[kind]}m") + text + self.escape("\x1b[0m")


def render(diagnostic: Diagnostic, sources: Mapping[str, Source], *, colour: Escape | None = None) -> str:
    """One diagnostic with the lines of source it is about.

    Args:
        diagnostic: What to show.
        sources: The sources by name; a file that is not among them is named without its text.
        colour: How a sequence that sets a colour is written; without it there is none.
    """
    ink = Ink(colour)
    severity = diagnostic.severity
    lines = [
        f"{ink(severity, f'{severity}[{diagnostic.code}]')}{ink('strong', f': {_plain(diagnostic.message)}')}"
    ]
    places = _pictures(diagnostic, sources)
    width = max((len(str(number)) for _, _, marks in places for number in marks), default=1)
    for index, (source, place, marks) in enumerate(places):
        arrow = "-->" if index == 0 else ":::"
        lines.append(f"{' ' * width}{ink('bar', arrow)} {_plain(source.name)}:{place.line}:{place.column}")
        lines.extend(_picture(source, marks, width, severity, ink))
    if not places:
        lines.append(f"{' ' * width}{ink('bar', '-->')} {_plain(diagnostic.file)}")
    lines.extend(_remarks(diagnostic, width, ink, framed=bool(places)))
    return "\n".join(lines)


def render_all(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, Source],
    *,
    files: int,
    colour: Escape | None = None,
) -> str:
    """All diagnostics, at most `MOST_SHOWN` of each file, and a last line that counts them.

    Args:
        diagnostics: What to show, in this order.
        sources: The sources by name.
        files: How many files were looked at.
        colour: How a sequence that sets a colour is written; without it there is none.
    """
    every = list(diagnostics)
    shown: list[str] = []
    left: Counter[str] = Counter(diagnostic.file for diagnostic in every)
    seen: Counter[str] = Counter()
    for diagnostic in every:
        file = diagnostic.file
        seen[file] += 1
        if seen[file] <= MOST_SHOWN:
            shown.append(f"{render(diagnostic, sources, colour=colour)}\n")
        elif seen[file] == left[file]:
            shown.append(f"and {left[file] - MOST_SHOWN} more in {_plain(file)}\n")
    shown.append(summary(every, files=files))
    return "\n".join(shown)


def summary(diagnostics: Iterable[Diagnostic], *, files: int) -> str:
    """How many errors, warnings and notes there are in how many files."""
    counted = Counter(diagnostic.severity for diagnostic in diagnostics)
    parts = [_number(counted[kind], kind) for kind in ("error", "warning", "note") if counted[kind]]
    return f"{', '.join(parts) or 'no errors'} in {_number(files, 'file')}"


def to_json(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> str:
    """One diagnostic as a line of JSON."""
    source = sources.get(diagnostic.file) or Source("", diagnostic.file)
    fix = diagnostic.fix
    fields = {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "file": diagnostic.file,
        "start": _place(source, diagnostic.span.start),
        "end": _place(source, diagnostic.span.end),
        "label": diagnostic.label or None,
        "help": "\n".join((*diagnostic.helps, *diagnostic.notes)) or None,
        "fix": fix and {"start": _place(source, fix.start), "end": _place(source, fix.end), "text": fix.text},
    }
    return msgspec.json.encode(fields).decode()


def _place(source: Source, offset: int) -> dict[str, int]:
    return source.place(offset)._asdict()


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _remarks(diagnostic: Diagnostic, width: int, ink: Ink, *, framed: bool) -> list[str]:
    remarks = [*(("help", text) for text in diagnostic.helps), *(("note", text) for text in diagnostic.notes)]
    if not remarks:
        return []
    edge = " " * (width + 1)
    frame = [edge + ink("bar", "|")] if framed else []
    return [
        *frame,
        *(f"{edge}{ink('bar', '=')} {ink('strong', kind)}: {_plain(text)}" for kind, text in remarks),
    ]


Picture = tuple[Source, Place, dict[int, list[Mark]]]


def _pictures(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> list[Picture]:
    """The marks by file and line, the diagnostic's own file first."""
    own = sources.get(diagnostic.file)
    if own is None:
        return []
    pictures: dict[str, Picture] = {own.name: (own, own.place(diagnostic.span.start), {})}
    _mark(own, diagnostic.span, "^", diagnostic.label, pictures[own.name][2])
    for span, label, file in diagnostic.secondary:
        source = sources.get(file or own.name)
        if source is not None:
            picture = pictures.setdefault(source.name, (source, source.place(span.start), {}))
            _mark(source, span, "-", label, picture[2])
    return list(pictures.values())


def _mark(source: Source, span: Span, sign: str, label: str, marks: dict[int, list[Mark]]) -> None:
    """Put a span below its line, or below its first and last line."""
    first = source.line_of(span.start)
    last = source.line_of(max(span.start, span.end - 1))
    if first == last:
        marks.setdefault(first, []).append(Mark(span.start, span.end, sign, label))
        return
    marks.setdefault(first, []).append(Mark(span.start, source.line_span(first).end, sign, ""))
    start, end = source.line_span(last)
    text = source.text[start : min(end, span.end)]
    blanks = len(text) - len(text.lstrip(" \t"))
    marks.setdefault(last, []).append(Mark(start + blanks, min(end, span.end), sign, label))


def _picture(source: Source, marks: dict[int, list[Mark]], width: int, severity: str, ink: Ink) -> list[str]:
    """The marked lines of one file, each with its marks below it."""
    bar = ink("bar", "|")
    edge = f"{' ' * width} {bar}"
    lines = [edge]
    before = 0
    for number in sorted(marks):
        if before and number > before + 1:
            lines.append(ink("bar", "..."))
        before = number
        shown, rows = _line(source, number, marks[number])
        lines.append(f"{ink('bar', str(number).rjust(width))} {bar} {shown}".rstrip(" "))
        for mark, (column, length) in zip(marks[number], rows, strict=True):
            drawn = ink(
                severity if mark.sign == "^" else "bar", f"{mark.sign * length} {_plain(mark.label)}".rstrip()
            )
            lines.append(f"{edge} {' ' * column}{drawn}")
    return lines


def _line(source: Source, number: int, marks: list[Mark]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a line as it is shown, and for each mark its column and length in it."""
    start, end = source.line_span(number)
    lowest = max(start, marks[0].start - WIDEST) if end - start > LONG else start
    highest = min(end, marks[0].start + LONG) if end - start > LONG else end
    cells = [_cell(character) for character in source.text[lowest:highest]]
    edges = [0]
    for cell in cells:
        edges.append(edges[-1] + _width(cell))
    left, right = _window(edges, marks[0].start - lowest, marks[0].end - lowest)
    cut_left = left > 0 or lowest > start
    cut_right = right < len(cells) or highest < end
    shown = f"{'…' if cut_left else ''}{''.join(cells[left:right])}{'…' if cut_right else ''}"
    return shown, [_columns(edges, mark, lowest, left, right, cut_left) for mark in marks]


def _columns(
    edges: list[int], mark: Mark, lowest: int, left: int, right: int, cut_left: int
) -> tuple[int, int]:
    """Where a mark begins and how long it is, in columns of what is shown."""
    start = min(max(mark.start - lowest, left), right)
    end = min(max(mark.end - lowest, start), right)
    return edges[start] - edges[left] + cut_left, max(edges[end] - edges[start], 1)


def _window(edges: list[int], start: int, end: int) -> tuple[int, int]:
    """Which cells of a line are shown, so that it is not too wide and the span is in it."""
    count = len(edges) - 1
    if edges[-1] <= WIDEST:
        return 0, count
    room = WIDEST - 2
    start = min(max(start, 0), count)
    span = min(edges[min(max(end, start), count)] - edges[start], room)
    left = start
    while left > 0 and edges[start] - edges[left - 1] <= max((room - span) // 2, 0):
        left -= 1
    right = left
    while right < count and edges[right + 1] - edges[left] <= room:
        right += 1
    while left > 0 and edges[right] - edges[left - 1] <= room:
        left -= 1
    return left, right


def _cell(character: str) -> str:
    """What is shown for a character."""
    if character == "\t":
        return TAB
    if DIRECTIONS.match(character):
        return "\ufffd"
    return character if character.isprintable() or _width(character) == 0 else "\ufffd"


def _plain(text: str) -> str:
    """Text on one line that cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _width(cell: str) -> int:
    """How many columns of a terminal something takes."""
    if cell.isascii():
        return len(cell)
    category = unicodedata.category(cell[0])
    if category in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(cell[0]) in {"W", "F"} else 1
