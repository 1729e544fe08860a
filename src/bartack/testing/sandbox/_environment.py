"""The environment and the settings files of agent programs in a test. Pure: it makes texts, it does not write them.

Nothing is inherited. What a test adds must not look like a credential of its user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bartack.core.redact import is_secret_name
from bartack.errors import AgentConfigError

MARK: Final = "BARTACK_SANDBOX"
"""The variable that marks the processes of a sandbox."""
FAKE: Final = "test-not-a-key"
"""The credential that programs get. Others must begin with ``test-not-a-``, too."""
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
CODEX_MODEL: Final = "gpt-5.5"
"""A model that Codex knows and gives plain tools; newer ones get one tool that runs JavaScript."""

_FAKE_START: Final = "test-not-a-"
_CREDENTIAL: Final = re.compile(r"CREDENTIAL|PASSPHRASE|COOKIE|AUTH(?:ORIZATION)?\Z", re.IGNORECASE)


class Folders:
    """The folders of a sandbox."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.claude = root / "claude"
        self.codex = root / "codex"
        self.tmp = root / "tmp"
        self.work = root / "work"

    def all(self) -> list[Path]:
        """Every folder, outer ones first."""
        return [self.root, self.home, self.claude, self.codex, self.tmp, self.work]


def build_environment(
    folders: Folders, url: str, mark: str, *, has_login: bool = False, can_bypass: bool = False
) -> dict[str, str]:
    """The whole environment of an agent program.

    Args:
        folders: The folders of the sandbox.
        url: The model server.
        mark: The value of the mark.
        has_login: Whether Claude Code gets a login token in place of an API key.
        can_bypass: Whether Claude Code takes ``bypassPermissions`` from root.
    """
    credential = "CLAUDE_CODE_OAUTH_TOKEN" if has_login else "ANTHROPIC_API_KEY"
    return {
        "HOME": str(folders.home),
        "CLAUDE_CONFIG_DIR": str(folders.claude),
        "CODEX_HOME": str(folders.codex),
        "TMPDIR": str(folders.tmp),
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "ANTHROPIC_BASE_URL": url,
        credential: FAKE,
        "OPENAI_API_KEY": FAKE,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",
        **({"IS_SANDBOX": "1"} if can_bypass else {}),
        MARK: mark,
    }


def check_added(added: Mapping[str, str]) -> None:
    """Check that variables which a test adds are not credentials.

    Raises:
        AgentConfigError: One is named like a credential and its value does not begin with ``test-not-a-``.
    """
    wrong = [
        name for name, value in added.items() if _is_credential(name) and not value.startswith(_FAKE_START)
    ]
    if wrong:
        names = ", ".join(sorted(wrong))
        error = AgentConfigError(
            "sandbox", f"{names} would reach a program under test, and looks like a credential"
        )
        error.remedy = f"Remove it, or give it a value that begins with {_FAKE_START!r}."
        raise error


def codex_config(url: str, model: str = CODEX_MODEL) -> str:
    """The file ``config.toml`` of Codex: the model server as its only provider, and no traffic of its own."""
    return "\n".join(
        [
            f'model = "{model}"',
            'model_provider = "scripted"',
            "[model_providers.scripted]",
            'name = "scripted"',
            f'base_url = "{url}/v1"',
            'wire_api = "responses"',
            'env_key = "OPENAI_API_KEY"',
            "[sandbox_workspace_write]",  # or its sandbox leaves directories of its own in /tmp: .git, .codex, .agents
            "exclude_slash_tmp = true",
            "[features]",
            "plugins = false",
            "apps = false",
            "[analytics]",
            "enabled = false",
            "",
        ]
    )


def _is_credential(name: str) -> bool:
    return is_secret_name(name) or _CREDENTIAL.search(name) is not None
