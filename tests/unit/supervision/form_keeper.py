"""Forms made by hand, and a real keeper that executes them."""

from __future__ import annotations

import os
import select
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from bartack.supervision.forms import (
    Capture,
    Form,
    Group,
    Pipeline,
    Redirect,
    SimpleCommand,
    Word,
    pack_form,
    plain_of,
)
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import (
    Exited,
    Gone,
    ParentEvent,
    ParentReady,
    Started,
    StartFailed,
)

PATIENCE_S: Final = 60.0
E = TypeVar("E", ParentReady, Started, Exited, Gone)


def words(*texts: str | Word) -> list[Word]:
    """Words; a string is one exact word."""
    return [[text] if isinstance(text, str) else text for text in texts]


def run(*texts: str | Word) -> SimpleCommand:
    """A command."""
    return SimpleCommand(words(*texts))


def form(*commands: SimpleCommand | Group) -> Form:
    """A form that is one pipeline."""
    return Form(Pipeline(list(commands)))


def captured(*commands: SimpleCommand | Group) -> Word:
    """A word that is what a pipeline writes."""
    return [Capture(form(*commands))]


def into(target: str, *texts: str | Word) -> SimpleCommand:
    """A command whose output goes to a file."""
    return SimpleCommand(words(*texts), redirects=[Redirect(1, ">", [target])])


class Done(NamedTuple):
    """How a form ended."""

    status: int
    stdout: str
    stderr: str = ""


class FormKeeper:
    """Executes forms one after the other through a real keeper, in a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        lock = place / "tree.lock"
        lock.touch()
        self.client = ParentClient.start(KEEPER, str(lock), os.environ, str(place))
        self._token = 0
        self._seen: list[ParentEvent] = []
        self.wait(ParentReady)

    def wait(self, kind: type[E]) -> E:
        """The next event of a kind; those before it are forgotten."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            while self._seen:
                event = self._seen.pop(0)
                assert not isinstance(event, StartFailed), event
                if isinstance(event, kind):
                    return event
            select.select([self.client], [], [], until - time.monotonic())
            self._seen = self.client.read_events()
            for event in self._seen:
                for fd in event.pidfds if isinstance(event, Started) else ():
                    os.close(fd)
        raise AssertionError(f"{kind.__name__} never came")

    def start(self, wanted: Form, cwd: Path, stdout: int, stderr: int, env: Mapping[str, str]) -> int:
        """Start a form as a run does; returns its token."""
        self._token += 1
        plain = plain_of(wanted)
        if plain is None:
            self.client.fork(self._token, pack_form(wanted, str(cwd), env), [stdout, stderr], {})
        else:
            whole = {**env, **plain.env}
            self.client.exec(self._token, [plain.argv], str(cwd), whole, stdout=stdout, stderr=stderr)
        return self._token

    def run(self, wanted: Form, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
        """Execute a form and wait until nothing of it is left."""
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            around = {"PATH": os.environ["PATH"], **(env or {})}
            self.start(wanted, cwd or self.place, stdout.fileno(), stderr.fileno(), around)
            status = self.wait(Exited).statuses[0]
            gone = self.wait(Gone)
            assert not gone.survivors
            stdout.seek(0)
            stderr.seek(0)
            return Done(status, os.fsdecode(stdout.read()), os.fsdecode(stderr.read()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
