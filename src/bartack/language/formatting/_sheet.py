"""The sheet a program is laid out on: texts, the separators between them, and how they become lines.

Knows nothing of the language. A *group* is a list in brackets: its soft separators are blanks, or nothing, while it fits on
the line, and newlines otherwise. Lines are decided in one pass from left to right, so time is linear in the number of pieces.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType

WIDTH = 100
"""How long a line may become by a list."""
STEP = "    "


Sep = NewType("Sep", int)
"""What stands between two texts."""
NONE: Final = Sep(0)
BLANK: Final = Sep(1)
SOFT: Final = Sep(2)
"""Nothing, or a newline in a broken group."""
SOFT_BLANK: Final = Sep(3)
"""A blank, or a newline in a broken group."""
LINE: Final = Sep(4)
"""A newline."""

# Kinds of pieces. They are plain numbers, and so are separators: members of enumerations are slow to reach.
_TEXT, _SEP, _OPEN, _CLOSE, _INDENT, _DEDENT, _COMMA, _NEWLINES, _COMMENT = range(9)


class Piece(NamedTuple):
    """One piece of a sheet.

    `text` is what is written, or added to the indentation. `number` is a separator (also the one a group closes with), a
    count of newlines, or for a comment whether it stands alone. `blank` asks for a blank line before it, `deeper` for more
    indentation, where it begins a line.
    """

    kind: int
    text: str = ""
    number: int = 0
    blank: bool = False
    deeper: bool = False


class Group(NamedTuple):
    """What is known about a group before it is measured."""

    broken: bool
    """It has several lines, however short it is."""
    hugs: bool
    """Its one element has brackets of its own, and is broken instead of it."""
    kept: bool = False
    """It stays on its line, however long that becomes."""


class Sheet:
    """Pieces in the order of the text."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.groups: dict[int, Group] = {}
        self.closed: dict[int, int] = {}
        self.open: list[int] = []
        self.buffer: list[str] = []
        self.text = self.buffer.append  # writes text, which may have several lines

    def push(self, *pieces: Piece) -> None:
        """Append pieces to the text that has been written."""
        if self.buffer:
            self.pieces.append(Piece(_TEXT, "".join(self.buffer)))
            self.buffer.clear()
        self.pieces.extend(pieces)

    def separate(self, sep: Sep, *, blank: bool = False) -> None:
        """Separate what stands before from what follows."""
        if sep == BLANK and (self.buffer or self.pieces[-1].kind != _COMMENT):
            self.buffer.append(" ")
        elif sep:
            self.push(Piece(_SEP, "", sep, blank))

    def comment(self, text: str, *, alone: bool, blank: bool, deeper: bool) -> None:
        """Write a comment, on a line of its own or after what stands before it."""
        self.push(Piece(_COMMENT, text, int(alone), blank, deeper))

    def open_group(self, group: Group) -> None:
        """Begin a group, after its opening bracket."""
        self.push(Piece(_OPEN))
        self.open.append(len(self.pieces) - 1)
        self.groups[len(self.pieces) - 1] = group

    def close_group(self, sep: Sep) -> None:
        """End the innermost group with a separator, in front of its closing bracket."""
        self.push(Piece(_CLOSE, "", sep))
        self.closed[self.open.pop()] = len(self.pieces) - 1

    def last_comma(self) -> None:
        """Write the comma that only a broken group has after its last element."""
        self.push(Piece(_COMMA))

    def indent(self, text: str = STEP) -> None:
        """Indent the lines that follow by `text` more."""
        self.push(Piece(_INDENT, text))

    def dedent(self) -> None:
        """Take the last `indent` back."""
        self.push(Piece(_DEDENT))

    def newlines(self, count: int) -> None:
        """Write newlines inside a text, and the indentation of the line after them."""
        self.push(Piece(_NEWLINES, "", count))

    def blank_lines(self, count: int) -> None:
        """Write newlines inside a text whose last line is continued elsewhere."""
        if count:
            self.text("\n" * count)

    def printed(self) -> str:
        """All pieces as text, with a newline at the end."""
        self.push()
        return _Printer(self).printed()


class _Printer:
    """Writes the pieces of a sheet."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.out: list[str] = []
        self.column = 0
        self.indents = [""]
        self.broken = [False]
        self.at_edge = True  # nothing stands on a line of its own since the last opening bracket
        self.needs_line = False  # a comment stands before what follows
        self.widths, self.hard = _measured(sheet)

    def printed(self) -> str:
        """Write everything."""
        write = (
            *(self.text, self.sep, self.open, self.close),
            *(self.indent, self.dedent, self.comma, self.newlines, self.comment),
        )
        for index, piece in enumerate(self.sheet.pieces):
            write[piece.kind](piece, index)
        if self.out:
            self.out.append("\n")
        return "".join(self.out)

    def text(self, piece: Piece, _index: int) -> None:
        text = piece.text
        if self.needs_line:
            self.line(deeper=True)
        self.out.append(text)
        newline = text.rfind("\n")
        self.column = self.column + len(text) if newline < 0 else len(text) - newline - 1

    def sep(self, piece: Piece, _index: int) -> None:
        sep = piece.number
        if sep == LINE or (sep >= SOFT and self.broken[-1]):
            self.line(blank=piece.blank)
        elif self.needs_line:
            self.line(deeper=True)
        elif sep != SOFT:
            self.out.append(" ")
            self.column += 1

    def line(self, *, blank: bool = False, deeper: bool = False) -> None:
        """Begin a line."""
        indent = self.indents[-1] + STEP if deeper else self.indents[-1]
        start = "" if not self.out else "\n\n" if blank and not self.at_edge else "\n"
        self.out.append(start + indent)
        self.column = len(indent)
        self.at_edge = False
        self.needs_line = False

    def comment(self, piece: Piece, _index: int) -> None:
        text = piece.text
        if piece.number or self.needs_line or not self.out:
            self.line(blank=piece.blank, deeper=piece.deeper)
        else:
            text = f"  {text}"
        self.out.append(text)
        self.needs_line = True

    def newlines(self, piece: Piece, _index: int) -> None:
        self.out.append("\n" * piece.number + self.indents[-1])
        self.column = len(self.indents[-1])

    def open(self, _piece: Piece, index: int) -> None:
        broken, hugs, kept = self.sheet.groups[index]
        if not broken and not hugs and not kept:
            broken = self.column + self.width(index) > WIDTH
        self.broken.append(broken)
        self.indents.append(self.indents[-1] + STEP if broken else self.indents[-1])
        self.at_edge = self.at_edge or broken

    def width(self, index: int) -> int:
        """The width of the group at `index` with its closing bracket, or of what is on its first line anyway."""
        hard, closed = self.hard[index], self.sheet.closed[index]
        if hard > closed:
            return self.widths[closed + 1] - self.widths[index] + 1
        text = self.sheet.pieces[hard].text if self.sheet.pieces[hard].kind == _TEXT else ""
        return self.widths[hard] - self.widths[index] + max(text.find("\n"), 0)

    def close(self, piece: Piece, index: int) -> None:
        self.indents.pop()
        self.sep(piece, index)
        self.broken.pop()

    def comma(self, _piece: Piece, _index: int) -> None:
        if self.broken[-1]:
            self.out.append(",")

    def indent(self, piece: Piece, _index: int) -> None:
        self.indents.append(self.indents[-1] + piece.text)
        self.broken.append(False)
        self.at_edge = True

    def dedent(self, _piece: Piece, _index: int) -> None:
        self.indents.pop()
        self.broken.pop()


def _measured(sheet: Sheet) -> tuple[list[int], list[int]]:
    """For each piece, the width of all before it on one line, and the next piece that cannot be on the same line."""
    forced = [False]
    width = 0
    widths: list[int] = []
    ends: list[bool] = []
    for index, piece in enumerate(sheet.pieces):
        kind = piece.kind
        widths.append(width)
        soft = kind in {_SEP, _CLOSE} and piece.number != LINE
        ends.append(
            kind in {_NEWLINES, _COMMENT}
            or (kind == _SEP and piece.number == LINE)
            or (kind == _TEXT and "\n" in piece.text)
            or (soft and forced[-1] and piece.number >= SOFT)
        )
        if kind == _TEXT:
            width += len(piece.text)
        elif soft:
            width += piece.number in {BLANK, SOFT_BLANK}
        if kind == _OPEN:
            forced.append(sheet.groups[index].broken)
        elif kind == _INDENT:
            forced.append(False)
        elif kind in {_CLOSE, _DEDENT}:
            forced.pop()
    widths.append(width)
    return widths, _following(ends)


def _following(ends: list[bool]) -> list[int]:
    """For each index, the first one from there on that is true, or the length."""
    found = len(ends)
    following = [found] * len(ends)
    for index in range(len(ends) - 1, -1, -1):
        if ends[index]:
            found = index
        following[index] = found
    return following
