"""The secrets of a run: where they come from, and the veil that keeps them out of its files."""

from __future__ import annotations

import os
from pathlib import Path

from bartack.config.load import Config, kept_sets, load_kept_config
from bartack.core.redact import SecretRule
from bartack.errors import BartackError
from bartack.journal.veil import Veil, find_secrets, is_veiled
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import ENTRY_TYPES

TESTS = "tests."
"""How the name of a secret begins that is in the settings, in ``tests.env``."""


_WORDS = "aborted cancelled collected completed interrupted delivered processed accepted expired retrying builtins exception"
VOCABULARY = " ".join(
    [_WORDS, *ENTRY_TYPES, *(name for kind in ENTRY_TYPES.values() for name in kind.__struct_fields__)]
)
"""Words that every journal is made of: none of them is a secret."""


def open_veil(config: Config, *places: str) -> Veil:
    """The veil over the secrets of this process's environment and of ``tests.env``.

    Args:
        config: The settings: which names are secret, and ``tests.env``.
        places: Where the run and its project are.
    """
    given = {f"{TESTS}{name}": value for name, value in config.tests.env.items()}
    return Veil(
        find_secrets({**os.environ, **given}, _with_settings(config.redaction.rule), (*places, VOCABULARY))
    )


def open_veil_of(run: RunDir, workspace: str) -> Veil:
    """The veil of a run that is only copied or checked: unreadable settings do not prevent that."""
    try:
        config = load_kept_config(run.path, Path(workspace), kept_sets(run.path))
    except BartackError:
        config = Config()
    return open_veil(config, str(run.path), workspace)


def restored(run: RunDir, workspace: str, value: bytes) -> bytes:
    """A value of a run as its program made it.

    Raises:
        SecretMissingError: A secret in it is not set here.
    """
    return open_veil_of(run, workspace).restore(value) if is_veiled(value) else value


def _with_settings(rule: SecretRule) -> SecretRule:
    def both(names: tuple[str, ...]) -> tuple[str, ...]:
        return (*names, *(f"{TESTS}{name}" for name in names))

    return rule._replace(names=both(rule.names), exempt=both(rule.exempt))
