"""Tests that judge what is left after faults: if one finds something wrong, that is a result, and no reason to try again.

``.ci/suite`` repeats a few tests that fail. Those that have failed here it does not repeat: their names are in ``WRONG``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest

WRONG: Final = ".pytest_cache/wrong-histories"
"""A file with the tests that have found something wrong, one in each line."""


class WrongHistoryError(AssertionError):
    """What is left after faults breaks a promise."""


@contextmanager
def judging() -> Generator[None]:
    """An assertion that fails in this block, or in a function with this decorator, is a verdict."""
    try:
        yield
    except AssertionError as error:
        raise WrongHistoryError(str(error)) from error


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note a test that has found something wrong. This runs in the process of the test."""
    if call.excinfo is not None and isinstance(call.excinfo.value, WrongHistoryError):
        file = item.config.rootpath / WRONG
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as wrong:
            wrong.write(f"{item.nodeid}\n")
