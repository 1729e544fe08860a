"""Whether what runs leave behind is what our own schemas say.

Of every run: ``run.json``, every line to and from an agent, every line of its transcript. Of every run of the pipeline also its
receipts, its manifests and its ledger, and that the ledger adds up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import jsonschema_rs
import msgspec

from bartack.agents.protocol.messages import Event
from bartack.agents.replies import check_reply
from bartack.cli.project._schema import find_schema
from bartack.errors import JournalCorruptError
from bartack.pipeline.records.ledger import export_ledger


@cache
def validator(name: str, *, closed: bool) -> jsonschema_rs.Validator:
    """Says whether a value is what a schema wants."""
    return jsonschema_rs.validator_for(find_schema(name, closed=closed))


def faults_below(folder: Path) -> list[str]:
    """Everything below a directory that is not what its schema wants."""
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in {".git", "program", "blobs"}]
        wire = (Path(place, name) for name in files if name in {"stream.ndjson", "transcript.ndjson"})
        wire = (path for path in wire if not _is_of_other_kind(path))
        found += [f"{path}: {fault}" for path in wire for fault in _faults(path)]
        if "journal.ndjson" in files:
            found += faults_of_run(Path(place))
    return found


def _is_of_other_kind(path: Path) -> bool:
    """Whether a stream is of an agent that does not speak the line protocol: its first line says so."""
    with path.open("rb") as file:
        return b'"type":"bartack.opened"' in file.readline()


def faults_of_run(run: Path) -> list[str]:
    """The files of a run that are not what their schemas want."""
    summary = run / "run.json"
    # What a list of a database has written for a run that no hub has run yet.
    is_empty = summary.exists() and summary.read_bytes() == b"{}"
    found = [] if is_empty else _faults_of_file(summary, "run")
    found += faults_of_pipeline(run)
    if (run / "snapshots").is_dir():
        try:
            found += faults_of_ledger(export_ledger(run))
        except JournalCorruptError:
            # Somebody has damaged it on purpose.
            return found
    return found


def faults_of_pipeline(run: Path) -> list[str]:
    """The receipts and manifests in the directory of a run that are not what their schemas want."""
    files = {"receipt": "receipts/*/*.json", "snapshot-manifest": "snapshots/*.json"}
    return [
        fault
        for name, pattern in files.items()
        for path in run.glob(pattern)
        for fault in _faults_of_file(path, name)
    ]


def faults_of_ledger(lines: Iterable[bytes]) -> list[str]:
    """The lines of a ledger that are not what their schema wants."""
    check = validator("ledger-line", closed=True)
    return [
        f"ledger-line: {error.message}: {line[:500]!r}"
        for line in lines
        for error in check.iter_errors(msgspec.json.decode(line))
    ]


def _faults_of_file(path: Path, name: str) -> list[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    check = validator(name, closed=True)
    return [f"{path}: {error.message}" for error in check.iter_errors(msgspec.json.decode(content))]


def _faults(path: Path) -> Iterator[str]:
    # What is behind the last newline was being written when somebody was killed.
    for line in path.read_bytes().split(b"\n")[:-1]:
        value: dict[str, object] = msgspec.json.decode(line)
        if path.name == "transcript.ndjson":
            name, found, closed = "agent-transcript-line", value, True
        elif "line" in value and "case" not in value:
            # What an agent writes may have more than we know; what we write may not.
            found = msgspec.convert(value["line"], type=dict[str, object])
            name, closed = str(found["kind"]).replace("_", "-"), value["dir"] == "out"
        else:
            continue
        errors = list(validator(name, closed=closed).iter_errors(found))
        if errors and name == "event" and check_reply(msgspec.convert(found, type=Event)):
            # The code refuses this answer, too: the agent is asked again.
            continue
        for error in errors:
            yield f"{name}: {error.message}: {line[:500]!r}"
