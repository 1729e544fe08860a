"""Compares the artifacts of receipts with files. The checksum of a file that has not changed is not computed again."""

from __future__ import annotations

import hashlib
import os

from bartack.agents.artifacts import open_artifact
from bartack.errors import UnsafePathError
from bartack.runtime.rundir.receipts import Receipt, Verified

_Facts = tuple[int, int, int]


class Verifier:
    """Knows the checksums of files."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Facts, str]] = {}

    def verify(self, receipt: Receipt, workspace: str) -> dict[str, Verified]:
        """What became of each artifact of a receipt since; it reads files."""
        return {one.path: self._verify(one.path, one.sha256, workspace) for one in receipt.artifacts}

    def _verify(self, path: str, sum_: str, workspace: str) -> Verified:
        try:
            descriptor = open_artifact(workspace, path)
        except (OSError, UnsafePathError, ValueError):
            return "missing"
        with open(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            place = f"{workspace}\0{path}"
            signature = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            known = self._known.get(place)
            if known is None or known[0] != signature:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                known = self._known[place] = (signature, f"sha256:{digest}")
        return "same" if known[1] == sum_ else "changed"
