"""``bartack compile``: print a Patchwork program as Python or as a syntax tree, or make a plugin of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from bartack.cli.app._exit import Exit
from bartack.core.files import write_file
from bartack.errors import UsageError
from bartack.runtime.patchwork import compile_file


@click.command(name="compile", short_help="Show a Patchwork program as Python, tree or plugin.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--emit",
    type=click.Choice(["python", "ast", "plugin"]),
    default="python",
    show_default=True,
    help="Print readable Python with the source lines, print the syntax tree as JSON, or write a plugin.",
)
@click.option(
    "-o", "--output", type=click.Path(), help="Write to this file instead of stdout; of a plugin, its folder."
)
def compile_(file: Path, emit: Literal["python", "ast", "plugin"], output: str | None) -> Exit:
    """Compile the Patchwork program FILE with every module it imports, and print the result.

    The same source gives the same output. A program with errors is not compiled; its errors are reported (exit code 2).
    """
    if emit == "plugin":
        if output is None:
            raise UsageError("bartack compile", "a plugin needs a folder: -o DIR")
        from bartack.cli.plugin._plugin import build_and_show  # noqa: PLC0415 - the other forms need no plugin

        return build_and_show(file, Path(output))
    if output is not None and Path(output).is_dir():
        raise UsageError("bartack compile", f"{output} is a folder; name a file")
    text = compile_file(file, emit)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text.encode(), mode=0o644)
    return Exit.OK
