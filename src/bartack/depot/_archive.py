"""The program of a run as one archive, so that another machine can continue the run."""

from __future__ import annotations

import io
import os
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bartack.core.files import replace_file
from bartack.errors import DepotError

PROGRAM: Final = ("program", "program.next-*", "sets.json", "bartack.toml")
"""What another machine needs to continue a run, beside what is in its journal. The second is what an update puts in place."""


def pack_program(directory: Path, names: tuple[str, ...]) -> bytes:
    """The files of a run that another machine needs to continue it, as one archive: the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(_files_below(directory, names)):
            content = (directory / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _files_below(directory: Path, names: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for place in (place for name in names for place in directory.glob(name) if not place.is_symlink()):
        if place.is_file():
            found.append(place.name)
        found += [
            str(Path(at, file).relative_to(directory))
            for at, _, files in os.walk(place)
            for file in files
            if not os.path.islink(os.path.join(at, file))
        ]
    return found


def unpack_program(directory: Path, archive: bytes, names: tuple[str, ...]) -> None:
    """Write the files of an archive that ``pack_program`` made into the directory of a run, instead of those that are there.

    Raises:
        DepotError: It has a member that is not one of these files, or is not an archive; nothing was changed.
    """
    files = read_program(directory, archive, names)
    for name in _files_below(directory, names):
        if name not in files:
            (directory / name).unlink()
    for name, content in files.items():
        for folder in reversed(Path(name).parents[:-1]):
            (directory / folder).mkdir(mode=0o700, exist_ok=True)
        replace_file(directory / name, content, synced=False)


def read_program(directory: Path, archive: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    """The files of an archive that ``pack_program`` made, by their names, all of them checked.

    Raises:
        DepotError: See ``unpack_program``.
    """
    files: dict[str, bytes] = {}
    try:
        # Without compression: what is small here cannot become large.
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as packed:
            for member in packed.getmembers():
                file = packed.extractfile(member) if _is_ours(member, names) else None
                if file is None:
                    problem = f"the archive of its program has a strange member: {member.name!r}"
                    raise DepotError(str(directory), problem)
                files[os.path.normpath(member.name)] = file.read()
    except (tarfile.TarError, UnicodeError, ValueError) as error:
        raise DepotError(str(directory), f"the archive of its program cannot be read: {error}") from None
    return files


def _is_ours(member: tarfile.TarInfo, names: tuple[str, ...]) -> bool:
    parts = Path(member.name).parts
    is_named = bool(parts) and any(fnmatchcase(parts[0], name) for name in names)
    return (
        is_named
        and ".." not in parts
        and "\0" not in member.name
        and member.isreg()
        and not member.issparse()
    )
