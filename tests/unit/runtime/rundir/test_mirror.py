"""The files that mirror a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.unit.runtime.stage import Stage, ask

from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror, RunFile


def test_files_show_the_state_at_which_they_were_taken_and_not_what_came_after_it(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    main = stage.begin()
    mirror = Mirror(run, stage.core.state)
    ask(main, 1)
    files = mirror.take(active=True)
    assert files is not None
    ask(main, 2)
    main.fail()

    mirror.put(files, seq=7)

    shown = msgspec.json.decode((run.path / "run.json").read_bytes(), type=RunFile)
    assert (shown.status, shown.questions, shown.error, shown.seq) == ("waiting", ["q1"], "", 7)
    assert not run.failed.exists()
