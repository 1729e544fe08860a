"""How a message is to be delivered: the options of a supervised send, and the one place that checks them.

``SendOptions`` is what a program writes; ``Terms`` is what was made of it, and travels to the hub and into the journal.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypedDict, TypeVar, cast

import msgspec

from bartack.core import typed
from bartack.core.backoff import Backoff
from bartack.core.canonical_json import canonical
from bartack.errors import CanonicalJsonError, DeliveryOptionError

Ack = Literal["accepted", "delivered", "processed"]
OnError = Literal["raise", "dead_letter", "log", "ignore"]
Moment = datetime.datetime | datetime.timedelta | float
"""A moment: an aware ``datetime``, or seconds (or a ``timedelta``) from now."""

MAX_METADATA: Final = 4096
MAX_RETRIES: Final = 1000
MOST_S: Final = 1e10
DEFAULT_BACKOFF: Final = Backoff(base_s=0.1, cap_s=10.0)

_ACKS: Final[tuple[Ack, ...]] = ("accepted", "delivered", "processed")
_ON_ERROR: Final[tuple[OnError, ...]] = ("raise", "dead_letter", "log", "ignore")

L = TypeVar("L", bound=str)


class SendOptions(TypedDict, total=False):
    """How a message is delivered.

    Attributes:
        ack: What is waited for: ``accepted`` (it is durable), ``delivered`` (a receiver has it), ``processed`` (it said so).
        timeout_s: Seconds for each attempt to come that far.
        retries: Further attempts after the first one.
        backoff: The pauses between attempts.
        deadline: The end of it all: no attempt begins later.
        key: The same key in one mailbox is one message: the first.
        on_error: ``raise`` a ``DeliveryError``, make it a ``dead_letter``, ``log`` it, or ``ignore`` it.
        not_before: It is not received earlier.
        metadata: Goes with the message; at most 4 KiB as JSON.
    """

    ack: Ack
    timeout_s: float | datetime.timedelta | None
    retries: int
    backoff: Backoff
    deadline: Moment | None
    key: str | None
    on_error: OnError
    not_before: Moment | None
    metadata: Mapping[str, object] | None


class Terms(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The options of a send, checked."""

    ack: Ack = "accepted"
    timeout_s: float | None = None
    """Of each attempt; ``None``: the default of the run."""
    retries: int = 3
    base_s: float = 0.1
    factor: float = 2.0
    cap_s: float = 10.0
    deadline: int = 0
    """Microseconds since 1970, UTC; 0: none."""
    key: str = ""
    on_error: OnError = "raise"
    not_before: int = 0
    """Microseconds since 1970, UTC; 0: at once."""
    metadata: dict[str, object] = {}

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(base_s=self.base_s, cap_s=self.cap_s, factor=self.factor)


class Written(NamedTuple):
    """Options, checked: the terms of the send, and what of them a program has written."""

    terms: Terms
    written: list[object]


_DEFAULTS: Final = Written(Terms(), [])


def check_options(options: Mapping[str, object], now_us: int) -> Written:
    """Check the options of a supervised send or a broadcast.

    Args:
        options: As a program gave them.
        now_us: The time that moments given in seconds count from.

    Raises:
        DeliveryOptionError: One is unknown, or has a value that cannot be used.
    """
    if not options:
        return _DEFAULTS
    unknown = sorted(set(options) - set(SendOptions.__annotations__))
    if unknown:
        allowed = ", ".join(SendOptions.__annotations__)
        raise DeliveryOptionError(unknown[0], f"there is no such option (there are: {allowed})")
    backoff = _backoff(options.get("backoff", DEFAULT_BACKOFF))
    terms = Terms(
        ack=_one_of("ack", options.get("ack", "accepted"), _ACKS),
        timeout_s=_seconds("timeout_s", options.get("timeout_s")),
        retries=_count("retries", options.get("retries", 3)),
        base_s=backoff.base_s,
        factor=backoff.factor,
        cap_s=backoff.cap_s,
        deadline=moment_us("deadline", options.get("deadline"), now_us),
        key=_text("key", options.get("key")),
        on_error=_one_of("on_error", options.get("on_error", "raise"), _ON_ERROR),
        not_before=moment_us("not_before", options.get("not_before"), now_us),
        metadata=check_metadata(options.get("metadata")),
    )
    written: list[object] = [
        [name, _as_written(value)] for name, value in sorted(options.items()) if value is not None
    ]
    return Written(terms, written)


def check_metadata(metadata: object) -> dict[str, object]:
    """What goes with a message: an object of JSON, at most 4 KiB.

    Raises:
        DeliveryOptionError: It is something else, or longer.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise DeliveryOptionError("metadata", f"it must be an object, not {type(metadata).__name__}")
    try:
        encoded = canonical(dict(cast("Mapping[object, object]", metadata)))
    except CanonicalJsonError as error:
        raise DeliveryOptionError("metadata", f"it must be JSON: {error}") from None
    if len(encoded) > MAX_METADATA:
        raise DeliveryOptionError("metadata", f"it takes {len(encoded)} bytes, more than {MAX_METADATA}")
    return typed.decode(encoded, type=dict[str, object])


def is_whole(text: str) -> bool:
    """Whether a text can be written down: nothing of it is half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def moment_us(option: str, moment: object, now_us: int) -> int:
    """A moment in microseconds since 1970; 0 if there is none.

    Raises:
        DeliveryOptionError: It has no time zone, or is not a time.
    """
    if moment is None:
        return 0
    if isinstance(moment, datetime.datetime):
        if moment.utcoffset() is None:
            raise DeliveryOptionError(option, f"{moment!r} has no time zone")
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return max((moment - epoch) // datetime.timedelta(microseconds=1), 1)
    return now_us + int((_seconds(option, moment) or 0.0) * 1e6)


def _seconds(option: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DeliveryOptionError(option, f"it must be seconds, not {value!r}")
    if not 0 <= value <= MOST_S:
        raise DeliveryOptionError(option, f"it must be from 0 to {MOST_S:.0f}, not {value:g}")
    return float(value)


def _count(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RETRIES:
        raise DeliveryOptionError(option, f"it must be a whole number from 0 to {MAX_RETRIES}, not {value!r}")
    return value


def _text(option: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value or len(value) > 256:
        raise DeliveryOptionError(option, f"it must be a text of 1 to 256 characters, not {value!r}")
    if not is_whole(value):
        raise DeliveryOptionError(option, f"it has half a surrogate pair in it: {value!r}")
    return value


def _backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise DeliveryOptionError("backoff", f"it must be a Backoff, not {type(value).__name__}")
    numbers = (value.base_s, value.cap_s, value.factor)
    if not all(math.isfinite(number) and 0 <= number <= MOST_S for number in numbers) or value.factor < 1:
        raise DeliveryOptionError(
            "backoff", f"its numbers must not be negative, nor its factor below 1: {value}"
        )
    return value


def _one_of(option: str, value: object, allowed: tuple[L, ...]) -> L:
    for name in allowed:
        if name == value:
            return name
    raise DeliveryOptionError(option, f"it must be one of {', '.join(allowed)}, not {value!r}")


def _as_written(value: object) -> object:
    """A value of an option as it goes into a fingerprint: the same whenever the program writes the same."""
    if isinstance(value, Backoff):
        return [value.base_s, value.factor, value.cap_s]
    if isinstance(value, Mapping):
        return check_metadata(cast("Mapping[object, object]", value))
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime.datetime) else value
