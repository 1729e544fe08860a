from __future__ import annotations

from pathlib import Path

import pytest

from bartack.agents.program._tool_results import LARGEST, SHOWN, store_result, tool_answer
from bartack.agents.protocol.messages import ToolProblem


def refuse(text: str) -> str:
    raise AssertionError("it is not large")


def test_a_result_is_its_json_and_a_value() -> None:
    assert tool_answer({"b": 1, "a": 2}, None, refuse) == (
        '{"a":2,"b":1}',
        {"value": {"b": 1, "a": 2}},
        False,
    )


def test_a_problem_and_a_value_that_json_has_not_are_errors() -> None:
    assert tool_answer(None, ToolProblem("failed", "it broke"), refuse) == ("it broke", None, True)
    assert tool_answer(float("nan"), None, refuse).is_error


@pytest.mark.requirement("large-results-are-stored")
@pytest.mark.parametrize("problem", [None, ToolProblem("failed", "x" * LARGEST * 2)])
def test_of_a_large_result_the_model_gets_the_beginning_and_where_all_of_it_is(
    problem: ToolProblem | None, tmp_path: Path
) -> None:
    given = tool_answer("x" * LARGEST, problem, lambda text: store_result(tmp_path, text))

    (path,) = (tmp_path / "results").iterdir()
    whole = path.read_text()
    assert whole == ('"' + "x" * LARGEST + '"' if problem is None else problem.message)
    assert given.text == f"{whole[:SHOWN]}\n[{len(whole)} characters; all of them are in {path}]"
    assert (given.structured, given.is_error) == (None, problem is not None)
    assert path.stat().st_mode & 0o077 == 0


def test_a_result_that_is_stored_again_is_one_file(tmp_path: Path) -> None:
    assert store_result(tmp_path, "x") == store_result(tmp_path, "x")
