"""The errors of the outbox, of services and of lineage: BT700 to BT728. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class ResilienceError(BartackError, code="BT700"):
    """Something is wrong with what keeps events until they are delivered, or with what they are delivered to."""

    remedy = "Look at 'bartack track status'; it says what waits and why."


@message("{path} has schema version {found}; this version knows versions up to {known}")
class StoreTooNewError(ResilienceError, code="BT701"):
    """A database was written by a newer version of Bartack. Nothing was changed."""

    path: str
    found: int
    known: int
    remedy = "Use the Bartack version that wrote it, or a newer one."


@message("{path}: an event of {size_bytes} bytes does not fit into {quota_bytes} bytes")
class OutboxFullError(ResilienceError, code="BT702"):
    """An event does not fit into the outbox, so it was not kept."""

    path: str
    size_bytes: int
    quota_bytes: int
    remedy = "Raise tracking.max_size_mb, or deliver what waits with 'bartack track sync'."


@message("{path} cannot be used now: {reason}")
class StoreUnavailableError(ResilienceError, code="BT703", retryable=True):
    """A database cannot be read or written now. What it acknowledged before is safe."""

    path: str
    reason: str
    remedy = "Check that the disk has room and that you may write to the directory, then try again."


@message("{name}: the circuit is {state}; next try in {retry_after:.1f} s")
class CircuitOpenError(ResilienceError, code="BT704", retryable=True):
    """A call was not made, because the service failed too often a short time ago."""

    name: str
    state: str
    retry_after: float
    remedy = "Wait for the service to come back; 'bartack track breaker status' says when it is tried next."


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


@message("{host} is no loopback address; other machines could reach the service there")
class UnsafeBindError(ResilienceError, code="BT707"):
    """A service was told to listen where other machines could reach it."""

    host: str
    remedy = "Listen on 127.0.0.1. To reach it from elsewhere, put a server with TLS in front of it."


@message()
class ServiceAnswerError(ResilienceError, code="BT708", retryable=True):
    """A service answered a call with a failure."""

    url: str
    status: int
    retry_after: float | None = None
    detail: str = ""
    remedy = "Look at the service's own log for the cause."

    def describe(self) -> str:
        told = f": {self.detail}" if self.detail else ""
        wait = f"; it asks to wait {self.retry_after} s" if self.retry_after else ""
        return f"{self.url} answered {self.status}{told}{wait}"


@message("no event has the id {event_id!r}")
class EventNotFoundError(ResilienceError, code="BT709"):
    """No event of the outbox has this id."""

    event_id: str
    remedy = "'bartack track outbox list' shows the ids."


@message("{url} is not proved to be a service of this user: {problem}")
class ServiceUnprovenError(ResilienceError, code="BT710", retryable=True):
    """A service did not prove that it knows the token of this user, so nothing was sent to it. The event is kept."""

    url: str
    problem: str
    remedy = (
        "Find out which program listens there; the event is delivered when your own service does. "
        "For a service of another make, set tracking.proof to 'off'."
    )


@message("{path} does not belong to this user alone, so no socket is used there")
class UnsafeSocketError(ResilienceError, code="BT711"):
    """The directory of a socket belongs to another user, or other users can enter it."""

    path: str
    remedy = "Make a directory that belongs to you, with mode 0700, the state home (XDG_STATE_HOME)."


class LineageError(ResilienceError, code="BT720"):
    """The lineage of patterns was asked for, or told, something that it cannot answer or keep."""

    remedy = "Read the message; it names the pattern, the event or the file."


@message("{child} cannot come from {parent}, which comes from it")
class LineageCycleError(LineageError, code="BT721"):
    """A pattern was said to come from one of its own descendants. Nothing was recorded."""

    parent: str
    child: str
    remedy = "Give the event a version of its own; returning to earlier code makes a new version of it."


@message()
class PatternNotFoundError(LineageError, code="BT722"):
    """No event has told of this pattern, or of this version of it."""

    pattern_id: str
    version: str | None = None
    remedy = "Find the id with 'bartack lineage search TEXT'."

    def describe(self) -> str:
        of = f"version {self.version} of " if self.version else ""
        return f"{of}pattern {self.pattern_id} is not known"


@message("event {event_id} was recorded already, with another content")
class EventConflictError(LineageError, code="BT723"):
    """An event has the id of another event that says something else. Nothing was recorded."""

    event_id: str
    remedy = "Give every event an id of its own, or none: it is then made from what the event says."


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
    """A member of a request has the right type, but none of the values it may have. Nothing was recorded."""

    remedy = "Give the member one of the values that the reference of the lineage service lists."


@message("{cursor!r} is no cursor of this query")
class CursorError(LineageError, ValueError, code="BT725"):
    """A cursor was not made for this query."""

    cursor: str
    remedy = "Use a cursor with the very query whose answer it came with, or ask again without one."


@message("{path}: {problem}")
class TokenFileError(LineageError, code="BT726"):
    """The file with the token of a service cannot be used."""

    path: str
    problem: str
    remedy = "Name a file that only you can read, with a token of at least 16 characters on its first line."


@message("no lineage database at {path}")
class LineageMissingError(LineageError, code="BT728"):
    """There is no lineage database here: no event was ever delivered to a lineage service that keeps it in this file."""

    path: str
    remedy = "Name the database with --db, or start the service with 'bartack lineage serve'; it makes one."
