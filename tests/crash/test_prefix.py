"""Everything is killed after every line of a journal, and resumed: the same result, and nothing that was finished is done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import pytest
from tests.unit.runtime.stage import Ask, Lines, RemoteError, Role, Theatre, fields, plain

from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State

Record = Callable[[str, object], None]


def shell(word: str) -> Ask:
    return Ask("shell", s.ShellArgs(pipeline=[[word]]))


def send(mailbox: str, value: object, **options: int) -> Ask:
    return Ask("send", s.SendArgs(mailbox=mailbox, not_before=options.get("not_before")), value)


def receive(mailbox: str, timeout_s: float | None = None, *, hold: bool = False) -> Ask:
    return Ask("receive", s.ReceiveArgs(mailbox=mailbox, timeout_s=timeout_s, hold=hold))


def delegate(*names: str, on_failure: s.OnFailure = "fail", limit: int | None = None) -> Ask:
    args = s.DelegateArgs(workers=[f"prog:{name}" for name in names], on_failure=on_failure, limit=limit)
    return Ask("delegate", args, [dict[str, object]() for _ in names])


def spawn(name: str) -> Ask:
    return Ask("spawn", s.DelegateArgs(workers=[f"prog:{name}"]), [dict[str, object]()])


def ack(mailbox: str, held: object, *, ok: bool = True) -> Ask:
    args = s.AckArgs(mailbox=mailbox, id=str(fields(held)["id"]), ok=ok)
    return Ask("ack" if ok else "nack", args)


# A team that uses everything.


def team_main() -> Lines:
    parts = yield delegate("producer", "consumer")
    child = yield spawn("helper")
    answer = yield Ask("ask", s.AskArgs(question="Ship?", type="bool"))
    yield Ask("sleep", s.SleepArgs(seconds=30.0))
    helped = yield Ask("join", s.JoinArgs(path=str(child)))
    return [parts, answer, helped]


def team_producer() -> Lines:
    for number in range(4):
        built = yield shell(f"build{number}")
        assert built
        yield send("work", number)
    thought = yield Ask("think", s.ThinkArgs(prompt="Done?", name="review"))
    yield send("work", "end")
    return thought is not None


def team_consumer() -> Lines:
    got: list[object] = []
    while (value := (yield receive("work", 3600.0))) != "end":
        stored = yield Ask("body", value=value)
        got.append(stored)
    deep = yield delegate("deep", "deep", limit=1)
    return [got, deep]


def team_deep() -> Lines:
    yield shell("deep")
    return "deep"


def team_helper() -> Lines:
    yield send("later", "now")
    first = yield receive("later")
    return first


TEAM: Mapping[str, Role] = {
    "main": team_main,
    "producer": team_producer,
    "consumer": team_consumer,
    "deep": team_deep,
    "helper": team_helper,
}


# Deliveries that are given back, and calls.


def desk_main() -> Lines:
    yield Ask("declare", s.DeclareArgs(mailbox="jobs", capacity=2))
    results = yield delegate("client", "server", "sender")
    rest = yield Ask("drain", s.DrainArgs(mailbox="jobs"))
    return [results, rest]


def desk_client() -> Lines:
    first = yield Ask("call", s.CallMailboxArgs(mailbox="calls", timeout_s=600.0), "ping")
    return first


def desk_server() -> Lines:
    held = yield receive("calls", hold=True)
    yield ack("calls", held, ok=False)
    held = yield receive("calls", hold=True)
    yield Ask("reply", s.ReplyArgs(mailbox="calls", id=str(fields(held)["id"])), "pong")
    yield ack("calls", held)
    seen: list[object] = []
    while len(seen) < 5:
        value = yield receive("jobs", 60.0)
        seen.append(value)
    return seen


def desk_sender() -> Lines:
    for number in range(6):
        yield send("jobs", number)
    return "sent"


DESK: Mapping[str, Role] = {
    "main": desk_main,
    "client": desk_client,
    "server": desk_server,
    "sender": desk_sender,
}


# Timeouts, and failures that are handled.


def careful_main() -> Lines:
    results = yield delegate("fails", "works", on_failure="collect")
    seen: list[object] = [fields(outcome)["ok"] for outcome in msgspec.convert(results, type=list[object])]
    try:
        yield receive("nothing", 20.0)
    except RemoteError as late:
        seen.append(late.name)
    try:
        yield shell("broken")
    except RemoteError as failed:
        seen.append(failed.name)
    yield send("log", "handled")
    return seen


def careful_fails() -> Lines:
    return (yield shell("broken"))


def careful_works() -> Lines:
    yield Ask("sleep", s.SleepArgs(seconds=5.0))
    return "worked"


CAREFUL: Mapping[str, Role] = {"main": careful_main, "fails": careful_fails, "works": careful_works}

STORIES: Mapping[str, Mapping[str, Role]] = {"team": TEAM, "desk": DESK, "careful": CAREFUL}


class Cast:
    """Plays one story again and again, each time with a kill at another place."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._roles = roles

    def open(self, dies_after: int | None = None, *, late: bool = False) -> Theatre:
        theatre = Theatre(self._roles, dies_after=dies_after, late=late)
        return _prepared(theatre)

    def reopen(self, before: Theatre, dies_after: int | None = None) -> Theatre:
        """A new hub on what the one before left behind; the world remembers what was done in it."""
        theatre = _prepared(Theatre(self._roles, before.store, clock=before.clock, dies_after=dies_after))
        theatre.executed, theatre.bodies = before.executed.copy(), before.bodies.copy()
        return theatre


def _prepared(theatre: Theatre) -> Theatre:
    theatre.answers["Ship?"] = True
    theatre.results["broken"] = ShellEnd(3)
    return theatre


def play(theatre: Theatre) -> bool:
    """Whether the run came to its end without being killed."""
    try:
        theatre.begin()
        theatre.play()
    except KilledError:
        return False
    return True


def finished_keys(theatre: Theatre) -> set[str]:
    """The keys of the steps whose outcomes are durable."""
    state = State()
    apply_all(state, theatre.store.entries)
    keys: set[str] = set()
    if state.run is None:
        return keys
    theatre.hub.core.turn.state = state
    for entry in theatre.store.entries:
        data = e.decode_entry(entry.kind, entry.raw)
        if isinstance(data, e.StepFinished | e.StepFailed):
            worker = state.worker_of(data.p)
            assert worker is not None
            keys.add(theatre.hub.core.turn.key(worker, data.p, data.n))
    return keys


def executed_again(before: Counter[str], after: Counter[str], finished: set[str]) -> list[str]:
    new = after - before
    return [name for name in new if name.rpartition(" ")[2] in finished]


@pytest.mark.parametrize("late", [False, True], ids=["before it is told", "after it is told"])
@pytest.mark.parametrize("story", STORIES)
def test_a_run_that_is_killed_after_any_line_comes_to_the_same_end(
    story: str, late: bool, record_property: Record
) -> None:
    cast = Cast(STORIES[story])
    whole = cast.open()
    assert play(whole)
    lines = whole.lines()
    expected = plain(whole.core.state.result.raw)
    assert whole.hub.status == "completed"

    for line in range(2, lines):
        killed = cast.open(line, late=late)
        assert not play(killed)
        finished, before = finished_keys(killed), killed.executed.copy()
        resumed = cast.reopen(killed)
        assert play(resumed), f"killed after line {line}"

        assert plain(resumed.core.state.result.raw) == expected, f"killed after line {line}"
        assert executed_again(before, resumed.executed, finished) == [], f"killed after line {line}"
        assert set(resumed.outcomes().values()) == {1}, f"killed after line {line}"
        assert all(count <= 2 for count in resumed.executed.values()), f"killed after line {line}"
    record_property("killed_lines", lines)


@pytest.mark.parametrize("story", STORIES)
def test_a_run_whose_every_hub_writes_only_a_few_lines_comes_to_the_same_end(story: str) -> None:
    cast = Cast(STORIES[story])
    whole = cast.open()
    assert play(whole)
    expected = plain(whole.core.state.result.raw)

    theatre = cast.open(3)
    hubs = 0
    while theatre.core.state.ended is None and not play(theatre):
        hubs += 1
        assert hubs < 1000, "no progress"
        theatre = cast.reopen(theatre, dies_after=3 + hubs % 3)

    assert plain(theatre.core.state.result.raw) == expected
    assert set(theatre.outcomes().values()) == {1}


# Failure.


def failing_main() -> Lines:
    try:
        yield delegate("fails", "waits")
    except RemoteError:
        yield shell("tidy")
        raise
    return "mended"


def failing_fails() -> Lines:
    yield send("box", "stands")
    try:
        return (yield shell("broken"))
    except RemoteError:
        yield shell("tidy")
        raise


def failing_waits() -> Lines:
    try:
        value = yield receive("never", 7200.0)
    except RemoteError:
        yield shell("tidy")
        raise
    return value


FAILING: Mapping[str, Role] = {"main": failing_main, "fails": failing_fails, "waits": failing_waits}


@pytest.mark.parametrize("late", [False, True], ids=["before it is told", "after it is told"])
def test_a_failing_delegate_that_is_killed_after_any_line_fails_in_the_same_way(late: bool) -> None:
    cast = Cast(FAILING)
    whole = cast.open()
    assert play(whole)
    assert whole.hub.status == "failed"
    lines = whole.lines()

    for line in range(2, lines):
        killed = cast.open(line, late=late)
        assert not play(killed)
        resumed = cast.reopen(killed)
        assert play(resumed)

        failure = resumed.core.state.failure
        assert failure is not None, f"killed after line {line}"
        assert (resumed.hub.status, failure.worker) == ("failed", "main/1.1:fails"), (
            f"killed after line {line}"
        )
        assert len(resumed.core.state.mailbox("box")) == 1, f"killed after line {line}"


def test_a_failed_delegate_goes_on_when_its_cause_is_mended() -> None:
    cast = Cast(FAILING)
    whole = cast.open()
    assert play(whole)
    lines = whole.lines()

    for line in range(2, lines + 1):
        killed = cast.open(line if line < lines else None)
        assert play(killed) == (line == lines)
        resumed = mend(cast, killed)
        if resumed.hub.status == "failed":
            # It was killed when the step had failed and nobody knew yet that it would not be caught.
            resumed = mend(cast, resumed)

        assert resumed.hub.status == "completed", f"killed after line {line}"
        assert len(resumed.core.state.mailbox("box")) == 1, f"killed after line {line}"


def mend(cast: Cast, before: Theatre) -> Theatre:
    """Resume a run with a command that works and a worker that does not wait for ever."""
    resumed = cast.reopen(before)
    resumed.results.clear()
    resumed.roles = {**FAILING, "waits": patient}
    assert play(resumed)
    return resumed


def patient() -> Lines:
    try:
        return (yield receive("never", 7200.0))
    except RemoteError as problem:
        if problem.name == "ReceiveTimeoutError":
            return "nothing came"
        raise
