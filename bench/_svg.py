"""Plots as SVG: no library, no script, in light or dark colours as the reader's system has them.

A plot is a list of shapes with a height; ``picture`` puts panels below each other. Axes are logarithmic, since ratios are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from bench._report import show

TIMES: Final = "\u00d7"
WIDTH: Final = 820
MARGIN: Final = 16
NAMES: Final = 400
"""The width of the column of names."""
ROOM: Final = 90
"""The width of the column of values."""
ROW: Final = 22
HEAD: Final = 30
CHART: Final = 150
"""The height of a chart of lines."""
LONGEST: Final = 62
"""How many characters of a name fit."""
STYLE: Final = (
    "rect.page{fill:#fafafa}text{font:12px system-ui,-apple-system,Segoe UI,sans-serif;fill:#24292f}"
    ".t{font-weight:600;font-size:13px}.s{fill:#57606a}.n{text-anchor:end}.c{text-anchor:middle}"
    ".ours{fill:#0b6bcb}.other{fill:#9aa4af}.bad{fill:#b42318}line{stroke:#c9d1d9}"
    "line.w{stroke:#24292f;stroke-width:1.5}line.b{stroke:#57606a;stroke-dasharray:3 3}"
    "polyline{fill:none;stroke:#0b6bcb;stroke-width:2}"
    "@media(prefers-color-scheme:dark){rect.page{fill:#161b22}text{fill:#e6edf3}.s{fill:#8b949e}"
    ".ours{fill:#58a6ff}.other{fill:#6e7681}.bad{fill:#ff7b72}line{stroke:#30363d}"
    "line.w{stroke:#e6edf3}line.b{stroke:#8b949e}polyline{stroke:#58a6ff}}"
)


class Panel(NamedTuple):
    """Shapes, drawn from the top left corner of the panel on, and how high they are."""

    shapes: list[str]
    height: float


class Bar(NamedTuple):
    """A named value with the range of its middle half."""

    name: str
    value: float
    low: float
    high: float
    is_ours: bool


class Dot(NamedTuple):
    """A result as a multiple of its bound: from 1 on it is met."""

    name: str
    value: float
    low: float
    high: float
    text: str


class Line(NamedTuple):
    """A value at each of some sizes."""

    title: str
    points: Sequence[tuple[float, float]]


def picture(title: str, panels: Sequence[Panel]) -> str:
    """A whole file."""
    top: float = MARGIN
    parts: list[str] = []
    for panel in panels:
        parts += [f'<g transform="translate(0 {top:g})">', *panel.shapes, "</g>"]
        top += panel.height
    height = top + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" role="img">'
    page = f'<rect class="page" width="{WIDTH}" height="{height:g}"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", page, *parts, "</svg>\n"]
    )


def bars(title: str, unit: str, rows: Sequence[Bar], *, more_is_better: bool) -> Panel:
    """Values beside each other, longer bars for larger values, from zero on."""
    most = max(row.high for row in rows) or 1.0
    scale = (WIDTH - NAMES - ROOM - MARGIN) / most
    better = "longer is better" if more_is_better else "shorter is better"
    shapes = [_text(MARGIN, 14, title, "t"), _text(WIDTH - MARGIN, 14, f"{unit}, {better}", "s n")]
    for number, row in enumerate(rows):
        y = HEAD + number * ROW
        shapes += [
            _text(NAMES - 8, y + 11, _cut(row.name), "n"),
            f'<rect class="{"ours" if row.is_ours else "other"}" x="{NAMES}" y="{y}" '
            f'width="{max(row.value * scale, 1):.1f}" height="14" rx="2"/>',
            _range(NAMES + row.low * scale, NAMES + row.high * scale, y + 7),
            _text(NAMES + row.high * scale + 6, y + 11, show(row.value)),
        ]
    return Panel(shapes, HEAD + len(rows) * ROW + 14)


def dots(title: str, rows: Sequence[Dot]) -> Panel:
    """Multiples of a bound on a logarithmic axis, with a line where the bound is."""
    ends = [1.0, *(end for row in rows for end in (row.low, row.high, row.value))]
    across = _axis(min(ends), max(ends), NAMES, WIDTH - ROOM - MARGIN)
    bottom = HEAD + 14 + len(rows) * ROW
    shapes = [_text(MARGIN, 14, title, "t")]
    for tick in _decades(min(ends), max(ends)):
        x = across(tick)
        shapes += [
            f'<line class="{"b" if tick == 1 else "g"}" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD + 8}" y2="{bottom}"/>',
            _text(x, HEAD, "the bound" if tick == 1 else f"{tick:g} {TIMES}", "s c"),
        ]
    for number, row in enumerate(rows):
        y = HEAD + 14 + number * ROW
        kind = "ours" if row.value >= 1 else "bad"
        shapes += [
            _text(NAMES - 8, y + 11, _cut(row.name), "n"),
            _range(across(row.low), across(row.high), y + 7),
            f'<circle class="{kind}" cx="{across(row.value):.1f}" cy="{y + 7}" r="4.5"/>',
            _text(WIDTH - MARGIN, y + 11, row.text, "s n"),
        ]
    return Panel(shapes, bottom + 14)


def lines(title: str, head: str, found: Sequence[Line]) -> Panel:
    """How values change with a size, two charts beside each other, both axes logarithmic."""
    shapes = [_text(MARGIN, 14, title, "t"), _text(WIDTH - MARGIN, 14, f"by {head}", "s n")]
    wide = (WIDTH - 3 * MARGIN) / 2
    for number, line in enumerate(found):
        left = MARGIN + (number % 2) * (wide + MARGIN)
        top = HEAD + (number // 2) * (CHART + 10)
        shapes += _chart(line, left, top, wide)
    return Panel(shapes, HEAD + math.ceil(len(found) / 2) * (CHART + 10) + 14)


def _chart(line: Line, left: float, top: float, wide: float) -> Iterator[str]:
    sizes, values = [size for size, _ in line.points], [value for _, value in line.points]
    across = _axis(min(sizes), max(sizes), left + 36, left + wide - 36)
    # At least one decade high, so that a small change does not look like a large one.
    middle = math.sqrt(min(values) * max(values))
    up = _axis(min(*values, middle / 3.2), max(*values, middle * 3.2), top + CHART - 30, top + 38)
    yield _text(left, top + 12, _cut(line.title), "s")
    yield f'<line x1="{left:g}" x2="{left + wide:g}" y1="{top + CHART - 22}" y2="{top + CHART - 22}"/>'
    places = [(across(size), up(value)) for size, value in line.points]
    yield f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
    for (x, y), (size, value) in zip(places, line.points, strict=True):
        yield f'<circle class="ours" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
        yield _text(x, y - 8, show(value), "c")
        yield _text(x, top + CHART - 8, f"{size:,.0f}", "s c")


def _axis(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """From a value to a place, by logarithms; what is not positive is at the beginning."""
    low, high = max(low, 1e-9), max(high, 1e-9)
    wide = math.log(high / low) or 1.0
    return lambda value: begin + (end - begin) * math.log(max(value, low) / low) / wide


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _range(low: float, high: float, y: float) -> str:
    return f'<line class="w" x1="{low:.1f}" x2="{high:.1f}" y1="{y:g}" y2="{y:g}"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
