"""``bartack log``: the transcript of a run, with its output, log lines and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

import click
import msgspec

from bartack.cli.app._options import json_option, write_json
from bartack.cli.runs._failure import error_name
from bartack.cli.runs._runs import iso, latest_argument, locate, read_timeline, workspace_option
from bartack.core import open_watch
from bartack.journal import Entry, FileReader, open_reader
from bartack.runtime.rundir.find import was_abandoned
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import is_active
from bartack.runtime.rundir.transcript import has_facts, lost_lines, read_transcript

LOOK_S = 2.0
"""How often a follower checks whether the run is still active."""


@click.command(short_help="Print the output, log lines and notes of a run.")
@latest_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more lines until the run is no longer active.")
@workspace_option
@json_option
def log(run: str, workspace: str, *, follow: bool, as_json: bool) -> None:
    """Print the output, log lines and notes of a run, in order: time (UTC), worker and text.

    The last line of a failed run is the reason of its failure.

    With --json each text of a worker is one JSON object: seq, at, worker path, channel (print or log) and text.
    """
    found = locate(run, workspace)
    if as_json:
        _print_entries(found, follow=follow)
    else:
        _print_transcript(found, follow=follow)


def _print_transcript(run: RunDir, *, follow: bool) -> None:
    if not follow and (was_abandoned(run) or has_facts(run.path)):
        sys.stdout.write(read_transcript(run.path, run.transcript).decode("utf-8", "replace"))
        return
    with open_watch(str(run.path)) as watch:
        stream: BinaryIO | None = None
        while True:
            last_look = not follow or not is_active(run)
            if stream is None and run.transcript.exists():
                stream = run.transcript.open("rb")
            if stream is not None:
                for text in _texts(stream):
                    sys.stdout.write(text)
                sys.stdout.flush()
            if last_look:
                break
            watch.wait(LOOK_S)
        if stream is not None:
            stream.close()
    if was_abandoned(run):
        for line in lost_lines(run.path, run.transcript):
            sys.stdout.write(line)
    _print_failure(run)


def _print_failure(run: RunDir) -> None:
    """Print why the run failed, as the last line."""
    timeline = read_timeline(run, newest=1)
    failure = timeline.state.failure
    if failure is None or is_active(run):
        return
    first = failure.error.message.partition("\n")[0]
    at = iso(timeline.notes[-1].at)[11:23] if timeline.notes else ""
    sys.stdout.write(f"{at} {failure.worker or 'bartack'}: [failed] {error_name(failure.error)}: {first}\n")
    sys.stdout.flush()


def _texts(stream: BinaryIO) -> Iterator[str]:
    """The lines that were added to the stream."""
    while chunk := stream.readline():
        yield chunk.decode("utf-8", "replace")


def _print_entries(run: RunDir, *, follow: bool) -> None:
    with open_reader(run.path) as reader:
        for entry in _entries(run, reader, follow=follow):
            if entry.kind == "output":
                data = entry.data
                shown = {"seq": entry.seq, "at": entry.at, "worker": data["p"], "channel": data["channel"]}
                write_json({**shown, "text": msgspec.json.decode(reader.load_value(entry) or b'""')})
                if follow:
                    sys.stdout.flush()


def _entries(run: RunDir, reader: FileReader, *, follow: bool) -> Iterator[Entry]:
    if not follow:
        yield from reader.read()
        return
    place = 1
    while True:
        last_look = not is_active(run)
        entries = reader.read(place) if last_look else reader.follow(place, timeout_s=LOOK_S)
        for entry in entries:
            place = entry.seq + 1
            yield entry
            if entry.kind in {"run.ended", "hub.stopped"} and not last_look:
                break
        if last_look:
            return
