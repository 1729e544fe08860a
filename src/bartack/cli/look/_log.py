"""``bartack log``: the transcript of a run, with its output, log lines and notes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import BinaryIO

import click
import msgspec

from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import iso, latest_argument, locate, workspace_option
from bartack.cli.look._failure import error_name
from bartack.journal import Entry
from bartack.runtime.rundir.find import was_abandoned
from bartack.runtime.rundir.follower import RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.transcript import JournalLines, read_texts
from bartack.runtime.state.entries import OutputWritten
from bartack.runtime.state.run_state import State

LOOK_S = 2.0
"""How often a follower checks whether the run is still active."""


@click.command(short_help="Print the output, log lines and notes of a run.")
@latest_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more lines until the run is no longer active.")
@shows_database
@workspace_option
@json_option
def log(run: str, workspace: str, *, follow: bool, as_json: bool) -> None:
    """Print the output, log lines and notes of a run, in order: time (UTC), worker and text.

    The last line of a failed run is the reason of its failure. Of a run that another machine runs, it prints what the journal has:
    notes of the hub and the output of commands are on that machine only.

    With --json each text of a worker is one JSON object: seq, at, worker path, channel (print or log) and text.
    """
    found = locate(run, workspace)
    if as_json:
        _print_entries(found, follow=follow)
    else:
        _print_transcript(found, follow=follow)


def _print_transcript(run: RunDir, *, follow: bool) -> None:
    from_journal = run.is_written_elsewhere()
    if follow and from_journal:
        _print_failure(run, _follow_journal(run))
        return
    if follow:
        _follow_transcript(run)
    abandoned = was_abandoned(run)
    recorded = read_texts(run, texts=abandoned or from_journal)
    if not follow and (abandoned or from_journal or recorded.has_facts):
        sys.stdout.write(recorded.transcript(run.transcript).decode("utf-8", "replace"))
        if recorded.has_facts:
            return
    elif follow and abandoned:
        sys.stdout.write("".join(recorded.lost(run.transcript)))
    elif not follow and run.transcript.exists():
        with run.transcript.open("rb") as stream:
            _copy(stream)
    _print_failure(run, recorded.state)


def _follow_journal(run: RunDir) -> State:
    """Print the lines of the journal as it grows, until no process runs the run or is going to; returns what it adds up to."""
    shown = 0

    def put(entry: Entry) -> None:
        nonlocal shown
        if entry.seq <= shown:
            return  # the journal is read from its beginning again
        shown = entry.seq
        began = bool(lines.head)
        for line in lines.take(entry):
            head = b"" if began else lines.head
            sys.stdout.write((head + line).decode("utf-8", "replace"))

    with RunFollower(run, each=put) as follower:
        lines = JournalLines(follower.load)
        while True:
            last_look = not (run.is_active() or run.is_awaited())
            follower.read_all()
            follower.check()
            sys.stdout.flush()
            if last_look:
                return lines.state
            follower.wait(LOOK_S)


def _follow_transcript(run: RunDir) -> None:
    """Print the file as it grows, until the run is no longer active."""
    with run.watch() as watch, ExitStack() as stack:
        stream: BinaryIO | None = None
        while True:
            last_look = not run.is_active()
            if stream is None and run.transcript.exists():
                stream = stack.enter_context(run.transcript.open("rb"))
            if stream is not None:
                _copy(stream)
            if last_look:
                return
            watch.wait(LOOK_S)


def _copy(stream: BinaryIO) -> None:
    """Print the lines that were added to a file."""
    while line := stream.readline():
        sys.stdout.write(line.decode("utf-8", "replace"))
    sys.stdout.flush()


def _print_failure(run: RunDir, state: State) -> None:
    """Print why the run failed, as the last line."""
    failure = state.failure
    if failure is None or run.is_active():
        return
    first = failure.error.message.partition("\n")[0]
    at = iso(state.last_at)[11:23]
    sys.stdout.write(f"{at} {failure.worker or 'bartack'}: [failed] {error_name(failure.error)}: {first}\n")
    sys.stdout.flush()


def _print_entries(run: RunDir, *, follow: bool) -> None:
    if not follow:
        with run.open_reader() as reader:
            for entry in reader.read():
                _print_entry(entry, reader.load_value)
        return
    with RunFollower(run, each=lambda entry: _print_entry(entry, follower.load)) as follower:
        while True:
            last_look = not (run.is_active() or run.is_awaited())
            follower.read_all()
            follower.check()
            sys.stdout.flush()
            if last_look:
                return
            follower.wait(LOOK_S)


def _print_entry(entry: Entry, load: Callable[[Entry], bytes | None]) -> None:
    if entry.kind == OutputWritten.kind:
        data = entry.data
        shown = {"seq": entry.seq, "at": entry.at, "worker": data["p"], "channel": data["channel"]}
        write_json({**shown, "text": msgspec.json.decode(load(entry) or b'""')})
