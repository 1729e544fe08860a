"""Every error Bartack raises, each with a stable code.

``bartack explain CODE`` prints what a code means and what to do; both texts live here, beside the class.

::

    BartackError                         BT100
    ├── ConfigError                      BT101
    ├── UnsafePathError                  BT102   (also ValueError)
    ├── CanonicalJsonError               BT103   (also ValueError)
    ├── FileAccessError                  BT104
    ├── RunIdError                       BT105   (also ValueError)
    ├── InternalError                    BT106
    ├── JournalError                     BT200
    │   ├── JournalCorruptError          BT201
    │   ├── JournalLockedError           BT202
    │   ├── JournalPoisonedError         BT203
    │   │   ├── JournalFullError         BT204
    │   │   ├── JournalSyncError         BT205
    │   │   └── JournalLostError         BT206
    │   ├── JournalFormatError           BT207
    │   ├── JournalNotFoundError         BT208
    │   ├── JournalClosedError           BT209
    │   ├── EntryError                   BT210   (also ValueError)
    │   ├── BlobMissingError             BT211
    │   └── BlobCorruptError             BT212
    ├── TreeLockedError                  BT501
    ├── ResilienceError                  BT700
    │   ├── StoreTooNewError             BT701
    │   ├── OutboxFullError              BT702
    │   ├── StoreUnavailableError        BT703
    │   ├── CircuitOpenError             BT704
    │   ├── SettingsError                BT705
    │   ├── TokenScopeError              BT706
    │   ├── UnsafeBindError              BT707
    │   ├── ServiceAnswerError           BT708
    │   ├── EventNotFoundError           BT709
    │   └── LineageError                 BT720
    │       ├── LineageCycleError        BT721
    │       ├── PatternNotFoundError     BT722
    │       ├── EventConflictError       BT723
    │       ├── EventInvalidError        BT724   (also ValueError)
    │       │   └── EventValueError      BT727
    │       ├── CursorError              BT725   (also ValueError)
    │       ├── TokenFileError           BT726
    │       └── LineageMissingError      BT728
    ├── UnknownCodeError                 BT1001
    └── UsageError                       BT1002

Numbers go by hundreds: 1 core and configuration, 2 journal, 3 runs and replay, 4 messaging, 5 supervision, 6 language at
run time, 7 resilience and tracking, 8 agents, 9 pipeline, 10 plugin, CLI and web. A number is never given twice.

An error takes facts, builds its own message and keeps the facts as attributes. Every class survives pickling with all of its
facts, without its constructor being called again.
"""

from __future__ import annotations

from typing import ClassVar, Self


class BartackError(Exception):
    """Something went wrong in Bartack. Every other error is a child of this one."""

    code: ClassVar[str] = "BT100"
    retryable: ClassVar[bool] = False
    remedy: ClassVar[str] = "Read the message; it names the cause and the place."

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(cls: type[BartackError], args: tuple[object, ...], facts: dict[str, object]) -> BartackError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class ConfigError(BartackError):
    """A setting has a value that cannot be used."""

    code = "BT101"
    remedy = "Correct the setting that the message names."

    def __init__(self, setting: str, problem: str) -> None:
        self.setting = setting
        self.problem = problem
        super().__init__(f"{setting}: {problem}")


class UnsafePathError(BartackError, ValueError):
    """A path leads, or could lead, out of the directory it has to stay in."""

    code = "BT102"
    remedy = "Give a relative path without '..' that no symbolic link leads out of its directory."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"unsafe path {path!r}: {reason}")


class CanonicalJsonError(BartackError, ValueError):
    """A value has no canonical JSON form (RFC 8785): it is no JSON value, or a number that JSON readers would change."""

    code = "BT103"
    remedy = "Use null, booleans, strings, finite numbers, integers within ±(2^53 - 1), arrays and objects with string keys."

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class FileAccessError(BartackError):
    """The operating system refused to read or write a file."""

    code = "BT104"
    remedy = "Check that the path exists, is of the right kind, and that you may read or write it."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class InternalError(BartackError):
    """Bartack met a failure that it has no name for. That is a defect in Bartack, not in what you did."""

    code = "BT106"
    remedy = "Run the command once more with BARTACK_TRACEBACK=1 set, and report what it prints."

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(f"internal error: {cause}")


class RunIdError(BartackError, ValueError):
    """Something was given as the id of a run that does not have its form."""

    code = "BT105"
    remedy = "Give an id as 'bartack run' prints it: run-YYYYMMDD-HHMMSS and eight hex digits."

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no run id; one looks like run-20260131-235959-0f3a91c7")


class JournalError(BartackError):
    """Something is wrong with the journal of a run."""

    code = "BT200"
    remedy = "Look at the journal with 'bartack journal verify PATH'; it changes nothing."


class JournalCorruptError(JournalError):
    """A journal is damaged in a place that was already acknowledged, or is no journal at all. Nothing was changed.

    A line that was still being written when the power went is no corruption: it is cut off and kept beside the journal.
    """

    code = "BT201"
    remedy = (
        "Keep the file as it is. 'bartack journal verify PATH' names the place, 'bartack journal show PATH' prints the "
        "entries before it. Restore the run's directory from a backup, or start a new run."
    )

    def __init__(self, path: str, offset: int, problem: str) -> None:
        self.path = path
        self.offset = offset
        self.problem = problem
        super().__init__(f"{path}: damaged at byte {offset}: {problem}; nothing was changed")


class JournalLockedError(JournalError):
    """Another process owns the journal. A journal has one owner at a time."""

    code = "BT202"
    retryable = True
    remedy = "Wait for the owner to end, or look at what it writes with 'bartack journal show PATH --follow'."

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{path} is owned by {owner}")


class JournalPoisonedError(JournalError):
    """The journal cannot be trusted to keep anything more, so it takes nothing more. What it acknowledged is safe.

    Entries that were not acknowledged may or may not be there when it is opened again.
    """

    code = "BT203"
    remedy = "Mend what the message names, then resume: nothing that was acknowledged is lost."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path} takes no more entries: {problem}")

    @classmethod
    def again(cls, first: Self) -> Self:
        """The error for every call after the one that failed: same facts, fresh traceback."""
        return cls(first.path, first.problem)


class JournalFullError(JournalPoisonedError):
    """There is no space left for the journal."""

    code = "BT204"
    remedy = "Make room on the disk that holds the run's directory, then resume."


class JournalSyncError(JournalPoisonedError):
    """The operating system could not bring the journal to the disk. A failed sync is never tried again."""

    code = "BT205"
    remedy = "Check the disk and the system's log, then resume."


class JournalLostError(JournalPoisonedError):
    """The journal no longer belongs to this process: it was deleted, replaced, or taken over by another owner."""

    code = "BT206"
    remedy = "Find out who removed or took over the run's directory. This process has stopped writing."


class JournalFormatError(JournalError):
    """The journal was written in a format that this version of Bartack does not read. Nothing was changed."""

    code = "BT207"
    remedy = "Use the Bartack version that wrote it, or a newer one."

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has journal format {found}; this version reads formats up to {known}")


class JournalNotFoundError(JournalError):
    """There is no journal at this path."""

    code = "BT208"
    remedy = "Give the journal file or the directory of a run."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no journal at {path}")


class JournalClosedError(JournalError):
    """The journal was closed by this process and is used again."""

    code = "BT209"
    remedy = "Open it again."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is closed")


class EntryError(JournalError, ValueError):
    """Something was handed to the journal that cannot be an entry."""

    code = "BT210"
    remedy = "Give a kind, an object of JSON values, and no more than 1 MiB beside the value."

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem
        super().__init__(f"entry {kind!r}: {problem}")


class BlobMissingError(JournalError):
    """A large value that an entry refers to is not there."""

    code = "BT211"
    remedy = "Restore the blobs directory of the run from a backup."

    def __init__(self, sha256: str, where: str) -> None:
        self.sha256 = sha256
        self.where = where
        super().__init__(f"blob {sha256} is missing in {where}")


class BlobCorruptError(JournalError):
    """A large value was changed on disk: its content no longer has the checksum it is stored under."""

    code = "BT212"
    remedy = "Restore the blob from a backup of the run's directory."

    def __init__(self, sha256: str, problem: str) -> None:
        self.sha256 = sha256
        self.problem = problem
        super().__init__(f"blob {sha256}: {problem}")


class TreeLockedError(BartackError):
    """Processes that an earlier attempt at this run has started are still alive, so nothing is executed beside them."""

    code = "BT501"
    retryable = True
    remedy = "Wait for them to end. 'bartack doctor --orphans' names them."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is held: processes of an earlier attempt at this run are still alive")


class ResilienceError(BartackError):
    """Something is wrong with what keeps events until they are delivered, or with what they are delivered to."""

    code = "BT700"
    remedy = "Look at 'bartack track status'; it says what waits and why."


class StoreTooNewError(ResilienceError):
    """A database was written by a newer version of Bartack. Nothing was changed."""

    code = "BT701"
    remedy = "Use the Bartack version that wrote it, or a newer one."

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(f"{path} has schema version {found}; this version knows versions up to {known}")


class OutboxFullError(ResilienceError):
    """An event does not fit into the outbox, so it was not kept."""

    code = "BT702"
    remedy = "Raise tracking.max_size_mb, or deliver what waits with 'bartack track sync'."

    def __init__(self, path: str, size_bytes: int, quota_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.quota_bytes = quota_bytes
        super().__init__(f"{path}: an event of {size_bytes} bytes does not fit into {quota_bytes} bytes")


class StoreUnavailableError(ResilienceError):
    """A database cannot be read or written now. What it acknowledged before is safe."""

    code = "BT703"
    retryable = True
    remedy = "Check that the disk has room and that you may write to the directory, then try again."

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be used now: {reason}")


class CircuitOpenError(ResilienceError):
    """A call was not made, because the service failed too often a short time ago."""

    code = "BT704"
    retryable = True
    remedy = "Wait for the service to come back; 'bartack track breaker status' says when it is tried next."

    def __init__(self, name: str, state: str, retry_after: float) -> None:
        self.name = name
        self.state = state
        self.retry_after = retry_after
        super().__init__(f"{name}: the circuit is {state}; next try in {retry_after:.1f} s")


class SettingsError(ResilienceError):
    """A settings file of the coding agent cannot be changed safely. It was left as it is."""

    code = "BT705"
    remedy = "Correct the file by hand so that it is valid and has the expected shape, then install again."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}; the file was left as it is")


class TokenScopeError(ResilienceError):
    """A token would have been written into a file that is shared with others."""

    code = "BT706"
    remedy = "Use --scope local or --scope user with --mode http, or another mode."

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(
            f"http hooks carry a token, and the settings of scope {scope!r} are shared with others"
        )


class UnsafeBindError(ResilienceError):
    """A service was told to listen where other machines could reach it."""

    code = "BT707"
    remedy = "Listen on 127.0.0.1. To reach it from elsewhere, put a server with TLS in front of it."

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host} is no loopback address; other machines could reach the service there")


class ServiceAnswerError(ResilienceError):
    """A service answered a call with a failure."""

    code = "BT708"
    retryable = True
    remedy = "Look at the service's own log for the cause."

    def __init__(self, url: str, status: int, retry_after: float | None = None, detail: str = "") -> None:
        self.url = url
        self.status = status
        self.retry_after = retry_after
        self.detail = detail
        told = f"{': ' if detail else ''}{detail}"
        wait = f"; it asks to wait {retry_after} s" if retry_after else ""
        super().__init__(f"{url} answered {status}{told}{wait}")


class EventNotFoundError(ResilienceError):
    """No event of the outbox has this id."""

    code = "BT709"
    remedy = "'bartack track outbox list' shows the ids."

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(f"no event has the id {event_id!r}")


class LineageError(ResilienceError):
    """The lineage of patterns was asked for, or told, something that it cannot answer or keep."""

    code = "BT720"
    remedy = "Read the message; it names the pattern, the event or the file."


class LineageCycleError(LineageError):
    """A pattern was said to come from one of its own descendants. Nothing was recorded."""

    code = "BT721"
    remedy = "Give the event a version of its own; returning to earlier code makes a new version of it."

    def __init__(self, parent: str, child: str) -> None:
        self.parent = parent
        self.child = child
        super().__init__(f"{child} cannot come from {parent}, which comes from it")


class PatternNotFoundError(LineageError):
    """No event has told of this pattern, or of this version of it."""

    code = "BT722"
    remedy = "Find the id with 'bartack lineage search TEXT'."

    def __init__(self, pattern_id: str, version: str | None = None) -> None:
        self.pattern_id = pattern_id
        self.version = version
        what = f"version {version} of pattern {pattern_id}" if version else f"pattern {pattern_id}"
        super().__init__(f"{what} is not known")


class EventConflictError(LineageError):
    """An event has the id of another event that says something else. Nothing was recorded."""

    code = "BT723"
    remedy = "Give every event an id of its own, or none: it is then made from what the event says."

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(f"event {event_id} was recorded already, with another content")


class EventInvalidError(LineageError, ValueError):
    """A member of a request is missing, of the wrong type or out of its range. Nothing was recorded."""

    code = "BT724"
    remedy = (
        "Correct the member that the message names; the reference of the lineage service lists all of them."
    )

    def __init__(self, problem: str, field: str = "") -> None:
        self.problem = problem
        self.field = field
        super().__init__(f"{field}: {problem}" if field else problem)


class EventValueError(EventInvalidError):
    """A member of a request has the right type, but none of the values it may have. Nothing was recorded."""

    code = "BT727"
    remedy = "Give the member one of the values that the reference of the lineage service lists."


class CursorError(LineageError, ValueError):
    """A cursor was not made for this query."""

    code = "BT725"
    remedy = "Use a cursor with the very query whose answer it came with, or ask again without one."

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(f"{cursor!r} is no cursor of this query")


class TokenFileError(LineageError):
    """The file with the token of a service cannot be used."""

    code = "BT726"
    remedy = "Name a file that only you can read, with a token of at least 16 characters on its first line."

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class LineageMissingError(LineageError):
    """There is no lineage database here: no event was ever delivered to a lineage service that keeps it in this file."""

    code = "BT728"
    remedy = "Name the database with --db, or start the service with 'bartack lineage serve'; it makes one."

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no lineage database at {path}")


class UnknownCodeError(BartackError):
    """No error has this code."""

    code = "BT1001"
    remedy = "'bartack explain' without a code lists all of them."

    def __init__(self, asked: str, near: tuple[str, ...] = ()) -> None:
        self.asked = asked
        self.near = near
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"no error has the code {asked!r}{hint}")


class UsageError(BartackError):
    """A command was called in a way that it does not understand: a wrong name, option or value."""

    code = "BT1002"
    remedy = "Call the command with --help; it shows what it takes."

    def __init__(self, command: str, problem: str) -> None:
        self.command = command
        self.problem = problem
        super().__init__(f"{command}: {problem}")


def iter_errors() -> list[type[BartackError]]:
    """All error classes, in the order of their numbers."""
    found: list[type[BartackError]] = []
    waiting: list[type[BartackError]] = [BartackError]
    while waiting:
        cls = waiting.pop()
        found.append(cls)
        waiting.extend(cls.__subclasses__())
    own = {cls for cls in found if cls.__module__ == __name__}
    return sorted(own, key=lambda cls: int(cls.code.removeprefix("BT")))
