"""The generated reference pages of commands, errors and exit codes.

To regenerate the pages::

    python -m bartack.cli.app._reference cli > docs/reference/cli.md
    python -m bartack.cli.app._reference errors > docs/reference/errors.md
    python -m bartack.cli.app._reference exit-codes > docs/reference/exit-codes.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from bartack.cli.app._app import GROUPS, app, load_command
from bartack.cli.app._exit import MEANINGS, Exit, exit_code_of
from bartack.cli.app._explain import by_hundred, meaning_of, retry_sentence
from bartack.errors import BartackError, iter_errors

_CLI_INTRODUCTION = """\
# Command line

`bartack` and `python -m bartack` are the same. Every command takes `-h` and `--help`. Results go to stdout; progress, notes and
errors go to stderr.

RUN is the id of a run, a unique prefix of it, `latest`, or the directory of a run.

## Errors

An error is three lines on stderr: what happened with its [code](errors.md), what to do, and where to read more. With `--json` a
command prints the error as one JSON object on stderr instead: `{"error": {"code", "name", "message", "help",
"retryable", "exit_code", "facts"}}`. A command prints a traceback only with `BARTACK_TRACEBACK=1`.

| variable | effect |
|---|---|
| `BARTACK_TRACEBACK` | any value: also print the traceback of an error |
| `BARTACK_CGROUPS` | `off`: do not create [control groups](../how-to/supervise.md#process-trees) for process trees |
| `NO_COLOR` | any value: no colour; without a terminal there is none anyway |
| `COLUMNS` | the width of the terminal, instead of the one that the terminal reports |

## Exit codes

[Another page](exit-codes.md) lists the errors of each exit code.
"""

_ERRORS_INTRODUCTION = """\
# Errors

Every error has a stable code. `bartack explain CODE` prints the text of this page; `bartack explain` lists all codes. In
Python each error is a class in `bartack.errors`, with `code`, `retryable`, `remedy` and its facts as attributes.
`BartackError` is the base class.
"""


_EXIT_INTRODUCTION = """\
# Exit codes

The exit codes of every command are stable: scripts can rely on them.
"""


_DISK = f"an error caused by a failed write to the disk always ends with {Exit.DISK:d}."


def cli_page() -> str:
    """The page of all commands."""
    return "\n".join([_CLI_INTRODUCTION, *_exit_codes(), *_commands()])


def exit_page() -> str:
    """The page of all exit codes, each with its errors."""
    parts = [_EXIT_INTRODUCTION, *_exit_codes()]
    for code in MEANINGS:
        kinds = [f"`{kind.__name__}`" for kind in iter_errors() if exit_code_of(kind) is code]
        if kinds and code is not Exit.FAILED:
            parts.append(f"\nErrors that end with {code:d}: {', '.join(kinds)}.")
    parts.append(f"\nAll other [errors](errors.md) end with {Exit.FAILED:d}; {_DISK}")
    return "\n".join(parts)


def errors_page() -> str:
    """The page of all errors."""
    parts = [_ERRORS_INTRODUCTION]
    for heading, kinds in by_hundred():
        parts.append(f"## {heading.capitalize()}\n")
        parts.extend(_error(kind) for kind in kinds)
    return "\n".join(parts)


def _exit_codes() -> Iterator[str]:
    yield "| code | meaning |\n|---:|---|"
    for code, meaning in MEANINGS.items():
        yield f"| {code:d} | {meaning} |"


def _commands() -> Iterator[str]:
    # With the settings of the app: a command takes the names of its help option from the first context it is used in.
    with click.Context(app, info_name="bartack", **app.context_settings) as context:
        for group in GROUPS:
            lines = [listed for listed in app.table if listed.group == group]
            if lines:
                yield f"\n## {group.capitalize()}"
            for listed in lines:
                yield from _command(load_command(listed), listed.name, context)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield f"\n### {context.command_path}\n\n```text\n{usage}\n```\n"
        yield "\n\n".join(
            " ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")
        )
        yield from _options(command, context)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None, "a group has the commands that it lists"
                yield from _command(found, inner, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    rows = [record for record in records if record is not None]
    if rows:
        yield "\n| option | |\n|---|---|"
    for names, text in rows:
        yield f"| `{_cell(names)}` | {_cell(' '.join(text.split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _error(kind: type[BartackError]) -> str:
    code = exit_code_of(kind)
    meaning = "\n\n".join(" ".join(part.split()) for part in meaning_of(kind).split("\n\n"))
    facts = f"{retry_sentence(kind)} Exit code {code:d}."
    return f"### {kind.code} {kind.__name__}\n\n{meaning}\n\n*What to do:* {kind.remedy}\n\n{facts}\n"


PAGES = {"cli": cli_page, "errors": errors_page, "exit-codes": exit_page}


def main(name: str) -> None:
    """Print one of the pages."""
    sys.stdout.write(PAGES[name]().rstrip("\n") + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
