"""The ways by which notices are sent: as data, made of the settings. How each of them sends is in ``_send.py``."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from bartack.config.notices import NoticesConfig
from bartack.core.user_home import user_home

WayName = Literal["desktop", "command", "webhook"]


class Way(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way, with everything that is needed to send.

    Attributes:
        name: Which one.
        argv: A program and its arguments.
        limit_s: How long it may take.
        url: Where to post.
        secret_file: The file with the secret that signs; the secret itself is never kept.
        secret_env: The variable with it.
    """

    name: WayName
    argv: list[str] = []
    limit_s: float = 30.0
    url: str = ""
    secret_file: str = ""
    secret_env: str = ""

    @property
    def recipient(self) -> str:
        """What it is called in the outbox and before people: without the path of an address, which may be a secret."""
        if self.name == "webhook":
            from urllib.parse import urlsplit  # noqa: PLC0415 - only webhooks need it

            return f"webhook {urlsplit(self.url).hostname}"
        return self.name if self.name == "desktop" else f"command {os.path.basename(self.argv[0])}"


def ways_of(config: NoticesConfig) -> list[Way]:
    """The ways that the settings ask for."""
    ways: list[Way] = []
    if config.desktop:
        ways.append(Way(name="desktop"))
    if config.command:
        program, *arguments = config.command
        argv = [os.path.expanduser(program), *arguments]
        ways.append(Way(name="command", argv=argv, limit_s=config.command_s))
    if config.webhook:
        named = os.path.expanduser(config.secret_file)
        # Seen from the user's own settings, never from the workspace, where agents can put a file.
        secret_file = os.path.join(user_home(), named) if named else ""
        ways.append(
            Way(name="webhook", url=config.webhook, secret_file=secret_file, secret_env=config.secret_env)
        )
    return ways
