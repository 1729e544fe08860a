"""Commands that workers run: the step ``shell``.

The hub starts commands, stops them with their process trees, and collects their output. A command that is to run once is
durable before it starts; others may start before, since starting one again under the same key is allowed. Read ``jobs.py`` for
what commands share with prompts, and ``hub/commands.py`` for the processes.
"""

from __future__ import annotations

import base64
import errno
from typing import Final

import msgspec

from bartack.errors import (
    BartackError,
    LimitExceededError,
    MessageTooLargeError,
    OutcomeUnknownError,
    ShellError,
    ShellTimeoutError,
)
from bartack.messaging.mailboxes import MAX_MESSAGE
from bartack.runtime.kernel.actions import StartShell, StopShell
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.jobs import Job, Jobs
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.output_tail import cut_front, keep_end
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.worker_state import OpenStep, Value, WorkerState
from bartack.supervision.forms import CAPTURE_LIMIT

LIVE_LIMIT: Final = 256 * 1024 * 1024
"""How many bytes a command may write whose output is only shown, or refused in the end."""

_KEPT_IN_ERRORS: Final = 16 * 1024


class ShellEnd(msgspec.Struct, frozen=True):
    """How commands ended. ``problem``: why they did not start, or were cut short."""

    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str = ""
    errno: int = 0
    too_large: bool = False
    """They wrote more than a form may, and were stopped or stopped themselves."""
    by_itself: bool = False
    """They had ended before anything was done to stop them: their outcome counts, even if it arrives after that was decided."""


class CommandDesk(Desk, StepHandler):
    """Runs commands."""

    def __init__(self, shared: Shared, jobs: Jobs) -> None:
        super().__init__(shared)
        self._jobs = jobs
        self._started: dict[int, StartShell] = {}
        """What each job was started with, to start it again if the keeper of its processes dies."""

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Run commands."""
        self._start(worker, step, 1)

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker waits again. If the hub was restarted, the commands are run again, unless they must run once."""
        if self._jobs.is_under_way(opened):
            return
        if opened.once:
            self.turn.fail_open(worker, opened, OutcomeUnknownError(f"{opened.p}:{opened.n}", opened.about))
        else:
            self._start(worker, step, opened.attempt + 1)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop the commands; the step fails when nothing of their tree is left."""
        self._jobs.cancel(worker, opened, error)

    def _start(self, worker: WorkerState, step: f.Step, attempt: int) -> None:
        args = self.decode(step.a, s.ShellArgs)
        limit, source = self.limit("shell", args.timeout_s)
        is_durable_first = args.once or args.live
        opened = self.open_step(
            step,
            once=args.once,
            timeout_s=limit,
            attempt=attempt,
            changes=args.changes,
            sync=is_durable_first,
        )
        job = self._jobs.begin(worker, opened, StopShell)
        self._jobs.watch(job, ShellTimeoutError("shell", limit, source, args.words))
        key = self.turn.key(worker, step.p, step.n)
        start = StartShell(
            job.token, worker.path, key, args, Value(step.v, step.ref), self._jobs.trace_of(worker, opened)
        )
        self._started[job.token] = start
        # What was printed before is shown when it is durable; what a command writes must be shown after it.
        if is_durable_first:
            self.turn.after_commit(start)
        else:
            self.turn.before_commit(start)

    # What becomes of them.

    def lost(self, token: int) -> None:
        """Commands died with the program that kept them: run them again, unless they must run once."""
        job = self._jobs.get(token)
        start = self._started.get(token)
        if job is None or start is None:
            return
        if job.step.once:
            # If the session has failed it stays open, and its outcome is as unknown to the hub that resumes the run.
            if self._end(token) is not None and self.is_open(job.worker, job.step):
                error = OutcomeUnknownError(f"{job.step.p}:{job.step.n}", job.step.about)
                self.turn.fail_open(job.worker, job.step, error)
        elif job.verdict is not None:
            self.ended(token, ShellEnd(0))
        else:
            self.turn.after_commit(start)

    def too_large(self, token: int) -> None:
        """Commands write more than can be kept: stop them."""
        job = self._jobs.get(token)
        start = self._started.get(token)
        if job is not None and start is not None:
            self._jobs.stop(job, _too_large(start.args, MAX_MESSAGE + 1))

    def ended(self, token: int, end: ShellEnd) -> None:
        """Commands have ended, and nothing of their tree is left."""
        start = self._started.get(token)
        job = self._end(token)
        is_open = job is not None and self.is_open(job.worker, job.step)
        if job is None or start is None or not (is_open or end.by_itself):
            return
        verdict = None if end.by_itself else job.verdict
        end = self._kept(start.args, end)
        error = _error_of(start.args, verdict, end)
        if error is None:
            # Its value names the command, so that the entry need not.
            value = self.turn.pack(_outcome(start.args.words, end))
            self.turn.finish(job.worker, step_finished(job.step), value)
        elif is_open or job.worker.suspended is None:
            late = self.is_unseen(job.worker) and not job.step.cleanup
            self.turn.fail_open(job.worker, job.step, error, late=late)

    def _end(self, token: int) -> Job | None:
        self._started.pop(token, None)
        return self._jobs.end(token)

    def _kept(self, args: s.ShellArgs, end: ShellEnd) -> ShellEnd:
        """What is kept of an output: all of it, or its end without secrets."""
        size = args.kept_bytes
        if not size:
            return end
        environ, rule = {**self.settings.environ, **(args.env or {})}, self.settings.secrets
        stdout, stderr = (keep_end(output, size, environ, rule) for output in (end.stdout, end.stderr))
        return msgspec.structs.replace(end, stdout=stdout, stderr=stderr)


def _error_of(args: s.ShellArgs, verdict: BartackError | None, end: ShellEnd) -> BartackError | None:
    """The error that the end of commands is, if it is one."""
    size = len(end.stdout) + len(end.stderr)
    if verdict is not None:
        if isinstance(verdict, ShellError):
            verdict.stdout, verdict.stderr = _last(end.stdout), _last(end.stderr)
        return verdict
    if end.problem:
        return ShellError(args.words, end.status, problem=_explain(args.words, end))
    if end.too_large:
        return _too_large(args, size)
    if args.check and end.status != 0:
        error = ShellError(args.words, end.status, _last(end.stderr))
        error.stdout = _last(end.stdout)
        return error
    if args.form is None and size > MAX_MESSAGE:
        return _too_large(args, size)
    return None


def _explain(argv: list[str], end: ShellEnd) -> str:
    """Why commands did not start. One word with blanks in it is most likely a command line that was meant for a shell."""
    if end.errno == errno.ENOENT and len(argv) == 1 and " " in argv[0]:
        return (
            f"{end.problem}; {argv[0]!r} is one word: give a command and its arguments as words of their own"
        )
    return end.problem


def _too_large(args: s.ShellArgs, size: int) -> BartackError:
    program = args.words[0]
    if args.form is not None:
        return LimitExceededError(f"bytes of output of {program}", LIVE_LIMIT if args.live else CAPTURE_LIMIT)
    return MessageTooLargeError(f"the output of {program}", size, MAX_MESSAGE)


def _last(output: bytes) -> str:
    """The end of an output, as much of it as an error keeps."""
    return cut_front(output, _KEPT_IN_ERRORS).decode("utf-8", "replace")


def _outcome(argv: list[str], end: ShellEnd) -> s.ShellOutcome:
    stdout, stdout64 = _text(end.stdout)
    stderr, stderr64 = _text(end.stderr)
    return s.ShellOutcome(argv, end.status, stdout, stderr, stdout64, stderr64)


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(data).decode()
