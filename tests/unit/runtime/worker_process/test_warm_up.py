"""Warming up in the process that workers are forked from."""

from __future__ import annotations

import os
import sys
import threading

from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import worker
from bartack.runtime.worker_process import warm_up as _warm_up
from bartack.runtime.worker_process.child import HubGoneError
from bartack.runtime.worker_process.warm_up import warm_up


@worker
async def greedy(ctx: Context, number: int) -> int:
    """Waits for more answers than there are."""
    await ctx.mailbox.here.send(number)
    while True:
        await _warm_up.repeat(number)


def _traces() -> tuple[object, ...]:
    """What a warm-up could leave behind."""
    return (
        sorted(os.listdir("/dev/fd")),
        threading.enumerate(),
        list(sys.path),
        list(sys.meta_path),
        os.getcwd(),
        sys.stdout,
        dict(os.environ),
    )


def test_a_warm_up_leaves_nothing_behind() -> None:
    before = _traces()

    warm_up()

    assert _traces() == before


def test_both_parts_are_played_to_their_ends() -> None:
    cause = _warm_up.run_alone(_warm_up.failing)
    news = _warm_up.run_alone(_warm_up.blocked, cause)

    assert (cause.type, cause.message) == ("builtins:ValueError", "1")
    assert news.type == "bartack.errors:SessionFailedError"
    assert "ValueError" in news.message


def test_a_part_that_waits_for_more_than_there_is_comes_to_an_end() -> None:
    ends: list[BaseException] = []

    def play() -> None:
        try:
            _warm_up.run_alone(greedy)
        except HubGoneError as error:
            ends.append(error)

    playing = threading.Thread(target=play, daemon=True)
    playing.start()
    playing.join(5)

    assert len(ends) == 1
