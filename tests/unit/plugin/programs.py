"""Programs that the tests make plugins of."""

from __future__ import annotations

from pathlib import Path

DESK = """\
import ./lib/sorting

# Sorts what comes in at night.
export trait NightDesk: Agent {
    # Sort the inbox of a folder into queues.
    # @arg folder where to look
    # @arg limit how many at most
    @skill
    @command
    fun sort_inbox(folder: string, limit: int = 10): int {
        return sorting.order(limit)
    }

    # Report the night.
    @command "night-report"
    fun report() {
        return "quiet"
    }

    fun inner() {
        return 1
    }
}

# Triage one letter.
# @color blue
# @model opus
export worker triage(letter: { subject: string, tags?: [string] }): string {
    return letter.subject
}

worker hidden() {
    return 1
}
"""
SORTING = "export fun order(x: int) {\n    return x\n}\n"
SETTINGS = '[plugin]\nversion = "1.2.0"\nlicense = "MIT"\nkeywords = ["mail"]\n\n[plugin.hooks]\nguard = true\nrecord = true\n'

TEAM = '''\
"""Sorts what comes in at night."""

from bartack import Context, worker
from bartack.plugin import Plugin, command, skill
from lib import order


@worker
async def sort_inbox(ctx: Context, folder: str, limit: int = 10) -> int:
    """Sort the inbox of a folder
    into queues.

    Args:
        folder: where to look
        limit: how many
            at most
    """
    return order(limit)


@worker
async def triage(ctx: Context, letter: dict[str, str]) -> str:
    """Triage one letter."""
    return letter["subject"]


plugin = Plugin("night-desk", entries=[skill(sort_inbox), command(sort_inbox)], workers=[triage])
'''
LIB = "def order(x: int) -> int:\n    return x\n"


def write_desk(folder: Path, text: str = DESK, settings: str = SETTINGS) -> Path:
    """A project with a Patchwork program; returns the program."""
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    (folder / "desk.pw").write_text(text, encoding="utf-8")
    (folder / "lib/sorting.pw").write_text(SORTING, encoding="utf-8")
    (folder / "bartack.toml").write_text(settings, encoding="utf-8")
    return folder / "desk.pw"


def write_team(folder: Path, text: str = TEAM) -> Path:
    """A project with a Python program; returns the program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "team.py").write_text(text, encoding="utf-8")
    (folder / "lib.py").write_text(LIB, encoding="utf-8")
    return folder / "team.py"
