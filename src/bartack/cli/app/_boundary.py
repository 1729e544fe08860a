"""The entry point: it runs a command line and turns every error into a few lines on stderr and an exit code.

An error report has what happened with its code, what to do, and where to read more. With ``--json`` the report is one JSON
object, also on stderr, so that stdout carries results only. ``BARTACK_TRACEBACK=1`` adds the traceback.

click is imported only when a command line needs it; ``--version`` does not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from bartack.cli.app._edge import guarded_streams
from bartack.cli.app._exit import Exit, exit_code_of
from bartack.cli.app._terminal import Screen, printable
from bartack.errors import (
    BartackError,
    FileAccessError,
    InternalError,
    ProgramFaultError,
    RunNotFoundError,
    UsageError,
)

if TYPE_CHECKING:
    from types import FrameType

    import click

TRACEBACK_VARIABLE = "BARTACK_TRACEBACK"
COMPLETE_VARIABLE = "_BARTACK_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name, and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    return run_guarded(lambda: _dispatch(args), as_json="--json" in _options_of(args))


def run_guarded(work: Callable[[], int], *, as_json: bool = False) -> int:
    """Call ``work`` and return its exit code; an error is reported and becomes an exit code."""
    with guarded_streams():
        try:
            with _exiting_on_sigterm():
                code = work()
                sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost boundary reports every error
            return _close_with(error, as_json=as_json)
        return code


def _options_of(args: list[str]) -> list[str]:
    return args[: args.index("--")] if "--" in args else args


def _dispatch(args: list[str]) -> int:
    if args == ["--version"]:
        from bartack._version import __version__  # noqa: PLC0415 - only this line needs it

        sys.stdout.write(f"bartack {__version__}\n")
        return Exit.OK
    from bartack.cli.app._app import app  # noqa: PLC0415 - click is not loaded before it is needed

    if COMPLETE_VARIABLE in os.environ:
        from click.shell_completion import shell_complete  # noqa: PLC0415 - only completion needs it

        return shell_complete(app, {}, "bartack", COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    return _invoke(app, args)


def _invoke(app: click.Group, args: list[str]) -> int:
    import click  # noqa: PLC0415 - loaded by now

    try:
        with app.make_context("bartack", args) as context:
            return int(app.invoke(context) or Exit.OK)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "bartack"
        unknown = error.option_name if isinstance(error, click.NoSuchOption) else ""
        raise UsageError(command, _sentence(error.format_message()), _as_argument(args, unknown)) from error
    except click.Abort as error:
        raise KeyboardInterrupt from error


def _as_argument(args: list[str], unknown: str) -> str:
    """The advice for an option that follows a program and that ``run`` does not have: it is an option of the program."""
    place = next((n for n, word in enumerate(args) if unknown and word.partition("=")[0] == unknown), 0)
    before = args[:place]
    if args[:1] != ["run"] or not any(word.partition(":")[0].endswith((".pw", ".py")) for word in before):
        return ""
    import shlex  # noqa: PLC0415 - only this mistake needs it

    return f"Arguments of the program follow --: bartack {shlex.join([*before, '--', *args[place:]])}"


def _sentence(text: str) -> str:
    """Bring a message of click into our form: one line, lower case, no full stop."""
    text = " ".join(text.split())
    return (text[:1].lower() + text[1:]).rstrip(".")


def _close_with(error: BaseException, *, as_json: bool) -> int:
    _discard_stdout()
    if os.environ.get(TRACEBACK_VARIABLE):
        _show_traceback(error)
    if isinstance(error, KeyboardInterrupt):
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # the terminal has echoed ^C on this line
        return Exit.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return Exit.PIPE_CLOSED
    known = _as_known(error)
    code = Exit.DISK if _is_disk_trouble(error) else exit_code_of(type(known))
    if isinstance(known, RunNotFoundError) and known.near:
        code = Exit.USAGE  # the name is ambiguous: several runs match
    with suppress(OSError):  # stderr may be closed as well
        _report(known, code, as_json=as_json)
    return code


def _as_known(error: BaseException) -> BartackError:
    if isinstance(error, BartackError):
        return error
    if isinstance(error, OSError):
        # An error while reading or writing an open file does not carry its name.
        place = error.filename if isinstance(error.filename, str) else "input or output"
        return FileAccessError(place, error.strerror or str(error))
    return InternalError(f"{type(error).__name__}: {error}")


def _is_disk_trouble(error: BaseException) -> bool:
    """Whether the cause is the disk: it is full, broken or not writable."""
    from bartack.core.disk import is_disk_trouble  # noqa: PLC0415 - only a failure needs it

    cause = error.__cause__ if isinstance(error, FileAccessError) else error
    return is_disk_trouble(cause) or (isinstance(cause, PermissionError) and _is_write_protected(cause))


def _is_write_protected(error: PermissionError) -> bool:
    """Whether a write was refused: the file is readable but not writable, or its directory is."""
    if not isinstance(error.filename, str):
        return False
    place = os.path.abspath(error.filename)
    if os.path.lexists(place) and not os.path.isdir(place):
        return os.access(place, os.R_OK) and not os.access(place, os.W_OK)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return os.access(place, os.R_OK | os.X_OK) and not os.access(place, os.W_OK)


def _report(error: BartackError, code: Exit, *, as_json: bool) -> None:
    if as_json:
        _report_json(error, code)
    else:
        _report_text(error)
    sys.stderr.flush()


def _report_text(error: BartackError) -> None:
    screen = Screen(sys.stderr)
    if isinstance(error, ProgramFaultError):
        # Its report is already formatted for people: source lines, carets and a summary.
        sys.stderr.write(error.report.rstrip("\n") + "\n")
        return
    first, *rest = error.message.split("\n")
    screen.line(f"{screen.paint(f'error[{error.code}]', 'red')}: {printable(first)}")
    for line in rest:
        screen.line(f"  {printable(line)}")
    screen.line(f"  {screen.paint('help', 'bold')}: {error.remedy}")
    screen.line(f"  {screen.paint('more', 'bold')}: bartack explain {error.code}")


def _report_json(error: BartackError, code: Exit) -> None:
    import json  # noqa: PLC0415 - most command lines do not need it

    facts = {name: value for name, value in vars(error).items() if name not in {"message", "remedy"}}
    shown = {
        "code": error.code,
        "name": type(error).__name__,
        "message": error.message,
        "help": error.remedy,
        "retryable": error.retryable,
        "exit_code": int(code),
        "facts": facts,
    }
    sys.stderr.write(json.dumps({"error": shown}, default=str) + "\n")


def _show_traceback(error: BaseException) -> None:
    import traceback  # noqa: PLC0415 - only BARTACK_TRACEBACK needs it

    with suppress(OSError):
        traceback.print_exception(error)


def _discard_stdout() -> None:
    """Send unwritable output to the null device, so that the interpreter does not fail to flush it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def _exiting_on_sigterm() -> Generator[None]:
    """Let SIGTERM unwind the stack, so that children are terminated and temporary files removed."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(Exit.TERMINATED)
