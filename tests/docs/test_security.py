"""Every line of the security page names a promise, and every promise of a page has a test (see tests/architecture)."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/security.md"


def test_every_line_of_the_security_page_names_a_promise_that_is_tested() -> None:
    promises = msgspec.toml.decode(
        (ROOT / "tests/requirements.toml").read_bytes(), type=dict[str, dict[str, object]]
    )
    known = {name for group in promises.values() for name in group}
    rows = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| what |")
    ]

    assert rows
    for row in rows:
        named = re.findall(r"`([^`]+)`", row.split("|")[-2])
        assert named, f"no promise is named in: {row}"
        assert set(named) <= known, f"unknown promise in: {row}"
