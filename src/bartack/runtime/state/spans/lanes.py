"""The lanes of a timeline: the steps of one path, and above them a pyramid of blocks, so that any zoom is drawn from few of them.

A block stands for eight steps that are over, one of the next level for four such blocks, and so on. The steps of a block follow
each other on their path. Only a step that was open for long is in a later block. Steps that are in no block yet are *pending*.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from typing import Final

from bartack.runtime.state.spans.columns import OPEN, Intervals
from bartack.runtime.state.spans.rows import Bar, Began
from bartack.runtime.state.timeline import StepStatus

LEAF: Final = 8
"""The steps of a block of the first level."""
FAN: Final = 4
"""The blocks of a block of a higher level."""

STATUSES: Final[tuple[StepStatus, ...]] = ("open", "finished", "failed", "undone", "aborted")
"""The statuses of steps, in the order of their numbers."""
OPENED, FINISHED, FAILED, UNDONE, ABORTED = range(5)
STATUS_BITS: Final = 7
AFTER: Final = 8
"""In the column of statuses: the beginning of the step is not known."""

_RANK: Final = (3, 0, 4, 1, 2)
"""Which status of several steps people should know first, by the number of the status: the highest."""
_BEGAN: Final[tuple[Began, Began]] = ("exact", "after")
_NEVER: Final = 1 << 62


class StepTimes:
    """The columns of steps that lanes are drawn from.

    Attributes:
        times: The time of each entry, by its place.
        rows: From which entry to which each step lasts.
        began: When each began.
        kind: The number of its kind.
        status: The number of its status, and ``AFTER``.
        last_undo: The last entry that undid steps.
    """

    def __init__(self, times: array[int]) -> None:
        self.times = times
        self.rows = Intervals()
        self.began = array("q")
        self.kind = array("H")
        self.status = array("B")
        self.last_undo = 0

    def status_at(self, row: int, seq: int) -> int:
        """The number of the status of a step after an entry."""
        return OPENED if self.rows.closed[row] > seq else self.status[row] & STATUS_BITS


class _Level:
    """The blocks of one level, in columns."""

    def __init__(self) -> None:
        self.begin = array("q")
        self.end = array("q")
        self.kind = array("H")
        self.status = array("B")
        self.count = array("I")
        self.first = array("I")
        self.last = array("I")
        """The entry with which the last of its steps was over."""

    def __len__(self) -> int:
        return len(self.begin)

    def add(self, block: _Block) -> None:
        self.begin.append(block.begin)
        self.end.append(block.end)
        self.kind.append(block.kind)
        self.status.append(block.status)
        self.count.append(block.count)
        self.first.append(block.first)
        self.last.append(block.last)

    def cut(self, length: int) -> None:
        """Forget the blocks from this place on."""
        for column in (self.begin, self.end, self.kind, self.status, self.count, self.first, self.last):
            del column[length:]


class _Block:
    """A block that is being made of its parts."""

    __slots__ = ("_longest", "begin", "count", "end", "first", "kind", "last", "status")

    def __init__(self) -> None:
        self.begin = _NEVER
        self.end = -_NEVER
        self.kind = self.first = self.count = self.last = 0
        self.status = FINISHED
        self._longest = -1

    def add(self, begin: int, end: int, kind: int, status: int, count: int, first: int, last: int) -> None:
        if not self.count:
            self.first = first
        self.last = max(self.last, last)
        self.count += count
        self.begin = min(self.begin, begin)
        self.end = max(self.end, end)
        if end - begin > self._longest:
            self._longest, self.kind = end - begin, kind
        if _RANK[status] > _RANK[self.status]:
            self.status = status


class LaneSteps:
    """The steps of one path.

    Attributes:
        id: Its number.
        path: The path.
        worker: The path of its worker.
        last_us: When the last of its steps had its outcome.
    """

    def __init__(self, number: int, path: str, worker: str, steps: StepTimes, last_us: int) -> None:
        self.id = number
        self.path = path
        self.worker = worker
        self.last_us = last_us
        self._steps = steps
        self._settled = array("I")
        """The steps of blocks, in the order of these."""
        self._pending: list[int] = []
        self._most_pending = 2 * LEAF
        self._levels: list[_Level] = []
        self._begin = _NEVER
        self._end = -_NEVER

    def rows(self) -> list[int]:
        """Its steps, in the order in which they began."""
        return sorted([*self._settled, *self._pending])

    def add(self, row: int) -> None:
        """A step begins, or its outcome came without its beginning."""
        self._pending.append(row)
        if len(self._pending) >= self._most_pending:
            self._settle()

    def redo(self, changed: Collection[int]) -> None:
        """The statuses of these steps have changed: make their blocks anew."""
        left = set(changed).difference(self._pending)
        place = len(self._settled)
        while left and place:
            place -= 1
            left.discard(self._settled[place])
        leaf = place // LEAF
        kept = leaf
        for level in self._levels:
            level.cut(kept)
            kept //= FAN
        for number in range(leaf, len(self._settled) // LEAF):
            self._add_leaf(number)

    def is_in(self, from_us: int, to_us: int) -> bool:
        """Whether anything of it is between two moments, or may be."""
        if self._begin <= to_us and self._end >= from_us:
            return True
        pieces = _Pieces(self._steps, from_us, to_us, 0)
        pieces.add_rows(self._pending)
        return bool(pieces.found)

    def draw(self, from_us: int, to_us: int, least_us: int, seq: int | None = None) -> list[Bar]:
        """The bars between two moments, as of an entry; steps shorter than ``least_us`` are merged with their neighbours."""
        pieces = _Pieces(self._steps, from_us, to_us, least_us, seq)
        covered = 0
        for height in reversed(range(len(self._levels))):
            self._take_blocks(pieces, height, covered, len(self._levels[height]))
            covered = len(self._levels[height]) * FAN
        pieces.add_rows(self._pending)
        return pieces.merge()

    def _take_blocks(self, pieces: _Pieces, height: int, first: int, last: int) -> None:
        """Take the blocks of a level that are between the two moments, or what they are made of where they are wide."""
        level, from_us, to_us, least = self._levels[height], pieces.from_us, pieces.to_us, pieces.least_us
        for place, begin, end in zip(
            range(first, last), level.begin[first:last], level.end[first:last], strict=True
        ):
            if end < from_us or begin > to_us:
                continue
            if end - begin < least and pieces.stands(level.last[place], level.status[place]):
                pieces.found.append(
                    (
                        begin,
                        end,
                        level.kind[place],
                        level.status[place],
                        level.count[place],
                        level.first[place],
                    )
                )
            elif height:
                self._take_blocks(pieces, height - 1, place * FAN, place * FAN + FAN)
            else:
                pieces.add_rows(self._settled[place * LEAF : place * LEAF + LEAF])

    def _settle(self) -> None:
        """Make blocks of pending steps that are over, except for the last ones."""
        closed = self._steps.rows.closed
        over = [row for row in self._pending if closed[row] != OPEN]
        count = (len(over) - 1) // LEAF * LEAF
        if count > 0:
            settled = over[:count]
            self._settled.extend(settled)
            gone = set(settled)
            self._pending = [row for row in self._pending if row not in gone]
            for number in range(len(self._settled) // LEAF - count // LEAF, len(self._settled) // LEAF):
                self._add_leaf(number)
        self._most_pending = len(self._pending) + LEAF if len(self._pending) > LEAF else 2 * LEAF

    def _add_leaf(self, number: int) -> None:
        steps, block = self._steps, _Block()
        closed, times = steps.rows.closed, steps.times
        for row in self._settled[number * LEAF : number * LEAF + LEAF]:
            status = steps.status[row] & STATUS_BITS
            block.add(steps.began[row], times[closed[row]], steps.kind[row], status, 1, row, closed[row])
        self._begin = min(self._begin, block.begin)
        self._end = max(self._end, block.end)
        self._add_block(0, block)

    def _add_block(self, height: int, block: _Block) -> None:
        if height == len(self._levels):
            self._levels.append(_Level())
        level = self._levels[height]
        level.add(block)
        if len(level) % FAN:
            return
        above = _Block()
        for place in range(len(level) - FAN, len(level)):
            above.add(
                level.begin[place],
                level.end[place],
                level.kind[place],
                level.status[place],
                level.count[place],
                level.first[place],
                level.last[place],
            )
        self._add_block(height + 1, above)


_Piece = tuple[int, int, int, int, int, int]
"""A step or a block: beginning, end, kind, status, number of steps, first row."""


class _Pieces:
    """Steps and blocks of a lane that are between two moments."""

    def __init__(
        self, steps: StepTimes, from_us: int, to_us: int, least_us: int, seq: int | None = None
    ) -> None:
        self.from_us = from_us
        self.to_us = to_us
        self.least_us = least_us
        self.found: list[_Piece] = []
        self._steps = steps
        self._seq = seq

    def stands(self, last: int, status: int) -> bool:
        """Whether a block was the same then: its steps were over by the entry ``last``, and none of them was undone since."""
        seq = self._seq
        return seq is None or (last <= seq and (status == FINISHED or self._steps.last_undo <= seq))

    def add_rows(self, rows: Iterable[int]) -> None:
        """Add steps, one by one."""
        if self._seq is not None:
            self._add_rows_of(self._seq, rows)
            return
        steps, found = self._steps, self.found
        closed, times, began = steps.rows.closed, steps.times, steps.began
        kinds, statuses = steps.kind, steps.status
        from_us, to_us, last = self.from_us, self.to_us, steps.times[-1]
        for row in rows:
            begin = began[row]
            if begin > to_us:
                continue
            ended = closed[row]
            end = last if ended == OPEN else times[ended]
            if end >= from_us:
                found.append((begin, end if end > begin else begin, kinds[row], statuses[row], 1, row))

    def _add_rows_of(self, seq: int, rows: Iterable[int]) -> None:
        """Add steps as they were after an entry: those that began later are not there, and those that ended later are open."""
        steps = self._steps
        last = steps.times[seq]
        for row in rows:
            begin, closed = steps.began[row], steps.rows.closed[row]
            if steps.rows.opened[row] > seq or begin > self.to_us:
                continue
            end = last if closed > seq else steps.times[closed]
            if end >= self.from_us:
                status = steps.status_at(row, seq) | steps.status[row] & AFTER
                self.found.append((begin, max(begin, end), steps.kind[row], status, 1, row))

    def merge(self) -> list[Bar]:
        """Make bars: pieces that are too narrow to be seen one by one are merged with those that begin where they are."""
        # One loop over local names: a whole timeline is this loop. What is sorted is almost in order.
        self.found.sort()
        least, bars, rank = self.least_us, list[Bar](), _RANK
        opened = self._steps.rows.opened
        edge = -_NEVER
        """Up to here the bar that is being made takes further narrow pieces."""
        current: _Piece = (0, 0, 0, 0, 0, 0)
        longest = 0
        for piece in self.found:
            begin, end, kind, status, count, _ = piece
            if begin < edge and end - begin < least:
                start, until, before, known, steps, row = current
                if end - begin > longest:
                    longest, before = end - begin, kind
                if rank[status & STATUS_BITS] > rank[known & STATUS_BITS]:
                    known = status
                current = (start, end if end > until else until, before, known, steps + count, row)
                continue
            if current[4]:
                bars.append(_bar(current, opened))
            current = piece
            longest = end - begin
            edge = begin + least if longest < least else -_NEVER
        if current[4]:
            bars.append(_bar(current, opened))
        return bars


def _bar(piece: _Piece, opened: array[int]) -> Bar:
    begin, end, kind, status, count, first = piece
    after = _BEGAN[status >> 3 & 1]
    return Bar(begin, end, kind, STATUSES[status & STATUS_BITS], count, opened[first], first, after)
