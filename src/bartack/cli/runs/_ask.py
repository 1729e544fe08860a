"""Questions of a run, asked on the terminal that started it. The first answer counts, no matter where it comes from.

The terminal stays in its usual mode: it collects the line, and the hub's loop reads the line when it is complete.
"""

from __future__ import annotations

import os
import select
import sys

import msgspec

from bartack.cli.app._edge import own
from bartack.cli.app._terminal import Screen, printable
from bartack.cli.runs._answer import checked, expected, user_name
from bartack.errors import QuestionAnsweredError, QuestionNotFoundError, UsageError
from bartack.runtime.hub.hub import Hub
from bartack.runtime.protocol.steps import AskArgs

PROMPT = "> "


class Asker:
    """Asks one open question after the other.

    Attributes:
        gone: The input has ended: no more answers come from here.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._stdin = sys.stdin.fileno()
        self._number = ""
        self._args = AskArgs(question="")
        self._by_us = False
        self._watching = False
        self.gone = False

    @property
    def asking(self) -> bool:
        """Whether a question is on the terminal."""
        return bool(self._number)

    def turn(self, hub: Hub) -> None:
        """Withdraw a question that is no longer open, and ask the next open one."""
        if self._number and self._number not in hub.state.questions:
            if not self._by_us:
                self.hide()
                self._write("answered elsewhere")
            self._number = ""
        if not self._number and not self.gone:
            number = next(iter(hub.state.questions), "")
            if number:
                self._begin(hub, number)

    def hide(self) -> None:
        """Erase the prompt; the terminal keeps the text typed so far."""
        sys.stderr.write(own("\r\x1b[K"))

    def show(self) -> None:
        """Put the prompt back."""
        sys.stderr.write(self._screen.paint(PROMPT, "cyan"))
        sys.stderr.flush()

    def leave(self) -> None:
        """Erase the prompt because the run ends without an answer."""
        self.hide()
        sys.stderr.flush()

    def _begin(self, hub: Hub, number: str) -> None:
        self._args = hub.question(number)
        self._number = number
        self._by_us = False
        if not self._watching:
            hub.watch(self._stdin, lambda: self._typed(hub))
            self._watching = True
        self._discard_typed()
        worker = hub.state.questions[number][0]
        mark = self._screen.paint("?", "cyan")
        asked = "\n".join(printable(line) for line in self._args.question.splitlines())
        self._write(f"{mark} {self._screen.paint(asked, 'bold')}{_hint(self._args)}")
        for place, option in enumerate(self._args.options or (), 1):
            self._write(f"  {place}  {printable(option)}")
        self._write(self._screen.paint(f"  {number}, asked by {printable(worker)}", "dim"))
        self.show()

    def _discard_typed(self) -> None:
        """Discard lines that were typed before the question; an unfinished line stays."""
        ready = select.poll()
        ready.register(self._stdin, select.POLLIN)
        while ready.poll(0) and os.read(self._stdin, 65536):
            pass

    def _typed(self, hub: Hub) -> None:
        line = os.read(self._stdin, 65536)
        if not line:
            hub.unwatch(self._stdin)
            self._watching = False
            self.gone = True
            self._number = ""
            self._write("")
        elif self._number:
            self._answer(hub, line.decode("utf-8", "replace").rstrip("\n"))

    def _answer(self, hub: Hub, text: str) -> None:
        try:
            if text.strip():
                value: object = msgspec.json.decode(checked(self._args, text))
            elif self._args.default is not None:
                value = msgspec.json.decode(self._args.default)
            else:
                self.show()
                return
            hub.answer(self._number, value, user_name())
        except UsageError as error:
            self._write(self._screen.paint(printable(error.problem), "red"))
            self.show()
            return
        except (QuestionAnsweredError, QuestionNotFoundError):
            self._write("another answer was first")
        self._by_us = True

    def _write(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _hint(args: AskArgs) -> str:
    kind = "" if args.options or args.type == "str" else expected(args)
    default = "" if args.default is None else f"{'; ' if kind else ''}default: {bytes(args.default).decode()}"
    return f" ({printable(kind + default)})" if kind or default else ""
