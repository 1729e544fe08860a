"""The client of processes with an asyncio loop: what becomes of an answer when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from bartack.runtime.client.asynchronous.connection import AsyncHubClient
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import Request
from bartack.runtime.rundir.layout import RunDir


class Wire(asyncio.Transport):
    """Takes what a client sends."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = f.FrameReader()
        self.sent: list[f.ToHub] = []

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.sent += [f.decode_to_hub(body) for body in self.reader.feed(bytes(data))]

    def is_closing(self) -> bool:
        return False

    def given_back(self) -> list[str]:
        """The messages that the client gave back."""
        asks = [frame for frame in self.sent if isinstance(frame, f.Ask) and frame.do == "ack"]
        requests = [msgspec.json.decode(ask.a, type=Request) for ask in asks]
        return [request.id for request in requests if not request.ok]


MESSAGE = f.Answer(i=1, v=msgspec.Raw(b'{"id":"m-7","value":1}'))
NOTHING = f.Answer(i=1, v=msgspec.Raw(b"null"))


@pytest.mark.parametrize("when", ["before it is cancelled", "before it knows", "after it knows"])
def test_a_message_that_crosses_the_cancellation_of_its_receive_goes_back_once(
    tmp_path: Path, when: str
) -> None:
    async def scenario() -> Wire:
        client, wire = AsyncHubClient(RunDir(tmp_path), 0), Wire()
        client.connection_made(wire)
        async with asyncio.TaskGroup() as group:
            receive = group.create_task(client.receive("orders", None))
            await asyncio.sleep(0)
            if when == "before it is cancelled":
                client.data_received(f.encode(MESSAGE))
            receive.cancel()
            if when == "before it knows":
                client.data_received(f.encode(MESSAGE))
        assert receive.cancelled()
        if when == "after it knows":
            client.data_received(f.encode(MESSAGE))
        client.data_received(f.encode(NOTHING))
        return wire

    assert asyncio.run(scenario()).given_back() == ["m-7"]
