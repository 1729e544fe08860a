"""README's table of what survives: every line rests on promises that tests keep (see tests/architecture)."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<what>.+?) \| (?P<have>.+) \|$", re.MULTILINE)

KEPT_BY = {
    "`kill -9` of a worker": {"killed-worker-replays", "workers-attach-to-commands"},
    "`kill -9` of the hub, or of all processes": {"stopped-run-goes-on", "replay-nothing-twice"},
    'a power cut, with `durability = "power"` (the default)': {
        "run-survives-power-cut",
        "power-cut-loses-nothing",
        "update-is-durable-first",
        "fork-is-durable-first",
    },
    "a message": {"messages-arrive-once"},
    "the machine of a run dies, and its runs are [in PostgreSQL](docs/tutorial/two-nodes.md)": {
        "fleet-takeover",
        "fleet-fence",
    },
    "a step that must not happen twice (`once=True`)": {"once-is-not-guessed"},
    "a worker fails": {"failure-reaches-all", "replay-late-outcome", "update-compares-first"},
    "a question to a person": {"intake-survives-kill", "first-answer-counts"},
    "disk full, failed sync": {"full-disk-stops", "failed-sync-is-final", "full-disk-interrupts-a-pipeline"},
    "a byte of the journal changed, or its end cut off, zeroed or swapped": {
        "changed-byte-is-found",
        "lost-entries-are-missed",
        "torn-line-is-kept-aside",
        "torn-line-is-reported",
    },
}


def test_every_line_of_what_survives_rests_on_promises_that_are_tested() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    table = page.split("## What survives", 1)[1].split("\n## ", 1)[0]
    rows = [found["what"] for found in ROW.finditer(table)][1:]
    promises = msgspec.toml.decode(
        (ROOT / "tests/requirements.toml").read_bytes(), type=dict[str, dict[str, object]]
    )

    assert rows == list(KEPT_BY)
    assert set().union(*KEPT_BY.values()) <= {name for group in promises.values() for name in group}
