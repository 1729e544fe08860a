"""``bartack mcp --plugin``: the entries of a built plugin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest
from tests.cli.mcp.peer import Peer

from bartack import Run

DESK: Final = """
import { loud } from "./lib/text"

# Keeps the night desk.
export trait NightDesk: Agent {
    # Sort the inbox of a folder into queues.
    # @arg folder the folder to sort
    @command
    fun sort_inbox(folder: string, limit: int = 3): string {
        print("sorting " + folder)
        return loud(folder)
    }
}
"""
TEXT: Final = """
export fun loud(text: string): string {
    return text + "!"
}
"""

Build = Callable[[Path], Path]


@pytest.fixture
def build(tmp_path: Path, run: Callable[..., CompletedProcess[str]]) -> Build:
    """Builds the plugin into a folder."""
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    (source / "desk.pw").write_text(DESK)
    (source / "lib/text.pw").write_text(TEXT)

    def make(folder: Path) -> Path:
        done = run("plugin", "build", str(source / "desk.pw"), "-o", str(folder))
        assert done.returncode == 0, done.stderr
        return folder

    return make


@pytest.mark.requirement("mcp-starts-and-reports-runs")
@pytest.mark.parametrize("place", ["elsewhere/night-desk", "project/.bartack/marketplace/plugins/night-desk"])
def test_an_entry_of_a_plugin_runs_in_the_project(tmp_path: Path, build: Build, place: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "bartack.toml").write_text('[project]\nname = "desk"\n')
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    plugin = build(tmp_path / place)
    with Peer(project, "--plugin", str(plugin)) as peer:
        tools = peer.request("tools/list")["result"]["tools"]
        wrong = peer.refused("start_run", entry="sort-inbox", args={"limit": "many", "more": 1})
        started = peer.call("start_run", entry="sort-inbox", args={"folder": "$(id); `id`"})
        found = peer.finish(started["run"])

    assert "sort-inbox(folder: string, limit: int (optional)): Sort the inbox" in tools[0]["description"]
    assert "sort-inbox(folder: string, limit: int (optional))" in wrong
    assert all(part in wrong for part in ("args.folder", "args.limit", "args.more"))
    assert found["value"] == "$(id); `id`!"
    assert [run.id for run in Run.list(project)] == [started["run"]]


@pytest.mark.requirement("mcp-starts-only-entries")
@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        '{"format": 2, "entries": {}}',
        '{"format": 1, "entries": {"a": {"module": "../../x.pw", "member": "m", "params": []}}}',
        '{"format": 1, "entries": {"a": {"module": "/etc/x.pw", "member": "m", "params": []}}}',
        '{"format": 1, "entries": {"a": {"module": "x.pw"}}}',
        '{"format": 1, "entries": []}',
    ],
)
def test_a_damaged_manifest_offers_nothing_and_says_why(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/manifest.json").write_text(manifest)
    with Peer(tmp_path, "--plugin", str(tmp_path)) as peer:
        text = peer.refused("start_run", entry="a")
        listed = peer.call("list_runs")

    assert "manifest" in text
    assert listed == {"runs": []}


def test_a_plugin_without_a_manifest_offers_nothing(tmp_path: Path) -> None:
    with Peer(tmp_path, "--plugin", "nowhere") as peer:
        tools = peer.request("tools/list")["result"]["tools"]

        assert json.dumps("No entry")[1:-1] in tools[0]["description"]
        assert "build the plugin again" in peer.refused("start_run", entry="a")
