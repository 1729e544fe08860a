"""Whether the commands of a plugin answer, in the environment that Claude Code gives to its children.

A hook whose program is missing is skipped without a word, and so would be the guard.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.plugin._settings_file import SHIM_NAME
from bartack.plugin.rules._json_files import HOOKS_JSON, MCP_JSON, ROOT

ANSWER_S: Final = 5.0
Object = dict[str, object]

_REQUESTS: Final = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bartack", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


def commands_of(files: Mapping[str, bytes]) -> list[tuple[str, ...]]:
    """The commands of a plugin with their arguments, each once."""
    found: list[tuple[str, ...]] = []
    for file in (MCP_JSON, HOOKS_JSON):
        for known in _with_command(json.loads(files[file])) if file in files else ():
            args = cast("list[str]", known.get("args", []))
            found.append((str(known["command"]), *args))
    return list(dict.fromkeys(found))


def _with_command(value: object) -> Iterator[Object]:
    """Every object in a JSON value that has a command."""
    if isinstance(value, dict):
        known = cast("Object", value)
        if isinstance(known.get("command"), str):
            yield known
        for below in known.values():
            yield from _with_command(below)
    elif isinstance(value, list):
        for below in cast("list[object]", value):
            yield from _with_command(below)


def check_commands(
    files: Mapping[str, bytes], environ: Mapping[str, str] | None = None, *, foreign: str = ""
) -> list[str]:
    """The commands of a plugin that do not answer, each with the reason.

    Args:
        files: The plugin.
        environ: The environment; that of this process by default.
        foreign: A folder whose programs are not started, except for the interpreter that is running now.
    """
    probes = dict.fromkeys(_probe(command) for command in commands_of(files))
    return [problem for probe in probes if (problem := _refuse(probe, foreign) or _run(probe, environ))]


def _refuse(command: tuple[str, ...], foreign: str) -> str:
    program = command[0]
    if not foreign or program == sys.executable:
        return ""
    places = {os.path.abspath(program), os.path.realpath(program)} if "/" in program else set[str]()
    if any(place.startswith(foreign.rstrip("/") + "/") for place in places):
        return (
            f"{program}: it is in the project, so it is not started here; 'bartack plugin verify' starts it"
        )
    return ""


def _probe(command: tuple[str, ...]) -> tuple[str, ...]:
    """What shows that a command answers, without its effect."""
    program, *args = command
    if any(os.path.basename(arg) == SHIM_NAME for arg in args):
        shim = next(arg for arg in args if os.path.basename(arg) == SHIM_NAME)
        return (
            program,
            "-I",
            "-S",
            "-c",
            "import sys; compile(open(sys.argv[1]).read(), 'shim', 'exec')",
            shim,
        )
    prefix = args[:3] if args[:2] == ["-I", "-m"] else []
    return (program, *prefix, "--version")


def _run(command: tuple[str, ...], environ: Mapping[str, str] | None) -> str:
    shown = " ".join(command if "-c" not in command else (command[0], command[-1]))
    try:
        done = subprocess.run(  # noqa: S603 - the commands that the user has built, without a shell
            command,
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{shown}: no answer within {ANSWER_S:g} s"
    except OSError as error:
        return f"{shown}: {error.strerror or error}"
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"{shown}: exit code {done.returncode}{f': {lines[-1]}' if lines else ''}"
    return ""


def check_server(
    files: Mapping[str, bytes], folder: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> str:
    """Why the MCP server of a plugin does not list its tools within 5 s; empty if it does."""
    command = next(iter(commands_of({MCP_JSON: files[MCP_JSON]})))
    words = [word.replace(ROOT, os.fspath(folder)) for word in command]
    shown = " ".join(words)
    asked = "".join(json.dumps(request) + "\n" for request in _REQUESTS)
    base = os.environ if environ is None else environ
    try:
        done = subprocess.run(  # noqa: S603 - the command that the user has built, without a shell
            words,
            input=asked.encode(),
            env={**base, "CLAUDE_PLUGIN_ROOT": os.fspath(folder)},
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{shown}: the server did not answer within {ANSWER_S:g} s"
    except OSError as error:
        return f"{shown}: {error.strerror or error}"
    if _lists_tools(done.stdout):
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{shown}: the server lists no tool start_run{f': {lines[-1]}' if lines else ''}"


def _lists_tools(output: bytes) -> bool:
    for line in output.splitlines():
        try:
            answer = typed.decode(line, type=_Listed)
        except msgspec.MsgspecError:
            continue
        if answer.id == 2 and answer.result is not None:
            return any(tool.name == "start_run" for tool in answer.result.tools)
    return False


class _Tool(msgspec.Struct):
    name: str


class _Tools(msgspec.Struct):
    tools: list[_Tool] = []


class _Listed(msgspec.Struct):
    """An answer of the server, as far as it is needed."""

    id: int | str | None = None
    result: _Tools | None = None
