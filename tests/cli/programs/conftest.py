"""Without a soak, a case that is there for several kinds of agents is tried with one of them; the kinds take turns.

A case that is there for one kind only is always tried, so every behaviour is.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

HERE = Path(__file__).parent
PINNED = {
    "test_a_home_that_cannot_be_written_is_found_before_the_run": "claude",
}
"""Tests in which the kinds differ: the one that shows most is tried."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "SOAK" in os.environ or any("programs" in argument for argument in config.args):
        return
    cases: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        kind = re.search(r"\[(claude|codex|acp)\b", item.name)
        if kind is not None and item.path.is_relative_to(HERE):
            cases[item.nodeid.replace(kind[1], "", 1)][kind[1]] = item
    later = {
        item for case, kinds in cases.items() for item in kinds.values() if item is not _choose(case, kinds)
    }
    config.hook.pytest_deselected(items=list(later))
    items[:] = [item for item in items if item not in later]


def _choose(case: str, kinds: dict[str, pytest.Item]) -> pytest.Item:
    names = sorted(kinds)
    test = case.partition("::")[2].partition("[")[0]
    return kinds[PINNED.get(test, names[crc32(case.encode()) % len(names)])]
