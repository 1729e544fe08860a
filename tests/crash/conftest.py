"""Says at the end of a test run what the crash tests have gone through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.runs import Begin, RealRun

COUNTED = {
    "power_cut_states": "states of the disk after a power cut, all recovered",
    "kills": "kill -9 of a process that appends, nothing acknowledged lost",
    "chaos_kills": "kill -9 of hubs, workers and their parents, every run ended as if nothing had happened",
    "killed_lines": "kills in memory, one after every line of a journal, same results and nothing done twice",
    "damaged_journals": "damaged journals, each recovered or refused unchanged",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals = dict.fromkeys(COUNTED, 0)
    slowest = 0
    reports: list[pytest.TestReport] = terminalreporter.getreports("passed")
    for report in reports:
        for name, value in report.user_properties:
            if name in totals and isinstance(value, int):
                totals[name] += value
            if name == "long_run":
                terminalreporter.write_line(f"crash suite: {value}")
            if name == "gone_ms" and isinstance(value, int):
                slowest = max(slowest, value)
    for name, total in totals.items():
        if total:
            terminalreporter.write_line(f"crash suite: {total:,} {COUNTED[name]}")
    if slowest:
        terminalreporter.write_line(
            f"crash suite: no process left at most {slowest} ms after the end or a kill"
        )


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a run of one of the cases."""
    with ExitStack() as stack:

        def create(worker: str, *args: object) -> RealRun:
            return stack.enter_context(RealRun.create(tmp_path, "cases.py", worker, args))

        yield create
