from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.cli.runs._live import PlainView, TerminalView, View
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State


def plain_view(run: RunDir) -> View:
    return PlainView(run, began="started", patient=True)


def terminal_view(run: RunDir) -> View:
    return TerminalView(run, began="started", patient=True, asks=False)


@pytest.mark.parametrize("make", [plain_view, terminal_view])
def test_what_a_command_writes_goes_where_the_program_would_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[RunDir], View]
) -> None:
    view = make(RunDir(tmp_path))

    view.show("out", "main", "a\nb")
    view.show("err", "main", "trouble")
    view.turn(State())
    view.close()

    shown = capsys.readouterr()
    assert shown.out == "a\nb\n"
    assert "trouble\n" in shown.err.splitlines(keepends=True)
    assert "a\n" not in shown.err.splitlines(keepends=True)
