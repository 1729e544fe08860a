"""Which conversation of a step is the newest, and how many there may be."""

from __future__ import annotations

from pathlib import Path

from tests.unit.agents.codex.stage import request_for

from bartack.agents.program._generations import generation_id, missing_parent, newest_generation


def test_a_step_has_no_later_generation_before_one_has_a_directory(tmp_path: Path) -> None:
    (tmp_path / generation_id(request_for(), 0)).mkdir()

    assert newest_generation(tmp_path, request_for()) == 0
    assert newest_generation(tmp_path / "none", request_for()) == 0


def test_the_newest_generation_is_found_however_many_were_begun(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / generation_id(request_for(), number)).mkdir()

    assert newest_generation(tmp_path, request_for()) == 3


def test_a_conversation_that_is_not_there_is_named() -> None:
    error = missing_parent("codex", "conv-1")

    assert "there is no conversation conv-1 of this agent to continue" in str(error)
