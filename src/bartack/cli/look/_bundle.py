"""``bartack bundle``: pack a run for a bug report, without its secrets."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack._version import __version__
from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import locate, run_argument, workspace_option
from bartack.cli.app._terminal import Screen, human_size, write_note
from bartack.config.load import load_config
from bartack.core.disk import RealDisk
from bartack.core.files import naming
from bartack.core.redact import Redactor, SecretRule
from bartack.errors import BartackError, UsageError
from bartack.journal import Entry, JournalReader
from bartack.runtime.program.recording import BUNDLED_JOURNAL
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.secret_digests import Digests
from bartack.runtime.rundir.transcript import read_transcript
from bartack.runtime.state.entries import PACKS

_FILES: Final = ("run.json", ".failed", "hub.log", "transcript.txt")
_CONFIG: Final = "bartack.toml"
_LEFT_OUT: Final = "elsewhere.json"
_ELSEWHERE: Final = {
    "hub.log": "what the hub has logged",
    ".failed": "the failure as a file; the journal has it, too",
    "transcript.txt": "notes of the hub and the output of commands; the texts of the program are in this bundle",
    "secrets.json": "by which secrets are found that this machine does not know",
}
"""What the machine that runs a run has of it, and its database does not."""


@click.command(short_help="Pack a run for a bug report, without its secrets.")
@run_argument
@click.option("-o", "--output", metavar="FILE", help="Write to this file (default: RUN.tar.gz).")
@click.option("--prompts", is_flag=True, help="Include values: prompts, replies, answers, messages, results.")
@shows_database
@workspace_option
@json_option
def bundle(run: str, output: str | None, workspace: str, *, prompts: bool, as_json: bool) -> None:
    """Pack a run for a bug report: journal, transcript, logs, failure, program, configuration, 'doctor' and versions.

    Values of steps and messages are left out unless --prompts is given. Secrets of this environment and of the run are replaced by
    their names everywhere. Files of the workspace and the environment are never included. The command lists the contents: look
    at them before you send the file.

    Of a run that another machine runs, it packs what the database has; elsewhere.json in it names what only that machine has.
    """
    found = locate(run, workspace)
    target = Path(output or f"{found.id}.tar.gz")
    if target.exists():
        raise UsageError("bartack bundle", f"{target} exists already; name another file with -o")
    members = _pack(found, target, workspace, prompts=prompts)
    if as_json:
        listed = [{"name": name, "size": size} for name, size in members]
        write_json({"file": str(target), "members": listed})
        return
    screen = Screen(sys.stdout)
    screen.table([(name, human_size(size)) for name, size in members], indent=0)
    if any(name.endswith(f"/{_LEFT_OUT}") for name, _ in members):
        write_note(f"what only the machine has that runs it is left out; {_LEFT_OUT} names it")
    write_note(f"written to {target}; look at its contents before you send it")


def _all_secrets(run: RunDir, workspace: str) -> SecretRule:
    """Which variables are secrets here, or by the settings of the run: a run can be packed from anywhere."""
    try:
        there = _secrets_of(run)
    except (BartackError, OSError):
        return _secrets(workspace)
    here = _secrets(workspace)
    return SecretRule(
        names=(*here.names, *there.names),
        exempt=tuple(name for name in here.exempt if name in there.exempt),
        min_length=min(here.min_length, there.min_length),
    )


def _secrets_of(run: RunDir) -> SecretRule:
    if not run.is_written_elsewhere():
        return _secrets(run.workspace(read_state(run)))
    with tempfile.TemporaryDirectory(prefix="bartack-") as folder:
        Path(folder, _CONFIG).write_bytes(run.program_files().get(_CONFIG, b""))
        return _secrets(folder)


def _secrets(workspace: str) -> SecretRule:
    """Which variables are secrets; unreadable settings are not an error, since the report may be about them."""
    try:
        return load_config(Path(workspace)).redaction.rule
    except BartackError:
        return SecretRule()


def _redactor(run: RunDir, workspace: str, *, prompts: bool) -> Redactor:
    """A redactor for the secrets of this environment, and for the secrets of the run that occur in the contents."""
    found = Digests(run.path).find(content for _, content in _texts(run, Redactor({}), prompts=prompts))
    rule = _all_secrets(run, workspace)
    return Redactor({**found, **os.environ}, rule._replace(names=(*rule.names, *found)))


def _pack(run: RunDir, target: Path, workspace: str, *, prompts: bool) -> list[tuple[str, int]]:
    redactor = _redactor(run, workspace, prompts=prompts)
    members: list[tuple[str, int]] = []
    with naming(target):
        fd, temporary = tempfile.mkstemp(dir=target.absolute().parent, prefix=".bundle-", suffix=".tmp")
    try:
        with open(fd, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name, content in _contents(run, redactor, prompts=prompts):
                clean = redactor.redact_bytes(content)
                member = tarfile.TarInfo(f"{run.id}/{name}")
                member.size = len(clean)
                member.mode = 0o600
                archive.addfile(member, io.BytesIO(clean))
                members.append((member.name, member.size))
        RealDisk().rename(temporary, str(target))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return members


def _contents(run: RunDir, redactor: Redactor, *, prompts: bool) -> Iterator[tuple[str, bytes]]:
    yield "versions.json", _encode(_versions())
    yield "doctor.json", _encode(_doctor(run))
    yield from _texts(run, redactor, prompts=prompts)


def _texts(run: RunDir, redactor: Redactor, *, prompts: bool) -> Iterator[tuple[str, bytes]]:
    """The files that the run has written."""
    yield BUNDLED_JOURNAL, _journal(run, redactor, prompts=prompts)
    for name, content in _kept_files(run) if run.is_written_elsewhere() else _own_files(run):
        if name == _CONFIG:
            # It can contain a secret that is in no environment, for example in tests.env.
            yield name, b"".join(map(redactor.hide_lines, content.splitlines(keepends=True)))
        else:
            yield name, content


def _own_files(run: RunDir) -> Iterator[tuple[str, bytes]]:
    """The files in the directory of the run, and the settings of its workspace."""
    for name in _FILES:
        yield from _file(run.path / name, name)
    for path in sorted(run.program.rglob("*.py")):
        if path.is_file():
            yield f"program/{path.relative_to(run.program)}", path.read_bytes()
    try:
        state = read_state(run)
    except BartackError:
        return
    if state.run is not None:
        yield from _file(Path(state.run.workspace, _CONFIG), _CONFIG)


def _kept_files(run: RunDir) -> Iterator[tuple[str, bytes]]:
    """What the database of a run has of these files, and what this machine has of them if it has run the run."""
    summary = run.summary()
    if summary is not None:
        yield "run.json", summary
    for name in (".failed", "hub.log"):
        yield from _file(run.path / name, name)
    with suppress(BartackError):  # a damaged journal is packed as far as it goes
        yield "transcript.txt", read_transcript(run, run.transcript)
    files = run.program_files()
    yield from ((name, files[name]) for name in sorted(files) if _is_program(name))
    if _CONFIG in files:
        yield _CONFIG, files[_CONFIG]
    else:
        yield from _settings_beside(run)
    if not run.transcript.exists():
        yield _LEFT_OUT, _encode({"node": run.node_name(), "files": _ELSEWHERE})


def _is_program(name: str) -> bool:
    return name.startswith("program/") and name.endswith(".py")


def _settings_beside(run: RunDir) -> Iterator[tuple[str, bytes]]:
    """The settings of the workspace that has the directory of the run. A path of another machine means nothing here."""
    try:
        created = read_state(run).run
    except BartackError:
        return
    if created is not None and run.path.absolute().is_relative_to(created.workspace):
        yield from _file(Path(created.workspace, _CONFIG), _CONFIG)


def _file(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    if path.is_file():
        yield name, path.read_bytes()


def _encode(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _versions() -> dict[str, str]:
    return {
        "bartack": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "msgspec": msgspec.__version__,
        "click": _version("click"),
    }


def _version(name: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - slow to load

    return version(name)


def _doctor(run: RunDir) -> list[dict[str, object]]:
    from bartack.cli.project.doctor._doctor import examine  # noqa: PLC0415 - only this command needs all of it

    return [dict(finding._asdict()) for finding in examine(str(run.path.parent))]


def _journal(run: RunDir, redactor: Redactor, *, prompts: bool) -> bytes:
    """The entries as JSON lines, up to the first unreadable one, which is replaced by its error."""
    lines: list[bytes] = []
    try:
        with run.open_reader() as reader:
            lines += [_line(reader, entry, redactor, prompts=prompts) for entry in reader.read()]
    except BartackError as error:
        lines.append(msgspec.json.encode({"error": error.code, "message": error.message}) + b"\n")
    return b"".join(lines)


def _line(reader: JournalReader, entry: Entry, redactor: Redactor, *, prompts: bool) -> bytes:
    shown: dict[str, object] = {
        "seq": entry.seq,
        "commit": entry.commit,
        "at": entry.at,
        "kind": entry.kind,
        "data": redactor.redact_value(entry.data),
    }
    # A pack has the files of the workspace: a bundle leaves them out.
    shows = entry.kind not in PACKS and (prompts or entry.ref is None)
    value = reader.load_value(entry) if shows else None
    size = entry.ref.size if entry.ref is not None else len(value or b"")
    if prompts and value is not None:
        shown["value"] = redactor.redact_value(msgspec.json.decode(value))
    elif size:
        shown["value_size"] = size
    return msgspec.json.encode(shown) + b"\n"
