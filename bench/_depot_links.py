"""Appends as hubs make them: over the link to their node, which puts those of all its hubs into one statement.

The ends of all hubs are in one process, which is not that of the node.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bartack.depot.link import Answer, LinkCarrier, NodeLink
from bartack.journal import BlobRef
from bartack.journal.shared import Commit
from bench._depot import LINE, database, owned_runs
from bench._runner import Sample

if TYPE_CHECKING:
    from psycopg import Connection

    from bartack.depot.postgres._carrier import Courier


def append_linked(directory: str, size: int, *, runs: int) -> Sample:
    """Appends per second of hubs, each of which waits for its answer before the next one."""
    each = max(size // runs, 1)
    with database(directory) as (url, connection), _links(url, connection, runs) as links:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        hubs = [(fence, _end_of(link)) for fence, link in links]
        process = context.Process(target=_append, args=(theirs, hubs, each))
        process.start()
        theirs.close()
        try:
            return Sample(value=each * runs / ours.recv())
        finally:
            process.join()
            for _, end in hubs:
                end.close()


def _end_of(link: NodeLink) -> socket.socket:
    """The hub's end of a link, which carries its commits."""
    with link.starting() as fds:
        return socket.socket(fileno=os.dup(fds.commits))


@contextmanager
def _links(url: str, connection: Connection[Any], count: int) -> Generator[Sequence[tuple[int, NodeLink]]]:
    """The node's ends of the links of new runs, each with the fence of its run."""
    from bartack.depot.postgres._carrier import Courier  # noqa: PLC0415 - only the process of a contestant has to have it
    from bartack.depot.postgres._database import Database  # noqa: PLC0415 - likewise
    from bartack.depot.postgres._rewound import Identity  # noqa: PLC0415 - likewise

    owned = owned_runs(connection, count)
    row = connection.execute(b"SELECT id, joined FROM bartack.node ORDER BY id DESC LIMIT 1").fetchone()
    assert row is not None
    with Database(url) as opened, tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        courier = Courier(opened, Identity(*row))
        stack.callback(courier.close)
        made = [
            (fence, stack.enter_context(NodeLink(_taker(courier, run, Path(place)), _refuse)))
            for run, fence in owned
        ]
        yield made


def _taker(courier: Courier, run: int, place: Path) -> Callable[[Commit, Answer], None]:
    """What takes the commits of a run, as a node does."""
    from bartack.depot.postgres._carrier import Parcel  # noqa: PLC0415 - likewise
    from bartack.depot.postgres._rewound import Kept  # noqa: PLC0415 - likewise

    def take(commit: Commit, answer: Answer) -> None:
        courier.send(Parcel(Kept(run, f"run {run}", place, commit, _no_value), answer))

    return take


def _no_value(ref: BlobRef) -> bytes:
    """Nothing here has large values."""
    raise AssertionError(ref)


def _refuse(what: str, words: Sequence[object]) -> object:
    """Nothing here calls."""
    raise AssertionError(what, words)


def _append(report: Pipe, hubs: Sequence[tuple[int, socket.socket]], count: int) -> None:
    """Be the hubs: append to each run, whose second entry is the first of them."""
    ends = {end.fileno(): _Hub(LinkCarrier(end, fence, "run"), count) for fence, end in hubs}
    poller = select.poll()
    began = perf_counter()
    for fd, hub in ends.items():
        poller.register(fd, select.POLLIN)
        hub.send()
    while ends:
        for fd, _ in poller.poll():
            if ends[fd].is_over():
                poller.unregister(fd)
                del ends[fd]
    report.send(perf_counter() - began)


class _Hub:
    """The appends of one hub, each after the answer to the one before.

    Args:
        carrier: Takes them.
        count: How many there are.
    """

    def __init__(self, carrier: LinkCarrier, count: int) -> None:
        self._carrier = carrier
        self._last = count + 1
        self._seq = 2

    def send(self) -> None:
        """Send the next one."""
        self._carrier.send(Commit(self._seq, self._seq, self._carrier.fence, self._seq, LINE))

    def is_over(self) -> bool:
        """Take an answer, and send the next one if there is one."""
        if not self._carrier.take():
            return False
        if self._seq == self._last:
            return True
        self._seq += 1
        self.send()
        return False
