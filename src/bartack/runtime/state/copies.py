"""The copies of the workspace that a journal has: the latest one, and what it is made of."""

from __future__ import annotations

from typing import NamedTuple

from bartack.journal import BlobRef
from bartack.runtime.state.entries import WorkspaceKept


class Pack(NamedTuple):
    """What a copy adds to the one before it.

    Attributes:
        copy: The id of the copy.
        parts: Where its objects are, in order.
    """

    copy: str
    parts: tuple[BlobRef, ...]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(part.size for part in self.parts)


class KeptCopies:
    """The copies of the workspace of a run.

    Attributes:
        first: The copy with which the run began; ``None`` if it keeps none.
        first_pack: What that is made of.
        latest: The files as a machine that continues the run needs them.
        packs: What the latest copy is made of, in order; the first needs nothing else.
    """

    first: WorkspaceKept | None = None
    first_pack: Pack | None = None
    latest: WorkspaceKept | None = None

    def __init__(self) -> None:
        self.packs: list[Pack] = []
        self._parts: list[BlobRef] = []
        """Those of a pack whose last part comes later in the same line."""

    @property
    def left_out(self) -> list[str]:
        """What the first and the latest copy do not have, one sentence each.

        What the first one left out is not in the workspace of a node, so that later ones do not name it.
        """
        copies = [copy for copy in (self.first, self.latest) if copy is not None]
        return [*dict.fromkeys(sentence for copy in copies for sentence in copy.left_out)]

    def add_part(self, ref: BlobRef) -> None:
        """The next pack begins with this, or continues with it; ``add`` and ``replace`` have its last part."""
        self._parts.append(ref)

    def _take_pack(self, copy: str, last: BlobRef) -> Pack:
        parts, self._parts = self._parts, []
        return Pack(copy, (*parts, last))

    def add(self, copy: WorkspaceKept, ref: BlobRef) -> None:
        """There is a later copy."""
        pack = self._take_pack(copy.copy, ref)
        if self.first is None:
            self.first, self.first_pack = copy, pack
        self.latest = copy
        self.packs.append(pack)

    def replace(self, copy: str, ref: BlobRef) -> None:
        """All packs up to that of a copy are one pack from now on."""
        packed = self._take_pack(copy, ref)
        known = [pack.copy for pack in self.packs]
        if copy in known:
            # The same files may have been kept twice, with others in between.
            last = len(known) - 1 - known[::-1].index(copy)
            self.packs[: last + 1] = [packed]
