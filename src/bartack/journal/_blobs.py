"""Large values in files named by their content: ``blobs/<2 hex>/<62 hex>``.

A blob is written to a temporary name, synced and renamed, so a name is there only with its whole content. The same content has
the same name and is written once. Blobs are removed only by ``collect``, which runs while no process owns the journal.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator

from bartack.core.disk import Disk
from bartack.core.files import replace_file
from bartack.errors import BlobCorruptError, BlobMissingError
from bartack.journal._access import access
from bartack.journal._format import CHUNK
from bartack.journal.contract import BlobRef
from bartack.journal.veil import Veil
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import JournalBlobWritten

_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileBlobs:
    """The blobs of one journal. With a veil the secrets in them are hidden, and given back."""

    def __init__(
        self, directory: str, disk: Disk, telemetry: Telemetry = NO_TELEMETRY, veil: Veil | None = None
    ) -> None:
        self.directory = directory
        self._disk = disk
        self._telemetry = telemetry
        self._veil = veil
        self._settled: set[str] = set()
        """Directories whose own name is known to be durable, and blobs that are."""

    def put(self, content: bytes) -> BlobRef:
        """Keep ``content``; durable when it returns."""
        if self._veil is not None:
            content = self._veil.hide(content)
        ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content))
        path = self._path(ref)
        known = path in self._settled
        if not known:
            known = self._settle(path, ref, content)
            self._settled.add(path)
        if self._telemetry.wanted(JournalBlobWritten):
            self._telemetry.emit(JournalBlobWritten(size_bytes=ref.size, deduplicated=known))
        return ref

    def _settle(self, path: str, ref: BlobRef, content: bytes) -> bool:
        """Make a blob durable; returns whether it was there already."""
        shelf = os.path.dirname(path)
        self._settle_folder(self.directory)
        self._settle_folder(shelf)
        if self.holds(ref):
            # Its writer may have died before the name was durable.
            self._disk.sync_dir(shelf)
            return True
        replace_file(path, content, disk=self._disk)
        return False

    def get(self, ref: BlobRef) -> bytes:
        """The content, checked against its name and size."""
        content = self.verify(ref)
        return content if self._veil is None else self._veil.restore(content)

    def verify(self, ref: BlobRef) -> bytes:
        """The content as it is stored, with secrets hidden, checked against its name and size."""
        with access(self.directory):
            content = self._read(ref)
        if len(content) != ref.size:
            raise BlobCorruptError(ref.sha256, f"{len(content)} bytes, expected {ref.size}")
        if hashlib.sha256(content).hexdigest() != ref.sha256:
            raise BlobCorruptError(ref.sha256, "the content does not match its checksum")
        return content

    def check(self, ref: BlobRef) -> None:
        """Raise unless a blob of this checksum and size is stored."""
        with access(self.directory):
            size = self._size(ref)
        if size != ref.size:
            raise BlobCorruptError(ref.sha256, f"{size} bytes, expected {ref.size}")

    def collect(self, keep: Iterable[str]) -> int:
        """Remove every blob whose checksum is not in ``keep``, and what interrupted writes left; return how many."""
        kept = set(keep)
        with access(self.directory):
            gone = [path for sha256, path in self._stored() if sha256 not in kept]
            for path in gone:
                self._disk.unlink(path)
        return len(gone)

    def _stored(self) -> Iterator[tuple[str, str]]:
        if not self._disk.exists(self.directory):
            return
        for shelf in self._disk.names(self.directory):
            folder = os.path.join(self.directory, shelf)
            for name in self._disk.names(folder):
                yield shelf + name, os.path.join(folder, name)

    def _path(self, ref: BlobRef) -> str:
        if not _SHA256.fullmatch(ref.sha256):
            raise BlobMissingError(ref.sha256, self.directory)
        return os.path.join(self.directory, ref.sha256[:2], ref.sha256[2:])

    def holds(self, ref: BlobRef) -> bool:
        """Whether a value is stored, intact."""
        try:
            self.verify(ref)
        except (BlobMissingError, BlobCorruptError):
            return False
        return True

    def _size(self, ref: BlobRef) -> int:
        fd = self._open(ref)
        try:
            return self._disk.facts(fd).size
        finally:
            self._disk.close(fd)

    def _read(self, ref: BlobRef) -> bytes:
        fd = self._open(ref)
        try:
            parts: list[bytes] = []
            offset = 0
            while part := self._disk.read(fd, CHUNK, offset):
                parts.append(part)
                offset += len(part)
            return b"".join(parts)
        finally:
            self._disk.close(fd)

    def _open(self, ref: BlobRef) -> int:
        try:
            return self._disk.open(self._path(ref))
        except FileNotFoundError:
            raise BlobMissingError(ref.sha256, self.directory) from None

    def _settle_folder(self, folder: str) -> None:
        if folder not in self._settled:
            self._disk.mkdir(folder)
            self._disk.sync_dir(os.path.dirname(folder))
            self._settled.add(folder)
