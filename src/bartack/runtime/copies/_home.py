"""The repository that copies are kept in: how it is made, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack.core.files import replace_file
from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit

_ATTRIBUTES: Final = b"* -text -filter -ident -working-tree-encoding\n"
"""They win over all other attributes: a file is copied as it is, whatever ``.gitattributes`` says."""
_EXCLUDES: Final = b".bartack\n"


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
        with suppress(OSError):  # another process was first
            made.rename(directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not (directory / "HEAD").is_file():
        raise WorkspaceKeepError(str(directory), "it exists and is not a repository of copies")
    return directory
