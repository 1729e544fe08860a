from __future__ import annotations

from bartack import Context, worker
from bartack.testing import start_worker


@worker
async def hurried(ctx: Context) -> str:
    async with ctx.timeout(5):
        return await ctx.mailbox.orders.receive(60, type=str)


def test_a_worker_that_failed_by_its_deadline_goes_on_in_front_of_it() -> None:
    with start_worker(hurried()) as run:
        run.finish()
        assert run.error is not None
        assert run.error.kind.endswith("DeadlineExceededError")

        run.resume()
        run.send("orders", "late but there")
        run.finish()

        assert run.result == "late but there"
