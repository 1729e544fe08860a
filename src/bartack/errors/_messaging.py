"""The errors of messages and mailboxes: BT400 to BT415. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class MessagingError(BartackError, code="BT400"):
    """Something is wrong with a message or a mailbox."""

    remedy = "Read the message; it names the mailbox or the place in the value."


@message()
class MessageValueError(MessagingError, ValueError, code="BT401"):
    """A value cannot be serialised: it, or something in it, is of a type that has no JSON form."""

    place: str
    problem: str
    what: str = ""
    where: str = ""
    remedy = "Send JSON values, dataclasses, Structs, aware datetimes and the other types of 'Values' in docs/reference/python.md."

    def describe(self) -> str:
        where = f"{self.where}: " if self.where else ""
        what = f"{self.what} cannot be serialised: " if self.what else ""
        return f"{where}{what}{self.place}: {self.problem}"


_RESULT = "the result of "


@message()
class TypeMismatchError(MessagingError, ValueError, code="BT402"):
    """A value has another type than the one asked for."""

    place: str
    expected: str
    found: str
    what: str = ""
    where: str = ""
    remedy = "Correct the annotation, or what is sent."

    def describe(self) -> str:
        return f"{self.where}: {self._mismatch()}".removeprefix(": ")

    def _mismatch(self) -> str:
        if self.place == "$" and self.what.startswith(_RESULT):
            return f"{self.what.removeprefix(_RESULT)} returned {self.found}, but its annotation says {self.expected}"
        named = f"{self.what}: " if self.what else ""
        inside = "" if self.place == "$" and self.what else f"{self.place}: "
        return f"{named}{inside}expected {self.expected}, found {self.found}"


@message("{what} takes {size} bytes, more than {limit}")
class MessageTooLargeError(MessagingError, code="BT403"):
    """A value takes more than 16 MiB."""

    what: str
    size: int
    limit: int
    remedy = "Write it to a file and send the path."


@message("mailbox {name!r}: {reason}")
class MailboxNameError(MessagingError, ValueError, code="BT404"):
    """No mailbox can have this name."""

    name: str
    reason: str
    remedy = "A name has letters, digits, '_' and '-', begins with a letter or '_', and is at most 64 long."


@message("mailbox {name!r} is full ({queued} messages)")
class MailboxFullError(MessagingError, code="BT405", retryable=True):
    """The mailbox holds as much as it may."""

    name: str
    queued: int
    remedy = "Receive from it, or declare it with a larger capacity."


@message("mailbox {name!r} is closed")
class MailboxClosedError(MessagingError, code="BT407"):
    """The mailbox takes no more messages."""

    name: str
    remedy = "Send before it is closed, or to another mailbox."


@message("mailbox {name!r}: {problem}")
class MailboxConfigError(MessagingError, code="BT408"):
    """A mailbox was declared twice, differently."""

    name: str
    problem: str
    remedy = "Declare it once; the first declaration stands."


@message("the message to {recipient} was not delivered: {problem}")
class DeliveryError(MessagingError, code="BT409", retryable=True):
    """A supervised send did not come as far as it waited for; ``outcome`` is its ``SendOutcome``."""

    recipient: str
    problem: str
    outcome: object
    remedy = "Look at the recipient with 'bartack mailbox list'; on_error=\"dead_letter\" keeps what could not be delivered."


@message("the broadcast ({strategy}) reached {succeeded} of {recipients} recipients")
class BroadcastError(MessagingError, code="BT410", retryable=True):
    """A broadcast reached fewer recipients than it had to; ``result`` is its ``BroadcastResult``."""

    strategy: str
    succeeded: int
    recipients: int
    result: object
    remedy = "The result names the recipients that were not reached; best_effort takes what it gets."


@message("{option}: {problem}")
class DeliveryOptionError(MessagingError, ValueError, code="BT411"):
    """An option of a send or a broadcast cannot be used."""

    option: str
    problem: str
    remedy = "Correct the option that the message names."


@message("topic {topic!r}: {reason}")
class TopicNameError(MessagingError, ValueError, code="BT412"):
    """There cannot be such a topic, or such a pattern of topics."""

    topic: str
    reason: str
    remedy = "A topic is 1 to 8 words joined by '.'; in a pattern a word may be '*', and the last one '**'."


@message("there is no dead letter {letter!r}")
class DeadLetterNotFoundError(MessagingError, code="BT413"):
    """There is no dead letter of this id."""

    letter: str
    remedy = "'bartack dlq list RUN' shows those that there are."


@message("{field}: {problem}")
class DeadLetterFilterError(MessagingError, ValueError, code="BT414"):
    """A filter of dead letters cannot be used."""

    field: str
    problem: str
    remedy = "Use 'all', 'expired', the id of a letter, or the fields that the message names."


@message("the name {name!r} is taken by {owner}")
class NameTakenError(MessagingError, code="BT415"):
    """A worker that has not ended has this name already."""

    name: str
    owner: str
    remedy = "Take another name, or wait until that worker has ended."
