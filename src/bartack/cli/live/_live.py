"""The live view of a run on a terminal: its picture below, all that it writes above, and its questions below the picture.

``_picture.py`` makes the picture, ``_draw.py`` draws it, ``_board.py`` puts it on the screen, ``_ask.py`` asks.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from bartack.cli.app._terminal import Colour, printable
from bartack.cli.live._ask import DETACH, DETACH_WORD, Asker
from bartack.cli.live._board import Board, as_output, is_same_terminal
from bartack.cli.live._draw import ASCII, PROMPT, UTF8, draw
from bartack.cli.live._picture import Pictures
from bartack.cli.live._views import View
from bartack.core.clock import SystemClock
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

FRAME_S: Final = 0.1
"""The shortest time between two frames."""
IDLE_S: Final = 0.25
"""How often the view is drawn when nothing happens: time passes, and a body that began is on its worker's scoreboard only."""
SHARE: Final = 50
"""Between two frames is at least this many times the processor time that one takes."""


class LiveView(View):
    """See the module.

    Args:
        run: The run.
        began: ``started``, ``resumed`` or ``watched``.
        patient: Whether a run that is blocked on a person stays active.
        asks: Whether questions are asked here.
        colour: Whether styles become colours.
        limit_usd: What the agents of the run may cost.
        hint: What leaving the view means.
    """

    listens = False

    def __init__(
        self,
        run: RunDir,
        *,
        began: str,
        patient: bool,
        asks: bool,
        colour: Colour = "auto",
        limit_usd: float | None = None,
        hint: str = "detach",
    ) -> None:
        super().__init__(run, began=began, patient=patient or asks)
        self._waits = patient
        self._board = Board(sys.stderr, colour)
        self._together = is_same_terminal(sys.stdout, sys.stderr)
        self._pictures = Pictures(run, limit_usd=limit_usd, signs=UTF8 if self._board.utf8 else ASCII)
        self._asker = Asker(self._write, self._took, self._typed) if asks else None
        self._clock = SystemClock()
        self._hint = hint
        self._above: list[str] = []
        self._next = 0.0
        """When the next frame may be drawn."""
        self._called = False
        """Whether a turn was asked for at that time."""

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Observer.show``."""
        if channel == "note" and text.startswith("question "):
            return  # it is asked, or its worker shows that it waits
        if channel in {"print", "out"}:
            if self._together:
                self._above.append(as_output(text))
            else:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
        elif channel == "err" or not worker:
            self._above.append(as_output(text))
        else:
            who = self._board.screen.paint(printable(worker), "dim")
            self._above.append(f"{who}: {as_output(text)}")

    def turn(self, state: State) -> None:
        """See ``Observer.turn``."""
        if self._asker is not None and self._hub is not None:
            self._asker.turn(self._hub)
            self._patient = self._waits or not self._asker.gone
        now = time.monotonic()
        if now >= self._next:
            self._frame(state, now)
        elif not self._called and self._hub is not None:
            self._called = True
            self._hub.take_turn_after(self._next - now)
        super().turn(state)

    def close(self) -> None:
        """Remove the view; what was written stays."""
        self._board.erase("".join(self._above))
        self._above.clear()
        self._pictures.close()

    @property
    def has_answered(self) -> bool:
        """Whether all open questions were answered here."""
        return self._asker is not None and self._asker.has_answered(self.state)

    @property
    def asks(self) -> bool:
        """Whether a question can be answered here."""
        return self._asker is not None and not self._asker.gone

    def _frame(self, state: State, now: float) -> None:
        began = time.thread_time()
        size = self._board.size
        asked = None if self._asker is None else self._asker.asked(state, self._pictures.name)
        host = self._hub
        picture = self._pictures.make(
            state,
            self._clock.now_us(),
            _no_bodies if host is None else host.bodies,
            deadlock=() if host is None else host.deadlock,
            hint=f"{DETACH if asked is None else DETACH_WORD} and Enter: {self._hint}" if self.asks else "",
            asked=asked,
        )
        lines = draw(picture, size.columns, size.rows)
        prompt = "" if asked is None else f" {PROMPT}"
        self._board.frame(lines, size, above="".join(self._above), prompt=prompt)
        self._above.clear()
        self._next = now + max(FRAME_S, SHARE * (time.thread_time() - began))
        self._called = False
        if host is not None:
            host.take_turn_after(IDLE_S)

    def _write(self, text: str) -> None:
        """Write a line above the view."""
        self._above.append(f"{text}\n")
        self._next = 0.0

    def _took(self, text: str) -> None:
        """A line was typed."""
        self._board.typed(text)
        self._next = 0.0

    def _typed(self, line: str) -> None:
        """A line was typed that is not an answer: only one that leaves the view means anything."""
        if line in {DETACH, DETACH_WORD} and self._hub is not None:
            self.detached = True
            self._hub.interrupt()


def _no_bodies(path: str) -> list[str]:
    return []
