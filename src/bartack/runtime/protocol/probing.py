"""What the probe of a program is asked, and what it reports."""

from __future__ import annotations

from typing import Literal

import msgspec

from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import CallArgs


class ProbeRequest(msgspec.Struct):
    """What to look at."""

    file: str
    root: str
    worker: str = ""
    argv: list[str] = []
    input: dict[str, msgspec.Raw] = {}
    call: CallArgs | None = None
    """Arguments that are encoded already; ``argv`` and ``input`` are not used then."""
    module: str = ""
    """The name that the file is imported under, where that is known; else the rule of ``config/project.py`` decides."""
    outputs: list[tuple[int, int]] = []
    """Device and inode of the files that the output of the caller goes to: they are not data of the program."""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that is kept with a run."""

    path: str
    """Relative to the project."""
    kind: Literal["module", "data"]
    module: str = ""


class Taken(msgspec.Struct, frozen=True):
    """A package that is taken from the environment."""

    module: str
    version: str
    place: str


class NotKept(msgspec.Struct, frozen=True):
    """Data files that a run does not keep, and why."""

    path: str
    reason: str


class ProbeResult(msgspec.Struct, omit_defaults=True):
    """What was found. ``problem`` is why the program cannot run."""

    worker: str = ""
    name: str = ""
    call: CallArgs | None = None
    files: list[str] = []
    """What is kept with a run, relative to the project."""
    environment: dict[str, str] = {}
    paths: list[str] = []
    """The directories of the project that modules are imported from, in order and relative to it."""
    kept: list[Kept] = []
    """The same files, and why."""
    taken: list[Taken] = []
    left_out: list[NotKept] = []
    usage: str = ""
    agents: list[str] = []
    """The agents that it may ask, as far as that can be seen; empty names stand for the default one."""
    warnings: str = ""
    """The diagnostics of its check, as people read them."""
    problem: str = ""
    is_usage: bool = False
    error: ErrorData | None = None
    """The problem, as the error that it is."""
