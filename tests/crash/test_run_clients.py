"""Programs outside a run that look at it and take part in it, with and without a loop."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Awaitable, Callable

import pytest
from tests.crash.runs import PATIENCE_S, Begin, RealRun

from bartack import Session
from bartack.errors import (
    DeadlineExceededError,
    DeliveryError,
    DeliveryOptionError,
    MailboxClosedError,
    RunNotActiveError,
    SessionFailedError,
    StepNotFoundError,
    TypeMismatchError,
)
from bartack.messaging import Delivered
from bartack.runtime import AsyncRun, AsyncSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


@pytest.fixture
def run(begin: Begin) -> RealRun:
    """A run that sends back what it is sent, twice."""
    made = begin("echoing", 2)
    made.start()
    made.wait_open("receive")
    return made


def on_a_loop(run: RealRun, play: Callable[[AsyncRun], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await AsyncRun.open(run.run.path) as client:
            await asyncio.wait_for(play(client), PATIENCE_S)

    asyncio.run(main())


def test_an_asynchronous_client_takes_part_in_a_run(begin: Begin) -> None:
    run = begin("echoing", 3)  # it ends with the third, when the two before it have been received
    run.start()
    run.wait_open("receive")

    async def play(client: AsyncRun) -> None:
        assert (await client.state()).status == "running"
        async with await client.join() as session:
            session.check_failed()
            assert session.dir == client.dir / "work"
            assert await session.mailbox.names() == ["to"]
            await session.mailbox.to.send([1])
            assert await session.mailbox["back"].receive(PATIENCE_S, type=list[int]) == [1]
            await client.send("to", "x" * 100_000)
            async with session.mailbox.back.delivery(PATIENCE_S) as delivery:
                assert delivery.value == "x" * 100_000
            await session.mailbox.to.send(None)
        assert (await client.wait(PATIENCE_S)).status == "completed"
        assert await client.result(int) == 3
        events = [event["kind"] async for event in client.events(follow=True)]
        assert events[-1] == "run.ended"
        assert [step.kind async for step in client.steps(status="finished")][:2] == ["receive", "send"]
        assert [message.mailbox async for message in client.messages("back")] == ["back"] * 3

    on_a_loop(run, play)


def test_an_asynchronous_client_delivers_as_a_worker_does(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        async with await client.join() as session:
            box = session.mailbox.news
            await box.subscribe("build.*")
            outcome = await session.send_supervised("to", "paper", ack="delivered", timeout_s=PATIENCE_S)
            assert isinstance(outcome, Delivered)
            assert (await session.broadcast(["news", "other"], 1)).succeeded == 2
            assert (await session.publish("build.done", 2)).succeeded == 1
            await box.unsubscribe("build.*")
            mine = await box.send(3, metadata={"a": 1}, not_before=60)
            assert [(await box.stats()).scheduled, await box.withdraw(mine)] == [1, True]
            assert [await box.drain(1), await box.drain()] == [[1], [2]]
            await box.close()
            with pytest.raises(DeliveryError, match="closed"):
                await box.send_supervised(4)
            assert await box.drain() == []
            assert session.dead_letters.list_messages().letters == []

    on_a_loop(run, play)


def test_a_client_that_waits_has_the_same_operations(run: RealRun) -> None:
    with Session.join(run.run.path) as session:
        box = session.mailbox.news
        assert session.broadcast(["news", "other"], 1).succeeded == 2
        mine = box.send(2)
        assert [box.stats().queued, box.withdraw(mine), box.drain(5), box.drain()] == [2, True, [1], []]
        box.close()
        with pytest.raises(MailboxClosedError):
            box.send(3)
        with pytest.raises(DeliveryOptionError, match="a list"):
            session.broadcast("news", 1)


@pytest.mark.requirement("outsiders-call")
def test_clients_call_each_other_and_reply(run: RealRun) -> None:
    def serve(session: Session) -> None:
        with session.mailbox.waiting.delivery(20) as delivery:
            delivery.reply([delivery.value, delivery.sender.partition("@")[0]])

    async def play(client: AsyncRun) -> None:
        with Session.join(run.run.path) as waiting:
            async with await client.join() as awaiting, asyncio.TaskGroup() as group:
                served = group.create_task(asyncio.to_thread(serve, waiting))
                reply = await awaiting.mailbox.waiting.call("ping", 20, type=list[str])
                assert reply == ["ping", f"foreign:{os.getpid()}"]
                await served
                with pytest.raises(DeadlineExceededError):
                    await awaiting.mailbox.nobody.call("ping", 0)
                for unfit in (-1, math.inf, math.nan):
                    with pytest.raises(ValueError, match="timeout_s must"):
                        await awaiting.mailbox.nobody.call("ping", unfit)
                    with pytest.raises(ValueError, match="timeout_s must"):
                        await awaiting.mailbox.nobody.receive(unfit)
                    with pytest.raises(ValueError, match="timeout_s must"):
                        waiting.mailbox.nobody.receive(unfit)
                called = group.create_task(asyncio.to_thread(waiting.mailbox.awaiting.call, {"n": 1}, 20))
                async with awaiting.mailbox.awaiting.delivery(20) as delivery:
                    await delivery.reply({"got": delivery.value})
                assert await called == {"got": {"n": 1}}

    on_a_loop(run, play)


def test_a_cancelled_receive_loses_no_message(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        async with await client.join() as session:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(session.mailbox.back.receive(PATIENCE_S))
                await session.mailbox.names()  # the hub has heard both
                waiting.cancel()
            assert waiting.cancelled()
            await session.mailbox.to.send("kept")

            assert await session.mailbox.back.receive(PATIENCE_S) == "kept"

    on_a_loop(run, play)


def test_a_message_of_another_type_goes_back_to_its_mailbox(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        async with await client.join() as session:
            await session.mailbox.shelf.send("a text")
            with pytest.raises(TypeMismatchError):
                await session.mailbox.shelf.receive(PATIENCE_S, type=int)
            with Session.join(run.run.path) as other:
                with pytest.raises(TypeMismatchError):
                    other.mailbox.shelf.receive(PATIENCE_S, type=int)

                assert await session.mailbox.shelf.receive(PATIENCE_S, type=str) == "a text"

    on_a_loop(run, play)


def test_a_cancelled_call_takes_its_message_back(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        async with await client.join() as session:
            async with asyncio.TaskGroup() as group:
                calling = group.create_task(session.mailbox.nobody.call("ping", PATIENCE_S))
                await session.mailbox.names()
                assert "nobody" in await session.mailbox.names()  # the hub has heard of it
                calling.cancel()
            assert calling.cancelled()

            assert (await session.mailbox.nobody.stats()).queued == 0

    on_a_loop(run, play)


def test_a_client_learns_that_the_session_failed(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        session = await AsyncSession.join(client.dir)
        with pytest.raises(DeadlineExceededError):
            await session.wait_failed(0)
        async with asyncio.TaskGroup() as group:
            failing = group.create_task(session.wait_failed(PATIENCE_S))
            await session.mark_failed(ValueError("enough"))

        assert "enough" in failing.result().message
        with pytest.raises(SessionFailedError, match="enough"):
            session.check_failed()
        await session.close()

    on_a_loop(run, play)


def test_a_client_of_a_hub_that_is_killed_is_told(run: RealRun) -> None:
    async def play(client: AsyncRun) -> None:
        async with await client.join() as session:

            async def receive() -> None:
                with pytest.raises(RunNotActiveError):
                    await session.mailbox.back.receive(PATIENCE_S)

            async with asyncio.TaskGroup() as group:
                group.create_task(receive())
                await session.mailbox.names()
                run.kill_hub()
        with pytest.raises(RunNotActiveError):
            await client.join()

    on_a_loop(run, play)


def test_a_run_tells_its_steps_and_messages_and_can_be_forked(run: RealRun) -> None:
    for word in ("a", "b"):
        run.api.send("to", word)
    assert run.wait_hub() == 0
    api = run.api

    assert [step.name for step in api.steps("echoing", "finished")] == [f"echoing:{n}" for n in range(1, 5)]
    assert list(api.steps("nobody")) == []
    assert [(message.mailbox, message.status) for message in api.messages("to")] == [("to", "received")] * 2
    assert [(message.mailbox, message.status) for message in api.messages("back")] == [("back", "queued")] * 2
    with pytest.raises(StepNotFoundError):
        api.fork("99")
    fork = api.fork("2")
    assert [step.name for step in fork.steps(status="finished")] == ["echoing:1", "echoing:2"]
    fork.cancel("not needed")
    assert fork.state().status == "cancelled"
