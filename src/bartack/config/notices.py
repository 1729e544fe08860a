"""The section ``notices``: how a person learns that a run waits, ended, failed, is out of budget or is paused.

Keys that start a program, send something to another machine or put a link before a person (``OWN_KEYS``) count only in the user's
own settings (``own.py``), in the environment and with ``--set``. In the file of a project they are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, cast

import msgspec
from msgspec import Meta

from bartack.config.sections import Line, Seconds, Word
from bartack.core.flaws import Flaw

NoticeKind = Literal["question", "ended", "failed", "budget", "paused"]
"""What a person may want to know of a run."""

ALL_KINDS: Final[tuple[NoticeKind, ...]] = ("question", "ended", "failed", "budget", "paused")
SECTION: Final = "notices"
OWN_KEYS: Final = frozenset({"command", "webhook", "secret_file", "secret_env", "link"})
"""What a file of a project cannot set."""
LINK_FIELDS: Final = frozenset({"run", "question", "project", "kind"})
"""What a link can be made of."""

_QUIET: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class NoticesConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The section ``notices``.

    Attributes:
        on: What notices are sent of.
        after_s: A question or a pause that is over within this time sends nothing.
        quiet: Hours of the day, by the local clock, in which notices are held back; empty: none.
        urgent: What passes in these hours, too.
        link: A link to the page of a question; ``{run}``, ``{question}``, ``{project}`` and ``{kind}`` are replaced.
        desktop: Whether notices are shown on the desktop.
        command: A program and its arguments, started for each notice.
        command_s: How long it may take.
        webhook: An address to which each notice is posted.
        secret_file: The file with the secret that signs what is posted.
        secret_env: The variable with that secret.
    """

    on: list[NoticeKind] = msgspec.field(default_factory=lambda: list(ALL_KINDS))
    after_s: Seconds = 10.0
    quiet: Annotated[
        str,
        Meta(
            pattern=rf"\A(?:{_QUIET.pattern})?\Z",
            description='two times of the day such as "22:00-07:00", or empty',
        ),
    ] = ""
    urgent: list[NoticeKind] = []
    link: Word = ""
    desktop: bool = False
    command: list[Word] = []
    command_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    webhook: Word = ""
    secret_file: Line = ""
    secret_env: Annotated[
        str, Meta(pattern=r"\A(?:[A-Za-z_][A-Za-z0-9_]*)?\Z", description="the name of a variable, or empty")
    ] = ""

    @property
    def quiet_minutes(self) -> tuple[int, int] | None:
        """When the quiet hours begin and end, in minutes since midnight; ``None``: there are none."""
        found = _QUIET.fullmatch(self.quiet)
        if found is None:
            return None
        hour, minute, end_hour, end_minute = map(int, found.groups())
        return hour * 60 + minute, end_hour * 60 + end_minute

    @property
    def has_ways(self) -> bool:
        """Whether anything can be sent at all."""
        return bool(self.on) and (self.desktop or bool(self.command) or bool(self.webhook))


def notice_flaws(given: Mapping[str, object]) -> Iterator[Flaw]:
    """What is wrong with the section that its type does not say."""
    begin, _, end = str(given.get("quiet", "")).partition("-")
    if begin and begin == end:
        yield Flaw((SECTION, "quiet"), "it begins and ends at the same time")
    command = given.get("command")
    if isinstance(command, list) and command and not str(cast("list[object]", command)[0]).strip():
        yield Flaw((SECTION, "command"), "its first element has to name a program")
    yield from _webhook_flaws(given)
    yield from _link_flaws(str(given.get("link", "")))


def _webhook_flaws(given: Mapping[str, object]) -> Iterator[Flaw]:
    url = str(given.get("webhook", ""))
    if not url:
        return
    problem = _url_problem(url)
    if problem:
        yield Flaw((SECTION, "webhook"), problem)
    elif bool(given.get("secret_file")) == bool(given.get("secret_env")):
        yield Flaw((SECTION, "webhook"), "it needs either secret_file or secret_env, to sign what is posted")


def _url_problem(url: str) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415 - few settings have an address

    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "it is not a valid address"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "it is not a valid address"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "it has to be an https address"
    if parts.username is not None or parts.password is not None:
        return "it has a user name or a password in it; what is posted is signed instead"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        return "it has to be an https address; http is only for this machine"
    return ""


def _link_flaws(link: str) -> Iterator[Flaw]:
    if not link:
        return
    import string  # noqa: PLC0415 - few settings have a link

    try:
        fields = [
            (name, spec, how) for _, name, spec, how in string.Formatter().parse(link) if name is not None
        ]
    except ValueError as error:
        yield Flaw((SECTION, "link"), f"it cannot be read: {error}")
        return
    unknown = [name for name, spec, how in fields if name not in LINK_FIELDS or spec or how]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in sorted(LINK_FIELDS))
        yield Flaw((SECTION, "link"), f"{{{unknown[0]}}} is not replaced; only {known} are")
    if not link.startswith(("https://", "http://")):
        yield Flaw((SECTION, "link"), "it has to begin with https:// or http://")
