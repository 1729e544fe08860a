"""The version of Codex, as it introduces itself."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"/([0-9]+(?:\.[0-9]+)+)")


def version_of(user_agent: str) -> str:
    """The version in ``bartack/0.163.0 (…)``; empty if there is none."""
    found = _VERSION.search(user_agent)
    return found[1] if found else ""


def is_older(version: str, than: str) -> bool:
    """Whether a version is older than another one; an unknown version is not."""
    return bool(version) and _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
