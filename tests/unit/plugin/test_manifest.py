"""The manifest of a plugin: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bartack.errors import PluginInvalidError
from bartack.plugin import PluginEntry, PluginManifest, load_manifest
from bartack.plugin._manifest import EntryParameter

ENTRY = PluginEntry(
    kind="command",
    module="desk.pw",
    member="NightDesk.sort_inbox",
    params=(
        EntryParameter("folder", "string", {"type": "string"}, required=True, doc="where to look"),
        EntryParameter("limit", "int", {"type": "integer"}, required=False),
    ),
    returns={"type": "integer"},
    doc="Sort the inbox.",
)
MANIFEST = PluginManifest(1, "desk.pw", {"sort-inbox": ENTRY}, {"README.md": "sha256:00"})


def write(folder: Path, data: bytes) -> Path:
    (folder / "program").mkdir()
    (folder / "program/manifest.json").write_bytes(data)
    return folder


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_manifest(write(tmp_path, MANIFEST.encode())) == MANIFEST


def test_a_manifest_is_indented_json_with_one_final_newline() -> None:
    text = MANIFEST.encode().decode()

    assert text.startswith('{\n  "format": 1,\n  "entry": "desk.pw",\n  "entries": {')
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_a_signature_marks_optional_parameters() -> None:
    assert ENTRY.signature == "folder: string, limit: int (optional)"


def test_a_missing_manifest_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(PluginInvalidError, match=r"program/manifest\.json"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"format": 1, "entry": "a.pw", "entries": {}, "more": 1}',
        msgspec.json.encode(msgspec.structs.replace(MANIFEST, format=2)),
    ],
)
def test_an_unreadable_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PluginInvalidError):
        load_manifest(write(tmp_path, data))
