"""Versions: how one program serves runs that began before a change and runs that begin after it.

``await ctx.version("review", 2)`` returns a number. Here is how it is chosen, and why in this way.

*The problem.* A program may change only where no recorded step comes after the change; everything before that has to stay as it
was. A program that must change earlier needs to know whether the history in front of it was made by the old code or by the
new one. Nothing but the history can answer that, because both kinds of runs execute the same program.

*The answer is one number for each name in each history of a worker.* The first call of a name decides, and all later calls of
that name get the same number, in loops and in all branches. There are three cases:

1. The history has a record of the name (``version.chosen``): its number.
2. It has none, and *the worker has been past this place*: 0, the code before the first version. That is not recorded. The same
   history gives the same answer each time, and a history only grows.
3. It has none, and the worker has not been past this place: the latest number, which is recorded. The record leaves before
   every step that the program asks for afterwards, so it is in the journal before all that depends on it (``Requests.note_open``
   holds back bodies until then, as after every harmless step).

*Past this place* means: the journal has a step that the program has not asked for yet. Replay takes the same turns as the first
run, so what the program has asked for at this call is what it had asked for when it was here first. A step beyond that was asked
for later, by a program that continued without making a record. It does not matter in which branch: branches share variables, so
each step may depend on each place that was passed before it. Two tempting rules are wrong. "Some of the history is ahead" takes
the outcome of a command in another branch for evidence. It may have reached the journal between a new program's choice and the
record of it, and a kill there would turn a new run into an old one. "The last step of the history is done" is the reverse: a
step that has begun and has no outcome is evidence, too. The end of a worker is the last evidence: it counts when a worker that
has ended is compared with a program (``rehearse``).

*A version has no place in the history*: no number, no fingerprint, no turn. A call could not be added to an old program
otherwise, because all later steps of its branch would have other numbers. For the same reason a call can be removed from a
program whose runs have recorded it: such a record is not asked for, and that is not a mismatch. And so the record stays when a
failed worker is set back, even if the step that it was made before is set back with it: other branches may have used it.
A worker that restarts itself (``ctx.restart``) begins a new history, where nothing was passed yet. A fork has the records that
are before its place.

*Numbers instead of yes and no*, because a place that was changed once is changed again. ``if await ctx.version("review")`` reads
as yes and no as long as there is one change. ``oldest`` says which code is gone. A number outside of what the program has is an
error that the program cannot catch, like a mismatch, and it names the code to keep: nothing was executed by then.

What the other engines do, and what is different here: a patch marker is a step of its own in their histories, so old markers
have to be called for as long as there are old runs, in two forms of which the second one deprecates the first; and they ask
whether the worker replays, which in a worker with branches is the first of the wrong rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.errors import VersionError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.paths import parse_call
from bartack.runtime.protocol.source_places import source_at
from bartack.runtime.protocol.values import Codec, codec
from bartack.runtime.scheduler.operations import Counted, place_of
from bartack.runtime.scheduler.replay_log import ReplayLog, has_fired

LONGEST_NAME: Final = 100
HIGHEST: Final = 1_000_000

_NUMBER: Final[Codec[int]] = codec(int)


def check_version(name: object, latest: object, oldest: object) -> None:
    """Raise unless a program can ask for this.

    Raises:
        ValueError: The name is empty, too long or cannot be printed, or the numbers make no sense.
    """
    if not isinstance(name, str) or not name:
        raise ValueError("the name of a version is a text that is not empty, such as 'review'")
    if len(name) > LONGEST_NAME or not name.isprintable():
        shown = f"{name[:20]!r}..." if len(name) > LONGEST_NAME else repr(name)
        raise ValueError(
            f"the name of a version has at most {LONGEST_NAME} printable characters, {shown} does not"
        )
    if not isinstance(latest, int) or not 1 <= latest <= HIGHEST:
        raise ValueError(f"the latest version of {name!r} is a number from 1 to {HIGHEST}, not {latest!r}")
    if not isinstance(oldest, int) or not 0 <= oldest <= latest:
        raise ValueError(f"the oldest version of {name!r} is a number from 0 to {latest}, not {oldest!r}")


class VersionOp(Counted[int]):
    """Asks for the version of a name. It is awaited like a step and has no number."""

    def __init__(self, name: str, latest: int, oldest: int) -> None:
        super().__init__("version", b"", _NUMBER.decode, name)
        self.name = name
        self.latest = latest
        self.oldest = oldest


class Versions:
    """The versions of one worker, in its present history."""

    def __init__(
        self,
        path: str,
        recorded: dict[str, int],
        log: ReplayLog,
        submit: Callable[[tuple[str, int], f.VersionChosen], None],
    ) -> None:
        self._path = path
        self._chosen = dict(recorded)
        """The numbers that are recorded, and those that were found out in this process."""
        self._log = log
        self._submit = submit

    def choose(self, op: VersionOp, *, recorded: bool) -> int | None:
        """The version that a call gets; ``None`` if that depends on a part of the history that has not arrived.

        Args:
            op: The call.
            recorded: Whether a choice is to be recorded; clean-up is never replayed.

        Raises:
            VersionError: The program does not have it.
        """
        number = self._chosen.get(op.name)
        if number is None:
            number = self._choose_first(op, recorded=recorded)
        if number is not None and not op.oldest <= number <= op.latest:
            where = "" if op.made is None else place_of(op.made)
            raise VersionError(
                self._path, op.name, number, op.latest, op.oldest, where=where, source=source_at(where)
            )
        return number

    def _choose_first(self, op: VersionOp, *, recorded: bool) -> int | None:
        if self._log.replaying and is_passed(self._log):
            number = 0
        elif self._log.replaying and not self._log.whole:
            return None
        else:
            number = op.latest
            if recorded and number >= op.oldest:
                chosen = f.VersionChosen(p=op.p, name=op.name, number=number)
                self._submit((f"version {op.name}", 0), chosen)
        self._chosen[op.name] = number
        return number


def is_passed(log: ReplayLog) -> bool:
    """Whether the worker has been past the place where its program is, as far as the history has arrived."""
    return (
        log.ended
        or any(log.get(begun.p, begun.n) is None for begun in log.open)
        or not all(_is_asked(log, past) for past in log.ahead)
    )


def _is_asked(log: ReplayLog, past: f.Past) -> bool:
    """Whether the program has asked for a recorded outcome, so that it can have come before the worker continued."""
    if past.step == "tool":
        # An agent called it, for a prompt that the program waits for.
        call = parse_call(past.p)
        return call is not None and log.get(call.p, call.n) is not None
    if past.step == "timeout" and not has_fired(past):
        # The program left the block by itself.
        return log.get(past.p, -past.n) is not None
    return log.get(past.p, past.n) is not None
