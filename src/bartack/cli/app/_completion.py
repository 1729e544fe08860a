"""``bartack completion``: the completion script of commands and options for a shell."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from bartack.cli.app._boundary import COMPLETE_VARIABLE

INSTALL = {
    "bash": 'Put this line into ~/.bashrc:    eval "$(bartack completion bash)"',
    "zsh": 'Put this line into ~/.zshrc:    eval "$(bartack completion zsh)"',
    "fish": "Run once:    bartack completion fish > ~/.config/fish/completions/bartack.fish",
}


@click.command(short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(tuple(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    The first line of the script describes how to install it.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice"
    script = kind(ctx.find_root().command, {}, "bartack", COMPLETE_VARIABLE).source()
    sys.stdout.write(f"# {INSTALL[shell]}\n{script.strip()}\n")
