"""What a turn says, and how it is put together for those who hear it."""

from __future__ import annotations

import pytest

from bartack.journal import MemoryJournal
from bartack.runtime.kernel.turn import TOGETHER, Ledger, Peer, Say, Show
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.run_state import State
from bartack.testing import VirtualClock


@pytest.fixture
def ledger() -> Ledger:
    clock = VirtualClock()
    return Ledger(State(), MemoryJournal(clock=clock), clock)


def heard(action: object) -> list[f.ToPeer]:
    assert isinstance(action, Say)
    return [f.decode_to_peer(body) for body in f.FrameReader().feed(action.data)]


def test_frames_for_one_peer_that_follow_each_other_go_together(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        ledger.say(Peer(7), f.Answer(i=number))

    (said,) = ledger.committed()

    assert heard(said) == [f.Answer(i=1), f.Answer(i=2), f.Answer(i=3)]


def test_what_is_said_to_others_or_done_in_between_keeps_its_turn(ledger: Ledger) -> None:
    ledger.say(Peer(1), f.Answer(i=1))
    ledger.say(Peer(2), f.Answer(i=2))
    ledger.say(Peer(1), f.Answer(i=3))
    ledger.act(Show("note", "main", "shown"))
    ledger.say(Peer(1), f.Answer(i=4))

    actions = ledger.committed()

    assert [action.peer if isinstance(action, Say) else "shown" for action in actions] == [
        1,
        2,
        1,
        "shown",
        1,
    ]


def test_urgent_frames_do_not_wait_behind_others(ledger: Ledger) -> None:
    ledger.say(Peer(1), f.Answer(i=1))
    ledger.say(Peer(1), f.Leave(), urgent=True)

    assert [(action.peer, action.urgent) for action in ledger.committed() if isinstance(action, Say)] == [
        (1, False),
        (1, True),
    ]


def test_long_frames_are_not_copied_again_and_again(ledger: Ledger) -> None:
    long = f.Called(p="main", tool="x" * TOGETHER)
    ledger.say(Peer(1), long)
    ledger.say(Peer(1), long)

    assert len(ledger.committed()) == 2
