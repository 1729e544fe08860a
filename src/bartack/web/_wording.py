"""How pages write moments, durations, money and kinds; and how characters that cannot be seen are shown.

Pages count on in the same forms: ``static/live.js`` has the twins of ``elapsed`` and ``age``.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from bartack.runtime.protocol.steps import MEANINGS, Meaning

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Control characters except line break and tab, changes of direction, characters without width, halves of characters."""

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
THOUSAND: Final = 1000
MILLION: Final = 1_000_000
US: Final = 1_000_000


def meaning(kind: str) -> Meaning:
    """What a kind of step means to people."""
    return MEANINGS.get(kind, "code")


def visible(text: str) -> str:
    """A text with escapes for the characters that cannot be seen, or that change how others are seen."""
    if text.isprintable():
        return text
    return UNSEEN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"


def elapsed(us: int) -> str:
    """A time so far, as ``0:41`` or ``1:02:03``."""
    seconds = max(us, 0) // US
    minutes, hours = seconds // MINUTE % MINUTE, seconds // HOUR
    return f"{hours}:{minutes:02}:{seconds % MINUTE:02}" if hours else f"{minutes}:{seconds % MINUTE:02}"


def age(us: int) -> str:
    """How long ago something was, as ``12 s``, ``3 min``, ``5 h`` or ``2 d``."""
    seconds = max(us, 0) // US
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    return f"{seconds // HOUR} h" if seconds < 2 * DAY else f"{seconds // DAY} d"


def took(seconds: float | None) -> str:
    """How long something took, as ``12 ms``, ``1.25 s`` or ``2:41``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * THOUSAND:.{1 if seconds < 0.01 else 0}f} ms"
    return f"{seconds:.2f} s" if seconds < MINUTE else elapsed(round(seconds * US))


def clock(us: int) -> str:
    """A moment of today or of another day, on the clock of this machine."""
    if not us:
        return ""
    moment = datetime.fromtimestamp(us / US).astimezone()
    is_today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def iso(us: int) -> str:
    """A moment for the attribute of an element."""
    return datetime.fromtimestamp(us / US).astimezone().isoformat(timespec="milliseconds") if us else ""


_NOUNS: Final = {"think": "prompt", "shell": "command", "ask": "question", "body": "function"}


def under_way(kind: str, count: int) -> str:
    """Steps of a kind that are under way, as ``3 prompts`` or ``2 in receive``."""
    noun = _NOUNS.get(kind)
    return f"{count} in {kind}" if noun is None else f"{count} {noun}{'s' if count != 1 else ''}"


def usd(amount: float) -> str:
    """An amount of money, in US dollars."""
    return f"{amount:.2f}" if amount >= 0.01 or amount == 0 else f"{amount:.4f}"


def short(number: int) -> str:
    """A number in short: ``812``, ``41k``, ``1.2M``."""
    if number < 10 * THOUSAND:
        return f"{number:,}"
    return f"{number // THOUSAND}k" if number < MILLION else f"{number / MILLION:.1f}M"


def size(amount: int) -> str:
    """A number of bytes."""
    if amount < THOUSAND:
        return f"{amount} B"
    return f"{amount / THOUSAND:.1f} kB" if amount < MILLION else f"{amount / MILLION:.1f} MB"
