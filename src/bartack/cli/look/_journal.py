"""``bartack journal``: read, check and export a journal. Nothing here takes the lock or changes the journal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._database import shows_database
from bartack.cli.app._exit import Exit
from bartack.cli.app._export import encode_entry, open_output
from bartack.cli.app._options import json_option, workspace_option, write_json
from bartack.cli.app._terminal import Screen, human_size, printable
from bartack.errors import BlobMissingError, UsageError
from bartack.journal import Entry, JournalReader
from bartack.journal.file import FileReader, JournalReport, open_reader, verify_journal

if TYPE_CHECKING:
    from bartack.runtime.rundir.layout import RunDir

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUN_NAME: Final = re.compile(r"latest|(run-)?[0-9][0-9a-f-]*|run-")
"""The form of a run's name; used if there is no file of that name."""

path_argument = click.argument("path", metavar="RUN|PATH")


@click.group(cls=PlainGroup, short_help="Read, check and export the journal of a run.")
def journal() -> None:
    """Read, check and export the journal of a run.

    RUN is its id, a unique prefix of it, or 'latest'. PATH is a journal file or its directory. The commands change nothing and do
    not disturb the owner of the journal.
    """


@journal.command(short_help="Print the entries.")
@path_argument
@click.option(
    "--from", "first", type=click.IntRange(min=1), default=1, metavar="SEQ", help="Start with this entry."
)
@click.option("--to", "last", type=click.IntRange(min=1), metavar="SEQ", help="End with this entry.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="GLOB",
    help="Print only these kinds of entries; can be repeated.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more entries until Ctrl-C.")
@click.option("--full", is_flag=True, help="Do not shorten lines, and print large values, too.")
@shows_database
@workspace_option
@json_option
def show(
    path: str,
    first: int,
    last: int | None,
    kinds: tuple[str, ...],
    workspace: str,
    *,
    follow: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Print the entries of a journal, one a line: number, time (UTC), kind and data.

    On a terminal each line is shortened to its width. With --json each entry is one JSON object; --full adds large values.
    """
    screen = Screen(sys.stdout)
    with _open(path, workspace) as reader:
        put = _json_writer(reader, full=full) if as_json else _text_writer(reader, screen, full=full)
        for entry in _selected(reader, first, last, kinds, follow=follow):
            put(entry)
            if follow:
                screen.flush()


@journal.command(short_help="Check every line and every large value.")
@path_argument
@shows_database
@workspace_option
@json_option
def verify(path: str, workspace: str, *, as_json: bool) -> Exit:
    """Check every line of a journal and every large value it refers to, without changing anything.

    A run that is kept in a database is checked there, and nothing of it is kept on this machine.

    The exit code is 0 if all acknowledged entries are intact, and 10 if not. A line that was being written when its owner died
    was never acknowledged and does not count as damage: the next owner cuts it off and keeps it in a file.
    """
    report = _verify(path, workspace)
    if as_json:
        write_json({"ok": report.ok, **msgspec.to_builtins(report)})
    else:
        _show_report(Screen(sys.stdout), report)
    return Exit.OK if report.ok else Exit.CORRUPT


@journal.command(short_help="Print all entries as JSON lines, large values included.")
@path_argument
@click.option("-o", "--output", metavar="FILE", help="Write to this file; it appears when it is complete.")
@click.option(
    "--ledger", is_flag=True, help="Print a run of the pipeline as messages of the line protocol instead."
)
@click.option("--check", is_flag=True, help="Check the ledger in the file PATH and print its faults.")
@shows_database
@workspace_option
def export(path: str, output: str | None, workspace: str, *, ledger: bool, check: bool) -> Exit:
    """Print all entries as JSON, one object a line, in their order.

    Each line has seq, commit, at (microseconds since 1970, UTC), kind and data, and value if the entry has one. Each entry is a
    line of its own, also if it was written in a group. Large values are included. A value that is not JSON is given as
    value_base64. A line that the owner is still writing is left out.
    """
    if check:
        return _check_ledger(path)
    path = _bring_here(path, workspace)
    with open_reader(path) as reader, open_output(output, beside=reader.path) as stream:
        if ledger:
            stream.writelines(_ledger(reader, path))
            return Exit.OK
        for entry in reader.read():
            stream.write(encode_entry(entry, reader.load_value(entry)))
    return Exit.OK


def _ledger(reader: JournalReader, path: str) -> Iterator[bytes]:
    from bartack.pipeline.records.ledger import export_ledger  # noqa: PLC0415 - most exports do not need it
    from bartack.pipeline.request import MAIN  # noqa: PLC0415 - most exports do not need it

    created = next((entry for entry in reader.read() if entry.kind == "run.created"), None)
    if created is None or created.data.get("worker") != MAIN:
        raise UsageError(
            "bartack journal export", f"{path} is not a run of the pipeline, so it has no ledger"
        )
    yield from export_ledger(path)


def _find(asked: str, workspace: str) -> RunDir | None:
    """The run of this name; ``None`` if there is a file or a directory of it."""
    if os.path.lexists(asked) or not _RUN_NAME.fullmatch(asked):
        return None
    from bartack.cli.app._runs import locate  # noqa: PLC0415 - a journal can be read without a run

    return locate(asked, workspace)


def _open(asked: str, workspace: str) -> FileReader:
    """Read a journal: an existing file or directory, else the journal of a run, wherever that is kept."""
    run = _find(asked, workspace)
    return open_reader(asked) if run is None else run.open_reader()


def _verify(asked: str, workspace: str) -> JournalReport:
    run = _find(asked, workspace)
    if run is None or run.where is None or run.is_of_node:
        return verify_journal(asked if run is None else run.path)
    from bartack.cli.app._database import open_team  # noqa: PLC0415 - most journals are files

    return open_team(run.where).verify(run.id)


def _bring_here(asked: str, workspace: str) -> str:
    """Where a journal is with all its large values. What cannot be fetched from a database is missing there."""
    run = _find(asked, workspace)
    if run is None:
        return asked
    if run.where is not None:
        with run.open_reader() as reader:
            for entry in reader.read():
                with suppress(BlobMissingError):
                    reader.load_value(entry)
    return str(run.path)


def _check_ledger(path: str) -> Exit:
    from bartack.pipeline.records.ledger import check_ledger  # noqa: PLC0415 - see above

    problems = check_ledger(Path(path))
    screen = Screen(sys.stdout)
    for found in problems:
        screen.line(f"line {found.line}: {printable(found.problem)}")
    return Exit.FAILED if problems else Exit.OK


def _selected(
    reader: JournalReader, first: int, last: int | None, kinds: tuple[str, ...], *, follow: bool
) -> Iterator[Entry]:
    entries = reader.follow(first) if follow else reader.read(first)
    if last is not None:
        entries = _until(entries, last)
    if kinds:
        return (entry for entry in entries if any(fnmatchcase(entry.kind, kind) for kind in kinds))
    return entries


def _until(entries: Iterator[Entry], last: int) -> Iterator[Entry]:
    for entry in takewhile(lambda entry: entry.seq <= last, entries):
        yield entry
        if entry.seq == last:
            return  # a follower would wait for the next entry


def _json_writer(reader: JournalReader, *, full: bool) -> Callable[[Entry], None]:
    def put(entry: Entry) -> None:
        value = None if entry.ref is not None and not full else reader.load_value(entry)
        sys.stdout.buffer.write(encode_entry(entry, value))  # JSON is UTF-8 in every locale

    return put


def _text_writer(reader: JournalReader, screen: Screen, *, full: bool) -> Callable[[Entry], None]:
    def put(entry: Entry) -> None:
        seq, time, kind = f"{entry.seq:>6}", time_text(entry.at), f"{printable(entry.kind):<20}"
        text = printable(
            bytes(entry.raw).decode(errors="backslashreplace") + _value_text(reader, entry, full=full)
        )
        shown = text if full else screen.fit(text, len(seq) + len(time) + len(kind) + 6)
        screen.line(f"{seq}  {screen.paint(time, 'dim')}  {screen.paint(kind, 'cyan')}  {shown}")

    return put


def _value_text(reader: JournalReader, entry: Entry, *, full: bool) -> str:
    if entry.ref is not None and not full:
        return f" value: {human_size(entry.ref.size)} in blob {entry.ref.sha256[:12]}"
    value = reader.load_value(entry)
    return "" if value is None else f" value: {value.decode(errors='backslashreplace')}"


def time_text(at: int) -> str:
    """Format microseconds since 1970 as a time in UTC, to the millisecond."""
    try:
        return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except OverflowError:
        return str(at)


def _show_report(screen: Screen, report: JournalReport) -> None:
    rows = [
        ("journal", printable(report.path)),
        ("state", _state(screen, report)),
        ("format", str(report.format)),
        ("entries", f"{report.entries} in {report.commits} commits, {human_size(report.size_bytes)}"),
        ("owners", f"{report.owners}, one after the other"),
        ("values", _values_text(report)),
    ]
    if report.first_at is not None and report.last_at is not None:
        rows.insert(4, ("time", f"{time_text(report.first_at)} to {time_text(report.last_at)}"))
    screen.table([(screen.paint(name, "dim"), text) for name, text in rows], indent=0)
    for problem in report.blob_problems:
        screen.line(f"  {screen.paint('damaged', 'red')}  {problem}")


def _state(screen: Screen, report: JournalReport) -> str:
    damage = report.damage
    if damage is not None and not damage.torn:
        return screen.paint(f"damaged at byte {damage.offset}, entry {damage.seq}: {damage.problem}", "red")
    if report.blob_problems:
        return screen.paint("large values are damaged", "red")
    if damage is not None:
        sentence = f"intact up to byte {damage.offset}; entry {damage.seq} after it is unfinished and was never acknowledged"
        return screen.paint(sentence, "yellow")
    return screen.paint("intact", "green")


def _values_text(report: JournalReport) -> str:
    return (
        f"{report.blobs} large, {len(report.blob_problems)} of them damaged or missing"
        if report.blobs
        else "none large"
    )
