"""``ClaudeSandbox``: real agent programs in a test, against a model server, without a trace of the user who runs it.

The environment is in ``_environment.py``, the network in ``_network.py``, the programs in ``_programs.py``.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.system import read_command
from bartack.supervision.process.tree import find_by_environment, kill_tree
from bartack.testing.model._server import ModelServer
from bartack.testing.sandbox._environment import (
    CODEX_MODEL,
    MARK,
    Folders,
    build_environment,
    check_added,
    codex_config,
)
from bartack.testing.sandbox._network import ConnectionWatch, Isolation, Network, open_lone_network
from bartack.testing.sandbox._programs import find_program

LEAVE_S: Final = 3.0
"""How long processes of a sandbox may take to end at its exit."""
_LOOK_S: Final = 0.05


class ClaudeSandbox:
    """A place for real agent programs in a test: Claude Code, Codex, claude-agent-acp, and whatever starts them.

    It is a context manager. A process that is left at its exit is terminated and named by an ``AssertionError``.

    Args:
        root: A folder for everything that the programs write; it is made.
        server: The model server, which listens already.
        login: Whether Claude Code has a login token in place of an API key.
        bypass: Whether Claude Code takes ``bypassPermissions`` from root.
        env: Further variables.
        codex_model: The model that Codex asks for.
        network: ``own`` gives programs a network of their own where the system allows it, and else watches their connections, as
            ``watched`` does. ``shared`` does nothing, for processes that must be reached from outside.

    Attributes:
        environment: The whole environment of the programs, built from nothing.
        home: Their ``HOME``, empty at first. ``claude_home`` and ``codex_home`` are the folders with their settings.
        work: The directory in which they start.

    Raises:
        AgentConfigError: A variable in ``env`` is named like a credential.
    """

    def __init__(
        self,
        root: Path,
        server: ModelServer,
        *,
        login: bool = False,
        bypass: bool = False,
        env: Mapping[str, str] | None = None,
        codex_model: str = CODEX_MODEL,
        network: Network = "own",
    ) -> None:
        check_added(env or {})
        folders = Folders(root)
        self._server = server
        self._folders = folders
        self._codex_model = codex_model
        self._network = network
        self._isolation: Isolation | None = None
        self.mark = secrets.token_hex(8)
        self.environment = {
            **build_environment(folders, server.url, self.mark, has_login=login, can_bypass=bypass),
            **(env or {}),
        }
        self.home, self.work = folders.home, folders.work
        self.claude_home, self.codex_home = folders.claude, folders.codex

    def __enter__(self) -> Self:
        for folder in self._folders.all():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = self.codex_home / "config.toml"
        config.write_text(codex_config(self._server.url, self._codex_model), encoding="utf-8")
        config.chmod(0o600)
        self._isolate()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        left = self._end_processes()
        far = self._isolation.close() if self._isolation else []
        self._isolation = None
        if kind is None and (left or far):
            problems = [f"left running: {line}" for line in left] + [f"connected to {end}" for end in far]
            raise AssertionError("; ".join(problems))

    @property
    def is_alone(self) -> bool:
        """Whether the programs have a network of their own, with nothing but the model server."""
        return self._isolation is not None and not isinstance(self._isolation, ConnectionWatch)

    def processes(self) -> list[ProcessFacts]:
        """The living processes that carry the mark of this sandbox, whichever process started them."""
        return find_by_environment(MARK, self.mark)

    def run(
        self,
        words: Sequence[str | Path],
        *,
        stdin: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, with its output.

        Raises:
            TimeoutError: It has not ended in time. It was terminated; the message has the end of its output.
        """
        process = self.start(words, cwd=cwd, env=env)
        try:
            out, err = process.communicate(stdin, timeout_s)
        except subprocess.TimeoutExpired as error:
            self._end_processes(0.0)
            out, err = process.communicate(timeout=LEAVE_S)
            raise TimeoutError(
                f"{words[0]} has not ended in {timeout_s:g} s: {out[-2000:]} {err[-2000:]}"
            ) from error
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stderr: IO[str] | int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a program with pipes to it. The test ends it; the exit of the sandbox checks that.

        Raises:
            AgentConfigError: A variable in ``env`` is named like a credential.
        """
        check_added(env or {})
        wrapped = [str(word) for word in words]
        return subprocess.Popen(  # noqa: S603 - no shell  # bartack: allow[unsupervised_process] the exit of the sandbox ends it
            self._isolation.wrap(wrapped) if self._isolation else wrapped,
            cwd=cwd or self.work,
            env={**self.environment, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
        )

    def claude(
        self, *arguments: str, stdin: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run Claude Code."""
        return self.run([*find_program("claude"), *arguments], stdin=stdin, timeout_s=timeout_s)

    def codex(
        self, *arguments: str, stdin: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run Codex."""
        return self.run([*find_program("codex"), *arguments], stdin=stdin, timeout_s=timeout_s)

    def start_acp(self) -> subprocess.Popen[str]:
        """Start claude-agent-acp, which speaks the Agent Client Protocol on its stdin and stdout."""
        (claude,) = find_program("claude")
        return self.start(find_program("acp"), env={"CLAUDE_CODE_EXECUTABLE": claude})

    def _isolate(self) -> None:
        opened = open_lone_network(self._server.port) if self._network == "own" else None
        if opened is not None:
            self._isolation, listener = opened
            self._server.listen_on(listener)
        elif sys.platform == "linux" and self._network != "shared":
            self._isolation = ConnectionWatch(lambda: [facts.pid for facts in self.processes()])

    def _end_processes(self, leave_s: float = LEAVE_S) -> list[str]:
        """Wait for the processes of the sandbox, terminate those that stay, and describe them."""
        limit = time.monotonic() + leave_s
        while (left := self.processes()) and (wait_s := limit - time.monotonic()) > 0:
            _wait_for_end(left[0].pid, min(wait_s, _LOOK_S))
        lines = [f"{facts.pid} {' '.join(read_command(facts.pid))[:200]}" for facts in left]
        while left:
            kill_tree(*(facts.id for facts in left))
            left = self.processes()
        return lines


def _wait_for_end(pid: int, timeout_s: float) -> None:
    if not hasattr(os, "pidfd_open"):  # macOS: look again after a while
        select.select([], [], [], timeout_s)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it has ended
        return
    try:
        select.select([descriptor], [], [], timeout_s)
    finally:
        os.close(descriptor)
