"""The repository that copies are kept in: how it is made, whole or not at all.

It is written without a sync, because what a journal names is durable where its run is kept. So after a restart of the machine its
files may be empty or torn, and nothing of it is used: it is made and fetched again (``was_made_since_boot``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack.core.boot import boot_id
from bartack.core.files import replace_file
from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit

_ATTRIBUTES: Final = b"* -text -filter -ident -working-tree-encoding\n"
"""They win over all other attributes: a file is copied as it is, whatever ``.gitattributes`` says."""
_EXCLUDES: Final = b".bartack\n"
BOOT: Final = "boot"
"""The file with the boot of the machine in which the repository was made."""


def make_home(directory: Path) -> Path:
    """Make the repository unless it is there, and return its absolute path.

    Raises:
        WorkspaceKeepError: It cannot be made.
    """
    directory = Path(os.path.abspath(directory))
    if (directory / "HEAD").is_file():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        words = (
            "init",
            "--quiet",
            "--bare",
            "--template=",
            "--initial-branch=copies",
            "--object-format=sha1",
        )
        PlainGit(made)(*words, str(made))
        (made / "info").mkdir(exist_ok=True)
        replace_file(made / "info/attributes", _ATTRIBUTES)
        replace_file(made / "info/exclude", _EXCLUDES)
        replace_file(made / BOOT, boot_id().encode(), synced=False)
        with suppress(OSError):  # another process was first
            made.rename(directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not (directory / "HEAD").is_file():
        raise WorkspaceKeepError(str(directory), "it exists and is not a repository of copies")
    return directory


def was_made_since_boot(directory: Path) -> bool:
    """Whether no power cut can have damaged a repository: it was made after the last start of the machine."""
    try:
        return (directory / BOOT).read_bytes() == boot_id().encode()
    except OSError:
        return False


def discard(path: Path) -> None:
    """Remove a repository, also one whose directories an agent has closed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    for folder, folders, _ in os.walk(path):
        for name in folders:
            if not os.path.islink(at := os.path.join(folder, name)):
                os.chmod(at, 0o700)
    shutil.rmtree(path)
