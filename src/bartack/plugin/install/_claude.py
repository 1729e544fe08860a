"""Finds the program Claude Code and calls its ``plugin`` commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from bartack.agents.program.find import find_program
from bartack.core import typed
from bartack.errors import PluginInstallError

TIMEOUT_S: Final = 60.0
INSTALL_LINE: Final = "pip install 'bartack[claude-cli]', or see https://code.claude.com/docs/en/setup"


class CliAnswer(NamedTuple):
    """What a command of Claude Code answered."""

    code: int
    output: str
    errors: str

    def facts(self) -> dict[str, object]:
        """The JSON object in the last line of the output; empty if there is none."""
        for line in reversed(self.output.strip().splitlines()):
            try:
                found = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            return cast("dict[str, object]", found) if isinstance(found, dict) else {}
        return {}

    @property
    def message(self) -> str:
        """What the program says about it, in one line."""
        given = self.facts().get("message")
        text = given if isinstance(given, str) else self.errors or self.output
        return " ".join(text.split()) or f"exit code {self.code}"


class ClaudeProgram:
    """The program Claude Code.

    Args:
        path: Where it is.
        environ: The environment of its processes.
        cwd: The project that its commands are about.
    """

    def __init__(self, path: str, environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> None:
        self.path = path
        self._environ = environ
        self._cwd = cwd

    def call(self, *args: str) -> CliAnswer:
        """Call a command and wait for its answer.

        Raises:
            PluginInstallError: It does not start, or takes too long.
        """
        try:
            done = subprocess.run(  # noqa: S603 - the program that the user has installed, without a shell
                [self.path, *args],
                cwd=self._cwd,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PluginInstallError(
                self.path, f"{' '.join(args[:3])} took longer than {TIMEOUT_S:g} s"
            ) from None
        except OSError as error:
            raise PluginInstallError(self.path, f"it does not start: {error.strerror or error}") from None
        output, errors = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
        return CliAnswer(done.returncode, output, errors)

    def do(self, *args: str, unless: Sequence[str] = ()) -> CliAnswer:
        """Call a command that has to succeed.

        Args:
            args: The command.
            unless: Codes of failures that count as success, such as that there is nothing to remove.

        Raises:
            PluginInstallError: The program refused; the error has its text.
        """
        answer = self.call(*args)
        if answer.code != 0 and answer.facts().get("failureCode") not in unless:
            raise PluginInstallError(f"claude {' '.join(args[:3])}", f"Claude Code refused: {answer.message}")
        return answer

    def list_plugins(self) -> list[InstalledPlugin]:
        """The installed plugins.

        Raises:
            PluginInstallError: The program refused, or its answer cannot be read.
        """
        answer = self.do("plugin", "list", "--json")
        try:
            return typed.decode(answer.output, type=list[InstalledPlugin])
        except msgspec.MsgspecError as error:
            raise PluginInstallError("claude plugin list", f"the answer cannot be read: {error}") from None


class InstalledPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A line of ``claude plugin list``; further keys are ignored."""

    id: str
    version: str = ""
    scope: str = ""
    enabled: bool = False
    install_path: str = ""
    read_from_folder: str = ""
    folder_version: str = ""
    project_path: str = ""
    errors: list[str] = []


def find_claude(environ: Mapping[str, str] | None = None) -> str:
    """The path of Claude Code: on the PATH, else in the package that brings it along; empty if there is none."""
    environ = os.environ if environ is None else environ
    found = find_program("claude", Path.cwd(), environ.get("PATH", os.defpath))
    return os.path.abspath(found) if found else ""


def open_claude(cwd: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> ClaudeProgram:
    """Claude Code, for commands about a project.

    Raises:
        PluginInstallError: It is not installed.
    """
    environ = os.environ if environ is None else environ
    path = find_claude(environ)
    if not path:
        raise PluginInstallError(
            "claude", "Claude Code was not found on the PATH", f"Install it: {INSTALL_LINE}."
        )
    return ClaudeProgram(path, environ, cwd)
