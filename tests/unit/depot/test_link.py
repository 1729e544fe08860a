"""The link between a node and a hub: what it does when the database is away, and when either side ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from bartack.depot.link import HubLink, LinkCarrier, LinkFds, NodeLink
from bartack.errors import (
    BlobMissingError,
    BlobTooLargeError,
    DepotUnavailableError,
    JournalCorruptError,
    JournalOwnershipLostError,
    JournalPoisonedError,
    ObjectStoreUnavailableError,
)
from bartack.journal.shared import Commit


def take(commit: Commit, answer: Callable[[Any], None]) -> None:
    raise AssertionError(commit)


def close(node: NodeLink, hub: HubLink) -> None:
    """Close both ends; the process of a hub ends instead."""
    node.close()
    hub._commits.close()
    hub._calls.close()


def link_with(call: Callable[[str, Sequence[Any]], object]) -> tuple[NodeLink, HubLink, list[bool]]:
    """A link, both ends in this process, and what the hub's end learns when the node is gone."""
    node, gone = NodeLink(take, call), list[bool]()
    with node.starting() as fds:
        hub = HubLink(2, LinkFds(*map(os.dup, fds)), lambda: gone.append(True))
    return node, hub, gone


@pytest.mark.requirement("fleet-damaged")
def test_a_node_knows_that_a_hub_ended_because_its_journal_is_damaged(tmp_path: Path) -> None:
    damage = JournalCorruptError("the database: run", 0, "entry 2 is not the one that was sent")
    node = NodeLink(lambda commit, answer: answer(damage), lambda what, words: None)
    with node.starting() as fds:
        hub = HubLink(2, LinkFds(*map(os.dup, fds)), lambda: None)
    carrier = LinkCarrier(hub._commits, 2, str(tmp_path))
    carrier.send(Commit(2, 2, 2, 1, b"a line\n"))

    with pytest.raises(JournalPoisonedError):
        until(carrier.take, "the outcome of the commit")

    assert node.damaged is damage
    assert node.given_up is None
    close(node, hub)


def test_a_call_waits_for_a_database_that_is_away() -> None:
    tries: list[str] = []

    def call(what: str, words: Sequence[Any]) -> object:
        tries.append(what)
        if len(tries) < 3:
            raise DepotUnavailableError("the database", "it is away")
        return list(words)

    node, hub, gone = link_with(call)

    assert hub.call("blob", "digest", 7) == ["digest", 7]
    assert tries == ["blob"] * 3
    assert gone == []
    close(node, hub)
    until(lambda: gone, "the hub to learn that its node is gone")


@pytest.mark.requirement("objects-away")
def test_a_call_waits_no_longer_than_a_run_may() -> None:
    def call(what: str, words: Sequence[Any]) -> object:
        raise ObjectStoreUnavailableError("s3://team", "it is away")

    node = NodeLink(take, call, hold_s=0.0)
    with node.starting() as fds:
        hub = HubLink(2, LinkFds(*map(os.dup, fds)), lambda: None)

    with pytest.raises(JournalOwnershipLostError):
        hub.call("blob", "digest", 7)
    assert isinstance(node.given_up, ObjectStoreUnavailableError)
    close(node, hub)


@pytest.mark.requirement("objects-limit")
def test_a_hub_learns_from_its_node_how_large_a_value_may_be(tmp_path: Path) -> None:
    asked: list[Sequence[Any]] = []

    def call(what: str, words: Sequence[Any]) -> object:
        asked.append((what, *words))
        return [words[0], 20 << 20, "the database"] if words[0] > 20 << 20 else True

    node, hub, _ = link_with(call)
    blobs = hub.blobs(tmp_path)

    blobs.put(bytes(100))
    blobs.put(bytes((16 << 20) + 1))
    with pytest.raises(BlobTooLargeError, match=f"{(20 << 20) + 1} bytes.*{20 << 20}.*the database"):
        blobs.put(bytes((20 << 20) + 1))
    assert asked == [("fits", (16 << 20) + 1), ("fits", (20 << 20) + 1)]
    close(node, hub)


def test_the_end_of_a_node_ends_a_call_that_waits() -> None:
    begun = threading.Event()

    def call(what: str, words: Sequence[Any]) -> object:
        begun.set()
        raise DepotUnavailableError("the database", "it is away")

    node, hub, _ = link_with(call)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            hub.call("blob", "digest", 7)
        except JournalOwnershipLostError as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(5)
    node.close()
    asking.join(5)

    assert len(ended) == 1
    close(node, hub)


def test_a_call_that_breaks_the_node_ends_the_hub_and_not_the_node() -> None:
    def call(what: str, words: Sequence[Any]) -> object:
        if what == "missing":
            raise BlobMissingError("digest", "here")
        raise KeyError(what)

    node, hub, _ = link_with(call)

    assert hub.call("missing") is None
    with pytest.raises(JournalOwnershipLostError):
        hub.call("strange")
    close(node, hub)


def test_no_hub_is_started_with_the_descriptors_of_a_link_that_is_closed() -> None:
    node = NodeLink(take, lambda what, words: (what, words))
    node.close()

    with pytest.raises(JournalOwnershipLostError), node.starting():
        pytest.fail("it was started")
