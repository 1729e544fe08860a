"""Names of plugins and of what is in them: how they are made, and which are allowed."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
MOST: Final = 64
PLUGIN_MOST: Final = 27
"""Longer names of plugins would make names of tools that the model interface refuses."""
SERVER: Final = "bartack"
TOOLS: Final = ("start_run", "wait_run", "answer_question", "cancel_run")
"""The tools that a skill, a command or an agent uses."""
ALL_TOOLS: Final = (*TOOLS, "run_status", "list_runs", "send_message", "receive_message")

RESERVED: Final = frozenset(
    (
        "bartack", "claude", "anthropic",
        # The commands of Claude Code itself.
        "add-dir", "agents", "auto-mode-setup", "autocompact", "batch", "bug", "claude-api", "clear", "code-review", "color",
        "compact", "config", "context", "cost", "dataviz", "debug", "deep-research", "doctor", "effort", "exit", "export", "fast",
        "feedback", "fewer-permission-prompts", "focus", "goal", "heapdump", "help", "hooks", "ide", "init", "insights",
        "list-agents", "login", "logout", "loop", "mcp", "memory", "model", "output-style", "permissions", "plugin",
        "plugin-authoring", "quit", "recap", "reload-plugins", "reload-skills", "rename", "resume", "review", "rewind", "run",
        "run-skill-generator", "security-review", "simplify", "skills", "status", "statusline", "team-onboarding",
        "terminal-setup", "todos", "update-config", "upgrade", "usage", "verify", "vim", "workflow-authoring",
        "workflow-launch-exec",
    )
)  # fmt: skip

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DASHES: Final = re.compile(r"[-_\s]+")


def kebab(name: str) -> str:
    """A name as plugins write it: ``sortInbox`` and ``sort_inbox`` become ``sort-inbox``."""
    return _DASHES.sub("-", _HUMP.sub("-", name)).strip("-").lower()


def name_problem(name: str, most: int = MOST) -> str:
    """Why a name is not allowed; empty if it is."""
    if not NAME.fullmatch(name):
        return f"{name!r} is not a name of lower-case letters, digits and single '-'"
    if len(name) > most:
        return f"{name!r} has {len(name)} characters, at most {most} are allowed"
    if name in RESERVED:
        return f"{name!r} is a name of Claude Code or of Bartack itself"
    return ""


def tool_name(plugin: str, tool: str) -> str:
    """The full name of a tool of the plugin's server, as Claude Code knows it."""
    return f"mcp__plugin_{plugin}_{SERVER}__{tool}"
