"""Copies of the workspace: a step that may have changed files is finished together with a copy of them.

A run that may be continued on another machine, with other files, must not have a finished step there without the files that it
left. So what ends such a step (the end of a command, the reply of an agent, the frame of a worker) is *held*: the core learns it
when a copy is made that began after it. Then the outcomes and the copy are one line of the journal.

- One copy is made at a time. What ends meanwhile waits for the next one, and shares it with all that does: a copy that had begun
  may have read the files before.
- If the files are as they were, there is no entry, and the steps just finish.
- A step of which the program says that it changes nothing (``changes=False``) is not held. If it changed files all the same, they
  are part of the next copy, and lost with the machine before that.
- What the process of a worker does after an end that is held is held, too, if the order matters: its result, and its own end.
- Until then the steps are open. If the hub dies, they are executed again, like all open steps.
- While a step takes long, there is a copy from time to time, marked ``during``.
- A copy that fails is tried again. After ``TRY_US`` the hub stops, and the run stays resumable: no step finishes without its copy.

The copies are made by ``hub/copier.py`` in a thread. Runs that keep none have no such desk (``core.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from bartack.journal import BlobRef
from bartack.runtime.kernel.actions import KeepCopy, PackCopy
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.state import entries as e
from bartack.runtime.state.copies import Pack
from bartack.runtime.state.worker_state import StepKey, Value

TRY_US: Final = 60_000_000
"""How long a copy that fails is tried again."""
AGAIN_S: Final = 1.0
"""The time between two tries."""
PACKS_MOST: Final = 32
"""A copy of more packs is put into one."""
PACKS_GROWN: Final = 3
"""So are packs that together are this many times as large as the largest of them: another machine fetches all of them first,"""
PACKS_LARGE: Final = 16 << 20
"""and have more bytes than this."""

End = Callable[[], None]


class _Held(NamedTuple):
    """Something that waits for a copy: the end of a step, or what has to come after one of the same worker."""

    path: str
    step: StepKey | None
    end: End


class CopyMade(msgspec.Struct, frozen=True):
    """A copy that was made.

    Attributes:
        copy: Its id.
        pack: What the copy before it does not have, in parts.
        head: See ``WorkspaceKept``, as for the others.
        refs: See there.
        left_out: See there.
        took_us: See there.
    """

    copy: str
    pack: list[BlobRef]
    head: str = ""
    refs: dict[str, str] = {}
    left_out: list[str] = []
    took_us: int = 0


class CopyDesk(Desk):
    """Holds the ends of steps until there is a copy of their files; see the module.

    Args:
        shared: See ``Desk``.
        during_s: How often a copy is made while a step takes long.
    """

    def __init__(self, shared: Shared, during_s: float) -> None:
        super().__init__(shared)
        self._during_us = int(during_s * 1e6)
        self._due_us = self.now_us() + self._during_us
        self._is_busy = False
        """Whether a copy is being made, or is tried again in a moment."""
        self._is_packing = False
        self._covered: list[_Held] = []
        """What the copy that is being made began after."""
        self._waiting: list[_Held] = []
        """What waits for the next one."""
        self._is_during = False
        """Whether other steps that may change files were under way when the copy was begun that is being made."""
        self._failing_since_us = 0

    @property
    def is_holding(self) -> bool:
        """Whether a step has ended and is not finished."""
        return bool(self._covered or self._waiting)

    def hold(self, path: str, step: StepKey | None, end: End) -> None:
        """A step of a worker has ended: ``end`` finishes it when there is a copy of its files."""
        self._waiting.append(_Held(path, step, end))
        if not self._is_busy:
            self._begin()

    def hold_after(self, path: str, end: End) -> bool:
        """Call ``end`` after what is held of a worker; ``False``: nothing is."""
        for held in (self._waiting, self._covered):
            if any(one.path == path for one in held):
                held.append(_Held(path, None, end))
                return True
        return False

    def tick(self) -> None:
        """Time has passed: make a copy if a step takes long."""
        if self._is_busy or self.now_us() < self._due_us:
            return
        self._due_us = self.now_us() + self._during_us
        if self._is_changing():
            self._begin()

    def _is_changing(self) -> bool:
        """Whether a step is under way that may change files, beside those that have ended."""
        ended = {held.step for held in (*self._covered, *self._waiting)}
        steps = (opened for worker in self.state.workers.values() for opened in worker.open.values())
        return any(opened.may_change_files and opened.key not in ended for opened in steps)

    def _begin(self) -> None:
        self._is_busy = True
        self._covered += self._waiting
        self._waiting = []
        self._is_during = self._is_changing()
        latest = self.state.copies.latest
        # It shows nothing of the state, and what it makes is of no use without an entry: it need not wait for the disk.
        self.turn.before_commit(KeepCopy("" if latest is None else latest.copy, self._is_during))

    # What became of it.

    def made(self, made: CopyMade | None) -> None:
        """A copy was made; ``None``: it would be the same as the one before it."""
        ends, self._covered = self._covered, []
        self._is_busy, self._failing_since_us = False, 0
        self._due_us = self.now_us() + self._during_us
        with self.turn.one_line():
            for held in ends:
                held.end()
            if made is not None:
                self._record(made)
        if self._waiting:
            self._begin()
        if not self._is_packing and _have_outgrown(self.state.copies.packs):
            self._pack()

    def _record(self, made: CopyMade) -> None:
        latest = self.state.copies.latest
        kept = e.WorkspaceKept(
            copy=made.copy,
            parent="" if latest is None else latest.copy,
            head=made.head,
            refs=made.refs,
            left_out=made.left_out,
            during=self._is_during,
            took_us=made.took_us,
        )
        self._record_pack(kept, made.pack)

    def _record_pack(self, data: e.WorkspaceKept | e.WorkspacePacked, pack: Sequence[BlobRef]) -> None:
        """A pack is whole in one line, however many parts it has."""
        *parts, last = pack
        self.turn.record(
            *((e.WorkspacePart(), Value(None, part)) for part in parts), (data, Value(None, last))
        )

    def failed(self) -> bool:
        """A copy could not be made; returns whether it was tried for so long that the hub has to stop."""
        if not self.is_holding:
            self._is_busy = False  # no step needs it, and there is another one soon
            return False
        now_us = self.now_us()
        self._failing_since_us = self._failing_since_us or now_us
        if now_us - self._failing_since_us >= TRY_US:
            return True
        self.timers.after(AGAIN_S, self._begin)
        return False

    def _pack(self) -> None:
        latest = self.state.copies.latest
        assert latest is not None
        self._is_packing = True
        self.turn.after_commit(PackCopy(latest.copy))

    def packed(self, copy: str, pack: Sequence[BlobRef]) -> None:
        """A copy is in one pack, which has these parts; none: that was not possible now."""
        self._is_packing = False
        if pack:
            self._record_pack(e.WorkspacePacked(copy=copy), pack)


def _have_outgrown(packs: Sequence[Pack]) -> bool:
    """Whether the packs of a copy are to become one."""
    sizes = [pack.size for pack in packs]
    return len(packs) > PACKS_MOST or sum(sizes) > max(PACKS_LARGE, PACKS_GROWN * max(sizes, default=0))
