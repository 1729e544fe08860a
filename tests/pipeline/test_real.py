"""The same with real processes, through the command line: agents that misbehave, kill -9 of the hub or of everything, full disks.

Which action fails, how, and where the kill falls is chosen by a seed that is shown when a test fails.
``BARTACK_CHAOS_SEED=17 pytest tests/pipeline/test_real.py`` replays one; ``make soak`` tries many.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.pipeline.matrix import FAULTS
from tests.pipeline.real import REPLIES, Shop
from tests.pipeline.team import Reply
from tests.transcripts import fact_transcript

from bartack.cli import main
from bartack.runtime.rundir.layout import RunDir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart as on Linux")

SOAK: Final = "BARTACK_CHAOS_SOAK" in os.environ
_SEED: Final = os.environ.get("BARTACK_CHAOS_SEED")
SEEDS: Final = [int(_SEED)] if _SEED else range(1, 61 if SOAK else 2)
SLOW: Final = {"hang", "hang and live", "10,000 log lines", "stderr flood"}
"""These take real time: the first two are for a clock that can be moved, the others have a test of their own."""
LARGEST_KIB: Final = 150 * 1024


@pytest.fixture(scope="module")
def known(shop: Shop) -> Shop:
    """One whose run nothing went wrong in."""
    return shop


@pytest.fixture(scope="module")
def whole(known: Shop) -> tuple[object, ...]:
    """What such a run comes to."""
    return known.facts()


@pytest.mark.requirement("pipeline-survives-kill")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_and_a_kill_change_nothing_with_real_processes(
    seed: int, tmp_path: Path, known: Shop, whole: tuple[object, ...]
) -> None:
    random = Random(seed)
    action = random.choice(list(REPLIES))
    name = random.choice([name for name in FAULTS if name not in SLOW])
    place, all_of_it = random.randrange(8, known.last_seq()), random.random() < 0.5
    shop = Shop(
        tmp_path,
        {action: {**REPLIES[action], "inject": [FAULTS[name].inject]}},
        dedupe=random.random() < 0.5,
    )
    told = f"seed {seed}: {action}, {name}, killed behind entry {place}, {all_of_it=}"

    killed = shop.run_and_kill(lambda entry: entry.seq >= place, all_of_it=all_of_it)
    finished = {receipt.idempotency_key for receipt in shop.journaled()}
    sent = [key for key in shop.commands() if key in finished]
    code = shop.resume() if killed else 0

    assert code == 0, f"{told}\n{shop.story()}"
    assert shop.facts() == whole, told
    assert (shop.run_dir / "transcript.txt").read_bytes() == fact_transcript(RunDir(shop.run_dir)), told
    assert [key for key in shop.commands() if key in finished] == sent, told


@pytest.mark.requirement("transcript-of-a-pipeline")
def test_the_transcript_of_a_run_tells_each_command_and_answer(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (shop.run_dir / "transcript.txt").read_text().splitlines(keepends=True)

    assert [" ".join(line.split()[1:5]) for line in lines if " ik:" in line] == [
        "bartack → team implement",
        "bartack → team implement_changes",
        "bartack → team review",
        "bartack → team update_spec",
    ]
    assert sum("  team   " in line for line in lines) == 4
    assert lines[-1].endswith("  run completed\n")
    assert main(["log", shop.run_dir.name, "--workspace", str(shop.workspace)]) == 0
    assert capsys.readouterr().out == "".join(lines)


@pytest.mark.requirement("bad-lines-are-borne")
def test_floods_of_an_agent_fill_neither_memory_nor_disk_nor_the_console(
    tmp_path: Path, whole: tuple[object, ...]
) -> None:
    floods = [FAULTS["10,000 log lines"].inject, FAULTS["stderr flood"].inject]
    shop = Shop(tmp_path, {"review": {**REPLIES["review"], "inject": floods}})

    assert shop.run() == 0, shop.story()

    assert shop.facts() == whole
    assert shop.largest_kib < LARGEST_KIB
    assert len(shop.story().splitlines()) < 60
    kept = [path.stat().st_size for path in shop.run_dir.rglob("*") if path.is_file()]
    assert max(kept) < 20 * 1024 * 1024


FULL: Final = """\
import errno, os, sys
RUNS = os.path.join(os.path.realpath(os.environ["SHOP"]), ".bartack", "runs")
FULL = os.path.join(os.environ["SHOP"], "full")
def refuse(real):
    def act(path, flags, *args, **more):
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(RUNS) and os.path.exists(FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, flags, *args, **more)
    return act
if "scripted" not in sys.orig_argv:
    os.open = refuse(os.open)
"""
"""A start-up module: when the workspace has a file called so, no file of a run can be opened for writing any more."""


@pytest.mark.requirement("full-disk-interrupts-a-pipeline")
def test_a_full_disk_ends_the_command_with_6_and_resume_goes_on(
    tmp_path: Path, whole: tuple[object, ...]
) -> None:
    fills = [{"path": "full", "content": "x"}]
    first: Reply = {**REPLIES["review"], "write": fills, "when": {"attempt": 1}}
    shop = Shop(tmp_path, {"review": [first, {**REPLIES["review"], "times": 0}]})
    home = tmp_path / "home"
    home.mkdir()
    (home / "sitecustomize.py").write_text(FULL)

    code = shop.run(env={"PYTHONPATH": str(home), "SHOP": str(shop.workspace)})
    told = shop.story()
    (shop.workspace / "full").unlink()

    assert code == 6, told
    assert os.strerror(errno.ENOSPC) in told
    assert shop.resume() == 0, shop.story()
    assert shop.facts() == whole
