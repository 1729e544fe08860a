"""The node as a service of the system: a unit of systemd on Linux, an agent of launchd on macOS. Nothing is written here.

The service has no secrets and no settings of its own. It is what ``bartack node run`` is, from login on, in place of the node that
the first detached run starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from bartack.core import typed
from bartack.errors import ServiceError

UNIT: Final = "bartack-node.service"
LABEL: Final = "bartack.node"
MARK: Final = "# Written by 'bartack node install'. 'bartack node uninstall' removes it."
STOP_S: Final = 90
"""How long the node may take to stop: its runs are shut down cleanly."""
VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""What the service takes from the terminal: where programs are, and which files are those of the user. None of them is secret."""

Command = Sequence[str]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service that can be installed.

    Attributes:
        kind: Who runs it.
        path: Its file.
        text: The content of the file.
        probe: Succeeds if the manager of services answers.
        active: Succeeds if the service is running.
        enable: Starts it, now and at each login, when the file is there.
        disable: Stops it, now and for good, before the file is removed.
        forget: What is left to do after that.
        log: How to read what it writes.
    """

    kind: Literal["systemd", "launchd"]
    path: Path
    text: str
    probe: Command
    active: Command
    enable: tuple[Command, ...]
    disable: tuple[Command, ...]
    forget: tuple[Command, ...]
    log: str

    def is_own(self, text: str) -> bool:
        """Whether the content of the file was written by 'bartack node install', of whichever version."""
        if self.kind == "systemd":
            return text.startswith(MARK + "\n")
        return _label_of(text) == LABEL

    def read(self) -> str | None:
        """The content of the file as it is.

        Raises:
            ServiceError: It cannot be read.
        """
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceError(f"{self.path} cannot be read: {error}") from None


def describe_service(
    platform: str, executable: str, environ: Mapping[str, str], log: Path, uid: int
) -> Service:
    """The service of this user on this system.

    Args:
        platform: As ``sys.platform``.
        executable: The interpreter that has Bartack.
        environ: Of the terminal; see ``VARIABLES``.
        log: Where an agent of launchd writes.
        uid: The user.

    Raises:
        ServiceError: There is none on this system.
    """
    command = [executable, "-P", "-s", "-m", "bartack", "node", "run"]
    if platform.startswith("linux"):
        return _systemd(command, environ)
    if platform == "darwin":
        return _launchd(command, environ, log, uid)
    raise ServiceError(
        f"{platform} has neither systemd nor launchd; start 'bartack node run' at login by other means"
    )


def _systemd(command: Command, environ: Mapping[str, str]) -> Service:
    systemctl = ("systemctl", "--user")
    config = environ.get("XDG_CONFIG_HOME", "")
    home = config if os.path.isabs(config) else os.path.expanduser("~/.config")
    return Service(
        kind="systemd",
        path=Path(home, "systemd/user", UNIT),
        text=unit_text(command, _kept(environ)),
        probe=(*systemctl, "show-environment"),
        active=(*systemctl, "is-active", "--quiet", UNIT),
        enable=((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", UNIT)),
        disable=((*systemctl, "disable", "--now", UNIT),),
        forget=((*systemctl, "daemon-reload"),),
        log=f"journalctl --user -u {UNIT}",
    )


def unit_text(command: Command, environ: Mapping[str, str]) -> str:
    """The unit of the node.

    It does not confine the node, because agents and the commands of programs run in it: sandboxes of agents need user namespaces,
    and commands may need sudo. So it only defines how the node ends, and keeps a failure inside it from spreading.
    """
    words = " ".join(quote_unit(word) for word in _unit_command(command))
    variables = [f"Environment={quote_unit(f'{name}={value}')}" for name, value in environ.items()]
    lines = [
        MARK,
        "[Unit]",
        "Description=Bartack node",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=simple",
        f"ExecStart={words}",
        *variables,
        "Restart=on-failure",
        "RestartSec=10",
        "# The node shuts its runs down cleanly; what is left after that is killed.",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S}",
        "# A command that runs out of memory fails alone, not the node with all its runs.",
        "OOMPolicy=continue",
        "# Runs make control groups of their own below this one.",
        "Delegate=yes",
        "# Memory of agents holds secrets.",
        "LimitCORE=0",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def quote_unit(text: str) -> str:
    """A word of a unit that means this text: in quotes, with ``%`` doubled and control characters as numbers.

    Raises:
        ServiceError: The text is not Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ServiceError(f"{text!r} is not valid UTF-8, so a unit cannot name it") from None
    if (
        all(character.isascii() and (character.isalnum() or character in "/-_.=:") for character in text)
        and text
    ):
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "%":
        return "%%"
    return character if character >= " " and character != "\x7f" else f"\\x{ord(character):02x}"


def _unit_command(command: Command) -> Command:
    """The words of a command as systemd has to have them: it refuses some paths of programs, and replaces variables.

    Raises:
        ServiceError: There is no way to write it.
    """
    program, *arguments = command
    if all(character >= " " and character not in "\"'\\\x7f" for character in program):
        # A doubled $ means $ in an argument, but not in the path of the program. After a colon nothing is replaced.
        return [f":{program}" if "$" in program else program, *arguments]
    if "=" in program:
        raise ServiceError(f"systemd cannot start {program!r}; install Bartack in another directory")
    return ["/usr/bin/env", program.replace("$", "$$"), *arguments]


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in VARIABLES if environ.get(name)}
    # A relative place is another one for a service.
    places = [place for place in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    return {**kept, "PATH": os.pathsep.join(places)}


def _label_of(text: str) -> object:
    """The label of an agent of launchd; ``None`` if the text is not one."""
    import plistlib  # noqa: PLC0415 - only on macOS
    from xml.parsers.expat import ExpatError  # noqa: PLC0415 - likewise

    try:
        found: object = plistlib.loads(text.encode())
        return typed.convert(found, dict[str, object]).get("Label")
    except (plistlib.InvalidFileException, ExpatError, ValueError):
        return None


def _launchd(command: Command, environ: Mapping[str, str], log: Path, uid: int) -> Service:
    import plistlib  # noqa: PLC0415 - only on macOS

    path = Path(os.path.expanduser("~/Library/LaunchAgents"), f"{LABEL}.plist")
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": _kept(environ),
        "RunAtLoad": True,
        # Not after 'bartack node stop'.
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": STOP_S,
        "HardResourceLimits": {"Core": 0},
        "SoftResourceLimits": {"Core": 0},
        "WorkingDirectory": "/",
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    domain = f"gui/{uid}"
    try:
        text = plistlib.dumps(agent, sort_keys=False).decode()
    except ValueError as error:
        raise ServiceError(f"an agent of launchd cannot name {command[0]!r}: {error}") from None
    return Service(
        kind="launchd",
        path=path,
        text=text,
        probe=("launchctl", "print", domain),
        active=("launchctl", "print", f"{domain}/{LABEL}"),
        enable=(("launchctl", "bootstrap", domain, str(path)),),
        disable=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        forget=(),
        log=str(log),
    )
