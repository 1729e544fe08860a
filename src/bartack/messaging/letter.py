"""Dead letters: messages that could not be delivered or processed, kept with their reason.

``DeadLetter`` is the state of one, ``LetterFilter`` chooses some of them, ``LetterPolicy`` says when they are tried again. The hub
decides when (``runtime``); ``dead_letter_queue.py`` has what people and programs use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Annotated, Final, Literal, get_args

import msgspec

from bartack.core import typed
from bartack.core.backoff import Backoff
from bartack.errors import ConfigError, DeadLetterFilterError
from bartack.journal import BlobRef
from bartack.messaging.outcome import Reason
from bartack.messaging.post import Note

LetterState = Literal["waiting", "retrying", "redelivered", "expired", "purged"]

Bounded = Annotated[float, msgspec.Meta(ge=0, lt=1e10)]
"""Neither negative nor without end."""

RETRIED: Final[frozenset[str]] = frozenset({"timeout", "overflow", "no_receiver"})
"""Reasons that may pass by themselves: these letters are tried again automatically."""

MAX_NOTES: Final = 50
"""The most events in the history of a letter; the oldest ones go first."""


class DeadLetter(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A message that could not be delivered or processed."""

    id: str
    message_id: str
    mailbox: str
    reason: Reason
    state: LetterState = "waiting"
    attempts: int = 0
    sender: str = ""
    key: str = ""
    size: int = 0
    value: msgspec.Raw | None = None
    ref: BlobRef | None = None
    error: str = ""
    topic: str = ""
    metadata: dict[str, object] = {}
    first_failed_at: int = 0
    last_attempt_at: int = 0
    next_retry_at: int = 0
    """Microseconds since 1970, UTC; 0: it is not tried again by itself."""
    history: list[Note] = []

    def note(self, at: int, event: str, detail: str = "") -> None:
        """Something happened to it."""
        self.history = [*self.history, Note(at, event, detail)][-MAX_NOTES:]


def letter_id(run: str, message_id: str) -> str:
    """The id of the dead letter that a message of a run is, or would be."""
    return "dl-" + sha256(f"{run}\n{message_id}".encode()).hexdigest()[:12]


class LetterPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When dead letters are tried again by themselves: the settings ``[dead_letters]``."""

    enabled: bool = True
    retry: bool = True
    base: Bounded = 60.0
    factor: Bounded = 2.0
    cap: Bounded = 3600.0
    max_attempts: Annotated[int, msgspec.Meta(ge=0, lt=10**10)] = 5
    expire_after: Bounded | None = None
    """Seconds after which a letter is not tried again; ``None``: never."""

    def __post_init__(self) -> None:
        for name in ("base", "factor", "cap", "max_attempts", "expire_after"):
            value: float | None = getattr(self, name)
            if value is not None and not 0 <= value < 1e10:
                raise ConfigError(f"dead_letters.{name}", f"it must be finite and not negative: {value:g}")

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(base_s=self.base, cap_s=self.cap, factor=self.factor)

    def retries(self, reason: str, attempts: int) -> bool:
        """Whether a letter is tried again automatically after this number of attempts."""
        return self.enabled and self.retry and reason in RETRIED and attempts < self.max_attempts


class LetterFilter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Chooses dead letters: those that fit everything it says."""

    ids: list[str] | None = None
    mailbox: str = ""
    """A name; ``*`` and ``?`` stand for any text and any character."""
    reason: str = ""
    sender: str = ""
    state: str = ""
    older_than: float | None = None
    """Seconds since it first failed."""
    newer_than: float | None = None
    min_attempts: int = 0
    key: str = ""

    def chosen(self, letters: Iterable[DeadLetter], now_us: int) -> list[DeadLetter]:
        """The letters that fit, in order. Those that are gone never do; those that arrived only if they are asked for."""
        return [letter for letter in letters if self._fits(letter, now_us)]

    def _fits(self, letter: DeadLetter, now_us: int) -> bool:
        age_s = (now_us - letter.first_failed_at) / 1e6
        return (
            self._fits_state(letter)
            and (self.ids is None or letter.id in self.ids)
            and (not self.mailbox or fnmatchcase(letter.mailbox, self.mailbox))
            and (not self.reason or letter.reason == self.reason)
            and (not self.sender or letter.sender == self.sender)
            and (self.older_than is None or age_s > self.older_than)
            and (self.newer_than is None or age_s < self.newer_than)
            and letter.attempts >= self.min_attempts
            and (not self.key or letter.key == self.key)
        )

    def _fits_state(self, letter: DeadLetter) -> bool:
        if self.state:
            return letter.state == self.state
        return letter.state != "purged" and (letter.state != "redelivered" or self.ids is not None)


def make_filter(chosen: str | Mapping[str, object] | LetterFilter) -> LetterFilter:
    """A filter from how a person or a program writes one: ``all``, ``expired``, an id, or fields.

    Raises:
        DeadLetterFilterError: It has a field that there is not, or a value that cannot be used.
    """
    if isinstance(chosen, LetterFilter):
        return chosen
    if chosen == "all":
        return LetterFilter()
    if chosen == "expired":
        return LetterFilter(state="expired")
    if isinstance(chosen, str):
        if not chosen.startswith("dl-"):
            raise DeadLetterFilterError(
                "filter", f"{chosen!r} is neither 'all', nor 'expired', nor the id of a letter"
            )
        return LetterFilter(ids=[chosen])
    unknown = sorted(set(chosen) - set(LetterFilter.__struct_fields__))
    if unknown:
        fields = ", ".join(LetterFilter.__struct_fields__)
        raise DeadLetterFilterError(unknown[0], f"there is no such field (there are: {fields})")
    try:
        made = typed.convert(dict(chosen), type=LetterFilter)
    except msgspec.ValidationError as error:
        raise DeadLetterFilterError("filter", str(error)) from None
    _check_names(made)
    return made


def _check_names(made: LetterFilter) -> None:
    for field, allowed in (("reason", Reason), ("state", LetterState)):
        value: str = getattr(made, field)
        names: tuple[str, ...] = get_args(allowed)
        if value and value not in names:
            raise DeadLetterFilterError(field, f"it must be one of {', '.join(names)}, not {value!r}")
