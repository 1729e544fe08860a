"""Executing a form: what the keeper's forked child does, and every process below it that is not yet a program.

Bartack itself starts the programs, connects the pipes and opens the files; no shell reads anything. The interpreter's process
belongs to the keeper like a command does, so a form is ended as a command is: with everything below it.

- A process that has only one command left to run becomes that command.
- Words are expanded by the process that interprets the pipeline, before the first command of it starts; files are opened by the
  process that is about to become the command. A group, and a form inside a word, is interpreted by a process of its own, which is
  why it has a directory of its own.
- Asked to end, an interpreter starts nothing more, and ends when what it waits for has ended. Killed, it takes along whatever it
  started.

A status is an exit code, or the negative number of a signal until it is reported to the outside.
"""

from __future__ import annotations

import errno
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Final, NamedTuple, NoReturn

import msgspec

from bartack.supervision.forms._form import (
    BUILTINS,
    Bare,
    Capture,
    Duplicate,
    Form,
    Group,
    Pipeline,
    SimpleCommand,
    Word,
)
from bartack.supervision.forms._glob import Piece, expand
from bartack.supervision.parent._spawn import EXIT_INTERNAL, StartError, plan_command
from bartack.supervision.process._encoding import encode_word
from bartack.supervision.process.system import system

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
LIMIT_SIGNAL: Final = signal.SIGXFSZ
"""What an interpreter ends itself with when a form inside a word writes too much."""

CAPTURE_LIMIT: Final = 64 * 1024 * 1024
"""The most that a form inside a word may write."""

_FILE_FAILED: Final = 1
_MISUSED: Final = 2
_CHUNK: Final = 1 << 16
_FLAGS: Final = {
    "<": os.O_RDONLY,
    ">": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    ">>": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}
_TERM: Final = {signal.SIGTERM}


class _Request(msgspec.Struct, array_like=True):
    """The request to an interpreter."""

    form: Form
    cwd: bytes
    env: list[tuple[bytes, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Request).decode


def pack_form(form: Form, cwd: str, env: Mapping[str, str]) -> bytes:
    """What ``form_main`` has to be given to execute a form in a directory, with ``env`` as all of its environment.

    Raises:
        OSError: A variable or the directory cannot be given to a program.
    """
    pairs = [(encode_word(name), encode_word(value)) for name, value in env.items()]
    return _encode(_Request(form, encode_word(cwd), pairs))


def form_main(payload: bytes, fds: list[int]) -> int:
    """Execute a form; the descriptors are its output and its errors. Its input is that of the process.

    This is an entry for ``run_parent``: it takes the process over, and may become a program.
    """
    for target, fd in zip((1, 2), fds, strict=True):
        os.dup2(fd, target)
    for fd in fds:
        os.close(fd)
    order = _decode(payload)
    _settle_signals()
    try:
        os.chdir(order.cwd)
    except OSError as error:
        _complain(f"the working directory {os.fsdecode(order.cwd)!r} cannot be used: {error.strerror}")
        return _FILE_FAILED
    return Interpreter(dict(order.env)).run_last(order.form)


def _settle_signals() -> None:
    """Answer no signal in the way of the program this process was forked from."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class _AbortedError(Exception):
    """The form is over, whatever follows: with a status, or because a form in it wrote too much."""

    def __init__(self, status: int, *, limit: bool = False) -> None:
        super().__init__(status)
        self.status = status
        self.limit = limit


class _Ready(NamedTuple):
    """A command whose words are known."""

    command: SimpleCommand | Group
    argv: list[bytes]
    env: dict[bytes, bytes]
    places: list[tuple[int, str, bytes | int]]


class _Pipes(NamedTuple):
    """What a forked process reads and writes, and what of its parent's pipes it must not keep."""

    stdin: int = 0
    stdout: int = 1
    foreign: tuple[int, ...] = ()


class Interpreter:
    """Executes forms in this process, its directory and its descriptors, and in processes forked from it."""

    def __init__(self, env: dict[bytes, bytes]) -> None:
        self._env = env
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def run_last(self, form: Form) -> int:
        """Execute a form as the last thing this process does; returns its exit code, or never."""
        try:
            return _exit_code(self._run(form))
        except _AbortedError as aborted:
            if aborted.limit:
                _end_by(LIMIT_SIGNAL)
            return aborted.status

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _run(self, form: Form) -> int:
        """Execute a form in a process that has nothing to do after it; returns its status."""
        status = self._run_pipeline(form.first, last=not form.rest)
        for place, (joint, pipeline) in enumerate(form.rest, start=1):
            if (status == 0) == (joint == "&&"):
                status = self._run_pipeline(pipeline, last=place == len(form.rest))
        return status

    def _run_pipeline(self, pipeline: Pipeline, *, last: bool) -> int:
        self._check_stop()
        ready = [self._prepare(command) for command in pipeline.commands]
        if len(ready) > 1:
            return self._run_together(ready)
        if _is_builtin(ready[0]):
            return self._run_inside(ready[0])
        return self._perform(ready[0]) if last else self._run_together(ready)

    def _check_stop(self) -> None:
        if self._stopping:
            raise _AbortedError(_exit_code(-signal.SIGTERM))

    # Words.

    def _prepare(self, command: SimpleCommand | Group) -> _Ready:
        argv: list[bytes] = []
        env = self._env
        if isinstance(command, SimpleCommand):
            own = {_word(name): self._one(word) for name, word in command.env}
            env = {**env, **own} if own else env
            argv = [_word(text) for word in command.words for text in self._expand(word)]
        places: list[tuple[int, str, bytes | int]] = [
            (place.fd, "=", place.source)
            if isinstance(place, Duplicate)
            else (place.fd, place.op, self._one(place.target))
            for place in command.redirects
        ]
        return _Ready(command, argv, env, places)

    def _expand(self, word: Word) -> list[str]:
        """The texts that a word stands for."""
        return expand(self._pieces(word), os.fsdecode(self._env.get(b"BARTACK_RUN_DIR", b"")))

    def _one(self, word: Word) -> bytes:
        """A word that stands for one text, whatever names there are."""
        return _word("".join(text for text, _ in self._pieces(word)))

    def _pieces(self, word: Word) -> list[Piece]:
        pieces: list[Piece] = []
        for index, part in enumerate(word):
            if isinstance(part, Capture):
                pieces.append((self._capture(part.form), True))
            elif isinstance(part, str):
                pieces.append((part, True))
            else:
                pieces += self._bare(part, first=not index, last=index == len(word) - 1)
        return pieces

    def _bare(self, part: Bare, *, first: bool, last: bool) -> list[Piece]:
        text = part.text
        home = self._env.get(b"HOME")
        if home and first and (text.startswith("~/") or (text == "~" and last)):
            return [(os.fsdecode(home), True), (text[1:], False)]
        return [(text, False)]

    def _capture(self, form: Form) -> str:
        """What a form writes. If it fails, so does all of the form it is in."""
        output, feed = os.pipe()
        pid = self._fork(lambda: self.run_last(form), _Pipes(stdout=feed, foreign=(output,)))
        os.close(feed)
        parts: list[bytes] = []
        size = 0
        while part := os.read(output, _CHUNK):
            parts.append(part)
            size += len(part)
            if size > CAPTURE_LIMIT:
                raise _AbortedError(0, limit=True)
        os.close(output)
        status = _wait(pid)
        if status:
            raise _AbortedError(_exit_code(status), limit=status == -LIMIT_SIGNAL)
        text = b"".join(parts).rstrip(b"\n")
        if b"\0" in text:
            _complain("no program can be given a word that contains NUL")
            raise _AbortedError(_FILE_FAILED)
        return os.fsdecode(text)

    # Processes.

    def _run_together(self, commands: Sequence[_Ready]) -> int:
        """Run commands side by side, connected by pipes; returns the first status from the left that is not 0."""
        aborts, report = os.pipe() if any(isinstance(one.command, Group) for one in commands) else (-1, -1)
        pids: list[int] = []
        feed = 0
        for place, ready in enumerate(commands, start=1):
            following, out = (0, 1) if place == len(commands) else os.pipe()
            foreign = tuple(fd for fd in (following, aborts) if fd > 0)
            pids.append(self._fork(partial(self._run_child, ready, report), _Pipes(feed, out, foreign)))
            for fd in (feed, out):
                if fd > 1:
                    os.close(fd)
            feed = following
        statuses = [_wait(pid) for pid in pids]
        if report > 0:
            os.close(report)
            self._check_aborts(aborts)
        return _status_of(statuses)

    def _check_aborts(self, aborts: int) -> None:
        """Whether a group reported that the form is over, although the form around it would continue."""
        os.set_blocking(aborts, False)
        try:
            said = os.read(aborts, 1)
        except BlockingIOError:
            said = b""
        os.close(aborts)
        if said:
            raise _AbortedError(said[0], limit=not said[0])

    def _run_child(self, ready: _Ready, report: int) -> int:
        if isinstance(ready.command, SimpleCommand):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            status = self._run_inside(ready) if _is_builtin(ready) else self._perform(ready)
        except _AbortedError as aborted:
            if report > 0:
                os.write(report, bytes([0 if aborted.limit else aborted.status]))
            return aborted.status
        if status == -signal.SIGPIPE:
            # The exit status of this process is that of the last command in it.
            _end_by(signal.SIGPIPE)
        return _exit_code(status)

    def _fork(self, work: Callable[[], int], ends: _Pipes) -> int:
        """Fork a process that does ``work`` and ends with its result, unless we are asked to end."""
        me = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERM)
        try:
            if self._stopping or signal.SIGTERM in signal.sigpending():
                raise _AbortedError(_exit_code(-signal.SIGTERM))
            pid = os.fork()  # bartack: allow[unsupervised_process] waited for, and below the keeper
        except OSError as error:
            _complain(f"no process can be forked: {error.strerror}")
            raise _AbortedError(NOT_EXECUTABLE) from None
        else:
            if not pid:
                _be_child(me, work, ends, before)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _perform(self, ready: _Ready) -> int:
        """Be a command as the last thing this process does; returns its status if it does not become a program."""
        if not _redirect(ready.places):
            return _FILE_FAILED
        if isinstance(ready.command, Group):
            return self._run(ready.command.form)
        try:
            plan = plan_command(ready.argv, b"", ready.env)
            return self._become(plan.path, plan.argv, ready.env)
        except StartError as error:
            _complain(error.problem)
            return start_status(error.errno)
        except OSError as error:
            _complain(f"the program {os.fsdecode(ready.argv[0])!r} cannot be run: {error.strerror}")
            return start_status(error.errno or errno.EINVAL)

    def _become(self, path: bytes, argv: list[bytes], env: Mapping[bytes, bytes]) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, _TERM)
        if not self._stopping and signal.SIGTERM not in signal.sigpending():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERM)
            os.execve(path, argv, env)  # noqa: S606 - a program and its words, never a shell
        return -signal.SIGTERM

    # Commands that need no program.

    def _run_inside(self, ready: _Ready) -> int:
        """Run a command of our own, with its redirections, and restore the descriptors after it."""
        if not ready.places:
            return _run_builtin(ready)
        kept = [os.dup(fd) for fd in range(3)]
        try:
            return _run_builtin(ready) if _redirect(ready.places) else _FILE_FAILED
        finally:
            for target, fd in enumerate(kept):
                os.dup2(fd, target)
                os.close(fd)


def start_status(number: int) -> int:
    """The status of a command that could not become a program."""
    return NOT_FOUND if number in {errno.ENOENT, errno.EINVAL} else NOT_EXECUTABLE


def _be_child(parent: int, work: Callable[[], int], ends: _Pipes, mask: Iterable[int]) -> NoReturn:
    """The whole life of a forked process: nothing of it may come back to where it was forked."""
    code = EXIT_INTERNAL
    try:
        system.set_death_signal(signal.SIGKILL)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _connect(ends)
            code = work()
    except BaseException:  # noqa: BLE001 - the last frame of the process: no caller could report it
        traceback.print_exc()
    finally:
        os._exit(code)


def _connect(ends: _Pipes) -> None:
    for target, fd in enumerate((ends.stdin, ends.stdout)):
        if fd != target:
            os.dup2(fd, target)
            os.close(fd)
    for fd in ends.foreign:
        os.close(fd)


def _redirect(places: Sequence[tuple[int, str, bytes | int]]) -> bool:
    """Redirect descriptors, from left to right; whether it could be done."""
    for target, op, source in places:
        if isinstance(source, int):
            os.dup2(source, target)
            continue
        try:
            fd = os.open(source, _FLAGS[op] | os.O_CLOEXEC, 0o666)
        except OSError as error:
            _complain(f"{os.fsdecode(source)}: {error.strerror}")
            return False
        os.dup2(fd, target)
        os.close(fd)
    return True


def _is_builtin(ready: _Ready) -> bool:
    if isinstance(ready.command, Group) or not ready.argv or os.fsdecode(ready.argv[0]) not in BUILTINS:
        return False
    return ready.argv[0] != b"command" or ready.argv[1:2] == [b"-v"]


def _run_builtin(ready: _Ready) -> int:
    name, *words = ready.argv
    if name == b"cd":
        return _change_directory(words, ready.env)
    return _find_command(words[1:], ready.env) if name == b"command" else 0


def _change_directory(words: list[bytes], env: Mapping[bytes, bytes]) -> int:
    wanted = words[1:] if words[:1] == [b"--"] else words
    if len(wanted) > 1:
        _complain("cd takes one directory")
        return _MISUSED
    place = wanted[0] if wanted else env.get(b"HOME", b"")
    try:
        os.chdir(place)
    except OSError as error:
        _complain(f"cd {os.fsdecode(place)}: {error.strerror}")
        return _FILE_FAILED
    return 0


def _find_command(names: list[bytes], env: Mapping[bytes, bytes]) -> int:
    """Write where the program of each name is; whether one was found."""
    found = 0
    for name in names:
        try:
            path = name if os.fsdecode(name) in BUILTINS else plan_command([name], b"", env).path
        except StartError:
            continue
        found += 1
        os.write(1, path + b"\n")
    return 0 if found else 1


def _status_of(statuses: list[int]) -> int:
    """The first from the left that is not 0. A command whose reader stopped reading has not failed."""
    *before, last = statuses
    return next((status for status in before if status not in {0, -signal.SIGPIPE}), last)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _exit_code(status: int) -> int:
    return status if status >= 0 else 128 - status


def _end_by(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _word(text: str) -> bytes:
    """A word as a program gets it; a form with one that has no bytes is given up."""
    try:
        return encode_word(text)
    except OSError as error:
        _complain(error.strerror or str(error))
        raise _AbortedError(_FILE_FAILED) from None


def _complain(problem: str) -> None:
    try:
        os.write(2, f"bartack: {problem}\n".encode("utf-8", "surrogateescape"))
    except OSError:
        return  # the reader is gone
