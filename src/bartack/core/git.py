"""How Bartack starts git: one set of options and variables for every call, so that no repository decides what is executed.

A directory that was unpacked from an archive, or that another user can write to, brings its own ``.git/config``, and git executes
programs that this file names. What is switched off here cannot be switched on there: options of the command line win. Content
filters and merge drivers have names that only a repository knows, so they cannot be switched off this way. No command but those
that execute the project itself (``run``, ``resume``, and ``clean --worktrees`` for their worktrees) calls git for anything that
uses them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

GIT_SETTINGS: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.editor=true",
    "sequence.editor=true",
    "core.pager=cat",
    "core.askPass=true",
    "core.sshCommand=false",
    "core.alternateRefsCommand=true",
    "credential.helper=",
    "protocol.allow=never",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "push.gpgSign=false",
    "log.showSignature=false",
    "merge.verifySignatures=false",
    "color.ui=false",
    "gc.auto=0",
    "maintenance.auto=false",
    # A resolution that git remembers would settle a conflict without a person who looks at it.
    "rerere.enabled=false",
    "submodule.recurse=false",
)
"""Settings of every call. Each one that names a program names one that does nothing."""

PROTOCOLS: Final = ("https", "ssh", "file")
"""The ways to reach another repository, for the few commands that do. All others of git are programs that a URL could name."""

_OF_CONNECTIONS: Final = frozenset({"core.sshCommand=false", "credential.helper="})
"""Settings of calls that reach no other repository; others use what the user of this process has set."""

_KEPT: Final = frozenset(
    {
        "GIT_AUTHOR_DATE",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_CEILING_DIRECTORIES",
        "GIT_COMMITTER_DATE",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_EXEC_PATH",
    }
)
"""Variables of git that describe the person and the machine. All others lead to another repository, or to another program."""

_GIVEN: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    # No transport at all: a repository may say that its missing objects come from a command.
    "GIT_ALLOW_PROTOCOL": "",
}


def find_git() -> str | None:
    """The program, by its absolute path; ``None`` if there is none."""
    import shutil  # noqa: PLC0415 - slow to load, and few commands need git

    found = shutil.which("git")
    return None if found is None else os.path.abspath(found)


def git_command(
    git: str, words: Sequence[str], settings: Sequence[str] = (), *, online: bool = False
) -> list[str]:
    """The command line that runs git with these words.

    Args:
        git: The program, from ``find_git``.
        words: The command and its arguments.
        settings: Settings for this call alone, each ``section.key=value``.
        online: Whether it may reach other repositories, with the credentials of this user. It must run on a repository of our own:
            its settings could name programs.
    """
    given = [setting for setting in GIT_SETTINGS if not (online and setting in _OF_CONNECTIONS)]
    if online:
        given += [f"protocol.{name}.allow=always" for name in PROTOCOLS]
    options = [word for setting in (*given, *settings) for word in ("-c", setting)]
    return [git, "--no-pager", *options, *words]


def git_environment(environ: Mapping[str, str] | None = None, *, online: bool = False) -> dict[str, str]:
    """The variables that git is started with: those of this process, without any that would lead git elsewhere."""
    environ = os.environ if environ is None else environ
    kept = {name: value for name, value in environ.items() if not _leads_away(name)}
    allowed = {"GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS)} if online else {}
    return {**kept, **_GIVEN, **allowed}


def git_service(name: str) -> str:
    """The command with which git on another repository of this machine is started: without the hooks and programs of that one."""
    return shlex.join(git_command(find_git() or "git", [name]))


def _leads_away(name: str) -> bool:
    return (name.startswith("GIT_") and name not in _KEPT) or name == "SSH_ASKPASS"
