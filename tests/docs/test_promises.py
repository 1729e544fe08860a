"""What the pages promise of a journal's files and of its events."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from bartack.errors import JournalSyncError
from bartack.journal import open_journal
from bartack.journal.contract import INLINE_LIMIT
from bartack.telemetry import Telemetry
from bartack.testing import FaultyDisk, VirtualClock

ROOT = Path(__file__).parents[2]
RUN = "/run"
LARGE = b'"' + b"x" * INLINE_LIMIT + b'"'


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
@pytest.mark.requirement("files-are-private")
def test_a_journal_keeps_its_files_to_its_owner(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with open_journal(run) as journal:
        journal.append("large", {}, LARGE)
    with (run / "journal.ndjson").open("ab") as file:
        file.write(b"torn")
    with open_journal(run):
        pass

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [run, *run.rglob("*")]}
    assert {"run", "journal.ndjson", "lock", "reserve", "blobs", "journal.torn-3"} <= set(modes)
    assert {name for name, mode in modes.items() if mode not in {0o600, 0o700}} == set()


@pytest.mark.requirement("journal-tells-what-happens")
def test_a_journal_tells_of_large_values_and_whether_they_were_there_already() -> None:
    telemetry = Telemetry()
    heard: list[tuple[int, object]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((measurements["size_bytes"], metadata["deduplicated"]))

    telemetry.attach("test", "journal.blob_written", note)
    value = b'"%s"' % (b"x" * 100_000)
    disk = FaultyDisk()
    with open_journal(RUN, disk=disk, telemetry=telemetry) as journal:
        journal.append("step.finished", value=value)
        journal.append("step.finished", value=value)
    with open_journal(RUN, disk=disk, telemetry=telemetry) as journal:
        journal.append("step.finished", value=value)

    assert heard == [(len(value), False), (len(value), True), (len(value), True)]


@pytest.mark.requirement("journal-tells-what-happens")
def test_a_journal_tells_of_opening_committing_recovering_and_poison() -> None:
    disk, telemetry = FaultyDisk(), Telemetry()
    heard: list[tuple[str, dict[str, int], dict[str, object]]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((name, dict(measurements), dict(metadata)))

    with open_journal(RUN, disk=disk, clock=VirtualClock()) as journal:
        journal.append("step.finished")
    whole = disk.tree()[f"{RUN}/journal.ndjson"]
    disk.put(f"{RUN}/journal.ndjson", whole + b"torn")
    telemetry.attach("test", "journal.*", note)
    with open_journal(RUN, disk=disk, clock=VirtualClock(), telemetry=telemetry) as journal:
        size = journal.size_bytes
        disk.fail_sync()
        with pytest.raises(JournalSyncError):
            journal.append("doubtful")

    assert heard == [
        ("journal.recovered", {"size_bytes": 4}, {"seq": 3, "kept_as": f"{RUN}/journal.torn-3"}),
        ("journal.committed", {"entries": 1, "size_bytes": size - len(whole), "duration_ns": 0}, {}),
        ("journal.opened", {"entries": 3, "size_bytes": size, "duration_ns": 0}, {"path": RUN, "fence": 2}),
        ("journal.poisoned", {}, {"reason": os.strerror(errno.EIO)}),
    ]


def rows_of_promises() -> list[tuple[str, Path]]:
    """The ids on the page of promises, each with the file that it links to."""
    page = ROOT / "docs/explanation/promises.md"
    found = re.findall(r"\[`([\w-]+)`\]\(([^)]+)\) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [(name, (page.parent / target).resolve()) for name, target in found]


@pytest.mark.requirement("promises-name-their-tests")
def test_every_promise_on_the_page_of_promises_links_to_a_test_that_keeps_it() -> None:
    made = msgspec.toml.decode(
        (ROOT / "tests/requirements.toml").read_bytes(), type=dict[str, dict[str, str | dict[str, object]]]
    )
    promises = {name: promise for group in made.values() for name, promise in group.items()}
    rows = rows_of_promises()

    def keeps(name: str, file: Path) -> bool:
        text, promise = file.read_text(encoding="utf-8"), promises[name]
        if isinstance(promise, str):
            return re.search(rf'mark\.requirement\([^)]*"{name}"', text) is not None
        return any(f"def {test}(" in text for test in msgspec.convert(promise["contract"], list[str]))

    assert len(rows) > 30
    assert [(name, str(file)) for name, file in rows if name not in promises or not keeps(name, file)] == []
