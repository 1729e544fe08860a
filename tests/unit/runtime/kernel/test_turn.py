"""What a turn says, and how it is put together for those who hear it."""

from __future__ import annotations

import pytest

from bartack.journal import MemoryJournal
from bartack.runtime.kernel.actions import SendFrames, Show
from bartack.runtime.kernel.turn import TOGETHER, Peer, Turn
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.run_state import State
from bartack.testing import VirtualClock


@pytest.fixture
def turn() -> Turn:
    clock = VirtualClock()
    return Turn(State(), MemoryJournal(clock=clock), clock)


def heard(action: object) -> list[f.ToPeer]:
    assert isinstance(action, SendFrames)
    return [f.decode_to_peer(body) for body in f.FrameReader().feed(action.data)]


def test_frames_for_one_peer_that_follow_each_other_go_together(turn: Turn) -> None:
    for number in (1, 2, 3):
        turn.send(Peer(7), f.Answer(i=number))

    (said,) = turn.committed()

    assert heard(said) == [f.Answer(i=1), f.Answer(i=2), f.Answer(i=3)]


def test_what_is_said_to_others_or_done_in_between_keeps_its_turn(turn: Turn) -> None:
    turn.send(Peer(1), f.Answer(i=1))
    turn.send(Peer(2), f.Answer(i=2))
    turn.send(Peer(1), f.Answer(i=3))
    turn.after_commit(Show("note", "main", "shown"))
    turn.send(Peer(1), f.Answer(i=4))

    actions = turn.committed()

    assert [action.peer if isinstance(action, SendFrames) else "shown" for action in actions] == [
        1,
        2,
        1,
        "shown",
        1,
    ]


def test_urgent_frames_do_not_wait_behind_others(turn: Turn) -> None:
    turn.send(Peer(1), f.Answer(i=1))
    turn.send(Peer(1), f.Leave(), urgent=True)

    assert [
        (action.peer, action.urgent) for action in turn.committed() if isinstance(action, SendFrames)
    ] == [
        (1, False),
        (1, True),
    ]


def test_long_frames_are_not_copied_again_and_again(turn: Turn) -> None:
    long = f.Called(p="main", tool="x" * TOGETHER)
    turn.send(Peer(1), long)
    turn.send(Peer(1), long)

    assert len(turn.committed()) == 2
