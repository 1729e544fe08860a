"""Folders of plugins: read as a whole, and replaced as a whole by a rename, so that no reader finds half of one."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bartack.errors import PluginOutputError

FILE_MODE: Final = 0o644
DIR_MODE: Final = 0o755
_LARGEST: Final = 64 * 1024 * 1024


def read_folder(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """All files of a folder, by their paths in it. Links and special files are left out; ``find_odd`` names them.

    Raises:
        OSError: A file cannot be read.
    """
    root = Path(folder)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in {".git", "__pycache__"})
        for name in sorted(names):
            path = Path(here, name)
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= _LARGEST:
                yield path


def find_odd(folder: str | os.PathLike[str]) -> list[str]:
    """The links and special files of a folder: nothing in a plugin may point outside of it."""
    root = Path(folder)
    found: list[str] = []
    for here, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(here, name)
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                found.append(path.relative_to(root).as_posix())
    return sorted(found)


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Give a folder new files. Its former content is there until the new one is complete.

    Raises:
        PluginOutputError: It cannot be written; the former content is in its place.
    """
    folder = Path(os.path.realpath(folder))
    mark = f"{os.getpid()}.{os.urandom(4).hex()}"
    fresh, former = (folder.with_name(f".{folder.name[:48]}.{mark}.{end}") for end in ("new", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write(fresh, files)
        _swap(folder, fresh, former)
    except OSError as error:
        place = error.filename if isinstance(error.filename, str) else str(folder)
        raise PluginOutputError(place, f"it cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)


def _swap(folder: Path, fresh: Path, former: Path) -> None:
    is_there = folder.exists()
    if is_there:
        folder.rename(former)
    try:
        fresh.rename(folder)
    except OSError:
        if is_there:
            former.rename(folder)
        raise


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    _make_dir(folder)
    made = {folder}
    for name, data in files.items():
        target = folder / name
        for above in reversed(target.parents):
            if above not in made and above.is_relative_to(folder):
                _make_dir(above)
                made.add(above)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with open(fd, "wb") as file:
            os.fchmod(fd, FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(fd)


def _make_dir(folder: Path) -> None:
    folder.mkdir(mode=DIR_MODE)
    folder.chmod(DIR_MODE)


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours, first by a rename, so that no reader finds half of it."""
    with contextlib.suppress(FileNotFoundError):
        gone = folder.with_name(f".{folder.name[:48]}.{os.getpid()}.{os.urandom(4).hex()}.old")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
