"""``bartack schema``: the JSON Schemas of the messages of agents and of the files of Bartack."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Final, cast

import click
import msgspec

from bartack.agents.schema import render_schema, schema, schema_names, schema_text
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen
from bartack.config.load import Config
from bartack.errors import UsageError
from bartack.pipeline.records.ledger import LedgerLine
from bartack.pipeline.records.task_state import Progress
from bartack.pipeline.report.report import RunReport
from bartack.runtime.rundir.mirror import RunFile
from bartack.runtime.rundir.receipts import Receipt
from bartack.runtime.rundir.snapshots import Manifest

_RUN: Final = msgspec.defstruct("RunFile", [("pipeline", Progress | None, None)], bases=(RunFile,))
"""The content of run.json, with the part of the pipeline."""

OTHERS: Final[dict[str, object]] = {
    "config": Config,
    "ledger-line": LedgerLine,
    "receipt": Receipt,
    "report": RunReport,
    "run": _RUN,
    "snapshot-manifest": Manifest,
}
"""Schemas of types outside ``agents``."""


@click.command("schema", short_help="Print the JSON Schemas of messages and files.")
@click.argument("name", required=False)
@click.option("--closed", is_flag=True, help="Forbid members that the schema does not list.")
@click.option(
    "--all", "everything", is_flag=True, help="Write all schemas, each to a file of its own (with --out)."
)
@click.option("--out", "folder", metavar="DIR", help="Write the files of --all to this directory.")
@json_option
def schemas(name: str | None, *, closed: bool, everything: bool, folder: str | None, as_json: bool) -> None:
    """Print the JSON Schema called NAME, or list the names.

    Agents validate against the schemas as printed: members that a schema does not list are allowed, so that newer programs can
    add some. Messages and files of Bartack itself are also valid with --closed.
    """
    if everything != (folder is not None):
        raise UsageError("bartack schema", "--all and --out DIR need each other")
    if folder is not None:
        _write_all(Path(folder), closed=closed)
    elif name is not None:
        shown = find_schema(name, closed=closed)
        if as_json:
            write_json(shown)
        else:
            sys.stdout.write(schema_text(shown).decode())
    elif as_json:
        write_json(all_names())
    else:
        screen = Screen(sys.stdout)
        for known in all_names():
            screen.line(known)


def all_names() -> list[str]:
    """The names of all schemas."""
    return [*schema_names(), *OTHERS]


def find_schema(name: str, *, closed: bool = False) -> dict[str, object]:
    """Return the schema called ``name``.

    Raises:
        UsageError: There is no such schema.
    """
    if name == "config":
        return _config_schema(closed=closed)
    if name in OTHERS:
        return render_schema(name, OTHERS[name], closed=closed)
    if name not in schema_names():
        near = get_close_matches(name, all_names(), 1)
        hint = f"did you mean {near[0]}?" if near else f"the schemas are {', '.join(all_names())}"
        raise UsageError("bartack schema", f"there is no schema {name!r}; {hint}")
    return schema(name, closed=closed)


def _config_schema(*, closed: bool) -> dict[str, object]:
    """In the file, named agents are members beside the settings for all agents."""
    made = render_schema("config", Config, closed=closed)
    definitions = cast("dict[str, dict[str, dict[str, object]]]", made["$defs"])
    agents = definitions["AgentsConfig"]
    named = cast("dict[str, dict[str, object]]", agents["properties"].pop("named"))
    agents["additionalProperties"] = named["additionalProperties"]
    return made


def _write_all(folder: Path, *, closed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in all_names():
        (folder / f"{name}.v1.json").write_bytes(schema_text(find_schema(name, closed=closed)))
