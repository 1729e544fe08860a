"""The user's own settings, the ``bartack.toml`` in the state home: which of its sections hold for all projects.

- ``notices``, ``node``, ``depot`` and ``web``: a project overrides them key by key, except the keys that only the user may set. A
  clone brings the file of a project, and agents can change it.
- ``budget``: of it what all runs of the user share, and there the user overrides the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from bartack.config.notices import OWN_KEYS as NOTICE_KEYS
from bartack.config.notices import SECTION as NOTICES
from bartack.core.flaws import Flaw
from bartack.errors import ConfigError

NODE: Final = "node"
DEPOT: Final = "depot"


class OwnSection(NamedTuple):
    """How a section of the user's own settings is read.

    Attributes:
        users: The keys that a project cannot set.
        why: Why it cannot.
        wins: The only keys that are read, which override those of a project; empty: all are read, and the project overrides them.
    """

    users: frozenset[str] = frozenset()
    why: str = ""
    wins: frozenset[str] = frozenset()


OWN: Final = {
    NOTICES: OwnSection(NOTICE_KEYS, "a file that comes with a project must not start programs or send data"),
    NODE: OwnSection(
        frozenset({"max_runs", "rest_after_s", "drain_s", "otel", "pools", "labels", "pass_env"}),
        "the node serves all projects",
    ),
    DEPOT: OwnSection(
        frozenset({"on", "lease_s", "hold_s", "blobs"}),
        "a file that comes with a project must not choose a database or where its values go",
    ),
    "web": OwnSection(),
    "budget": OwnSection(wins=frozenset({"daily_usd", "day_begins"})),
}


def add_own(
    table: dict[str, object], own: Mapping[str, object], file: str, given: dict[str, str]
) -> list[Flaw]:
    """Add the user's own settings to those of a project; what is wrong with the project's.

    Args:
        table: The settings of the project.
        own: The user's own.
        file: Where these are.
        given: Gets where each setting that is added came from.

    Raises:
        ConfigError: A section of the user's own settings is not a table.
    """
    flaws: list[Flaw] = []
    for name, section in OWN.items():
        of_project = table.get(name, {})
        if not isinstance(of_project, dict):
            continue  # it is reported where the section is read
        safe = cast("dict[str, object]", of_project)
        flaws += _foreign_flaws(name, section, safe, file)
        safe = {key: value for key, value in safe.items() if key not in section.users}
        found = own_section(own, name, file)
        if section.wins:
            found = {key: value for key, value in found.items() if key in section.wins}
            safe = {key: value for key, value in safe.items() if key not in found}
        given.update({f"{name}.{key}": f"{file}: {name}.{key}" for key in found if key not in safe})
        if found or safe != of_project:
            table[name] = {**found, **safe}
    return flaws


def own_section(own: Mapping[str, object], name: str, file: str) -> dict[str, object]:
    """A section of the user's own settings; empty if they do not have it.

    Raises:
        ConfigError: It is not a table.
    """
    found = own.get(name, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: {name}", "it is not a table")
    return cast("dict[str, object]", found)


def _foreign_flaws(name: str, section: OwnSection, given: Mapping[str, object], file: str) -> Iterator[Flaw]:
    """The keys in the file of a project that only the user's own settings may have."""
    allowed = f"it is allowed only in your own settings ({file}), in the environment and with --set"
    for key in given:
        if key in section.users:
            yield Flaw((name, key), f"{allowed}: {section.why}")
