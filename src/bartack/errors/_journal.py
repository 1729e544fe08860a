"""The errors of journals and of databases that keep them: BT200 to BT221. How errors are declared: ``_root.py``."""

from __future__ import annotations

from typing import Self

from bartack.errors._root import BartackError, message


class JournalError(BartackError, code="BT200"):
    """Something is wrong with the journal of a run."""

    remedy = "Check the journal with 'bartack journal verify PATH'; the command changes nothing."


@message("{path}: damaged at byte {offset}: {problem}; nothing was changed")
class JournalCorruptError(JournalError, code="BT201"):
    """A journal is damaged in a part that was already acknowledged, or the file is not a journal. Nothing was changed.

    A line that was being written when the power failed is not corruption: it is cut off and kept beside the journal.
    """

    path: str
    offset: int
    problem: str
    remedy = (
        "Keep the file as it is. 'bartack journal verify PATH' names the place, 'bartack journal show PATH' prints the "
        "entries before it. Restore the run's directory from a backup, or start a new run."
    )


class JournalLostError(JournalCorruptError, code="BT213"):
    """Acknowledged entries at the end of a journal are missing: it was cut, overwritten or replaced. Nothing was changed.

    The run's directory records how far the journal had got, in ``lock`` and in ``run.json``. A journal that holds less, or
    something else at that place, was changed by another program. Resuming from it would repeat finished steps.
    """

    remedy = (
        "Restore the run's directory from a backup. The page docs/how-to/corrupt-journal.md explains how to resume without "
        "the missing entries, and what that repeats."
    )

    def __init__(self, path: str, offset: int, held: int, acknowledged: int) -> None:
        self.held = held
        self.acknowledged = acknowledged
        super().__init__(path, offset, _missing(held, acknowledged))


def _missing(held: int, acknowledged: int) -> str:
    if held >= acknowledged:
        return f"entry {acknowledged} is not the one that was acknowledged"
    found = f"the journal ends with entry {held}" if held else "there is no journal"
    return f"{found}, but entry {acknowledged} was acknowledged"


@message()
class JournalLockedError(JournalError, code="BT202", retryable=True):
    """Another process owns the journal. A journal has one owner at a time."""

    path: str
    pid: int | None
    owner: str = ""
    """The owner in words, where it is not a process of this machine."""
    remedy = "Wait until the owner ends, or follow what it writes with 'bartack journal show PATH --follow'."

    def describe(self) -> str:
        process = f"process {self.pid}" if self.pid else "another process"
        owner = f"{self.owner} ({process})" if self.owner and self.pid else self.owner or process
        return f"{self.path} is owned by {owner}"


@message("{path} accepts no more entries: {problem}")
class JournalPoisonedError(JournalError, code="BT203"):
    """The journal can no longer be written safely, so it accepts no more entries. Acknowledged entries are safe.

    An entry that was not acknowledged can be present or missing when the journal is opened again.
    """

    path: str
    problem: str
    remedy = (
        "Fix the problem that the message names, then resume the run. Nothing that was acknowledged is lost."
    )

    @classmethod
    def again(cls, first: Self) -> Self:
        """The error for every call after the one that failed: same facts, fresh traceback."""
        return cls(first.path, first.problem)


class JournalFullError(JournalPoisonedError, code="BT204"):
    """There is no space left for the journal."""

    remedy = "Free space on the disk that holds the run's directory, then resume the run."


class JournalSyncError(JournalPoisonedError, code="BT205"):
    """The operating system could not sync the journal to the disk. A failed sync is never retried."""

    remedy = "Check the disk and the system's log, then resume the run."


class JournalOwnershipLostError(JournalPoisonedError, code="BT206"):
    """The journal no longer belongs to this process: it was deleted, replaced, or taken over by another owner."""

    remedy = (
        "Find out which process removed or took over the run's directory. This process has stopped writing."
    )


@message("{path} has journal format {found}; this version reads formats up to {known}")
class JournalFormatError(JournalError, code="BT207"):
    """The journal was written in a format that this version of Bartack does not read. Nothing was changed."""

    path: str
    found: int
    known: int
    remedy = "Use the Bartack version that wrote it, or a newer one."


@message("no journal at {path}")
class JournalNotFoundError(JournalError, code="BT208"):
    """There is no journal at this path."""

    path: str
    remedy = "Give the journal file or the directory of a run."


@message("{path} is closed")
class JournalClosedError(JournalError, code="BT209"):
    """This process closed the journal and then used it again."""

    path: str
    remedy = "Open the journal again."


@message("entry {kind!r}: {problem}")
class EntryError(JournalError, ValueError, code="BT210"):
    """The data given to the journal cannot be an entry."""

    kind: str
    problem: str
    remedy = "Give a kind and an object of JSON values, at most 1 MiB without the value."


@message("blob {sha256} is missing in {where}")
class BlobMissingError(JournalError, code="BT211"):
    """A large value that an entry refers to is missing."""

    sha256: str
    where: str
    remedy = "Restore the blobs directory of the run from a backup."


@message("blob {sha256}: {problem}")
class BlobCorruptError(JournalError, code="BT212"):
    """A large value was changed on disk: its content no longer has the checksum it is stored under."""

    sha256: str
    problem: str
    remedy = "Restore the blob from a backup of the run's directory."


@message("{database}: {problem}")
class DepotError(JournalError, code="BT214"):
    """A database that keeps runs cannot be used as it is."""

    database: str
    problem: str
    remedy = "Check the database with 'bartack db check --on DATABASE'."


class DepotUnavailableError(DepotError, code="BT215", retryable=True):
    """The database cannot be reached, or does not take what it is sent. Nothing that was acknowledged is lost."""

    remedy = "Check that the database runs, and that this machine reaches it; then try again."


class DepotSchemaError(DepotError, code="BT216"):
    """The database has no tables of Bartack, or those of another version."""

    remedy = (
        "Prepare the database with 'bartack db init --on DATABASE'; it changes nothing that is there already."
    )


class DepotRewoundError(DepotError, code="BT217"):
    """The database has lost acknowledged entries: it was restored from a backup, or a standby took over that lacked them."""

    remedy = (
        "Restore the database to a later state. 'bartack pull RUN --whole' and the directory of the run on the machine that "
        "ran it have what is left."
    )


class DepotInsecureError(DepotError, code="BT218"):
    """The connection to the database would not be protected: others could read it, or pretend to be the database."""

    remedy = "Connect with sslmode=verify-full, or say that the network is safe with --insecure."


class DepotRefusedError(DepotError, code="BT219"):
    """The database does not allow this user to do that."""

    remedy = "Ask the administrator of the database for the rights, or connect as another user."


class ObjectStoreUnavailableError(DepotUnavailableError, code="BT220", retryable=True):
    """The object store with the large values of a database cannot be reached, or does not take what it is sent."""

    remedy = (
        "Check that the object store answers ('bartack doctor --on DATABASE'), and that this machine has the address and the "
        "credentials of it in its AWS_… variables; then try again."
    )


@message("a value of {size} bytes is larger than the {limit} bytes that {where} takes")
class BlobTooLargeError(JournalError, code="BT221"):
    """A large value does not fit into the database that keeps the run, and the database has no object store."""

    size: int
    limit: int
    where: str
    remedy = "Give the database an object store (depot.blobs), or make the value smaller: for a workspace, ignore large files."
