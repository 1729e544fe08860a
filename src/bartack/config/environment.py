"""Variables of the environment that override settings: ``BARTACK_SECTION_KEY``. One that is nearly a setting is a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from bartack.config.problem import SettingProblem
from bartack.config.timeouts import DEFAULTS
from bartack.core.flaws import KeyPath

_LIMIT: Final = "BARTACK_TIMEOUT_"

OURS: Final = frozenset(
    {
        "BARTACK_AGENT",
        "BARTACK_BENCH_DIR",
        "BARTACK_CGROUPS",
        "BARTACK_DEMO",
        "BARTACK_FILES_LIMIT",
        "BARTACK_HEARTBEAT_S",
        "BARTACK_HUB",
        "BARTACK_MAX_LINE",
        "BARTACK_NOTICE_ID",
        "BARTACK_NOTICE_KIND",
        "BARTACK_NOTICE_LINK",
        "BARTACK_NOTICE_RUN",
        "BARTACK_NOTICE_TEXT",
        "BARTACK_NOTICE_TITLE",
        "BARTACK_ON",
        "BARTACK_PROBE",
        "BARTACK_PROTOCOL",
        "BARTACK_ROLE",
        "BARTACK_RUN",
        "BARTACK_RUN_DIR",
        "BARTACK_STATE_DIR",
        "BARTACK_STEP",
        "BARTACK_STEP_TOKEN",
        "BARTACK_SUPERVISOR",
        "BARTACK_TRACEBACK",
        "BARTACK_TRACKING_PROOF",
        "BARTACK_WORKER",
        "BARTACK_WORKSPACE",
        *(f"{_LIMIT}{kind.upper()}" for kind in (*DEFAULTS, "factor")),
    }
)
"""Variables that mean something else than a setting of ``bartack.toml``."""

ALIKE: Final = 0.87
"""A variable that is this similar to that of a setting is a typing error, not the user's own."""

_NAMED: Final = ("BARTACK_AGENTS_", "BARTACK_MAILBOXES_")
"""Sections with names that another project may have: a variable for one of those is not a mistake here."""


class Override(NamedTuple):
    """A setting that a variable overrides."""

    path: KeyPath
    text: str
    variable: str


def find_overrides(environ: Mapping[str, str], settings: Iterable[KeyPath]) -> Iterator[Override]:
    """The settings, of all that there are, that variables override; one that is empty overrides nothing."""
    for path in settings:
        variable = _variable(path)
        text = environ.get(variable)
        if text and variable not in OURS:
            yield Override(path, text, variable)


def find_strays(environ: Mapping[str, str], settings: Iterable[KeyPath]) -> Iterator[SettingProblem]:
    """Variables that look like settings and are none."""
    left = [name for name in sorted(environ) if name.startswith("BARTACK_") and name not in OURS]
    if not left:
        return
    paths = list(settings)
    known = {_variable(path) for path in paths} | {name for name in OURS if name.startswith(_LIMIT)}
    sections = {f"{_variable(path[:depth])}_" for path in paths for depth in range(1, len(path))} | {_LIMIT}
    for name in left:
        near = None if name in known else _nearest(name, known, sections)
        if near is not None:
            hint = f"did you mean {near}?" if near else "bartack.toml has no such setting"
            yield SettingProblem(
                place=name, problem=f"it does not override a setting; {hint}", suggestion=near
            )


def _nearest(name: str, known: set[str], sections: set[str]) -> str | None:
    """What an unknown variable may be meant to be; nothing if it is the user's own."""
    section = max((prefix for prefix in sections if name.startswith(prefix)), key=len, default="")
    keys = [other.removeprefix(section) for other in sorted(known) if other.startswith(section)]
    owned = bool(section) and section not in _NAMED
    near = get_close_matches(name.removeprefix(section), keys, 1, 0.6 if owned else ALIKE)
    if near:
        return section + near[0]
    return "" if owned else None


def _variable(path: KeyPath) -> str:
    return "_".join(["BARTACK", *(str(part) for part in path)]).upper().replace("-", "_").replace(".", "_")
