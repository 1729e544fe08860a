"""What the formatter leaves together: a line that `# pw: ignore` speaks of must not become several.

Such a comment silences one line. Were that line split, or joined with another, the comment would silence something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import silenced_lines
from bartack.language.syntax._source import Source


class Kept:
    """The lines of a source that comments silence, and what on them stays as it is."""

    def __init__(self, source: Source, comments: Sequence[tree.Comment]) -> None:
        self._line = source.line_of
        self._silenced = silenced_lines(source, comments).keys()

    def has(self, offset: int) -> bool:
        """Whether an offset is on such a line."""
        return bool(self._silenced) and self._line(offset) in self._silenced

    def block(self, span: tuple[int, int], statements: Sequence[tree.Node]) -> bool:
        """Whether statements stay on the line of their brace."""
        if not self._silenced or not statements:
            return False
        opened, closed = self._line(span[0]), self._line(span[1] - 1)
        first, last = self._line(statements[0].start), self._line(statements[-1].end - 1)
        return (opened == first and opened in self._silenced) or (closed == last and closed in self._silenced)

    def list(self, span: tuple[int, int], elements: Sequence[tree.Node], *, broken: bool) -> bool:
        """Whether the lines of a list stay as they are."""
        if not self._silenced:
            return False
        first, last = self._line(span[0]), self._line(span[1] - 1)
        inside = [line for line in range(first, last + 1) if line in self._silenced]
        if first == last or not inside:
            return False
        begun = Counter(self._line(element.start) for element in elements)
        return not broken or any(begun[line] + (line == last) > 1 for line in inside)

    def together(self, units: Sequence[tree.Node], index: int) -> int:
        """The index of the last unit that begins on the same such line as the one at `index`."""
        if not self.has(units[index].start):
            return index
        line, last = self._line(units[index].start), index
        while last + 1 < len(units) and self._line(units[last + 1].start) == line:
            last += 1
        return last
