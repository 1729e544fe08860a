"""The errors of the outbox, of services and of lineage: BT700 to BT728. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class ResilienceError(BartackError, code="BT700"):
    """Something is wrong with the outbox of events, or with a service that receives them."""

    remedy = "See with 'bartack track status' which events wait and why."


@message("{path} has schema version {found}; this version knows versions up to {known}")
class StoreTooNewError(ResilienceError, code="BT701"):
    """A database was written by a newer version of Bartack. Nothing was changed."""

    path: str
    found: int
    known: int
    remedy = "Use the Bartack version that wrote it, or a newer one."


@message("{path}: an event of {size_bytes} bytes does not fit into {quota_bytes} bytes")
class OutboxFullError(ResilienceError, code="BT702"):
    """An event does not fit into the outbox, so it was not stored."""

    path: str
    size_bytes: int
    quota_bytes: int
    remedy = "Raise tracking.max_size_mb, or deliver the waiting events with 'bartack track sync'."


@message("{path} cannot be used now: {reason}")
class StoreUnavailableError(ResilienceError, code="BT703", retryable=True):
    """A database cannot be read or written now. Everything that it acknowledged before is safe."""

    path: str
    reason: str
    remedy = "Check that the disk has free space and that you are allowed to write to the directory, then try again."


@message("{name}: the circuit is {state}; next try in {retry_after:.1f} s")
class CircuitOpenError(ResilienceError, code="BT704", retryable=True):
    """A call was not made because the service failed too often recently."""

    name: str
    state: str
    retry_after: float
    remedy = "Wait until the service is available; 'bartack track breaker status' shows the time of the next attempt."


@message("{path}: {problem}; the file was left as it is")
class SettingsError(ResilienceError, code="BT705"):
    """A settings file of the coding agent cannot be changed safely. It was left as it is."""

    path: str
    problem: str
    remedy = "Correct the file by hand so that it is valid and has the expected shape, then install again."


@message("http hooks carry a token, and the settings of scope {scope!r} are shared with others")
class TokenScopeError(ResilienceError, code="BT706"):
    """A token would have been written into a file that is shared with others."""

    scope: str
    remedy = "Use --scope local or --scope user with --mode http, or another mode."


@message("{host} is not a loopback address; other machines could reach the service there")
class UnsafeBindError(ResilienceError, code="BT707"):
    """A service was configured to listen on an address that other machines could reach."""

    host: str
    remedy = "Listen on 127.0.0.1. To reach it from elsewhere, put a server with TLS in front of it."


@message()
class ServiceAnswerError(ResilienceError, code="BT708", retryable=True):
    """A service answered a call with an error."""

    url: str
    status: int
    retry_after: float | None = None
    detail: str = ""
    remedy = "Look at the service's own log for the cause."

    def describe(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        wait = f"; it asks to wait {self.retry_after} s" if self.retry_after else ""
        return f"{self.url} answered {self.status}{detail}{wait}"


@message("no event has the id {event_id!r}")
class EventNotFoundError(ResilienceError, code="BT709"):
    """No event in the outbox has this id."""

    event_id: str
    remedy = "'bartack track outbox list' lists the ids."


@message("{url} did not prove to be a service of this user: {problem}")
class ServiceUnprovenError(ResilienceError, code="BT710", retryable=True):
    """A service did not prove that it knows the token of this user, so nothing was sent to it. The event is kept."""

    url: str
    problem: str
    remedy = (
        "Find out which program listens there. The event is delivered when your own service listens there. "
        "For a service of another vendor, set tracking.proof to 'off'."
    )


@message("{path} does not belong to this user alone, so no socket is used there")
class UnsafeSocketError(ResilienceError, code="BT711"):
    """The directory of a socket belongs to another user, or other users can enter it."""

    path: str
    remedy = "Set XDG_STATE_HOME to a directory that belongs to you and has mode 0700."


class LineageError(ResilienceError, code="BT720"):
    """The lineage of patterns cannot answer a request or record an event."""

    remedy = "Read the message; it names the pattern, the event or the file."


@message("{child} cannot derive from {parent}, which derives from it")
class LineageCycleError(LineageError, code="BT721"):
    """An event derives a pattern from one of its own descendants. Nothing was recorded."""

    parent: str
    child: str
    remedy = "Give the event its own version. Returning to earlier code makes a new version."


@message()
class PatternNotFoundError(LineageError, code="BT722"):
    """No event has recorded this pattern, or this version of it."""

    pattern_id: str
    version: str | None = None
    remedy = "Find the id with 'bartack lineage search TEXT'."

    def describe(self) -> str:
        of = f"version {self.version} of " if self.version else ""
        return f"{of}pattern {self.pattern_id} is not known"


@message("event {event_id} was already recorded with different content")
class EventConflictError(LineageError, code="BT723"):
    """An event has the id of another event with different content. Nothing was recorded."""

    event_id: str
    remedy = "Give every event its own id, or none: the id is then derived from the content."


@message()
class EventInvalidError(LineageError, ValueError, code="BT724"):
    """A member of a request is missing, of the wrong type or out of its range. Nothing was recorded."""

    problem: str
    field: str = ""
    remedy = (
        "Correct the member that the message names; the reference of the lineage service lists all of them."
    )

    def describe(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem


class EventValueError(EventInvalidError, code="BT727"):
    """A member of a request has the right type, but not an allowed value. Nothing was recorded."""

    remedy = "Give the member one of the values that the reference of the lineage service lists."


@message("{cursor!r} is not a cursor of this query")
class CursorError(LineageError, ValueError, code="BT725"):
    """The cursor belongs to another query."""

    cursor: str
    remedy = "Use a cursor only with the query that returned it, or repeat the query without one."


@message("{path}: {problem}")
class TokenFileError(LineageError, code="BT726"):
    """The file with the token of a service cannot be used."""

    path: str
    problem: str
    remedy = "Name a file that only you can read, with a token of at least 16 characters on its first line."


@message("no lineage database at {path}")
class LineageMissingError(LineageError, code="BT728"):
    """There is no lineage database at this path: no lineage service has stored an event in this file."""

    path: str
    remedy = "Name the database with --db, or start the service with 'bartack lineage serve'; it creates one."
