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


@message("unsafe path {path!r}: {reason}")
class UnsafePathError(BartackError, ValueError, code="BT102"):
    """A path leads, or could lead, out of the directory it has to stay in."""

    path: str
    reason: str
    remedy = "Give a relative path without '..' that no symbolic link leads out of its directory."


@message("{place}: {problem}")
class CanonicalJsonError(BartackError, ValueError, code="BT103"):
    """A value has no canonical JSON form (RFC 8785): it is no JSON value, or a number that JSON readers would change."""

    place: str
    problem: str
    remedy = "Use null, booleans, strings, finite numbers, integers within ±(2^53 - 1), arrays and objects with string keys."


_FULL = "Make room on the disk that holds the path, then repeat the command, or resume the run."


_FILES = "Raise the limit of open files ('ulimit -n'), or let fewer workers run at a time, then repeat the command."


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
    os.strerror(errno.ENOMEM): "Give the machine more memory, or let fewer workers run at a time.",
}


@message("{path}: {reason}")
class FileAccessError(BartackError, code="BT104"):
    """The operating system refused to read or write a file.

    If the disk is full, there are too many open files, or the disk is broken, the error itself says what to do about that.
    """

    path: str
    reason: str
    remedy = "Check that the path exists, is of the right kind, and that you may read or write it."

    def advise(self) -> str:
        return _FILE_REMEDIES.get(self.reason, "")


@message("internal error: {cause}")
class InternalError(BartackError, code="BT106"):
    """Bartack met a failure that it has no name for. That is a defect in Bartack, not in what you did."""

    cause: str
    remedy = "Run the command once more with BARTACK_TRACEBACK=1 set, and report what it prints."


@message("{path} is not trusted: {reason}. To trust it: bartack trust {directory}")
class UntrustedError(BartackError, code="BT107"):
    """Settings or runs are in a directory that another user made, or can change, and that you have not trusted."""

    path: str
    reason: str
    directory: str
    remedy = "Look at what is in the directory that the message names. If you trust its owner, run bartack trust with it."


@message("{text!r} is no run id; one looks like run-20260131-235959-0f3a91c7")
class RunIdError(BartackError, ValueError, code="BT105"):
    """Something was given as the id of a run that does not have its form."""

    text: str
    remedy = "Give an id as 'bartack run' prints it: run-YYYYMMDD-HHMMSS and eight hex digits."
