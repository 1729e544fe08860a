"""The errors of configuration, paths, files and ids: BT101 to BT107. How errors are declared: ``_root.py``."""

from __future__ import annotations

import errno
import os

from bartack.errors._root import BartackError, message


@message("{setting}: {problem}")
class ConfigError(BartackError, code="BT101"):
    """A setting has a value that cannot be used."""

    setting: str
    problem: str
    remedy = "Correct the setting that the message names."


class GuardPolicyError(ConfigError, code="BT108"):
    """The policy of the guard cannot be used. Until it can, the guard blocks every tool call."""

    remedy = "Correct the section guard of bartack.toml at the place that the message names."


@message("unsafe path {path!r}: {reason}")
class UnsafePathError(BartackError, ValueError, code="BT102"):
    """A path leads, or could lead, out of the directory it has to stay in."""

    path: str
    reason: str
    remedy = "Give a relative path without '..' and without symbolic links that lead out of the directory."


@message("{place}: {problem}")
class CanonicalJsonError(BartackError, ValueError, code="BT103"):
    """A value has no canonical JSON form (RFC 8785): it is not a JSON value, or it is a number that JSON readers would change."""

    place: str
    problem: str
    remedy = "Use null, booleans, strings, finite numbers, integers within ±(2^53 - 1), arrays and objects with string keys."


_FULL = "Free space on the disk that holds the path, then repeat the command or resume the run."


_FILES = (
    "Raise the limit of open files ('ulimit -n'), or run fewer workers at a time, then repeat the command."
)


_FILE_REMEDIES = {
    os.strerror(errno.ENOSPC): _FULL,
    os.strerror(errno.EDQUOT): _FULL,
    os.strerror(errno.EFBIG): _FULL,
    os.strerror(errno.EMFILE): _FILES,
    os.strerror(errno.ENFILE): _FILES,
    os.strerror(
        errno.EROFS
    ): "Mount the file system that holds the path for writing, or give a path elsewhere.",
    os.strerror(errno.EIO): "Check the disk that holds the path, and the system's log.",
    os.strerror(errno.ENOMEM): "Give the machine more memory, or run fewer workers at a time.",
}


@message("{path}: {reason}")
class FileAccessError(BartackError, code="BT104"):
    """The operating system refused to read or write a file.

    For a full disk, a broken disk and too many open files, the error has a remedy of its own.
    """

    path: str
    reason: str
    remedy = "Check that the path exists, is of the right kind (file or directory), and that you are allowed to read or write it."

    def advise(self) -> str:
        return _FILE_REMEDIES.get(self.reason, "")


@message("internal error: {cause}")
class InternalError(BartackError, code="BT106"):
    """An unexpected failure occurred inside Bartack. This is a defect in Bartack, not in your program."""

    cause: str
    remedy = "Run the command again with BARTACK_TRACEBACK=1 set, and report its output."


@message("{path} is not trusted: {reason}. To trust it: bartack trust {directory}")
class UntrustedError(BartackError, code="BT107"):
    """Settings or runs are in a directory that another user owns or can change, and that you have not trusted."""

    path: str
    reason: str
    directory: str
    remedy = "Check the contents of the directory that the message names. If you trust its owner, run 'bartack trust DIRECTORY'."


@message("{text!r} is not a run id; a run id looks like run-20260131-235959-0f3a91c7")
class RunIdError(BartackError, ValueError, code="BT105"):
    """A text that was given as a run id does not have the form of one."""

    text: str
    remedy = "Give the id as 'bartack run' prints it: run-YYYYMMDD-HHMMSS and eight hex digits."
