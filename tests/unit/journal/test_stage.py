"""What joins a group that is staged is in its line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bartack.journal import Draft, open_journal


def test_what_joins_a_group_is_in_its_line_and_what_does_not_is_not(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.stage(Draft("one"))
        journal.stage(Draft("two"), Draft("three"), join=True)
        journal.stage(Draft("four"))
        journal.commit()

    lines = (tmp_path / "journal.ndjson").read_bytes().splitlines()
    kinds = [
        [entry["kind"] for entry in line.get("entries", [line])]
        for line in (msgspec.json.decode(text) for text in lines)
    ]
    assert kinds[-2:] == [["one", "two", "three"], ["four"]]
