"""What a power cut leaves: files and directories that know which of their changes are durable and which are only cached.

The model, which is as unkind as real disks are allowed to be:

- A file is written back in sectors of 512 bytes. Until it is synced, each sector may be found in any version it ever had since
  the last sync, and the file in any size it ever had, all independently. That gives torn and reordered writes, files that grew
  without their data (zeros), and old bytes that come back after a truncate.
- A directory's names change one operation at a time. Until the directory is synced, each of them may or may not have happened,
  independently. A rename inside one directory happens as a whole; across two directories its halves are separate.
- A sector that a failed sync has dropped is still seen by readers, may or may not be on the disk, and no later sync writes it
  unless it is written again.

This file owns that model and nothing else. ``disk.py`` puts paths, descriptors and faults around it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple

SECTOR = 512


class Doubt(NamedTuple):
    """One thing that a power cut decides.

    ``versions`` says how many outcomes there are: 0 is what was durable, the highest is what the cache holds.
    """

    kind: Literal["name", "size", "sector"]
    path: str
    place: int
    """Number of the operation in its directory, or of the sector in its file; 0 for a size."""
    versions: int


Choose = Callable[[Doubt], int]
"""Decides a doubt: returns the version that is found after the power cut."""


def keep_nothing(doubt: Doubt) -> int:
    """Everything that was not synced is gone."""
    del doubt
    return 0


def keep_everything(doubt: Doubt) -> int:
    """Everything that was not synced was written all the same."""
    return doubt.versions - 1


def keep_only(*kinds: str) -> Choose:
    """Keep all unsynced changes of these kinds and none of the others."""
    return lambda doubt: doubt.versions - 1 if doubt.kind in kinds else 0


def keep_some(random: Random) -> Choose:
    """Keep a random part, seldom or often, evenly over the versions."""
    bias = random.choice((0.1, 0.3, 0.5, 0.7, 0.9))

    def choose(doubt: Doubt) -> int:
        return doubt.versions - 1 if random.random() < bias else random.randrange(doubt.versions)

    return choose


class File:
    """A file's bytes: those that readers see, those on the disk, and every version in between."""

    def __init__(self, number: int, content: bytes = b"") -> None:
        self.number = number
        self.links = 0
        self.locked_by: int | None = None
        self.content = bytearray(content)
        self._durable = content
        self._sectors: dict[int, list[bytes]] = {}
        self._sizes: list[int] = []
        self._dropped: set[int] = set()
        self._holes: list[tuple[int, int]] = []

    @property
    def backed(self) -> int:
        """Bytes of space that the file takes; a part that was never written takes none."""
        return len(self.content) - sum(end - start for start, end in self._holes)

    def cost(self, offset: int, size: int) -> int:
        """Bytes of space that a write would take."""
        end = offset + size
        growth = max(0, end - max(len(self.content), offset))
        return growth + sum(max(0, min(end, b) - max(offset, a)) for a, b in self._holes)

    def write(self, offset: int, data: bytes) -> None:
        """Write into the cache."""
        if not data:
            return
        size, end = len(self.content), offset + len(data)
        if offset > size:
            self._grow(offset)
        self.content[offset:end] = data
        self._fill(offset, end)
        self._note_sectors(offset // SECTOR, (end - 1) // SECTOR + 1)
        if len(self.content) != size:
            self._sizes.append(len(self.content))

    def truncate(self, size: int) -> None:
        """Cut or extend in the cache."""
        before = len(self.content)
        if size > before:
            self._grow(size)
        elif size < before:
            del self.content[size:]
            self._holes = [(start, min(end, size)) for start, end in self._holes if start < size]
            self._note_sectors(size // SECTOR, (before - 1) // SECTOR + 1)
        if size != before:
            self._sizes.append(size)

    def sync(self) -> None:
        """Make durable what the cache knows to be unwritten; what a failed sync dropped is not part of that."""
        kept = {number: self._sectors[number] for number in self._dropped}
        newest = {number: versions[-1] for number, versions in self._sectors.items() if number not in kept}
        self._durable = self._image(len(self.content), newest) if kept else bytes(self.content)
        self._sectors = kept
        self._sizes.clear()

    def drop_unsynced(self) -> None:
        """A sync failed: the cache takes its pages for clean from here on."""
        self._dropped.update(self._sectors)

    def survive(self, path: str, choose: Choose) -> bytes:
        """The bytes that are found after a power cut."""
        size = len(self._durable)
        if self._sizes:
            picked = choose(Doubt("size", path, 0, 1 + len(self._sizes)))
            size = self._sizes[picked - 1] if picked else size
        found: dict[int, bytes] = {}
        for number, versions in self._sectors.items():
            if number * SECTOR < size:
                picked = choose(Doubt("sector", path, number, 1 + len(versions)))
                if picked:
                    found[number] = versions[picked - 1]
        return self._image(size, found)

    def _grow(self, size: int) -> None:
        self._holes.append((len(self.content), size))
        self.content.extend(bytes(size - len(self.content)))

    def _fill(self, offset: int, end: int) -> None:
        if self._holes:
            parts = [part for a, b in self._holes for part in ((a, min(b, offset)), (max(a, end), b))]
            self._holes = [(a, b) for a, b in parts if a < b]

    def _note_sectors(self, first: int, end: int) -> None:
        with memoryview(self.content) as content:
            for number in range(first, end):
                version = bytes(content[number * SECTOR : (number + 1) * SECTOR])
                self._sectors.setdefault(number, []).append(version)
        self._dropped.difference_update(range(first, end))

    def _image(self, size: int, sectors: dict[int, bytes]) -> bytes:
        if not sectors and size == len(self._durable):
            return self._durable
        image = bytearray(self._durable[:size].ljust(size, b"\0"))
        for number, version in sectors.items():
            start = number * SECTOR
            part = version.ljust(SECTOR, b"\0")[: max(0, size - start)]
            image[start : start + len(part)] = part
        return bytes(image)


class NameChange(NamedTuple):
    """One operation on the names of a directory, whole or not at all."""

    remove: str | None
    add: str | None
    node: Node | None

    def apply(self, names: dict[str, Node]) -> None:
        """Change ``names`` as this operation does, as far as its name is there."""
        if self.remove is not None:
            names.pop(self.remove, None)
        if self.add is not None and self.node is not None:
            names[self.add] = self.node


class Directory:
    """A directory's names: those that readers see, those on the disk, and the operations in between."""

    def __init__(self, number: int, names: dict[str, Node] | None = None) -> None:
        self.number = number
        self.names: dict[str, Node] = names or {}
        self._durable = dict(self.names)
        self._changes: list[NameChange] = []

    def change(self, *, remove: str | None = None, add: str | None = None, node: Node | None = None) -> None:
        """Change the names in the cache."""
        change = NameChange(remove, add, node)
        change.apply(self.names)
        self._changes.append(change)

    def sync(self) -> None:
        """Make the names durable."""
        for change in self._changes:
            change.apply(self._durable)
        self._changes.clear()

    def survive(self, path: str, choose: Choose) -> dict[str, Node]:
        """The names that are found after a power cut."""
        found = dict(self._durable)
        for place, change in enumerate(self._changes):
            if choose(Doubt("name", path, place, 2)):
                change.apply(found)
        return found


Node = File | Directory


def survive(root: Directory, choose: Choose) -> Directory:
    """The tree that is found after a power cut: all of it durable, nothing open, nothing locked."""
    known: dict[int, Node] = {}

    def revive(node: Node, path: str) -> Node:
        if node.number in known:
            return known[node.number]
        if isinstance(node, File):
            return known.setdefault(node.number, File(node.number, node.survive(path, choose)))
        found = known[node.number] = Directory(node.number)
        names = node.survive(path, choose)
        for name, child in names.items():
            _put(found, name, revive(child, f"{path}/{name}"))
        found.sync()
        return found

    revived = revive(root, "")
    assert isinstance(revived, Directory)
    return revived


def _put(directory: Directory, name: str, node: Node) -> None:
    directory.change(add=name, node=node)
    if isinstance(node, File):
        node.links += 1
