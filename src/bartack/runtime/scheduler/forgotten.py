"""Tells a forgotten ``await`` from a call that was lost to an exception.

Something that is made to be awaited and is thrown away instead has not happened. If the program threw it away, that is a mistake,
and the worker fails with its place. If an exception did (the second of two calls failed before the first one was awaited), the
program may handle that exception, and there is only the warning that Python gives for coroutines, too.

What throws a thing away shows in the instruction at which it died: an exception unwinds at the instruction that raised it, and
frames that a traceback kept alive die at the end of the handler.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dis import opmap, opname
from types import CodeType, CoroutineType, FrameType
from typing import Any, Final, cast

from bartack.runtime.protocol.source_places import is_own, shown_place
from bartack.runtime.scheduler.operations import here

ORIGIN_DEPTH: Final = 2
"""Enough to see who called a coroutine of ``ctx``."""

_POP_EXCEPT: Final = opmap["POP_EXCEPT"]
_CACHE: Final = opmap.get("CACHE", -1)
_ENDINGS: Final = ("POP_TOP", "POP_JUMP", "POP_ITER", "STORE_", "DELETE_", "IS_OP", "FORMAT_", "END_FOR")
"""Instructions that let go of what they take, and do not raise by themselves."""
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
    """Whether an instruction lets go of an exception: ``except E as e`` clears its name right behind the handler."""
    return _POP_EXCEPT in code.co_code[max(place - 4, 0) : place : 2]


# Coroutines.


def watch_coroutines() -> None:
    """Have coroutines that were never awaited reported to the scheduler in whose worker they were thrown away.

    Python tells of them by a function of ``warnings``. Outside of workers it does what it always did.
    """
    module = cast("dict[str, Callable[..., None]]", vars(warnings))
    before = module.get("_warn_unawaited_coroutine")
    if before is None or before is _report:
        return
    _hook.before = before
    module["_warn_unawaited_coroutine"] = _report


@contextmanager
def origins_noted() -> Generator[None]:
    """Coroutines that are made inside know where."""
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
    scheduler = here.scheduler
    if scheduler is None:
        _hook.before(coroutine)
        return
    name = coroutine.__qualname__
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to see where it was thrown away
    what = _OWN_NAMES.get(name, name) if is_own(coroutine.cr_code.co_filename) else name
    origin = [place for place in coroutine.cr_origin or () if not is_own(place[0])]
    same = bool(origin) and origin[0][2] == frame.f_code.co_name and origin[0][0] == frame.f_code.co_filename
    where = shown_place(origin[0][0], origin[0][1]) if origin else ""
    maker = frame.f_code if same or not origin else coroutine.cr_code
    if not scheduler.forget(f"{what}()", where, maker, frame):
        _hook.before(coroutine)
