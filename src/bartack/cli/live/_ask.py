"""Questions of a run, asked on the terminal that shows it, below the live view. The first answer counts, wherever it comes from.

The terminal stays in its usual mode: it collects the line, and the loop of the host reads the line when it is complete.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from bartack.cli.app._terminal import printable
from bartack.cli.live._answer import checked, expected
from bartack.cli.live._draw import Asked
from bartack.errors import QuestionAnsweredError, QuestionNotFoundError, UsageError
from bartack.runtime.client.answering import user_name
from bartack.runtime.protocol.asked import ReadQuestion
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import AskedQuestion, WorkerState

DETACH: Final = "d"
"""What is typed to leave the view while no question is open."""
DETACH_WORD: Final = ":detach"
"""What is typed to leave it at any time."""


class Host(Protocol):
    """What runs the run that a view shows: the hub in this process, or a follower of one elsewhere."""

    @property
    def state(self) -> State:
        """What the journal adds up to."""
        ...

    @property
    def deadlock(self) -> Sequence[str]:
        """What each worker waits for, if all wait for each other."""
        ...

    @property
    def needs_a_person(self) -> bool:
        """Whether only an answer continues the run."""
        ...

    def bodies(self, path: str) -> Sequence[str]:
        """The bodies that a worker runs now, as far as that is known."""
        ...

    def question(self, number: str) -> ReadQuestion:
        """An open question."""
        ...

    def answer(self, number: str, value: object, by: str) -> None:
        """Answer it."""
        ...

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` when there is something to read."""
        ...

    def unwatch(self, descriptor: int) -> None:
        """Call it no longer."""
        ...

    def interrupt(self, status: str = "interrupted") -> None:
        """Stop the run."""
        ...

    def take_turn_after(self, seconds: float) -> None:
        """Call the view again after a time."""
        ...


class Asker:
    """Asks one open question after the other.

    Args:
        write: Takes a line about a question that is over.
        typed: Is called with each line that was typed, before it is used.
        other: Takes a line that is not an answer: it was typed while no question is open, or it is ``DETACH_WORD``.

    Attributes:
        gone: The input has ended: no more answers come from here.
    """

    def __init__(
        self, write: Callable[[str], None], typed: Callable[[str], None], other: Callable[[str], None]
    ) -> None:
        self._write = write
        self._typed = typed
        self._other = other
        self._stdin = sys.stdin.fileno()
        self._question: AskedQuestion | None = None
        self._args = AskArgs(question="")
        self._use = ""
        self._problem = ""
        self._doubted = False
        """Whether the open question was answered with ``DETACH``, which may have been typed before the question was there."""
        self._answered: set[str] = set()
        """Questions that were answered here and are still open in the state."""
        self._watching = False
        self.gone = False

    def turn(self, host: Host) -> None:
        """Withdraw a question that is no longer open, and ask the next open one."""
        open_ = host.state.questions
        self._answered &= set(open_)
        if self._question is not None and self._question.id not in open_:
            self._write(f"{self._question.id} was answered elsewhere")
            self._question = None
        if self.gone:
            return
        self._watch(host)
        if self._question is None:
            waiting = next((one for one in open_.values() if one.id not in self._answered), None)
            if waiting is not None:
                self._begin(host, waiting)

    def asked(self, state: State, name_of: Callable[[WorkerState], str]) -> Asked | None:
        """The question that is asked now, as the view shows it; ``name_of`` names workers."""
        question = self._question
        if question is None:
            return None
        left = [number for number in state.questions if number not in self._answered]
        worker = state.workers.get(question.worker)
        name = printable(question.worker) if worker is None else name_of(worker)
        return Asked(
            number=question.id,
            place=f"{left.index(question.id) + 1} of {len(left)}" if len(left) > 1 else "",
            asker=f"agent {printable(question.agent)} for {name}" if question.by_agent else name,
            lines=[printable(line) for line in self._args.question.splitlines()],
            expected=_hint(self._args),
            options=[printable(option) for option in self._args.options or ()],
            use=printable(self._use),
            problem=printable(self._problem),
        )

    def has_answered(self, state: State) -> bool:
        """Whether all open questions were answered here."""
        return self._answered.issuperset(state.questions)

    def _begin(self, host: Host, question: AskedQuestion) -> None:
        self._args, tool_input = host.question(question.id)
        self._question = question
        self._use = f"{question.tool} {tool_input}".rstrip() if question.tool else ""
        self._problem = ""
        self._doubted = False
        self._discard_typed()

    def _watch(self, host: Host) -> None:
        if not self._watching:
            host.watch(self._stdin, lambda: self._read(host))
            self._watching = True

    def _unwatch(self, host: Host) -> None:
        host.unwatch(self._stdin)
        self._watching = False

    def _discard_typed(self) -> None:
        """Discard lines that were typed before the question; an unfinished line stays."""
        if not _is_in_front(self._stdin):
            return
        ready = select.poll()
        ready.register(self._stdin, select.POLLIN)
        while ready.poll(0) and (line := os.read(self._stdin, 65536)):
            self._typed(line.decode("utf-8", "replace").rstrip("\n"))

    def _read(self, host: Host) -> None:
        if not _is_in_front(self._stdin):
            # What is typed now is for the shell. Reading it would stop this process.
            self._unwatch(host)
            host.take_turn_after(1.0)
            return
        line = os.read(self._stdin, 65536)
        if not line:
            self._unwatch(host)
            self.gone = True
            self._question = None
            return
        text = line.decode("utf-8", "replace").rstrip("\n")
        self._typed(text)
        word = text.strip().lower()
        if self._question is None or word == DETACH_WORD:
            self._other(word)
        elif word == DETACH and not self._doubted:
            self._doubted = True
            self._problem = f"to detach type {DETACH_WORD}; to answer {text.strip()}, type it again"
        else:
            self._answer(host, self._question, text)

    def _answer(self, host: Host, question: AskedQuestion, text: str) -> None:
        try:
            if text.strip():
                value: object = msgspec.json.decode(checked(self._args, text))
            elif self._args.default is not None:
                value = msgspec.json.decode(self._args.default)
            else:
                return
            host.answer(question.id, value, user_name())
        except UsageError as error:
            self._problem = error.problem
            return
        except (QuestionAnsweredError, QuestionNotFoundError):
            self._write(f"{question.id} was already answered")
        else:
            first = self._args.question.partition("\n")[0]
            given = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            self._write(f"? {printable(first)}  {printable(given)}")
        self._answered.add(question.id)
        self._question = None


def _is_in_front(fd: int) -> bool:
    """Whether this process may read from its terminal; what is not a terminal may always be read."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


def _hint(args: AskArgs) -> str:
    """Which answer is expected, and which one Enter gives."""
    kind = "" if args.options or args.type == "str" else expected(args)
    default = "" if args.default is None else f"Enter: {bytes(args.default).decode()}"
    return printable(", ".join(part for part in (kind, default) if part))
