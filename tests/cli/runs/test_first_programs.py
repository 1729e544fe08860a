"""What a person meets who writes a first program: true times, and errors that name the mistake and the way on."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from tests.cli.runs.stories import Call

HEAD = "from bartack import Context, step, worker\n"


def write(text: str, name: str = "team.py", head: str = HEAD) -> str:
    Path(name).write_text(head + textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return name


# Times.


def test_the_time_of_a_body_counts_from_its_real_begin(bartack: Call) -> None:
    """One is over before the hub looks, the other is seen a second late."""
    program = write(
        """
        import time

        @step
        def work(seconds: float) -> None:
            time.sleep(seconds)

        @worker
        async def main(ctx: Context) -> None:
            await work(0.2)
            await work(1.2)
        """
    )

    assert bartack("run", program).returncode == 0
    took = [step["duration_s"] for step in json.loads(bartack("show", "latest", "--json").stdout)["steps"]]
    assert [seconds >= least for seconds, least in zip(took, (0.2, 1.2), strict=True)] == [True, True]
