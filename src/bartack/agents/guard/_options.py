"""The options and operands of a command, in one form however they were written: ``-fr``, ``-r -f``, ``--recursive --force``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from bartack.agents.guard._text import MARKS

_NONE: Final[frozenset[str]] = frozenset()


class Options(NamedTuple):
    """What a command was given.

    Attributes:
        flags: Short options by their letter, long ones by their name.
        values: The values of those that take one.
        operands: Everything else.
    """

    flags: frozenset[str]
    values: dict[str, str]
    operands: list[str]

    def has(self, *names: str) -> bool:
        """Whether one of several options is there; a long one also when it was shortened."""
        for name in names:
            if name in self.flags:
                return True
            if len(name) > 1 and any(
                len(flag) > 1 and name.startswith(flag) for flag in self.flags if not flag.startswith("-")
            ):
                return True
        return False


def parse_options(
    words: list[str], takes_value: frozenset[str] = _NONE, *, stops_at_operand: bool = False
) -> Options:
    """Read the words after the name of a command.

    Args:
        words: The words.
        takes_value: Options that are followed by a value: letters, and long names.
        stops_at_operand: Whether everything after the first operand is an operand.
    """
    flags: set[str] = set()
    values: dict[str, str] = {}
    operands: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            operands += words[index:]
            break
        if len(word) < 2 or word[0] != "-" or MARKS.match(word[1]):
            operands.append(word)
            if stops_at_operand:
                operands += words[index:]
                break
            continue
        name, value, wants = _option(word, takes_value, flags)
        if wants:
            if value is None and index < len(words):
                value = words[index]
                index += 1
            values[name] = value or ""
        elif value is not None:
            values[name] = value
    return Options(frozenset(flags), values, operands)


def _option(word: str, takes_value: frozenset[str], flags: set[str]) -> tuple[str, str | None, bool]:
    """One word of options: the last option in it, its value if the word has it, and whether it takes one."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        flags.add(name)
        return name, (value if equals else None), name in takes_value and not equals
    for place, letter in enumerate(word[1:], 1):
        flags.add(letter)
        if letter in takes_value:
            return letter, (word[place + 1 :] or None), True
    return word[-1], None, False


class Prefix(NamedTuple):
    """A command that runs another one, which stands after its own options.

    Attributes:
        values: Its options that take a value.
        operands: How many words stand between its options and the command.
        is_elsewhere: Whether the command sees another machine or file system.
    """

    values: frozenset[str] = _NONE
    operands: int = 0
    is_elsewhere: bool = False


def _prefix(letters: str = "", long: str = "", operands: int = 0, *, is_elsewhere: bool = False) -> Prefix:
    return Prefix(frozenset([*letters, *long.split()]), operands, is_elsewhere)


PREFIXES: Final[Mapping[str, Prefix]] = {
    "sudo": _prefix(
        "ugpChrtTRDU",
        "user group prompt chdir chroot host role type command-timeout other-user close-from",
        is_elsewhere=False,
    ),
    "doas": _prefix("uC"),
    "pkexec": _prefix("", "user"),
    "gosu": _prefix(operands=1),
    "su-exec": _prefix(operands=1),
    "env": _prefix("uC", "unset chdir"),
    "nice": _prefix("n", "adjustment"),
    "nohup": _prefix(),
    "time": _prefix("fo", "format output"),
    "gtime": _prefix("fo", "format output"),
    "timeout": _prefix("sk", "signal kill-after", 1),
    "gtimeout": _prefix("sk", "signal kill-after", 1),
    "stdbuf": _prefix("ioe", "input output error"),
    "ionice": _prefix("cnpPu", "class classdata pid pgid uid"),
    "chrt": _prefix("TPDp", "", 1),
    "taskset": _prefix("p", "", 1),
    "setsid": _prefix(),
    "setpriv": _prefix("", "reuid regid groups"),
    "command": _prefix(),
    "builtin": _prefix(),
    "exec": _prefix("a"),
    "unbuffer": _prefix(),
    "fakeroot": _prefix("lsib"),
    "caffeinate": _prefix("tw"),
    "strace": _prefix("aeopsuPIbOSEX", "output"),
    "ltrace": _prefix("aeopsunDl"),
    "xvfb-run": _prefix("ensfp"),
    "systemd-run": _prefix("upEMH", "unit property setenv slice"),
    "systemd-inhibit": _prefix("", "what who why mode"),
    "faketime": _prefix("", "", 1),
    "proxychains": _prefix("f"),
    "proxychains4": _prefix("f"),
    "torsocks": _prefix(),
    "rlwrap": _prefix(),
    "busybox": _prefix(),
    "toybox": _prefix(),
    "npx": _prefix("pc", "package"),
    "bunx": _prefix(),
    "chroot": _prefix("", "userspec groups", 1, is_elsewhere=True),
    "unshare": _prefix("SGRw", "", is_elsewhere=True),
    "nsenter": _prefix("tSGrw", "target", is_elsewhere=True),
    "xargs": _prefix(
        "IniLPdaEs", "replace max-args max-lines max-procs delimiter arg-file eof max-chars process-slot-var"
    ),
    "parallel": _prefix("jIaSN", "jobs colsep delay timeout results joblog"),
}
"""Commands whose own command is looked at instead of them."""

SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "rbash", "fish", "yash"})
SHELL_VALUES: Final = frozenset({"o", "O", "rcfile", "init-file", "C", "init-command"})
INTERPRETERS: Final = frozenset(
    {"python", "python2", "python3", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "osascript", "tclsh"}
)  # fmt: skip
FETCHERS: Final = frozenset(
    {"curl", "wget", "wget2", "fetch", "aria2c", "http", "https", "xh", "curlie", "lynx", "w3m", "links", "nc", "ncat",
     "netcat", "socat", "ftp", "lftp"}
)  # fmt: skip
"""Commands that print what they get from the network."""
SSH_VALUES: Final = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
