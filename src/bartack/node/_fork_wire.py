"""What a node and its fork server say to each other; see ``_warm.py`` and ``_fork_server.py``."""

from __future__ import annotations

import os
import struct
from typing import Final

import msgspec

from bartack.runtime.client.start_hub import HubOrder

PID: Final = struct.Struct("=q")
"""What the server answers: the process of the hub."""
ORDER, LOG, REPORT, GO = range(4)
"""The descriptors that come with the name of a module: the encoded ``ForkOrder``, the log, the report, and a pipe that is readable
when the hub may begin."""


class ForkOrder(msgspec.Struct, frozen=True, array_like=True):
    """See ``HubOrder``; the words are as the system has them, because they need not be text."""

    words: list[bytes]
    workspace: bytes
    environ: list[tuple[bytes, bytes]]
    sets: list[str]
    rest_after_s: float


def encode_order(order: HubOrder) -> bytes:
    """An order as the child of the server reads it."""
    made = ForkOrder(
        [os.fsencode(word) for word in order.words],
        os.fsencode(order.workspace),
        [(os.fsencode(name), os.fsencode(value)) for name, value in order.environ.items()],
        list(order.sets),
        order.rest_after_s,
    )
    return msgspec.msgpack.encode(made)


def decode_order(fd: int) -> ForkOrder:
    """Read an order from its file."""
    return msgspec.msgpack.decode(os.pread(fd, os.fstat(fd).st_size, 0), type=ForkOrder)
