"""Sending one notice by one way. Programs get an argument list and never a shell; what they print is discarded.

A program is not started in the workspace, where agents work, but in the home directory. One that takes too long is killed with
everything that it started.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

import msgspec

from bartack.errors import TokenFileError
from bartack.notices._notice import Notice
from bartack.notices._ways import Way
from bartack.resilience.tokens import read_token
from bartack.resilience.webhook import PostAnswer, post_signed
from bartack.supervision.process.system import read_facts
from bartack.supervision.process.tree import kill_tree

POST_S: Final = 15.0
DESKTOP_S: Final = 10.0
COMMAND_TRIES: Final = 5
DESKTOP_TRIES: Final = 2
_FINAL_4XX: Final = frozenset({400, 405, 406, 410, 411, 413, 414, 415, 422, 431})
"""Answers that the same notice would get again. Others may come from a portal or a server that is being set up."""
_TAIL: Final = 300
_LOOK_S: Final = 0.05
_MAC: Final = (
    "osascript",
    "-e",
    "on run argv",
    "-e",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e",
    "end run",
)


class Sent(NamedTuple):
    """What became of one attempt. ``problem`` is empty if the notice was sent.

    Attributes:
        problem: Why it was not.
        final: Another attempt would not help.
        wait_s: How long the receiver asks to wait.
    """

    problem: str = ""
    final: bool = False
    wait_s: float = 0.0


def send(way: Way, notice: Notice, attempts: int, environ: Mapping[str, str], wall_s: float) -> Sent:
    """Send a notice.

    Args:
        way: How.
        notice: What.
        attempts: How often that was tried before.
        environ: The variables that programs get, besides those of the notice.
        wall_s: Seconds since 1970.
    """
    if way.name == "webhook":
        return _post(way, notice, environ, wall_s)
    if way.name == "desktop":
        done = _run(desktop_command(notice), b"", environ, DESKTOP_S)
        return done if not done.problem else done._replace(final=done.final or attempts + 1 >= DESKTOP_TRIES)
    done = _run(way.argv, msgspec.json.encode(notice), {**environ, **variables_of(notice)}, way.limit_s)
    return done if not done.problem else done._replace(final=done.final or attempts + 1 >= COMMAND_TRIES)


def variables_of(notice: Notice) -> dict[str, str]:
    """The variables that a command gets."""
    return {
        "BARTACK_NOTICE_ID": notice.id,
        "BARTACK_NOTICE_KIND": notice.kind,
        "BARTACK_NOTICE_RUN": notice.run,
        "BARTACK_NOTICE_TITLE": notice.title,
        "BARTACK_NOTICE_TEXT": notice.text,
        "BARTACK_NOTICE_LINK": notice.link,
    }


def desktop_command(notice: Notice, platform: str = sys.platform) -> list[str]:
    """The command that shows a notice on the desktop.

    Markup in it is escaped where the desktop knows markup. The hint lets a notice that is sent twice replace itself.
    """
    body = "\n".join(part for part in (notice.text, notice.link or notice.next) if part)
    if platform == "darwin":
        return [*_MAC, notice.title, body]
    hint = f"string:x-canonical-private-synchronous:{notice.id}"
    return [
        "notify-send",
        "--app-name=Bartack",
        f"--hint={hint}",
        "--",
        notice.title,
        escape(body, quote=False),
    ]


# Webhooks.


def _post(way: Way, notice: Notice, environ: Mapping[str, str], wall_s: float) -> Sent:
    try:
        secret = read_token(way.secret_file) if way.secret_file else environ.get(way.secret_env, "")
    except TokenFileError as error:
        return Sent(str(error))
    if not secret:
        return Sent(f"the variable {way.secret_env} is not set")
    body = msgspec.json.encode(notice)
    return judge(post_signed(way.url, body, notice.id, secret, limit_s=POST_S, wall_s=wall_s))


def judge(answer: PostAnswer) -> Sent:
    """What the answer of a receiver means for a notice."""
    if 200 <= answer.status < 300:
        return Sent()
    if not answer.status:
        return Sent(answer.problem)
    return Sent(f"the receiver answered {answer.status}", answer.status in _FINAL_4XX, answer.retry_after)


# Programs.


def _run(argv: Sequence[str], data: bytes, environ: Mapping[str, str], limit_s: float) -> Sent:
    """Execute a program; its exit code decides whether that worked."""
    try:
        process = subprocess.Popen(  # bartack: allow[unsupervised_process] it is killed when its time is over  # noqa: S603 - the person's own command
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=_calm_directory(environ),
            env=dict(environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError | PermissionError)
        return Sent(f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}", missing)
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        # A notice is far smaller than a pipe, so this never waits for the program.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(data)
        tail = _watch(process, process.stderr.fileno(), time.monotonic() + limit_s)
    if tail is None:
        return Sent(f"{argv[0]} took longer than {limit_s:g} s and was killed")
    if process.returncode == 0:
        return Sent()
    said = tail.decode("utf-8", "replace").strip()
    return Sent(f"{argv[0]} ended with {process.returncode}" + (f": {said}" if said else ""))


def _watch(process: subprocess.Popen[bytes], errors: int, limit: float) -> bytes | None:
    """Wait for the end of a program and return the end of what it wrote as errors; ``None`` if it was killed.

    What it leaves running may keep the pipe open, so the end of the process counts, not that of the pipe.
    """
    tail, is_open = b"", True
    while True:
        left = limit - time.monotonic()
        ready = select.select([errors] if is_open else [], [], [], max(min(left, _LOOK_S), 0.0))[0]
        more = os.read(errors, 65_536) if ready else b""
        is_open = is_open and (bool(more) or not ready)
        tail = (tail + more)[-_TAIL:]
        if not more and process.poll() is not None:
            return tail
        if left <= 0:
            _kill(process)
            return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    facts = read_facts(process.pid)
    if facts is not None:
        kill_tree(facts.id)
    process.kill()


def _calm_directory(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    return home if os.path.isabs(home) and os.path.isdir(home) else "/"
