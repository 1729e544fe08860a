from __future__ import annotations

import pytest

from bartack import errors
from bartack.cli.app._exit import MEANINGS, Exit, exit_code_of


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Exit)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.BartackError, 1),
        (errors.ConfigError, 2),
        (errors.UsageError, 2),
        (errors.UnsafePathError, 2),
        (errors.RunIdError, 2),
        (errors.FileAccessError, 1),
        (errors.InternalError, 1),
        (errors.JournalLockedError, 5),
        (errors.JournalPoisonedError, 6),
        (errors.JournalFullError, 6),
        (errors.JournalSyncError, 6),
        (errors.JournalOwnershipLostError, 1),
        (errors.JournalNotFoundError, 7),
        (errors.UnknownCodeError, 7),
        (errors.JournalCorruptError, 10),
        (errors.BlobMissingError, 10),
        (errors.BlobCorruptError, 10),
        (errors.JournalFormatError, 1),
    ],
)
@pytest.mark.requirement("exit-codes-have-meanings")
def test_an_error_ends_with_its_code(kind: type[errors.BartackError], code: int) -> None:
    assert exit_code_of(kind) == code


def test_a_child_of_an_error_ends_like_its_parent() -> None:
    class StillFullError(errors.JournalFullError):
        pass

    assert exit_code_of(StillFullError) == 6
