"""The settings of the workspaces of a site, as far as pages need them. What has changed is read again."""

from __future__ import annotations

import os
from pathlib import Path

from bartack.config.load import SETS_FILE, Config, kept_sets, load_config
from bartack.config.problem import CONFIG_FILE
from bartack.errors import BartackError
from bartack.runtime.rundir.layout import RunDir
from bartack.web._hide import Hider

_Signature = tuple[object, ...]
_ALONE = ""
"""For the settings of a workspace without a run."""


class SiteSettings:
    """The settings of workspaces, and those that were given for runs."""

    def __init__(self) -> None:
        self._configs: dict[tuple[str, str], tuple[_Signature, Config]] = {}
        self._hiders: dict[str, tuple[Config, Hider]] = {}

    def hider(self, workspace: str) -> Hider:
        """Hides the secrets of a workspace. If its settings cannot be read, the usual names are secrets."""
        config = self._load(workspace, None)
        known = self._hiders.get(workspace)
        if known is None or known[0] is not config:
            known = self._hiders[workspace] = (config, Hider.of(config))
        return known[1]

    def limit_usd(self, workspace: str, run: RunDir) -> float | None:
        """What the agents of a run may cost, as its settings are now; ``None``: there is no limit, or none is known."""
        return self._load(workspace, run).max_usd

    def _load(self, workspace: str, run: RunDir | None) -> Config:
        files = [os.path.join(workspace, CONFIG_FILE)]
        if run is not None:
            files.append(str(run.path / SETS_FILE))
        signature = tuple(_signature(file) for file in files)
        key = (workspace, _ALONE if run is None else run.id)
        known = self._configs.get(key)
        if known is None or known[0] != signature:
            known = self._configs[key] = (signature, _read(workspace, run))
        return known[1]


def _read(workspace: str, run: RunDir | None) -> Config:
    try:
        return load_config(Path(workspace), [] if run is None else kept_sets(run.path))
    except (BartackError, OSError):
        return Config()


def _signature(file: str) -> object:
    try:
        facts = os.stat(file)
    except (OSError, ValueError):
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
