"""Each check of ``tests/history.py`` finds what it is for, and nothing in a history that is right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.history import (
    CHECKS,
    History,
    Place,
    RequestRow,
    RunRow,
    Seen,
    TeamRow,
    check_history,
    problems_of,
)

from bartack.journal._format import encode_line
from bartack.journal.shared import Commit
from bartack.runtime.protocol.step_key import step_key

RUN = "run-20260101-000000-00000001"


def key(number: int) -> str:
    """The key of a step."""
    return step_key(RUN, "main", number, 0)


def finished(number: int, step: str = "shell") -> str:
    """An entry: a step was finished."""
    return f'"kind":"step.finished","data":{{"p":"main","n":{number},"step":"{step}","fp":""}}'


COPIED = '"kind":"workspace.kept","data":{"copy":"c"}'
DURING = '"kind":"workspace.kept","data":{"copy":"c","during":true}'
TAKEN = '"kind":"request.taken","data":{"id":"ab","do":"send"}'
RECEIVED = '"kind":"message.taken","data":{"mailbox":"m","id":"m-1","p":"main","n":9,"fp":""}'
ANSWERED = '"kind":"question.settled","data":{"id":"q1","answer":"yes"}'
OPENED = '"kind":"journal.opened","data":{"format":1,"fence":1,"pid":1,"by":"test"}'


def journal(*commits: tuple[int, list[str]]) -> list[Commit]:
    """Commits, each with its fence and with one line of entries."""
    made = list[Commit]()
    seq, crc = 1, 0
    for fence, bodies in commits:
        line, crc = encode_line([body.encode() for body in bodies], seq, seq, 1, crc)
        made.append(Commit(seq, seq + len(bodies) - 1, fence, crc, line))
        seq += len(bodies)
    return made


COMMITS = (
    (1, [OPENED]),
    (1, [finished(1), COPIED]),
    (3, [OPENED]),
    (3, [TAKEN, RECEIVED]),
    (3, [finished(2), COPIED]),
    (3, [finished(3, "ask"), ANSWERED]),
)
SEEN = (
    Seen(RUN, 1, key(1), "begin", ()),
    Seen(RUN, 1, key(1), "end"),
    Seen(RUN, 1, key(2), "begin", (key(1),)),
    Seen(RUN, 3, key(2), "begin", (key(1),)),
    Seen(RUN, 3, key(2), "moves"),
    Seen(RUN, 3, key(2), "end"),
)


def right(*commits: tuple[int, list[str]], state: str = "owned", node: int = 7, reason: str = "") -> History:
    """A history in which all promises were kept; or the same with another journal or owner."""
    made = journal(*(commits or COMMITS))
    return History(
        runs=[RunRow(1, RUN, "few", state, 3, node, reason, made)],
        live=frozenset({7}),
        teams=[TeamRow("few", 1, int(state == "owned"))],
        requests=[RequestRow("ab", 1, "send", "done")],
        seen=SEEN,
        acknowledged=[Place(RUN, made[-1].last, made[-1].crc)],
    )


def found(history: History) -> set[str]:
    """Which checks have found something."""
    problems = problems_of(history)
    assert all(problem.partition(":")[0] in CHECKS for problem in problems)
    return {problem.partition(":")[0] for problem in problems}


def with_commits(history: History, commits: list[Commit]) -> History:
    """The same with other rows in the table of journals."""
    return replace(history, runs=[history.runs[0]._replace(commits=commits)], acknowledged=[])


def test_nothing_is_wrong_in_a_history_in_which_all_promises_were_kept() -> None:
    assert problems_of(right()) == []


# H1


def test_an_acknowledged_entry_that_is_missing_is_found() -> None:
    history = right(*COMMITS[:-1])

    assert found(replace(history, acknowledged=right().acknowledged)) == {"H1"}


def test_an_acknowledged_entry_that_was_replaced_is_found() -> None:
    history = right()
    (place,) = history.acknowledged

    assert found(replace(history, acknowledged=[place._replace(crc=place.crc ^ 1)])) == {"H1"}
    assert found(replace(history, acknowledged=[place._replace(run="run-2")])) == {"H1"}


# H2


def test_a_gap_is_found() -> None:
    commits = [*right().runs[0].commits]
    del commits[3]

    assert "H2" in found(with_commits(right(), commits))


def test_a_changed_line_is_found() -> None:
    commits = [*right().runs[0].commits]
    commits[3] = commits[3]._replace(lines=commits[3].lines.replace(b"m-1", b"m-2"))

    assert "H2" in found(with_commits(right(), commits))


def test_a_row_that_does_not_know_its_end_is_found() -> None:
    commits = [*right().runs[0].commits]
    end = commits[-1]

    assert found(with_commits(right(), [*commits[:-1], end._replace(last=end.last - 1)])) == {"H2"}
    assert found(with_commits(right(), [*commits[:-1], end._replace(crc=end.crc ^ 1)])) == {"H2"}


def test_a_fence_that_falls_or_exceeds_that_of_the_run_is_found() -> None:
    commits = [*right().runs[0].commits]

    assert found(with_commits(right(), [*commits[:-1], commits[-1]._replace(fence=2)])) == {"H2"}
    assert found(with_commits(right(), [*commits[:-1], commits[-1]._replace(fence=4)])) == {"H2"}
    with pytest.raises(AssertionError, match="H2: the fence"):
        check_history([*commits[:-1], commits[-1]._replace(fence=2)])


# H3


def test_an_effect_of_a_step_that_another_owner_has_finished_is_found() -> None:
    again = Seen(RUN, 3, key(1), "begin", ())

    assert found(replace(right(), seen=[*SEEN[:3], again, *SEEN[3:]])) == {"H3"}


def test_an_effect_after_the_witness_has_seen_its_step_finish_is_found() -> None:
    over = Seen(RUN, 3, key(2), "finished")
    again = Seen(RUN, 3, key(2), "begin", (key(1),))

    assert found(replace(right(), seen=[*SEEN, over, again])) == {"H3"}
    assert found(replace(right(), seen=[*SEEN, over, over._replace(what="lost"), again])) == set()


def test_a_step_that_finishes_twice_is_found() -> None:
    assert found(right(*COMMITS, (3, [finished(4)]))) == set()
    assert found(right(*COMMITS, (3, [finished(4), finished(4)]))) == {"H3"}


# H4


@pytest.mark.parametrize("what", ["begin", "moves", "end"])
def test_an_effect_under_a_lower_fence_than_one_before_is_found(what: str) -> None:
    late = Seen(RUN, 1, key(2), "begin", (key(1),)) if what == "begin" else Seen(RUN, 1, key(2), "moves")
    late = late if what != "end" else late._replace(what="end")

    assert found(replace(right(), seen=[*SEEN, late])) == {"H4"}
    assert found(replace(right(), seen=[*SEEN, late._replace(run="run-2", files=None)])) == set()


# H5


@pytest.mark.parametrize("entry", [TAKEN, RECEIVED, ANSWERED])
def test_what_happens_twice_and_must_happen_once_is_found(entry: str) -> None:
    assert found(right(*COMMITS, (3, [entry]))) == {"H5"}


def test_a_question_of_a_program_that_is_answered_twice_is_found() -> None:
    assert found(right(*COMMITS, (3, [finished(3, "ask")]))) == {"H3", "H5"}


def test_a_settled_request_that_no_journal_has_is_found() -> None:
    settled = RequestRow("cd", 1, "answer", "done")

    assert found(replace(right(), requests=[settled])) == {"H5"}
    for right_one in (settled._replace(state="open"), settled._replace(asks="state")):
        assert found(replace(right(), requests=[right_one])) == set()


# H6


def test_a_step_that_was_finished_without_a_copy_of_its_files_is_found() -> None:
    commits = (*COMMITS[:4], (3, [finished(2)]), (3, [COPIED]), COMMITS[5])

    assert found(right(*commits)) == {"H6"}


@pytest.mark.parametrize("files", [(), (key(2), key(1)), (key(1), key(1)), (key(1), key(2))])
def test_files_after_a_takeover_that_are_not_those_of_finished_steps_are_found(
    files: tuple[str, ...],
) -> None:
    seen = [*SEEN]
    seen[3] = seen[3]._replace(files=files)

    assert found(replace(right(), seen=seen)) == {"H6"}


def test_files_from_before_the_loss_of_an_entry_are_not_judged() -> None:
    seen = [Seen(RUN, 1, key(8), "begin", (key(1), key(7))), *SEEN]

    assert found(replace(right(), seen=seen)) == {"H6"}
    assert found(replace(right(), seen=[seen[0], Seen(RUN, 1, key(7), "lost"), *SEEN])) == set()


def test_what_a_step_has_changed_itself_may_be_there_under_the_same_fence_or_with_a_copy_during_it() -> None:
    again = Seen(RUN, 3, key(2), "begin", (key(1), key(2)))
    in_copy = [*SEEN]
    in_copy[3] = again

    assert found(replace(right(), seen=[*SEEN, again])) == set()
    assert found(replace(right(), seen=in_copy)) == {"H6"}
    assert found(replace(right(*COMMITS[:2], (1, [DURING]), *COMMITS[2:]), seen=in_copy)) == set()


def test_what_a_step_has_changed_twice_is_there_twice_only_if_it_was_executed_twice_under_one_fence() -> None:
    commits = (*COMMITS, (3, [finished(4), COPIED]))
    later = Seen(RUN, 3, key(4), "begin", (key(1), key(2), key(2)))

    assert found(replace(right(*commits), seen=[*SEEN, SEEN[3], later])) == set()
    assert found(replace(right(*commits), seen=[*SEEN, later])) == {"H6"}
    moved = later._replace(files=(key(2), key(1), key(2)))
    assert found(replace(right(*commits), seen=[*SEEN, SEEN[3], moved])) == {"H6"}


# H7


def test_a_run_of_a_dead_node_is_found() -> None:
    assert found(replace(right(), live=frozenset({8}))) == {"H7"}


def test_a_run_that_is_held_without_a_reason_or_in_no_known_state_is_found() -> None:
    assert found(right(state="held", node=0)) == {"H7"}
    assert found(right(state="lost", node=0)) == {"H7"}
    for state in ("held", "queued", "resting", "over"):
        assert found(right(state=state, node=0, reason="its node died")) == set()


# H8


def test_a_team_that_does_not_count_its_runs_is_found() -> None:
    assert found(replace(right(), teams=[TeamRow("few", 1, 0)])) == {"H8"}
    assert found(replace(right(state="over", node=0), teams=[TeamRow("few", 1, 1)])) == {"H8"}


def test_a_team_that_exceeds_its_limit_is_found() -> None:
    assert found(replace(right(), teams=[TeamRow("few", 0, 1)])) == {"H8"}
