"""Terminals in memory: one that cuts its lines when it becomes narrower, as xterm does, and one that breaks them, as most do."""

from __future__ import annotations

import io

import pyte


class CuttingScreen(pyte.HistoryScreen):  # type: ignore[misc]  # - pyte has no types
    """A screen whose lines are cut when it becomes narrower. Fewer rows push the first ones out, unless there are free ones."""

    columns: int
    lines: int

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows, history=1000, ratio=0.001)

    def set_size(self, columns: int, rows: int) -> None:
        """The window has another size."""
        self._push_out(max(self.cursor.y + 1 - rows, 0))
        # The superclass would remove the first rows.
        self.resize(self.lines, columns)
        for row in range(rows, self.lines):
            self.buffer.pop(row, None)
        self.lines = rows
        self.set_margins()
        self.cursor.y = min(self.cursor.y, rows - 1)
        self.cursor.x = min(self.cursor.x, columns - 1)

    def _push_out(self, count: int) -> None:
        for _ in range(count):
            self.history.top.append(self.buffer[0])
            for row in range(1, self.lines):
                self.buffer[row - 1] = self.buffer[row]
            self.buffer.pop(self.lines - 1)
            self.cursor.y -= 1

    def texts(self) -> list[str]:
        """The lines of the screen, without those that are empty at its end."""
        return "\n".join(line.rstrip() for line in self.display).rstrip().split("\n")

    def all_texts(self) -> list[str]:
        """The lines above the screen, and those of the screen."""
        above = ["".join(line[x].data for x in range(self.columns)).rstrip() for line in self.history.top]
        return [*above, *self.texts()]


class BreakingScreen(CuttingScreen):
    """A screen that breaks lines that have become too long for it, and joins them when it becomes wider."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._joined: set[int] = set()
        """Of lines in the buffer: those that continue the one above them."""

    def set_size(self, columns: int, rows: int) -> None:
        """The window has another size."""
        logical: list[list[pyte.screens.Char]] = []
        at = (0, 0)
        for y in range(self.lines):
            line = self.buffer[y]
            cells = [line[x] for x in range(self.columns)]
            while cells and cells[-1].data == " ":
                cells.pop()
            continues = id(line) in self._joined and bool(cells) and bool(logical)
            if continues:
                logical[-1] += cells
            else:
                logical.append(cells)
            if y == self.cursor.y:
                before = len(logical[-1]) - len(cells) if continues else 0
                at = (len(logical) - 1, before + self.cursor.x)
        self._put(logical, at, columns, rows)

    def _put(
        self, logical: list[list[pyte.screens.Char]], at: tuple[int, int], columns: int, rows: int
    ) -> None:
        while logical and not logical[-1] and len(logical) - 1 > at[0]:
            logical.pop()
        broken: list[tuple[list[pyte.screens.Char], bool]] = []
        cursor = (0, 0)
        for number, cells in enumerate(logical):
            pieces = [cells[i : i + columns] for i in range(0, len(cells), columns)] or [[]]
            if number == at[0]:
                row, column = divmod(at[1], columns)
                row, column = (len(pieces) - 1, columns - 1) if row >= len(pieces) else (row, column)
                cursor = (len(broken) + row, column)
            broken += [(piece, bool(place)) for place, piece in enumerate(pieces)]
        out = max(cursor[0] + 1 - rows, len(broken) - rows if cursor[0] >= len(broken) - 1 else 0, 0)
        self.buffer.clear()
        self._joined.clear()
        self.resize(self.lines, columns)
        self.lines = rows
        self.set_margins()
        for row, (piece, joined) in enumerate(broken[: out + rows]):
            line = self.buffer[row - out] if row >= out else self._above()
            for x, cell in enumerate(piece):
                line[x] = cell
            if joined and row >= out:
                self._joined.add(id(line))
        self.cursor.y, self.cursor.x = cursor[0] - out, cursor[1]

    def _above(self) -> dict[int, pyte.screens.Char]:
        line: dict[int, pyte.screens.Char] = pyte.screens.StaticDefaultDict(self.default_char)
        self.history.top.append(line)
        return line


class ScreenStream(io.StringIO):
    """A stream that is a terminal; what is written to it is on a screen."""

    encoding = "utf-8"

    def __init__(self, screen: CuttingScreen) -> None:
        super().__init__()
        self.screen = screen
        self.frames: list[str] = []
        self._stream = pyte.Stream(screen)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no descriptor")

    def write(self, text: str) -> int:
        self.frames.append(text)
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def type(self, text: str) -> None:
        """What a person types is shown by the terminal."""
        self._stream.feed(text.replace("\n", "\r\n"))
