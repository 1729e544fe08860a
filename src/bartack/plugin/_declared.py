"""How a Python program declares a plugin: ``Plugin``, with its skills, commands and workers.

A Patchwork program declares the same with a trait. ``builder/_python.py`` reads this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bartack.runtime import Worker


class PluginMember(NamedTuple):
    """A worker as a skill or a command of a plugin."""

    kind: Literal["skill", "command"]
    worker: Worker[..., Any]
    name: str


def skill(worker: Worker[..., Any], name: str = "") -> PluginMember:
    """A worker as a skill, which a model may use when its description fits.

    Args:
        worker: The worker; its docstring is the description.
        name: The name of the skill; else that of the worker.
    """
    return PluginMember("skill", worker, name)


def command(worker: Worker[..., Any], name: str = "") -> PluginMember:
    """A worker as a command, which a person types.

    Args:
        worker: The worker; its docstring is the description.
        name: The name of the command; else that of the worker.
    """
    return PluginMember("command", worker, name)


class Plugin:
    """A plugin for Claude Code, made of workers. Assign one to a name at the top level of a program.

    Attributes:
        name: The name of the plugin.
        entries: Its skills and commands; a plain worker is a skill. A worker may be both.
        workers: Workers that become subagents.
        description: What the plugin is for; else the docstring of the program.
    """

    def __init__(
        self,
        name: str,
        *,
        entries: Sequence[PluginMember | Worker[..., Any]] = (),
        workers: Sequence[Worker[..., Any]] = (),
        description: str = "",
    ) -> None:
        self.name = name
        self.entries = tuple(entry if isinstance(entry, PluginMember) else skill(entry) for entry in entries)
        self.workers = tuple(workers)
        self.description = description
        for worker in (*(entry.worker for entry in self.entries), *self.workers):
            if not isinstance(worker, Worker):  # pyright: ignore[reportUnnecessaryIsInstance] - programs need not be typed
                raise TypeError(
                    f"plugin {name}: {worker!r} is not a worker; write @worker above the function"
                )
