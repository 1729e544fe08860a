"""The built-in rules: what each of them is called, why it is there, and which commands it looks at.

A rule looks at one simple command whose prefixes are off, with the directories in which it may run. It reports findings to its
``Case``. Git has its own rules in ``_git_rules.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

from bartack.agents.guard._case import Case
from bartack.agents.guard._options import parse_options
from bartack.agents.guard._places import Target
from bartack.agents.guard._text import FOUND, show

REASONS: Final[Mapping[str, str]] = {
    "delete-vital": "a recursive delete of the file system, the home directory, the project or a directory above it",
    "delete-state": "a recursive delete of the history of the project or of its runs",
    "delete-unknown": "a recursive delete of a path that is not known before the command runs",
    "delete-outside": "a recursive delete outside of the directories where deleting is allowed",
    "move-vital": "moving the home directory, the project, its history or a directory above it",
    "git-loss": "it discards committed or uncommitted work",
    "device": "it overwrites a device or a file system",
    "mode-outside": "it changes mode or owner of a tree outside of the directories where that is allowed",
    "network-code": "code from the network would be executed unseen",
    "end-everything": "it kills unrelated processes or shuts the machine down",
    "protected": "the file is protected",
    "unparsed": "the effect of this command cannot be determined before it runs",
}
"""The built-in rules by their ids."""

_CHMOD_MODE: Final = re.compile(r"[0-7]+\Z|[-+=ugoarwxXst,]+\Z")
_DEVICE: Final = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mtd|ram|zram|sr|nbd|bcache|root|mem|kmem|port)"
)
_HARMLESS_DEVICE: Final = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty|std(?:in|out|err)|fd/|pts/|shm/)"
)
_ALL_PROCESSES: Final = re.compile(r"[\^.*$]*\Z")
_OFF: Final = frozenset({"poweroff", "reboot", "halt", "kexec", "soft-reboot", "emergency", "rescue"})


Rule = Callable[[Case, list[str]], None]


def check_delete(case: Case, words: Iterable[str]) -> None:
    """Judge a recursive delete of some paths: the first that is not allowed decides, but one whose place is known comes first."""
    unknown = None
    for word in dict.fromkeys(words):
        targets = None if FOUND in word else case.targets(word)
        if targets is None:
            unknown = unknown or word
            continue
        for target in targets:
            rule = _rule_of_delete(case, target)
            if rule:
                case.deny(rule, show(word))
                return
    if unknown is not None:
        case.deny("delete-unknown", show(unknown))


def _rule_of_delete(case: Case, target: Target) -> str:
    places, path = case.places, target.path
    if places.is_vital(path):
        return "delete-vital"
    if places.is_state(path):
        return "delete-state"
    if places.is_listed(path, tree=True):
        return "protected"
    if case.is_elsewhere or not places.is_in_roots(path, itself=False):
        return "delete-outside"
    return ""


def check_write(case: Case, words: Iterable[str], *, tree: bool = False) -> None:
    """Judge that files are written, removed or replaced: protected ones, and devices."""
    for word in dict.fromkeys(words):
        for target in case.targets(word) or ():
            if is_device(target.path):
                case.deny("device", show(word))
                return
            if not case.is_elsewhere and case.places.is_protected(target.path, tree=tree):
                case.deny("protected", show(word))
                return


def is_device(path: str) -> bool:
    """Whether a path is a device whose content can be lost."""
    return _DEVICE.match(path) is not None and _HARMLESS_DEVICE.match(path) is None


def _rm(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:])
    if given.has("r", "R", "recursive"):
        check_delete(case, given.operands)
    else:
        check_write(case, given.operands)


def _rimraf(case: Case, words: list[str]) -> None:
    check_delete(case, parse_options(words[1:]).operands)


def _move(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset({"t", "S", "target-directory", "suffix"}))
    target = given.values.get("t", given.values.get("target-directory"))
    sources = given.operands if target is not None else given.operands[:-1]
    for word in sources:
        for found in case.targets(word) or ():
            if case.places.is_vital(found.path) or case.places.is_state(found.path):
                case.deny("move-vital", show(word))
    check_write(case, sources, tree=True)
    check_write(case, given.operands[-1:] if target is None else [target])


def _copy(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset({"t", "S", "target-directory", "suffix", "m", "o", "g"}))
    target = given.values.get("t", given.values.get("target-directory"))
    check_write(case, given.operands[-1:] if target is None else [target])


def _writes_operands(case: Case, words: list[str]) -> None:
    check_write(
        case, parse_options(words[1:], frozenset({"s", "r", "d", "size", "reference", "date"})).operands
    )


def _sed(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset({"e", "f", "l", "expression", "file"}))
    if given.has("in-place") or "i" in given.flags:
        check_write(case, given.operands)


def _dd(case: Case, words: list[str]) -> None:
    for word in words[1:]:
        if word.startswith("of="):
            target = case.targets(word[3:])
            path = target[0].path if target else ""
            if path.startswith("/dev/") and _HARMLESS_DEVICE.match(path) is None:
                case.deny("device", show(word))
            check_write(case, [word[3:]])


def _device_tool(case: Case, words: list[str]) -> None:
    if len(words) > 1 and not parse_options(words[1:]).has("help", "version", "V"):
        case.deny("device", words[0])


def _mode(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset({"reference", "from"}))
    if not given.has("R", "recursive"):
        return
    operands = given.operands if given.has("reference") else given.operands[1:]
    if _CHMOD_MODE.match(words[-1]) and len(given.operands) == 1 and words[0] == "chmod":
        operands = []
    for word in operands:
        targets = case.targets(word)
        if targets is None:
            case.deny("mode-outside", show(word))
            continue
        for target in targets:
            if case.is_elsewhere or not case.places.is_in_roots(target.path, itself=True):
                case.deny("mode-outside", show(word))
                break


def _kill(case: Case, words: list[str]) -> None:
    rest = words[1:]
    if rest and rest[0] in {"-s", "-n", "--signal"}:
        rest = rest[2:]
    elif rest and rest[0].startswith("-") and rest[0] != "--" and len(rest) > 1:
        rest = rest[1:]
    if "-1" in rest:
        case.deny("end-everything")


def _pkill(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset("dFgGPrstTU") | {"signal", "user"})
    if given.has("u", "U", "uid", "euid", "user") or any(_ALL_PROCESSES.match(one) for one in given.operands):
        case.deny("end-everything")


def _off(case: Case, words: list[str]) -> None:
    if not any(word in {"-c", "--help", "-k", "--version"} for word in words[1:]):
        case.deny("end-everything")


def _init(case: Case, words: list[str]) -> None:
    if words[1:2] and words[1] in {"0", "6"}:
        case.deny("end-everything")


def _systemctl(case: Case, words: list[str]) -> None:
    if any(word in _OFF for word in words[1:]):
        case.deny("end-everything")


def _rsync(case: Case, words: list[str]) -> None:
    given = parse_options(words[1:], frozenset({"e", "f", "T", "B", "rsh", "exclude", "include", "filter"}))
    if any(flag.startswith("del") for flag in given.flags) and given.operands:
        place = given.operands[-1]
        targets = [] if ":" in show(place) else case.targets(place)
        vital = targets is None or any(
            case.places.is_vital(one.path) or case.places.is_state(one.path) for one in targets
        )
        if vital:
            case.deny("delete-vital" if targets else "delete-unknown", show(place))


RULES: Final[dict[str, Rule]] = {
    "rm": _rm,
    "grm": _rm,
    "unlink": _rm,
    "rmdir": _rm,
    "rimraf": _rimraf,
    "mv": _move,
    "gmv": _move,
    "cp": _copy,
    "gcp": _copy,
    "ln": _copy,
    "install": _copy,
    "tee": _writes_operands,
    "touch": _writes_operands,
    "truncate": _writes_operands,
    "sed": _sed,
    "gsed": _sed,
    "dd": _dd,
    "chmod": _mode,
    "chown": _mode,
    "chgrp": _mode,
    "kill": _kill,
    "pkill": _pkill,
    "killall": _pkill,
    "killall5": _off,
    "shutdown": _off,
    "reboot": _off,
    "halt": _off,
    "poweroff": _off,
    "init": _init,
    "telinit": _init,
    "systemctl": _systemctl,
    "rsync": _rsync,
    **dict.fromkeys(
        (
            "wipefs",
            "shred",
            "blkdiscard",
            "mkswap",
            "sfdisk",
            "sgdisk",
            "parted",
            "fdisk",
            "mke2fs",
            "badblocks",
        ),
        _device_tool,
    ),
}
"""What looks at a command, by the command's name."""


def rule_for(name: str) -> Rule | None:
    """The rule that looks at a command."""
    found = RULES.get(name)
    return _device_tool if found is None and name.startswith("mkfs") else found


def check_find(case: Case, words: list[str]) -> None:
    """Judge ``find … -delete`` and ``find … -exec rm -r {}``: all that it finds is deleted."""
    starts, tests = split_find(words)
    filtered = _is_filtered(tests)
    for word in starts or ["."]:
        targets = case.targets(word)
        if targets is None:
            case.deny("delete-unknown", show(word))
            continue
        for target in targets:
            inside = case.places.is_in_roots(target.path, itself=True) and not case.is_elsewhere
            if not filtered or not inside:
                rule = _rule_of_delete(case, target)
                if rule:
                    case.deny(rule, show(word))
                    break
            elif _names_state(tests):
                case.deny("delete-state", show(word))


def split_find(words: list[str]) -> tuple[list[str], list[str]]:
    """The directories in which ``find`` begins, and its tests and actions."""
    rest = words[1:]
    while rest and rest[0] in {"-H", "-L", "-P"}:
        rest = rest[1:]
    count = next((index for index, word in enumerate(rest) if word[:1] in {"-", "(", "!"}), len(rest))
    return rest[:count], rest[count:]


_NAME_TESTS: Final = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex"})
_OR: Final = frozenset({"-o", "-or", ",", "!", "-not"})


def _is_filtered(tests: list[str]) -> bool:
    """Whether a test by name leaves out most of what is there, for certain."""
    if not _OR.isdisjoint(tests):
        return False
    values = [value for test, value in pairwise(tests) if test in _NAME_TESTS]
    return any(show(value).strip("*./?") for value in values)


def _names_state(tests: list[str]) -> bool:
    return any(show(value).strip("*/") == ".git" or ".bartack" in value for value in tests)
