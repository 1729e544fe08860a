"""Keeps a program with its run, so that the run executes what was there when it began, or when it was last updated.

Everything here goes through the disk seam: a pinned program is durable before an entry records that the run has it. An update
writes the new program beside the old one, then the journal records that it is the program from now on, and only then does it
take the place of the old one. Killed in between, the next owner of the run finishes that: the journal decides.
"""

from __future__ import annotations

import marshal
import os
from contextlib import nullcontext
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import Final

from bartack.core.accounts import Account
from bartack.core.batch import Batch
from bartack.core.disk import Disk, RealDisk
from bartack.errors import ProgramImportError

PROGRAM: Final = "program"
_WAITING: Final = f"{PROGRAM}.next"
_CHECKED_HASH: Final = (0b11).to_bytes(4, "little")
"""Flags of bytecode that holds the hash of its source, which is looked at when it is imported (PEP 552)."""


def read_sources(files: list[str], root: Path, account: Account | None = None) -> dict[str, bytes]:
    """The files of a program as they are now, by their paths below ``root``.

    Args:
        files: The files, relative to ``root``.
        root: The directory that they are in.
        account: The user whose program it is, if it is not this one: only files that it can read belong to it.

    Raises:
        ProgramImportError: One of the files cannot be read, or is not below ``root``.
    """
    with nullcontext() if account is None else account.acting():
        return {os.path.normpath(relative): _read_source(root, relative) for relative in files}


def _read_source(root: Path, relative: str) -> bytes:
    source = root / relative
    if os.path.isabs(relative) or os.pardir in Path(os.path.normpath(relative)).parts:
        raise ProgramImportError(str(source), f"it is not below {root}")
    try:
        if source.is_file():
            return source.read_bytes()
    except OSError as error:
        raise ProgramImportError(str(source), error.strerror or str(error)) from None
    raise ProgramImportError(str(source), "it is not a regular file")


def pin(sources: dict[str, bytes], target: Path, batch: Batch) -> None:
    """Write the files of a program to a directory; they become durable with the batch."""
    for relative, content in sources.items():
        path = str(target / relative)
        batch.make_dirs(os.path.dirname(path))
        batch.write(path, content)
        if path.endswith(".py"):
            _pin_bytecode(path, content, batch)


def _pin_bytecode(path: str, source: bytes, batch: Batch) -> None:
    """Compile a module, so that no worker's process has to.

    It is durable like its source, because Python takes the rest of a file for good whose head is. It holds the hash of the
    source and not its time, so that it is valid also in a copy of the run.
    """
    try:
        code = SourceFileLoader("", path).source_to_code(source, path)
    except (SyntaxError, ValueError):
        # A worker that imports it reports that.
        return
    place = cache_from_source(path)
    batch.make_dirs(os.path.dirname(place))
    batch.write(place, b"".join((MAGIC_NUMBER, _CHECKED_HASH, source_hash(source), marshal.dumps(code))))


def prepare_update(run_dir: Path, sources: dict[str, bytes], number: int, disk: Disk | None = None) -> str:
    """Write another version of the program beside the one that the run executes, durably; returns its name.

    Args:
        run_dir: The run; an update before this one is finished.
        sources: The files of the program.
        number: One that no other update of the run has.
        disk: Where the run is.
    """
    batch = Batch(disk)
    for name in batch.disk.names(str(run_dir)):
        if name.startswith(_WAITING):
            batch.disk.remove_tree(str(run_dir / name))
    name = f"{_WAITING}-{number}"
    batch.make_dir(str(run_dir / name))
    pin(sources, run_dir / name, batch)
    batch.settle()
    return name


def finish_update(run_dir: Path, waiting: str, disk: Disk | None = None) -> None:
    """Put the program that the journal names in its place, durably; the one before is kept under a number.

    Args:
        run_dir: The run, which the caller owns.
        waiting: What the last update in the journal has called its program; nothing is done if it is in place already.
        disk: Where the run is.
    """
    disk = disk or RealDisk()
    pinned = str(run_dir / PROGRAM)
    # Older journals have no name for it. Theirs has been checked, too, and the old program was put aside first.
    source = str(run_dir / (waiting or _WAITING))
    if not disk.exists(source) or (not waiting and disk.exists(pinned)):
        return
    if disk.exists(pinned):
        disk.rename(pinned, _free_name(run_dir, disk))
    disk.rename(source, pinned)
    disk.sync_dir(str(run_dir))


def current_program(run_dir: Path, waiting: str) -> Path:
    """Where the program is that the journal of a run names, whether its last update is finished or not."""
    unfinished = run_dir / waiting
    return unfinished if waiting and unfinished.exists() else run_dir / PROGRAM


def _free_name(run_dir: Path, disk: Disk) -> str:
    number = 1
    while disk.exists(name := str(run_dir / f"{PROGRAM}.{number}")):
        number += 1
    return name
