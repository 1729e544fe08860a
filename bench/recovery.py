"""How long a killed run takes to continue: kill -9 of all processes, then ``resume``, until the first new step is done.

Run with ``python -m bench.recovery [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from bartack.journal import open_reader
from bartack.runtime import Run
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench._runs import kill_everything, make_run


def resume(directory: str, size: int, *, steps: int) -> Sample:
    """Seconds from the start of ``bartack resume`` to the first new step; ``size`` is not used: a run is a run."""
    run = make_run(directory, "long_history", steps, durability="process")
    run.resume()
    _wait_for(run, "step.started", "receive")
    kill_everything(run)
    run.send("wait", None)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bartack", "resume", run.id],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return Sample(value=run.result(float) - began)


def _wait_for(run: Run, kind: str, step: str) -> None:
    with open_reader(Path(run.dir)) as reader:
        for entry in reader.follow(timeout_s=120):
            if entry.kind == kind and entry.data["step"] == step:
                return


BENCH: Final = Bench(
    name="recovery",
    title="Resume after kill -9 of all processes",
    races=tuple(
        Race(
            key=f"after_{steps}",
            title=f"resume to the next new step, {steps} steps before",
            unit="s",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS,
                    label="bartack",
                    measure=partial(resume, steps=steps),
                    size=1,
                    quick_size=1,
                    every=3,
                ),
            ),
        )
        for steps in (1_000, 10_000)
    ),
    goals=(
        Goal(race="after_1000", title="resume after 1,000 steps", bound="at most", target=0.3, stretch=0.2),
        Goal(race="after_10000", title="resume after 10,000 steps", bound="at most", target=0.8, stretch=0.5),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
