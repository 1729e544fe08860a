"""What people call a worker."""

from __future__ import annotations

import msgspec
import pytest

from bartack.runtime.state.naming import LONGEST_ARGUMENTS, label_of, one_line_arguments


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"args": ["b3", "b4"]}, "builder b3"),
        ({"args": [{"id": 1}, [2], None, True, 7]}, "builder 7"),
        ({"kwargs": {"who": "ann"}}, "builder ann"),
        ({"args": ["x" * 17, "two\nlines", "\u202eevil", ""]}, "builder"),
        ({}, "builder"),
        ("not arguments", "builder"),
    ],
)
def test_a_worker_is_called_by_its_name_and_its_first_short_argument(given: object, label: str) -> None:
    assert label_of("team:builder", msgspec.json.encode(given)) == label


def test_arguments_that_are_not_known_are_none() -> None:
    assert label_of("team:builder", None) == "builder"
    assert label_of("team:builder", b"{") == "builder"
    assert one_line_arguments(None) == ""


def test_arguments_are_one_line_that_is_not_too_long() -> None:
    line = one_line_arguments(msgspec.json.encode({"args": ["two\nlines", "y" * 1000]}))

    assert line.startswith('"two\\nlines", "yyy')
    assert len(line) == LONGEST_ARGUMENTS
    assert line.endswith("…")
