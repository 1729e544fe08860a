"""Starts Claude Code with the plugin of a program, without installing it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bartack.plugin._folder import replace_folder
from bartack.plugin.builder._build import render_program
from bartack.plugin.hooks import install_shim
from bartack.plugin.install._claude import open_claude
from bartack.plugin.install._marketplace import Interpreter, localise


def run_with_plugin(
    file: Path, args: Sequence[str] = (), *, trait: str = "", allow_placeholder: bool = False
) -> int:
    """Build a plugin in a temporary folder and start Claude Code with it; its exit code.

    Args:
        file: The program.
        args: Arguments for Claude Code.
        trait: Which trait is the plugin, if there are several.
        allow_placeholder: Use a fixed text where a description is missing, instead of an error.

    Raises:
        PluginError: The program declares no valid plugin, or there is no Claude Code.
    """
    rendered = render_program(file, trait=trait, allow_placeholder=allow_placeholder)
    claude = open_claude(os.getcwd())
    files = localise(rendered.files, Interpreter.own(install_shim()))
    with tempfile.TemporaryDirectory(prefix="bartack-plugin-") as scratch, _interrupts_left_to_child():
        folder = Path(scratch, rendered.name)
        replace_folder(folder, files)
        words = [claude.path, "--plugin-dir", str(folder), *args]
        done = subprocess.run(  # bartack: allow[wait_without_deadline] a person's own session  # noqa: S603 - no shell
            words, check=False
        )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@contextmanager
def _interrupts_left_to_child() -> Generator[None]:
    """Ctrl-C is for Claude Code, which has the same terminal; this process waits for its end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
