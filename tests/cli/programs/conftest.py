"""Without a soak, each case is tried with one kind of agent; the kinds take turns."""

from __future__ import annotations

import os
import re
from pathlib import Path
from zlib import crc32

import pytest

KINDS = ("claude", "codex", "acp")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "SOAK" in os.environ or any("programs" in argument for argument in config.args):
        return
    later = [item for item in items if item.path.is_relative_to(HERE) and not _is_its_turn(item.name)]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in later]


def _is_its_turn(name: str) -> bool:
    found = re.search(r"\b(claude|codex|acp)\b", name)
    if found is None:
        return True
    case = name.replace(found[1], "", 1)
    return KINDS[crc32(case.encode()) % len(KINDS)] == found[1]
