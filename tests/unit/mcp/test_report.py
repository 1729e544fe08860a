"""Results fit into what a client takes, whatever is in them."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.core.canonical_json import canonical
from bartack.mcp._follow import Cursor
from bartack.mcp._report import LARGEST, fit

JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def many(value: object, times: int) -> object:
    return [value] * times


def long(text: str, times: int) -> object:
    return text * times


@settings(max_examples=100 if "SOAK" in os.environ else 25)  # each of them is large
@given(
    st.dictionaries(
        st.sampled_from(["value", "error", "questions", "workers", "message"]),
        st.builds(many, JSON, st.integers(0, 3000))
        | st.builds(long, st.text(min_size=1, max_size=5), st.integers(0, 30_000))
        | JSON,
    )
)
def test_no_result_is_larger_than_a_client_takes(result: dict[str, Any]) -> None:
    given_size = len(canonical(result))
    cut = fit({"run": "r", "cursor": 7, **result})

    assert len(canonical(cut)) <= LARGEST
    assert (cut["run"], cut["cursor"]) == ("r", 7)
    assert cut.get("truncated", False) is (given_size + 22 > LARGEST)


def test_a_list_is_cut_at_its_end_and_a_text_after_its_beginning() -> None:
    cut = fit({"questions": [{"n": number, "text": "x" * 100} for number in range(500)], "value": "short"})
    text = fit({"value": {"a": "y" * 50_000}})

    questions: Any = cut["questions"]
    assert 100 < len(questions) < 300
    assert [question["n"] for question in questions] == list(range(len(questions)))
    assert cut["value"] == "short"
    assert str(text["value"]).startswith('{"a":"yyy')


@given(st.integers(0, 2**40), st.integers(0, 999_999))
def test_a_cursor_comes_back_as_it_was(seq: int, lines: int) -> None:
    assert Cursor.parse(Cursor(seq, lines).number) == (seq, lines)
