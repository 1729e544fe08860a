"""The picture of the terminal: ``pictures.py`` makes it.

``make`` runs ``bartack demo`` under a pseudo terminal, keeps the screen with pyte, and draws some of its states one after the
other: one of each agent at work, those around each kill, and the end. Every run comes to them, so that a test can compare all
frames of the picture with a run.
The picture has no script: frames are shown by CSS, in light or dark colours as the reader's system has them, and as one still
frame where less motion is wanted. Ids, times and paths of the machine are replaced by fixed ones.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import pyte

COLUMNS: Final = 100
ROWS: Final = 30
FRAMES: Final = 14
AT_WORK: Final = re.compile(r"● discount +(?:implement|implement changes|review|update spec) \w+  [a-z].*")
"""The row of the live view of a task whose agent is at work and has said something."""
KILLED: Final = " s  kill -9 of all"
SHOWN_S: Final = 1.4
LAST_S: Final = 8.0
LIMIT_S: Final = 300.0

_UPDATING: Final = b"\x1b[?2026h"
_UPDATED: Final = b"\x1b[?2026l"
_END_OF_STATE: Final = re.compile(rb"(?<=\x1b\[\?2026l)|(?<=\n)")
_CELL: Final = (8.4, 18)
_MARGIN: Final = 16
_CLASSES: Final = {"red": "r", "green": "g", "cyan": "c", "brown": "y"}
FIXED: Final = (
    (rb"run-\d{8}-\d{6}-[0-9a-f]{8}", b"run-20260101-090000-5f3a9c21"),
    ("run-…".encode() + rb"[0-9a-f]{8}", "run-…5f3a9c21".encode()),
    (rb"ik:[0-9a-f]{16}", b"ik:5f0c2a9e1b7d4c38"),
    (rb"ik:[0-9a-f]{8}\b", b"ik:5f0c2a9e"),
    (rb"snap-[0-9a-f]{12}", b"snap-cb5124fd029d"),
    (rb"\b[0-9a-f]{12}\b", b"5f0c2a9e1b7d"),
    (rb"\b\d\d:\d\d:\d\d\b", b"09:00:00"),
)
"""What differs from run to run, and what the picture has instead: of the same length, so that lines break at the same place."""


class Part(NamedTuple):
    """Cells of one line with the same style."""

    column: int
    text: str
    style: str


Frame = tuple[tuple[Part, ...], ...]
"""The lines of a screen."""


class Shot(NamedTuple):
    """A state of a screen: when it was there first, and what it shows."""

    at_s: float
    frame: Frame


def make() -> str:
    """The picture, of a demo that runs now."""
    program = str(Path(sys.executable).with_name("bartack"))
    return draw(choose(list(record([program, "demo"]))))


def record(command: Sequence[str]) -> Iterator[Shot]:
    """Run a command under a pseudo terminal; return each state of its screen.

    A state is there after a whole synchronised update, after a whole line outside of one, and at the end, however the output comes
    in pieces.
    """
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    began, is_updating = time.monotonic(), False

    def shoot() -> Shot:
        frame = tuple(tuple(_parts(screen, row)) for row in range(ROWS))
        return Shot(time.monotonic() - began, frame)

    rest = b""
    for chunk in _output(command):
        *parts, rest = _END_OF_STATE.split(rest + chunk)
        for part in parts:
            stream.feed(fix(part))
            is_updating = not part.endswith(_UPDATED) and (is_updating or _UPDATING in part)
            if not is_updating:
                yield shoot()
    stream.feed(fix(rest))
    yield shoot()


def _output(command: Sequence[str]) -> Iterator[bytes]:
    left_out = {"CI", "NO_COLOR", "COLUMNS"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    path = os.pathsep.join(
        (str(Path(sys.executable).parent), kept.get("PATH", os.defpath))
    )  # as in an activated environment
    terminal, other_side = pty.openpty()
    fcntl.ioctl(other_side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = subprocess.Popen(  # noqa: S603 - the command of this program
        list(command),
        stdin=other_side,
        stdout=other_side,
        stderr=other_side,
        start_new_session=True,
        env={**kept, "PATH": path, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
    )
    os.close(other_side)
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # Linux: the other side is closed
                break
            if not chunk:  # macOS: likewise
                break
            yield chunk
    os.close(terminal)
    child.wait(10)


def fix(text: bytes) -> bytes:
    """Replace ids, times and paths of this machine, and dim text, which pyte does not have."""
    text = text.replace(sys.executable.encode(), b"python3").replace(b"\x1b[2m", b"\x1b[37m")
    for pattern, instead in FIXED:
        text = re.sub(pattern, instead, text)
    return text


def _parts(screen: pyte.Screen, row: int) -> Iterator[Part]:
    line = screen.buffer[row]
    start, text, style = 0, "", ""
    for column in range(COLUMNS):
        cell = line[column]
        found = _CLASSES.get(cell.fg, "d" if cell.fg == "white" else "") + ("b" if cell.bold else "")
        if found != style and text.strip():
            yield Part(start, text.rstrip(), style)
        if found != style:
            start, text, style = column, "", found
        text += cell.data
    if text.strip():
        yield Part(start, text.rstrip(), style)


def choose(shots: Sequence[Shot]) -> list[Frame]:
    """Choose the frames of the picture."""
    texts = [comparable(text(shot.frame)) for shot in shots]
    states = [shot for place, shot in enumerate(shots) if not place or texts[place] != texts[place - 1]]
    ends = [*(shot.at_s for shot in states[1:]), shots[-1].at_s]
    kills = [text(shot.frame).count(KILLED) for shot in states]
    chosen = {place for place in range(1, len(states)) if kills[place] > kills[place - 1]}
    chosen |= {place - 1 for place in chosen}
    for at_work, places in groupby(range(len(states)), key=lambda place: _at_work(states[place])):
        if at_work:
            chosen.add(max(places, key=lambda place: ends[place] - states[place].at_s))
    return [states[place].frame for place in sorted(chosen)[: FRAMES - 1]] + [shots[-1].frame]


def _at_work(shot: Shot) -> str:
    """The row of the agent at work, if it is the last line of the screen, without numbers."""
    found = AT_WORK.search(text(shot.frame).rstrip().rpartition("\n")[2])
    return "" if found is None else comparable(found[0])


def comparable(shown: str) -> str:
    """What two texts have in common that differ in blanks, times, counts and ids only."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "0", re.sub(r"\s", "", shown))


def text(frame: Frame) -> str:
    """The text of a frame, line by line."""
    lines: list[str] = []
    for parts in frame:
        line = ""
        for part in parts:
            line = line.ljust(part.column) + part.text
        lines.append(line.rstrip())
    return "\n".join(lines)


def draw(frames: Sequence[Frame]) -> str:
    """Draw frames as SVG."""
    width, height = COLUMNS * _CELL[0] + 2 * _MARGIN, ROWS * _CELL[1] + 2 * _MARGIN
    total = (len(frames) - 1) * SHOWN_S + LAST_S
    style = [_STYLE]
    groups: list[str] = []
    for number, frame in enumerate(frames):
        start, end = (100 * number * SHOWN_S / total), (100 * (number + 1) * SHOWN_S / total)
        last = number == len(frames) - 1
        if not last:
            before = "0%{visibility:hidden}" if number else ""
            style.append(
                f"@keyframes f{number}{{{before}{start:.2f}%{{visibility:visible}}{end:.2f}%{{visibility:hidden}}"
                "100%{visibility:hidden}}"
            )
        else:
            style.append(
                f"@keyframes f{number}{{0%{{visibility:hidden}}{start:.2f}%{{visibility:visible}}100%{{visibility:visible}}}}"
            )
        style.append(f"#f{number}{{animation:f{number} {total:.1f}s step-end infinite}}")
        groups.append(f'<g id="f{number}" class="f{" l" if last else ""}">{_draw_frame(frame)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">\n'
        "<title>bartack demo: a team is killed with kill -9 while it works, resumes, and nothing is paid for twice</title>\n"
        f"<style>{''.join(style)}</style>\n"
        f'<rect width="100%" height="100%" rx="8"/>\n' + "\n".join(groups) + "\n</svg>\n"
    )


_STYLE: Final = (
    "rect{fill:#fafafa}text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#24292f;white-space:pre}"
    ".r{fill:#b42318}.g{fill:#1a7f37}.c{fill:#0b7285}.y{fill:#8a6100}.d{fill:#6e7781}.b,.rb,.gb,.cb,.yb{font-weight:600}"
    "@media(prefers-color-scheme:dark){rect{fill:#161b22}text{fill:#e6edf3}.r{fill:#ff7b72}.g{fill:#56d364}.c{fill:#76e3ea}"
    ".y{fill:#e3b341}.d{fill:#8b949e}}.f{visibility:hidden}"
    "@media(prefers-reduced-motion:reduce){.f{animation:none!important}.l{visibility:visible}}"
)


def _draw_frame(frame: Frame) -> str:
    lines: list[str] = []
    for row, parts in enumerate(frame):
        y = _MARGIN + (row + 1) * _CELL[1] - 5
        for part in parts:
            indent = len(part.text) - len(part.text.lstrip())
            x = _MARGIN + (part.column + indent) * _CELL[0]
            kind = f' class="{part.style}"' if part.style else ""
            lines.append(f'<text x="{x:.0f}" y="{y}"{kind}>{escape(part.text.strip(), quote=False)}</text>')
    return "".join(lines)


def shown(svg: str) -> list[str]:
    """The texts of a picture, in their order."""
    return [unescape(re.sub("<[^>]*>", "", found)) for found in re.findall(r"<text[^>]*>.*?</text>", svg)]


def shown_frames(svg: str) -> list[list[str]]:
    """The lines of each frame of a picture."""
    return [_lines(group) for group in re.findall(r"<g .*?</g>", svg, re.DOTALL)]


def _lines(svg: str) -> list[str]:
    """The texts of a part of a picture, those of one row together."""
    rows: dict[str, str] = {}
    for row in re.findall(r'<text [^>]*y="(\d+)"', svg):
        rows.setdefault(row, "")
    for row in rows:
        rows[row] = " ".join(shown("".join(re.findall(rf'<text [^>]*y="{row}".*?</text>', svg))))
    return list(rows.values())
