from __future__ import annotations

import pytest

from bartack.cli.look._ps import busy_with
from bartack.runtime.protocol.requests import Process


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (Process("agent", 7, step="main:3", about="cook"), "cook of main:3"),
        (Process("agent", 7, about="cook"), "cook, between calls"),
        (Process("command", 7, step="main:3", about="ls"), "of main:3"),
        (Process("worker", 7), ""),
    ],
)
def test_ps_says_what_a_process_is_busy_with(process: Process, words: str) -> None:
    assert busy_with(process, 0) == words
