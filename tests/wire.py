"""Whether what runs leave behind is what the schemas say: every line to and from an agent, and every line of its transcript."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jsonschema_rs
import msgspec

from bartack.agents import schema


@cache
def validator(name: str, *, closed: bool) -> jsonschema_rs.Validator:
    """Says whether a value is what a schema wants."""
    return jsonschema_rs.validator_for(schema(name, closed=closed))


def faults_below(folder: Path) -> list[str]:
    """Every line below a directory that is not what its schema wants."""
    return [f"{path}: {fault}" for path in _files(folder) for fault in _faults(path)]


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in {".git", "program", "blobs"}]
        yield from (Path(place, name) for name in files if name in {"stream.ndjson", "transcript.ndjson"})


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
        for error in validator(name, closed=closed).iter_errors(found):
            yield f"{name}: {error.message}: {line[:500]!r}"
