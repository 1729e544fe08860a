"""The members of ``ctx`` that run commands."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypedDict, Unpack, overload

import msgspec

from bartack.core import typed
from bartack.runtime.context.part import Members, Seconds, check_options, encode_args, limit_here
from bartack.runtime.protocol.steps import ShellArgs, ShellOutcome
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.results import ShellBytes, ShellResult

Word = str | Path | int | float
"""One word of a command."""

_decode: Final = typed.decoder(ShellOutcome).decode


class ShellOptions(TypedDict, total=False):
    """How a command is run.

    Attributes:
        cwd: Where it runs; relative to the workspace.
        env: Variables that are added to its environment.
        stdin: What it reads.
        timeout_s: How long it may take.
        check: A status other than 0 is a ``ShellError``; that is the default.
        once: It must not be run twice, whatever happens.
        kept_bytes: At most this many bytes of each output are kept, the last ones, with the secrets of its environment hidden.
            Without it, or with 0, all of it is kept as it is.
        changes: It may change files of the workspace; that is the default. With ``False``, a run on a node makes no copy of them
            for it. That can be added to a program whose run is resumed.
    """

    cwd: str | Path | None
    env: Mapping[str, str] | None
    stdin: str | bytes | None
    timeout_s: Seconds | None
    check: bool
    once: bool
    kept_bytes: int
    changes: bool


class ShellMembers(Members):
    """Commands."""

    @overload
    def shell(
        self, *argv: Word, text: Literal[True] = True, **options: Unpack[ShellOptions]
    ) -> StepOp[ShellResult]: ...
    @overload
    def shell(
        self, *argv: Word, text: Literal[False], **options: Unpack[ShellOptions]
    ) -> StepOp[ShellBytes]: ...
    def shell(
        self, *argv: Word, text: bool = True, **options: Unpack[ShellOptions]
    ) -> StepOp[ShellResult] | StepOp[ShellBytes]:
        """Run a command. No shell reads it: each argument is one word.

        Args:
            argv: The program and its arguments.
            text: Its output is text; else it is bytes.
            options: See ``ShellOptions``.

        Raises:
            ShellError: It ended with another status than 0, or could not be run.
            ShellTimeoutError: It took too long.
        """
        return self._run([argv], options, text=text)

    @overload
    def pipe(
        self, *commands: Sequence[Word], text: Literal[True] = True, **options: Unpack[ShellOptions]
    ) -> StepOp[ShellResult]: ...
    @overload
    def pipe(
        self, *commands: Sequence[Word], text: Literal[False], **options: Unpack[ShellOptions]
    ) -> StepOp[ShellBytes]: ...
    def pipe(
        self, *commands: Sequence[Word], text: bool = True, **options: Unpack[ShellOptions]
    ) -> StepOp[ShellResult] | StepOp[ShellBytes]:
        """Run commands, each reading what the one before it writes. The options are those of ``shell``."""
        return self._run(commands, options, text=text)

    def _run(
        self, commands: Sequence[Sequence[Word]], options: ShellOptions, *, text: bool
    ) -> StepOp[ShellResult] | StepOp[ShellBytes]:
        check_options(options, ShellOptions)
        pipeline = [_words(command) for command in commands]
        if not pipeline:
            raise TypeError("the command is missing")
        cwd, env = options.get("cwd"), options.get("env")
        args = ShellArgs(
            pipeline=pipeline,
            cwd="" if cwd is None else str(cwd),
            env=None if env is None else dict(env),
            timeout_s=limit_here(self._scheduler, "shell", options.get("timeout_s")),
            check=options.get("check", True),
            once=options.get("once", False),
            kept_bytes=options.get("kept_bytes", 0),
            changes=options.get("changes", True),
        )
        written = None if args.changes else encode_args(msgspec.structs.replace(args, changes=True))
        about = " | ".join(" ".join(command) for command in pipeline)
        value = _input(options.get("stdin"))
        if text:
            return self._step("shell", args, as_text, about, value=value, written=written)
        return self._step("shell", args, _as_bytes, about, value=value, written=written)


def _words(command: Sequence[Word]) -> list[str]:
    """A command as exact words.

    Raises:
        TypeError: One is not a word.
    """
    if isinstance(command, str):
        raise TypeError(f"a command is a list of words, not the text {command!r}")
    if not command:
        raise TypeError("a command needs the name of a program")
    return [_word(word) for word in command]


def _word(word: Word) -> str:
    if type(word) in {str, int, float} or isinstance(word, Path):
        return str(word)
    raise TypeError(f"a word of a command must be str, Path, int or float, not {type(word).__name__}")


def _input(stdin: str | bytes | None) -> bytes | None:
    if stdin is None:
        return None
    return b'"' + b64encode(stdin.encode() if isinstance(stdin, str) else stdin) + b'"'


def as_text(data: Buffer) -> ShellResult:
    """The outcome of commands whose output is text."""
    outcome = _decode(data)
    return ShellResult(
        outcome.argv,
        outcome.status,
        outcome.stdout or b64decode(outcome.stdout64).decode("utf-8", "replace"),
        outcome.stderr or b64decode(outcome.stderr64).decode("utf-8", "replace"),
    )


def _as_bytes(data: Buffer) -> ShellBytes:
    outcome = _decode(data)
    return ShellBytes(
        outcome.argv,
        outcome.status,
        outcome.stdout.encode() or b64decode(outcome.stdout64),
        outcome.stderr.encode() or b64decode(outcome.stderr64),
    )
