"""The program of a run as one archive, so that another machine can continue the run."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from bartack.core.files import replace_file
from bartack.errors import DepotError


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
    for name in names:
        place = directory / name
        if place.is_file() and not place.is_symlink():
            found.append(name)
        found += [
            str(Path(at, file).relative_to(directory))
            for at, _, files in os.walk(place)
            for file in files
            if not os.path.islink(os.path.join(at, file))
        ]
    return found


def unpack_program(directory: Path, archive: bytes, names: tuple[str, ...]) -> None:
    """Write the files of an archive that ``pack_program`` made into the directory of a run.

    Raises:
        DepotError: It has a member that is not one of these files.
    """
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in packed.getmembers():
            parts = Path(member.name).parts
            is_ours = (
                bool(parts) and parts[0] in names and ".." not in parts and not member.name.startswith("/")
            )
            file = packed.extractfile(member) if is_ours and member.isfile() else None
            if file is None:
                raise DepotError(
                    str(directory), f"the archive of its program has a strange member: {member.name!r}"
                )
            target = directory / member.name
            for folder in reversed(target.relative_to(directory).parents[:-1]):
                (directory / folder).mkdir(mode=0o700, exist_ok=True)
            replace_file(target, file.read(), synced=False)
