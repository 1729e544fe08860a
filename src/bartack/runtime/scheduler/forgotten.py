"""Finds forgotten awaits: calls of steps that the program makes and never awaits.

Something that is made to be awaited and is thrown away instead has not happened. If the program threw it away, that is a mistake,
and the worker fails with its place. If an exception did (the second of two calls failed before the first one was awaited), the
program may handle that exception, and there is only the warning that Python gives for coroutines, too.

The instruction at which a thing died shows what threw it away: an exception unwinds at the instruction that raised it, and frames
that a traceback kept alive die at the end of the handler. ``operations.py`` has the operations that are watched.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dis import opmap, opname
from types import CodeType, CoroutineType, FrameType
from typing import Any, Final, NoReturn, cast

from bartack.errors import ForgottenAwaitError
from bartack.runtime.protocol.source_places import is_own, shown_place
from bartack.runtime.scheduler.asyncio_guard import place_of_frame
from bartack.runtime.scheduler.cancellation import Cancellation
from bartack.runtime.scheduler.operations import Counted, here, place_of
from bartack.runtime.scheduler.requests import Requests
from bartack.runtime.scheduler.run_queue import RunQueue

ORIGIN_DEPTH: Final = 2
"""Enough to see the caller of a coroutine of ``ctx``."""

_POP_EXCEPT: Final = opmap["POP_EXCEPT"]
_CACHE: Final = opmap.get("CACHE", -1)
_ENDINGS: Final = ("POP_TOP", "POP_JUMP", "POP_ITER", "STORE_", "DELETE_", "IS_OP", "FORMAT_", "END_FOR")
"""Instructions that drop what they take, and do not raise by themselves."""
_LEFT: Final = (*_ENDINGS, "SEND", "END_SEND")
"""Instructions at which a thing dies that was made elsewhere: also the end of an awaited coroutine whose variable it was."""
_CALLS: Final = ("CALL", "PRECALL")
_OWN_NAMES: Final = {
    "gather": "ctx.gather",
    "gather_outcomes": "ctx.gather",
    "Context.fail": "ctx.fail",
    "Context.abort": "ctx.abort",
    "Context.restart": "ctx.restart",
}


def is_forgotten(frame: FrameType, maker: CodeType | None, scheduler: CodeType) -> bool:
    """Whether the program itself has thrown something away.

    Args:
        frame: Where it died.
        maker: The code that made it, if it is known.
        scheduler: The code that runs workers: what dies there was a variable of a branch that came to its end.
    """
    code = frame.f_code
    name = _instruction(code, frame.f_lasti)
    if code is scheduler:
        return name.startswith(_CALLS)
    if is_own(code.co_filename):
        return False
    if maker is None or code is maker:
        return name.startswith(_ENDINGS)
    return name.startswith(_LEFT) and not _ends_handler(code, frame.f_lasti)


def _instruction(code: CodeType, place: int) -> str:
    text = code.co_code
    while place > 0 and text[place] == _CACHE:
        place -= 2
    return opname[text[place]] if 0 <= place < len(text) else ""


def _ends_handler(code: CodeType, place: int) -> bool:
    """Whether an instruction lets go of an exception: ``except E as e`` clears its name right after the handler."""
    return _POP_EXCEPT in code.co_code[max(place - 4, 0) : place : 2]


class ForgottenAwaits:
    """Fails a worker that forgets an await; see ``Watcher``."""

    def __init__(
        self, queue: RunQueue, cancellation: Cancellation, requests: Requests, run: CodeType
    ) -> None:
        self._queue = queue
        self._cancellation = cancellation
        self._requests = requests
        self._run = run
        """The code that runs branches."""
        watch_coroutines()

    def drop(self, op: Counted[object], frame: FrameType) -> None:
        """See ``Watcher.drop``."""
        made = op.made
        if made is None or self.forget(op.words, place_of(made), made[0], frame):
            return
        if not is_own(frame.f_code.co_filename):
            file, _, line = place_of(made).rpartition(":")
            warnings.warn_explicit(f"{op.words} was never awaited", RuntimeWarning, file, int(line))

    def refuse_use(self, op: Counted[object]) -> NoReturn:
        """See ``Watcher.refuse_use``."""
        self._queue.die(ForgottenAwaitError(op.words, place_of_frame(sys._getframe(1))))  # noqa: SLF001 - the only way to see what uses it

    def forget(self, what: str, where: str, maker: CodeType | None, frame: FrameType) -> bool:
        """See ``Watcher.forget``."""
        stopped = self._queue.fatal is not None or self._cancellation.failure is not None
        if stopped or self._requests.closed:
            return True  # whatever is left undone now, that is not why
        if not is_forgotten(frame, maker, self._run):
            return False
        self._queue.fatal = ForgottenAwaitError(what, where or place_of_frame(frame))
        return True


# Coroutines.


def watch_coroutines() -> None:
    """Have coroutines that were never awaited reported to the watcher of the worker in which they were thrown away.

    Python reports them with a function of ``warnings``. Outside of workers it does what it always did.
    """
    module = cast("dict[str, Callable[..., None]]", vars(warnings))
    before = module.get("_warn_unawaited_coroutine")
    if before is None or before is _report:
        return
    _hook.before = before
    module["_warn_unawaited_coroutine"] = _report


@contextmanager
def origins_noted() -> Generator[None]:
    """A block in which coroutines know where they are made."""
    before = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(max(ORIGIN_DEPTH, before))
    try:
        yield
    finally:
        sys.set_coroutine_origin_tracking_depth(before)


class _Hook:
    before: Callable[..., None]


_hook: Final = _Hook()


def _report(coroutine: CoroutineType[Any, Any, Any]) -> None:
    watcher = here.watcher
    if watcher is None:
        _hook.before(coroutine)
        return
    name = coroutine.__qualname__
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to see where it was thrown away
    what = _OWN_NAMES.get(name, name) if is_own(coroutine.cr_code.co_filename) else name
    origin = [place for place in coroutine.cr_origin or () if not is_own(place[0])]
    same = bool(origin) and origin[0][2] == frame.f_code.co_name and origin[0][0] == frame.f_code.co_filename
    where = shown_place(origin[0][0], origin[0][1]) if origin else ""
    maker = frame.f_code if same or not origin else coroutine.cr_code
    if not watcher.forget(f"{what}()", where, maker, frame):
        _hook.before(coroutine)
