"""The dead letters of a run, for people and programs; and sending with the session or the context named first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, Unpack

import msgspec

from bartack.core.files import write_file
from bartack.errors import DeadLetterNotFoundError
from bartack.messaging.letter import DeadLetter, LetterFilter, make_filter
from bartack.messaging.options import SendOptions
from bartack.messaging.outcome import SendOutcome

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Retried(msgspec.Struct, frozen=True):
    """A dead letter that was tried again, and what became of that."""

    id: str
    outcome: SendOutcome


class LetterPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some of the dead letters. ``cursor`` asks for those that follow; empty at the end."""

    letters: list[DeadLetter]
    cursor: str = ""


class LetterDoor(Protocol):
    """How a queue reaches the run: through its hub, or by owning the journal for a moment."""

    def letters(self) -> list[DeadLetter]:
        """All dead letters there ever were."""
        ...

    def now_us(self) -> int:
        """The time."""
        ...

    def load(self, letter: DeadLetter) -> bytes:
        """The message that a letter is, encoded."""
        ...

    def add(self, recipient: str, message: object, reason: str, metadata: Mapping[str, object]) -> str:
        """Make a dead letter."""
        ...

    def retry(self, chosen: LetterFilter) -> list[Retried]:
        """Try letters again."""
        ...

    def purge(self, chosen: LetterFilter) -> int:
        """Remove letters."""
        ...


class DeadLetterQueue:
    """The dead letters of a run. Made by ``Run.dead_letters`` and ``Session.dead_letters``."""

    def __init__(self, door: LetterDoor) -> None:
        self._door = door

    def add_message(
        self,
        recipient: str,
        message: object,
        reason: str = "manual",
        metadata: Mapping[str, object] | None = None,
    ) -> str:
        """Keep a message as a dead letter; returns its id. It is tried again only on request.

        Args:
            recipient: The mailbox it would have gone to.
            message: The message.
            reason: Why, for people.
            metadata: Goes with it.
        """
        return self._door.add(recipient, message, reason, metadata or {})

    def list_messages(self, limit: int = 100, cursor: str | None = None, **chosen: object) -> LetterPage:
        """Dead letters, the oldest first. Those that were delivered after all only if ``state`` asks for them.

        Args:
            limit: The most that are returned.
            cursor: The ``cursor`` of the page before.
            chosen: Fields of a filter.

        Raises:
            DeadLetterFilterError: There is no such field, or it cannot have this value.
        """
        found = make_filter(chosen).chosen(self._door.letters(), self._door.now_us())
        if cursor:
            places = [place for place, letter in enumerate(found) if letter.id == cursor]
            found = found[places[0] + 1 :] if places else []
        page = found[: max(limit, 0)]
        return LetterPage(page, page[-1].id if page and len(found) > len(page) else "")

    def show(self, letter_id: str) -> DeadLetter:
        """One dead letter.

        Raises:
            DeadLetterNotFoundError: There is none of this id.
        """
        for letter in self._door.letters():
            if letter.id == letter_id and letter.state != "purged":
                return letter
        raise DeadLetterNotFoundError(letter_id)

    def value(self, letter_id: str) -> object:
        """The message that a letter is.

        Raises:
            DeadLetterNotFoundError: There is none of this id.
        """
        return msgspec.json.decode(self._door.load(self.show(letter_id)))

    def retry_messages(self, chosen: str | Mapping[str, object]) -> list[Retried]:
        """Put letters back into their mailboxes, under their ids and keys; those that fit a filter.

        Args:
            chosen: ``all``, ``expired``, the id of a letter, or fields of a filter.

        Raises:
            DeadLetterNotFoundError: A letter that was named does not exist.
            DeadLetterFilterError: The filter cannot be used.
        """
        return self._door.retry(self._named(chosen))

    def purge_messages(self, chosen: str | Mapping[str, object]) -> int:
        """Remove letters from the queue; the journal keeps what it says of them. Returns how many.

        Args:
            chosen: ``all``, ``expired``, the id of a letter, or fields of a filter. One that fits nothing is not an error: 0.

        Raises:
            DeadLetterNotFoundError: A letter that was named does not exist.
            DeadLetterFilterError: The filter cannot be used.
        """
        return self._door.purge(self._named(chosen))

    def export(self, path: str | os.PathLike[str], chosen: str | Mapping[str, object] = "all") -> int:
        """Write letters to a file, one object of JSON a line, with their messages; returns how many."""
        found = make_filter(chosen).chosen(self._door.letters(), self._door.now_us())
        write_file(os.fspath(path), b"".join(line + b"\n" for line in self.lines(found)))
        return len(found)

    def lines(self, letters: Iterable[DeadLetter]) -> Iterable[bytes]:
        """Letters as they are exported: each one line of JSON, with its message."""
        for letter in letters:
            whole = msgspec.structs.replace(letter, value=msgspec.Raw(self._door.load(letter)), ref=None)
            yield msgspec.json.encode(whole)

    def _named(self, chosen: str | Mapping[str, object]) -> LetterFilter:
        made = make_filter(chosen)
        if made.ids is not None:
            known = {letter.id for letter in self._door.letters() if letter.state != "purged"}
            for name in made.ids:
                if name not in known:
                    raise DeadLetterNotFoundError(name)
        return made


class SupervisedSender(Protocol[T_co]):
    """Can send: the context of a worker, or a session that was joined."""

    def send_supervised(self, recipient: str, value: object, **options: Unpack[SendOptions]) -> T_co:
        """Send a message and see to it that it arrives."""
        ...


class Broadcaster(Protocol[T_co]):
    """Can broadcast: the context of a worker, or a session that was joined."""

    def broadcast(
        self,
        recipients: Iterable[str],
        value: object,
        strategy: str = "all_or_nothing",
        **options: Unpack[SendOptions],
    ) -> T_co:
        """Send a message to many."""
        ...


def send_supervised(
    sender: SupervisedSender[T], recipient: str, value: object, **options: Unpack[SendOptions]
) -> T:
    """Send a message and see to it that it arrives; like ``ctx.send_supervised``, with the context or session first."""
    return sender.send_supervised(recipient, value, **options)


def broadcast_supervised(
    sender: Broadcaster[T],
    recipients: Iterable[str],
    value: object,
    strategy: str = "all_or_nothing",
    **options: Unpack[SendOptions],
) -> T:
    """Send a message to many; like ``ctx.broadcast``, with the context or session first."""
    return sender.broadcast(recipients, value, strategy, **options)
