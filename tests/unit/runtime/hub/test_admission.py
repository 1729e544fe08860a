"""Who comes in from outside, and as what."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from bartack.runtime.hub.admission import Gatekeeper
from bartack.runtime.hub.connection import Connection
from bartack.runtime.protocol.frames import Hello
from bartack.runtime.protocol.requests import NO_RIGHTS, STEP_RIGHTS
from bartack.runtime.state.run_state import State
from bartack.supervision.process.system import read_facts

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the system does not tell who it is"
)

HELLO = Hello(role="foreign", pid=1)


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A connection of this very process."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Connection(1, ours)


def keeper(*tokens: str) -> Gatekeeper:
    return Gatekeeper(lambda token: "main:1" if token in tokens else None, State())


def test_a_process_outside_may_ask_for_everything_and_is_named_by_its_number_and_start(
    connection: Connection,
) -> None:
    facts = read_facts(os.getpid())
    peer = keeper().admit(connection, HELLO, set())

    assert peer is not None
    assert facts is not None
    assert (peer.name, peer.rights) == (f"foreign:{os.getpid()}@{facts.started}", None)


@pytest.mark.parametrize(("token", "rights"), [("good", STEP_RIGHTS), ("bad", NO_RIGHTS), ("", NO_RIGHTS)])
def test_a_process_of_the_run_has_the_rights_of_its_token(
    connection: Connection, token: str, rights: frozenset[str]
) -> None:
    peer = keeper("good").admit(connection, Hello(role="foreign", token=token), {os.getppid()})

    assert peer is not None
    assert peer.rights == rights


def test_a_process_of_another_user_or_protocol_is_not_let_in(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keeper().admit(connection, Hello(role="foreign", proto=99), set()) is None

    monkeypatch.setattr(os, "getuid", lambda: os.stat(__file__).st_uid + 1)

    assert keeper().admit(connection, HELLO, set()) is None
