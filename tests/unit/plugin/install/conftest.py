"""Programs that stand in for Claude Code and for the interpreter, so that every step can be made to fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.unit.plugin.programs import write_desk

from bartack.plugin import build_plugin

CLAUDE = '''\
#!{python} -IS
"""Answers the plugin commands of Claude Code, from a file with its state."""
import json, os, sys
from pathlib import Path

home = Path(os.environ["HOME"])
file, words = home / "claude.json", sys.argv[1:]
state = json.loads(file.read_text()) if file.exists() else {{"marketplaces": {{}}, "plugins": []}}
(home / "calls").open("a").write(" ".join(words) + "\\n")
if os.environ.get("REFUSE") and " ".join(words).startswith(os.environ["REFUSE"]):
    print(json.dumps({{"outcome": "failed", "message": "not today", "failureCode": "other"}}))
    sys.exit(1)


def fail(code):
    print(json.dumps({{"outcome": "failed", "message": code, "failureCode": code}}))
    sys.exit(1)


def folder(plugin):
    name, _, marketplace = plugin.partition("@")
    return Path(state["marketplaces"].get(marketplace, "/nowhere")) / "plugins" / name


def version(plugin):
    path = folder(plugin) / ".claude-plugin/plugin.json"
    return json.loads(path.read_text())["version"] if path.exists() else ""


scope = words[words.index("--scope") + 1] if "--scope" in words else "user"
project = "" if scope == "user" else os.getcwd()
match words[1:3]:
    case ["validate", _]:
        print(json.dumps({{"success": True, "manifest": {{"errors": [], "warnings": []}}, "contents": []}}))
    case ["marketplace", "add"]:
        listed = json.loads((Path(words[3]) / ".claude-plugin/marketplace.json").read_text())
        state["marketplaces"][listed["name"]] = words[3]
    case ["marketplace", "remove"]:
        if state["marketplaces"].pop(words[3], None) is None:
            fail("not_configured")
    case ["install", plugin]:
        if not version(plugin):
            fail("not_found")
        if not any(one["id"] == plugin and one["scope"] == scope for one in state["plugins"]):
            state["plugins"].append(
                {{"id": plugin, "scope": scope, "version": version(plugin), "enabled": True, "projectPath": project}}
            )
    case ["update", plugin]:
        for one in state["plugins"]:
            one["version"] = version(one["id"]) if one["id"] == plugin else one["version"]
    case ["uninstall", plugin]:
        kept = [one for one in state["plugins"] if (one["id"], one["scope"]) != (plugin, scope)]
        if len(kept) == len(state["plugins"]):
            fail("not_installed")
        state["plugins"] = kept
    case ["list", "--json"]:
        for one in state["plugins"]:
            one |= {{"readFromFolder": str(folder(one["id"])), "folderVersion": version(one["id"])}}
        print(json.dumps(state["plugins"]))
file.write_text(json.dumps(state))
'''

PYTHON = '''\
#!{python} -IS
"""Answers the commands of an installed plugin."""
import json, os, sys

words = sys.argv[1:]
if words[:3] != ["-I", "-m", "bartack"]:
    os.execv({python!r}, [{python!r}, *words])
if os.environ.get("SILENT"):
    sys.exit("cannot start")
if words[3] == "mcp":
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["method"] == "tools/list":
            tools = [{{"name": "start_run"}}] if not os.environ.get("NO_TOOLS") else []
            print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": {{"tools": tools}}}}))
'''


@pytest.fixture
def programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with both programs, first on the PATH."""
    place = home / "bin"
    place.mkdir()
    for name, text in (("claude", CLAUDE), ("python", PYTHON)):
        (place / name).write_text(text.format(python=sys.executable), encoding="utf-8")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return place


@pytest.fixture
def plugin(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built plugin; the working directory is a project."""
    build_plugin(write_desk(home / "source"), home / "built")
    project = home / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return home / "built"
