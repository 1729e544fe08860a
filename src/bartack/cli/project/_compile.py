"""``bartack compile``: print a Patchwork program as Python or as a syntax tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from bartack.cli.app._exit import Exit
from bartack.core import write_file
from bartack.runtime.patchwork import compile_file


@click.command(name="compile", short_help="Show a Patchwork program as Python or as a tree.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--emit",
    type=click.Choice(["python", "ast"]),
    default="python",
    show_default=True,
    help="Print readable Python with the source lines, or the syntax tree as JSON.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to this file instead of stdout.")
def compile_(file: Path, emit: Literal["python", "ast"], output: str | None) -> Exit:
    """Compile the Patchwork program FILE with every module it imports, and print the result.

    The same source gives the same output. A program with errors is not compiled; its errors are reported (exit code 2).
    """
    text = compile_file(file, emit)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text.encode(), mode=0o644)
    return Exit.OK
