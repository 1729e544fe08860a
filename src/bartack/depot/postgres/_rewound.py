"""Finding out whether a database has lost what it had acknowledged, and sending that again.

With asynchronous replication, a standby that takes over may lack the last commits of the server before it. The owner of a run has
a copy of them. So it compares after each reconnect, before anything else is sent:

- the run is still owned by this node under the same fence, and what is there is the beginning of the copy: the ownership
  is older than everything that is missing, so nothing else can have been written by another owner. The missing lines are sent
  again, and the same history stands there as before;
- the run has another owner, or none, and no entry is missing: this owner has lost it;
- anything else, if entries are missing: the ownership itself may be among what was lost, and another node may be given the same
  run with the same fence. Nothing is guessed then. The run is held, unless another node owns it by now, and a person decides.

A number of a node can be given again by a database that was rewound. So a node is identified by the moment at which it joined, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.depot._directory import SUMMARY_FILE
from bartack.depot.postgres._content import upload
from bartack.errors import BartackError, DepotRewoundError, DepotUnavailableError, NodeLostError
from bartack.journal import BlobRef
from bartack.journal.mirror import End
from bartack.journal.rewound import missing_commits
from bartack.journal.shared import Commit

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection

_STANDING: Final = (
    "SELECT a.run, coalesce(o.state = 'owned' AND o.fence = a.fence AND o.node = %s AND n.joined = %s, false), "
    "coalesce(j.last, 0), coalesce(j.crc, 0) FROM unnest(%s::bigint[], %s::int[]) AS a(run, fence) "
    "LEFT JOIN bartack.owner o ON o.run = a.run LEFT JOIN bartack.node n ON n.id = o.node "
    "LEFT JOIN LATERAL (SELECT last, crc FROM bartack.journal WHERE journal.run = a.run ORDER BY seq DESC LIMIT 1) j ON true"
)


class Identity(NamedTuple):
    """A node, as its database has it.

    Attributes:
        id: Its number.
        joined: When it joined, as the database has it.
    """

    id: int
    joined: Any


def fences_of(connection: Connection, node: Identity) -> dict[int, int]:
    """The fence of each run that a node owns, as the database has it.

    ``Database.talking`` is around it.
    """
    statement = (
        "SELECT o.run, o.fence FROM bartack.node n JOIN bartack.owner o ON o.node = n.id "
        "WHERE n.id = %s AND n.joined = %s"
    )
    return dict(connection.execute(statement.encode(), node).fetchall())


class Kept(NamedTuple):
    """What the database has acknowledged of a run that this process owns.

    Attributes:
        run: Its number.
        name: What errors call it.
        directory: Where its copy is.
        commit: The last commit that was acknowledged.
        read: Returns the content of a large value as it is stored.
    """

    run: int
    name: str
    directory: Path
    commit: Commit
    read: Callable[[BlobRef], bytes]


class Findings(NamedTuple):
    """What a comparison has found.

    Attributes:
        sent_again: For each run that had lost entries and has them again, how many these were.
        refused: Why nothing more is sent of a run.
    """

    sent_again: dict[int, int]
    refused: dict[int, BartackError]


def compare(connection: Connection, node: Identity, kept: Sequence[Kept]) -> Findings:
    """Compare what the database has with what it has acknowledged, and send again what is missing.

    Raises:
        DepotError: The database did not answer, or refused.
    """
    findings = Findings({}, {})
    rows = connection.execute(
        _STANDING, (*node, [one.run for one in kept], [one.commit.fence for one in kept])
    ).fetchall()
    standings = {run: (is_ours, End(last, crc)) for run, is_ours, last, crc in rows}
    for one in kept:
        is_ours, end = standings[one.run]
        if end.last > one.commit.last or end == (one.commit.last, one.commit.crc):
            if not is_ours:
                findings.refused[one.run] = NodeLostError(one.name, "it has another owner")
            continue
        try:
            findings.sent_again[one.run] = _heal(connection, one, end, is_ours=is_ours)
        except DepotUnavailableError:
            raise
        except BartackError as error:
            findings.refused[one.run] = error
    return findings


def _heal(connection: Connection, kept: Kept, end: End, *, is_ours: bool) -> int:
    """Send again what is missing after ``end``; returns how many entries.

    Raises:
        BartackError: That is not possible. The run is held, if no other node owns it.
    """
    commits = missing_commits(str(kept.directory), end, kept.commit) if is_ours else None
    if not commits:
        raise _hold(connection, kept, end)
    for commit in commits:
        upload(connection, kept.name, kept.run, commit.fence, commit.blobs, kept.read)
        ((outcome,),) = connection.execute(
            "SELECT outcome FROM bartack.append(%s, %s, %s, %s, %s, %s)",
            ([kept.run], [commit.fence], [commit.seq], [commit.last], [commit.crc], [commit.lines]),
            binary=True,
        ).fetchall()
        if outcome == "lost":
            raise NodeLostError(kept.name, "it has another owner")
        if outcome != "written":
            # An earlier attempt may be in its backend still: the next comparison sees what became of it.
            raise DepotUnavailableError(kept.name, "another process writes the same entries")
    _mark_again(connection, kept)
    return kept.commit.last - end.last


def _mark_again(connection: Connection, kept: Kept) -> None:
    """What lists show of the run may be lost, too."""
    try:
        summary = (kept.directory / SUMMARY_FILE).read_bytes()
        seq = typed.decode(summary, type=_Seq).seq
    except (OSError, msgspec.DecodeError):
        return
    connection.execute("SELECT bartack.mark(%s, %s, %s, %s)", (kept.run, kept.commit.fence, summary, seq))


class _Seq(msgspec.Struct):
    seq: int = 0


def _hold(connection: Connection, kept: Kept, end: End) -> DepotRewoundError:
    """See that no node takes the run before a person has decided; returns the error that says why."""
    reason = (
        f"the database has lost entries {end.last + 1} to {kept.commit.last}, which it had acknowledged; "
        f"{kept.directory} has them"
    )
    ((is_held,),) = connection.execute(
        "SELECT bartack.hold(%s, %s, %s)", (kept.run, kept.commit.fence, reason)
    ).fetchall()
    state = "it is held" if is_held else "another node continues it without them"
    return DepotRewoundError(kept.name, f"{reason}; {state}")
