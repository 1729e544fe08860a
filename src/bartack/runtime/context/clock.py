"""The members of ``ctx`` for time and randomness: sleeps are steps of the hub, the rest are notes of the worker."""

from __future__ import annotations

import datetime
import uuid
from typing import Final, overload

from bartack.runtime.context.part import Members, Seconds, moment_of, nothing, seconds_of
from bartack.runtime.protocol.steps import Args, SleepArgs
from bartack.runtime.protocol.values import Codec, codec, encode
from bartack.runtime.scheduler.entropy import Entropy
from bartack.runtime.scheduler.operations import NoteOp, StepOp

_LEFT: Final[Codec[float | None]] = codec(float | None)
_MOMENT: Final[Codec[datetime.datetime]] = codec(datetime.datetime)
_FRACTION: Final[Codec[float]] = codec(float)
_INTEGER: Final[Codec[int]] = codec(int)
_UUID: Final[Codec[uuid.UUID]] = codec(uuid.UUID)

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ClockMembers(Members):
    """Time and randomness."""

    def sleep(self, seconds: Seconds) -> StepOp[None]:
        """Wait. A restart does not make it longer."""
        duration = seconds_of(seconds, "seconds")
        return self._step("sleep", SleepArgs(seconds=duration), nothing, f"{duration:g} s")

    def sleep_until(self, when: datetime.datetime) -> StepOp[None]:
        """Wait until a moment, which must have a time zone."""
        return self._step("sleep", SleepArgs(until=moment_of(when)), nothing, when.isoformat())

    def deadline(self) -> StepOp[float | None]:
        """Seconds left of the innermost deadline around the caller, if there is one."""
        return self._step("left", Args(), _LEFT.decode)

    def now(self) -> NoteOp[datetime.datetime]:
        """The time, in UTC."""
        self._scheduler.check_here("ctx.now")
        now_us = self._scheduler.entropy.now_us
        return NoteOp("now", b"", lambda: _EPOCH + datetime.timedelta(microseconds=now_us()), _MOMENT.decode)

    @overload
    def random(self) -> NoteOp[float]: ...
    @overload
    def random(self, first: int, last: int, /) -> NoteOp[int]: ...
    def random(self, *bounds: int) -> NoteOp[float] | NoteOp[int]:
        """A random number from 0 up to 1, or an integer with both ends included."""
        self._scheduler.check_here("ctx.random")
        entropy = self._scheduler.entropy
        if not bounds:
            return NoteOp("random", b"", lambda: _random_bits(entropy, 53) / 2**53, _FRACTION.decode)
        first, last = bounds
        if first > last:
            raise ValueError(f"no integer is between {first} and {last}")
        return NoteOp(
            "random",
            encode([first, last]),
            lambda: first + _random_below(entropy, last - first + 1),
            _INTEGER.decode,
        )

    def uuid(self) -> NoteOp[uuid.UUID]:
        """A random UUID."""
        self._scheduler.check_here("ctx.uuid")
        random_bytes = self._scheduler.entropy.random_bytes
        return NoteOp("uuid", b"", lambda: uuid.UUID(bytes=random_bytes(16), version=4), _UUID.decode)


def _random_bits(entropy: Entropy, bits: int) -> int:
    size = (bits + 7) // 8
    return int.from_bytes(entropy.random_bytes(size), "big") >> (size * 8 - bits)


def _random_below(entropy: Entropy, limit: int) -> int:
    bits = limit.bit_length()
    while (drawn := _random_bits(entropy, bits)) >= limit:
        pass
    return drawn
