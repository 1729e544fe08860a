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
    """A value does not have the expected type."""

    place: str
    expected: str
    found: str
    what: str = ""
    where: str = ""
    remedy = "Correct the annotation or the value."

    def describe(self) -> str:
        return f"{self.where}: {self._mismatch()}".removeprefix(": ")

    def _mismatch(self) -> str:
        if self.place == "$" and self.what.startswith(_RESULT):
            return f"{self.what.removeprefix(_RESULT)} returned {self.found}, but its annotation is {self.expected}"
        named = f"{self.what}: " if self.what else ""
        inside = "" if self.place == "$" and self.what else f"{self.place}: "
        return f"{named}{inside}expected {self.expected}, found {self.found}"


@message("{what} takes {size} bytes; the limit is {limit}")
class MessageTooLargeError(MessagingError, code="BT403"):
    """A value is larger than 16 MiB."""

    what: str
    size: int
    limit: int
    remedy = "Write the value to a file and send the path."


@message("mailbox {name!r}: {reason}")
class MailboxNameError(MessagingError, ValueError, code="BT404"):
    """The name is not a valid name of a mailbox."""

    name: str
    reason: str
    remedy = "A name has letters, digits, '_' and '-', begins with a letter or '_', and is at most 64 long."


@message("mailbox {name!r} is full ({queued} messages)")
class MailboxFullError(MessagingError, code="BT405", retryable=True):
    """The mailbox is full."""

    name: str
    queued: int
    remedy = "Receive from it, or declare it with a larger capacity."


@message("mailbox {name!r} is closed")
class MailboxClosedError(MessagingError, code="BT407"):
    """The mailbox is closed and accepts no more messages."""

    name: str
    remedy = "Send before the mailbox is closed, or send to another mailbox."


@message("mailbox {name!r}: {problem}")
class MailboxConfigError(MessagingError, code="BT408"):
    """A mailbox was declared twice, with different options."""

    name: str
    problem: str
    remedy = "Declare the mailbox once. The first declaration is in effect."


@message("the message to {recipient} was not delivered: {problem}")
class DeliveryError(MessagingError, code="BT409", retryable=True):
    """A supervised send did not reach the state that it waited for; ``outcome`` is its ``SendOutcome``."""

    recipient: str
    problem: str
    outcome: object
    remedy = "Check the recipient with 'bartack mailbox list'; on_error=\"dead_letter\" keeps undelivered messages."


@message("the broadcast ({strategy}) reached {succeeded} of {recipients} recipients")
class BroadcastError(MessagingError, code="BT410", retryable=True):
    """A broadcast reached fewer recipients than its strategy requires; ``result`` is its ``BroadcastResult``."""

    strategy: str
    succeeded: int
    recipients: int
    result: object
    remedy = "Check the recipients that the result lists as not reached, or use the strategy best_effort."


@message("{option}: {problem}")
class DeliveryOptionError(MessagingError, ValueError, code="BT411"):
    """An option of a send or a broadcast is invalid."""

    option: str
    problem: str
    remedy = "Correct the option that the message names."


@message("topic {topic!r}: {reason}")
class TopicNameError(MessagingError, ValueError, code="BT412"):
    """The name is not a valid topic or pattern of topics."""

    topic: str
    reason: str
    remedy = "A topic is 1 to 8 words joined by '.'; in a pattern a word may be '*', and the last one '**'."


@message("there is no dead letter {letter!r}")
class DeadLetterNotFoundError(MessagingError, code="BT413"):
    """No dead letter has this id."""

    letter: str
    remedy = "'bartack dlq list RUN' lists the dead letters."


@message("{field}: {problem}")
class DeadLetterFilterError(MessagingError, ValueError, code="BT414"):
    """A filter of dead letters is invalid."""

    field: str
    problem: str
    remedy = "Use 'all', 'expired', the id of a letter, or the fields that the message names."


@message("the name {name!r} is taken by {owner}")
class NameTakenError(MessagingError, code="BT415"):
    """Another worker that has not ended has this name."""

    name: str
    owner: str
    remedy = "Choose another name, or wait until that worker has ended."
