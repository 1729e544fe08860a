"""What has to hold of runs on nodes, whatever has failed: eight checks of a history.

A history is what is left when runs were executed and things failed: the tables of the database as of one moment, the entries that
owners know to be kept, and what a *witness* has seen, to which all effects report and which is outside all nodes. Each check
returns what is wrong, in words that begin with its name:

- H1 an entry that was acknowledged is there;
- H2 a journal has no gap, its checksums are a whole chain, and its fences never fall;
- H3 no effect of a finished step begins again;
- H4 effects of different fences of a run do not overlap;
- H5 each message is received once, each question answered once, each request carried out once;
- H6 an effect begins with the files of the finished steps, each of which is finished together with a copy of its files;
- H7 every run is over, queued, resting, or held with a reason, or a live node owns it;
- H8 a team that has a limit counts the runs that are owned, and does not exceed it.

All take time in proportion to the history. They know neither nodes nor faults: ``tests/crash/test_fleet_chaos.py`` breaks real
processes, ``test_fleet_cables.py`` cables, ``test_fleet_failover.py`` a server, and ``fleet_simulation`` a model of all of them.
``tests/unit/test_history.py`` shows each check a history that is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from tests.verdict import judging

from bartack.depot.postgres._database import Session
from bartack.journal._format import Scanner, decode_line
from bartack.journal.shared import Commit
from bartack.runtime.protocol.requests import BY_ID
from bartack.runtime.protocol.step_key import step_key

# What a history is made of.


class RunRow(NamedTuple):
    """A run, as the database has it.

    Attributes:
        no: Its number.
        id: Its id.
        team: The team that it belongs to.
        state: See ``OwnerState``.
        fence: The number of its last ownership.
        node: The node that owns it; 0: none.
        reason: Why it is in that state.
        commits: Its journal.
    """

    no: int
    id: str
    team: str
    state: str
    fence: int
    node: int
    reason: str
    commits: Sequence[Commit] = ()


class TeamRow(NamedTuple):
    """A team with a limit: how many of its runs may be owned at once, and how many are, by its own count."""

    name: str
    max_running: int
    running: int


class RequestRow(NamedTuple):
    """A request to a run, what it asks for, and what became of it."""

    id: str
    run: int
    asks: str
    state: str


class Seen(NamedTuple):
    """What the witness has seen of an effect, in the order in which it happened.

    Attributes:
        run: The id of its run.
        fence: The number of the ownership that it was begun under.
        step: The key of its step.
        what: ``begin`` and ``end`` of an execution, and any sign in between. A witness that is where steps finish also
            sees ``finished``, and ``lost``: the database has lost the last entry of the run. If that was the end of a step,
            it is this one.
        files: With ``begin``: the steps whose changes are in the workspace, in order; ``None`` for steps that change no files.
    """

    run: str
    fence: int
    step: str
    what: Literal["begin", "moves", "end", "finished", "lost"]
    files: tuple[str, ...] | None = None


class Place(NamedTuple):
    """An entry that an owner knows to be kept, with the CRC of its line: a chain makes that everything before it, too."""

    run: str
    seq: int
    crc: int


class Fact(NamedTuple):
    """Something that a journal says.

    Attributes:
        what: A step was finished; a copy of the files was made; a message was received; a question was answered; a request was
            carried out.
        name: Which one. For a copy: ``during`` if it was made while a step was under way.
        fence: The ownership that it was written under.
        line: The line that it is in: what is in one line is there together or not at all.
    """

    what: Literal["finished", "copied", "received", "answered", "taken"]
    name: str
    fence: int
    line: int


class Form(Protocol):
    """How journals are read."""

    def ends(self, commits: Iterable[Commit]) -> Iterator[tuple[int, int]]:
        """The place of the last entry of each line, and its CRC, as far as the lines are a chain."""
        ...

    def facts(self, run: RunRow) -> Iterator[Fact]:
        """What the journal of a run says."""
        ...


@dataclass(frozen=True)
class History:
    """See the module.

    Attributes:
        runs: All runs.
        live: The numbers of nodes that may own runs.
        teams: The teams with a limit.
        requests: All requests.
        seen: What the witness has seen.
        acknowledged: The entries that owners know to be kept.
        form: How the journals are read.
    """

    runs: Sequence[RunRow] = ()
    live: frozenset[int] = frozenset()
    teams: Sequence[TeamRow] = ()
    requests: Sequence[RequestRow] = ()
    seen: Sequence[Seen] = ()
    acknowledged: Sequence[Place] = ()
    form: Form | None = None

    @property
    def _form(self) -> Form:
        return self.form or JournalForm()

    @cached_property
    def ends(self) -> dict[str, dict[int, int]]:
        """Of each run: the CRC of each line by the place of its last entry, as far as the lines are a chain."""
        return {run.id: dict(self._form.ends(run.commits)) for run in self.runs}

    @cached_property
    def facts(self) -> dict[str, list[Fact]]:
        """What the journal of each run says."""
        return {run.id: [*self._form.facts(run)] for run in self.runs}


# The checks.


def check_acknowledged(history: History) -> Iterator[str]:
    """H1: an entry that was acknowledged to an owner is there, with everything before it, unchanged."""
    for run, seq, crc in history.acknowledged:
        if history.ends.get(run, {}).get(seq) != crc:
            yield f"H1: entry {seq} of {run} was acknowledged, and is not there"


def check_journals(history: History) -> Iterator[str]:
    """H2: a journal has no gap, its checksums are a whole chain, and its fences never fall, nor exceed that of the run."""
    for run in history.runs:
        ends, seq, fence = history.ends[run.id], 0, 0
        for commit in run.commits:
            if commit.seq != seq + 1:
                yield f"H2: {run.id} has a gap before entry {commit.seq}"
            if ends.get(commit.last) != commit.crc:
                yield f"H2: the chain of {run.id} breaks in the commit of entry {commit.seq}"
            if not fence <= commit.fence <= run.fence:
                yield f"H2: the fence of {run.id} is {commit.fence} at entry {commit.seq}, after {fence} and before {run.fence}"
            seq, fence = commit.last, commit.fence
        if max(ends, default=0) != seq:
            yield f"H2: {run.id} has more entries than its last commit, {seq}"


def check_finished(history: History) -> Iterator[str]:
    """H3: a step finishes once, and its effect does not begin after that: under a higher fence, or where the witness saw it end."""
    fences: dict[tuple[str, str], int] = {}
    for run, facts in history.facts.items():
        for fact in facts:
            if fact.what == "finished":
                if (run, fact.name) in fences:
                    yield f"H3: step {fact.name} of {run} has finished twice"
                fences[run, fact.name] = fact.fence
    over = set[tuple[str, str]]()
    for one in history.seen:
        step = one.run, one.step
        match one.what:
            case "finished":
                over.add(step)
            case "lost":
                over.discard(step)
            case "begin":
                if step in over or one.fence > fences.get(step, one.fence):
                    yield f"H3: step {one.step} of {one.run} begins again under fence {one.fence}, and was finished"
            case _:
                pass


def check_owners(history: History) -> Iterator[str]:
    """H4: once an effect has happened under a fence, none of the same run happens under a lower one."""
    highest: dict[str, int] = {}
    for one in history.seen:
        if one.what in {"begin", "moves", "end"}:
            if one.fence < highest.get(one.run, 0):
                yield f"H4: {one.what} of {one.step} of {one.run} under fence {one.fence}, after fence {highest[one.run]}"
            highest[one.run] = max(one.fence, highest.get(one.run, 0))


def check_deliveries(history: History) -> Iterator[str]:
    """H5: each message is received once, each question answered once, and each request carried out once if it was settled."""
    taken = Counter[str]()
    for run, facts in history.facts.items():
        counts = Counter((fact.what, fact.name) for fact in facts)
        for (what, name), count in counts.items():
            if what in {"received", "answered"} and count > 1:
                yield f"H5: {name} of {run} was {what} {count} times"
            if what == "taken":
                taken[name] += count
    states = {request.id: request for request in history.requests}
    for name, count in taken.items():
        if count > 1:
            yield f"H5: request {name} was carried out {count} times"
    for request in states.values():
        if request.state == "done" and request.asks in BY_ID and not taken[request.id]:
            yield f"H5: request {request.id} to run {request.run} was settled, and is not in its journal"


def check_files(history: History) -> Iterator[str]:
    """H6: an effect begins with the files that finished steps have left, and each of those is finished together with a copy.

    The steps that change files are those that report what they find. They are executed one after another. What a step itself has
    changed may be there when it is executed again: under the same fence, or if a copy was made during it. So it may be there more
    than once afterwards.
    """
    changing: dict[str, set[str]] = {}
    for one in history.seen:
        if one.files is not None:
            changing.setdefault(one.run, set()).add(one.step)
    finished: dict[str, list[str]] = {}
    during = set[str]()
    for run, steps in changing.items():
        facts = history.facts.get(run, [])
        copied = {fact.line for fact in facts if fact.what == "copied"}
        during |= {run for fact in facts if (fact.what, fact.name) == ("copied", "during")}
        finished[run] = [fact.name for fact in facts if fact.what == "finished" and fact.name in steps]
        for fact in facts:
            if fact.what == "finished" and fact.name in steps and fact.line not in copied:
                yield f"H6: step {fact.name} of {run} was finished without a copy of its files"
    yield from _check_found(history.seen, finished, during)


def _check_found(seen: Sequence[Seen], finished: dict[str, list[str]], during: set[str]) -> Iterator[str]:
    places = {(run, step): place for run, steps in finished.items() for place, step in enumerate(steps)}
    begun = set[tuple[str, int, str]]()
    again = set[tuple[str, str]]()
    lost = {one.run: number for number, one in enumerate(seen) if one.what == "lost"}
    for number, one in enumerate(seen):
        if one.what != "begin" or one.files is None or number < lost.get(one.run, 0):
            continue  # what a lost entry had finished is in no journal
        if (one.run, one.fence, one.step) in begun or one.run in during:
            again.add((one.run, one.step))
        begun.add((one.run, one.fence, one.step))
        place = places.get((one.run, one.step), len(finished[one.run]))
        found = [
            step
            for step, before in zip(one.files, ("", *one.files), strict=False)
            if step != before or (one.run, step) not in again
        ]
        if found and found[-1] == one.step and (one.run, one.step) in again:
            found.pop()
        if found != finished[one.run][:place]:
            yield f"H6: step {one.step} of {one.run} begins under fence {one.fence} with the changes of {one.files}"


def check_standings(history: History) -> Iterator[str]:
    """H7: every run is over, queued or resting, or held with a reason, or owned by a live node."""
    for run in history.runs:
        match run.state:
            case "owned" if run.node not in history.live:
                yield f"H7: {run.id} is owned by node {run.node}, which is not alive"
            case "held" if not run.reason:
                yield f"H7: {run.id} is held without a reason"
            case "owned" | "held" | "over" | "queued" | "resting":
                pass
            case other:
                yield f"H7: {run.id} is {other!r}"


def check_teams(history: History) -> Iterator[str]:
    """H8: a team with a limit counts its runs that are owned, and no more are owned than it allows."""
    owned = Counter(run.team for run in history.runs if run.state == "owned")
    for team in history.teams:
        if team.running != owned[team.name]:
            yield f"H8: {owned[team.name]} runs of team {team.name} are owned, and it counts {team.running}"
        if owned[team.name] > team.max_running:
            yield f"H8: {owned[team.name]} runs of team {team.name} are owned, of {team.max_running}"


Check = Callable[[History], Iterator[str]]
CHECKS: Final[dict[str, Check]] = {
    "H1": check_acknowledged,
    "H2": check_journals,
    "H3": check_finished,
    "H4": check_owners,
    "H5": check_deliveries,
    "H6": check_files,
    "H7": check_standings,
    "H8": check_teams,
}


def problems_of(history: History) -> list[str]:
    """Everything that is wrong."""
    return [problem for check in CHECKS.values() for problem in check(history)]


@judging()
def check_history(commits: Sequence[Commit]) -> None:
    """Assert H2 of one journal."""
    fence = max((commit.fence for commit in commits), default=0)
    found = [*check_journals(History([RunRow(1, "the run", "", "over", fence, 0, "", commits)]))]
    assert found == [], found


# Reading real ones.


class JournalForm:
    """See ``Form``: the lines of real runs."""

    def ends(self, commits: Iterable[Commit]) -> Iterator[tuple[int, int]]:
        """See ``Form.ends``."""
        scanner = Scanner()
        for commit in commits:
            for line in commit.lines.splitlines(keepends=True):
                scanner.feed(line)
                if scanner.problem or scanner.rest:
                    return
                yield scanner.next_seq - 1, scanner.crc

    def facts(self, run: RunRow) -> Iterator[Fact]:
        """See ``Form.facts``."""
        number = 0
        for commit in run.commits:
            for line in commit.lines.splitlines():
                number += 1
                if any(word in line for word in _WORDS):
                    yield from self._facts_in(line, run.id, commit.fence, number)

    def _facts_in(self, line: bytes, run: str, fence: int, number: int) -> Iterator[Fact]:
        for entry in decode_line(line):
            data = entry.data
            match entry.kind:
                case "step.finished":
                    place = f"{data['p']}.{data['n']}"
                    if data["step"] == "ask":
                        yield Fact("answered", place, fence, number)
                    yield Fact(
                        "finished", step_key(run, str(data["p"]), int(str(data["n"])), 0), fence, number
                    )
                case "workspace.kept":
                    yield Fact("copied", "during" if data.get("during") else "", fence, number)
                case "message.taken" if not data.get("attempt"):
                    yield Fact("received", str(data["id"]), fence, number)
                case "question.settled" if data.get("how", "answered") == "answered":
                    yield Fact("answered", str(data["id"]), fence, number)
                case "request.taken":
                    yield Fact("taken", str(data["id"]), fence, number)
                case _:
                    pass


_WORDS: Final = (
    b'"step.finished"',
    b'"workspace.kept"',
    b'"message.taken"',
    b'"question.settled"',
    b'"request.taken"',
)


def rows_of(session: Session, run: int) -> list[Commit]:
    """The journal of a run."""
    statement = "SELECT seq, last, fence, crc, lines FROM bartack.journal WHERE run = %s ORDER BY seq"
    rows = session.rows(statement, run)
    return [Commit(seq, last, fence, crc, bytes(lines)) for seq, last, fence, crc, lines in rows]


def read_history(
    session: Session,
    seen: Sequence[Seen] = (),
    acknowledged: Sequence[Place] = (),
    *,
    with_journals: bool = True,
) -> History:
    """The history of all runs of a database, as of one moment.

    Args:
        session: A connection whose user sees everything.
        seen: What the witness has seen.
        acknowledged: The entries that owners know to be kept.
        with_journals: Whether journals are read. H7 and H8 need none.
    """
    with session.use() as connection, connection.transaction():
        connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        def rows(statement: str) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = connection.execute(statement.encode()).fetchall()
            return found

        journals: dict[int, list[Commit]] = {}
        for run, seq, last, fence, crc, lines in rows(_JOURNALS) if with_journals else ():
            journals.setdefault(run, []).append(Commit(seq, last, fence, crc, bytes(lines)))
        return History(
            runs=[RunRow(*row)._replace(commits=journals.get(row[0], ())) for row in rows(_RUNS)],
            live=frozenset(node for (node,) in rows(_LIVE)),
            teams=[TeamRow(*row) for row in rows(_TEAMS)],
            requests=[RequestRow(*row) for row in rows(_REQUESTS)],
            seen=seen,
            acknowledged=acknowledged,
        )


_RUNS: Final = (
    "SELECT o.run, r.id, r.team, o.state, o.fence, coalesce(o.node, 0), o.reason "
    "FROM bartack.owner o JOIN bartack.run r ON r.no = o.run ORDER BY o.run"
)
_JOURNALS: Final = "SELECT run, seq, last, fence, crc, lines FROM bartack.journal ORDER BY run, seq"
_LIVE: Final = "SELECT id FROM bartack.node WHERE state IN ('live', 'draining')"
_TEAMS: Final = "SELECT name, max_running, running FROM bartack.team WHERE max_running IS NOT NULL"
_REQUESTS: Final = "SELECT replace(id::text, '-', ''), run, asks, state FROM bartack.request"


def acknowledged_by(mirrors: Iterable[Path]) -> list[Place]:
    """The last entry of each copy of a journal on a node: it has what the database has acknowledged there, and nothing else.

    Args:
        mirrors: The directories of runs, each named as the run.
    """
    found = list[Place]()
    for mirror in mirrors:
        path = mirror / "journal.ndjson"
        if not path.exists():
            continue  # what was to run it died before
        scanner = Scanner()
        scanner.feed(path.read_bytes())
        assert not scanner.problem, f"{mirror}: {scanner.problem}"
        if scanner.next_seq == 1:
            continue  # the database did not answer yet
        found.append(Place(mirror.name, scanner.next_seq - 1, scanner.crc))
    return found
