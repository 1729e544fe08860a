"""Changing a settings file of the coding agent without disturbing anything else in it.

The file is read strictly, so that nothing is lost by writing it again; what has an unexpected shape is left alone. Ours are the
entries that name the shim or the daemon's HTTP door.
"""

from __future__ import annotations

import copy
import json
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, cast

from bartack.core.files import replace_file
from bartack.errors import SettingsError

SHIM_NAME: Final = "bartack-hook.py"
DOOR_PATH: Final = "/hooks/v1/"
BACKUP: Final = ".bartack-backup"
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)

Object = dict[str, object]
Entries = dict[str, list[Object]]
"""For each event, the groups of a matcher and its hooks."""


class SettingsFile(NamedTuple):
    """A settings file as it was read: where it really is, its text, and what that means."""

    path: Path
    text: str | None
    value: Object

    @property
    def installed(self) -> Entries:
        """Our entries, by event."""
        return {
            event: ours
            for event, groups in _groups(self.path, self.value).items()
            if (ours := [mine for group in groups if (mine := _only_ours(group)) is not None])
        }


def load_settings_file(path: str | os.PathLike[str]) -> SettingsFile:
    """Read a settings file; one that is missing is empty.

    Raises:
        SettingsError: It is not valid JSON, or hooks have an unexpected shape in it.
    """
    real = Path(os.path.realpath(path))
    try:
        text = real.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return SettingsFile(real, None, {})
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), f"it cannot be read: {error}") from error
    try:
        value = json.loads(text, object_pairs_hook=_no_repetition, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(path), f"it is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise SettingsError(str(path), "its value is not an object")
    _groups(real, cast("Object", value))
    return SettingsFile(real, text, cast("Object", value))


def _no_repetition(pairs: list[tuple[str, object]]) -> Object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _groups(path: Path, value: Object) -> Entries:
    hooks = value.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError(str(path), "'hooks' is not an object")
    found: Entries = {}
    for event, groups in cast("Object", hooks).items():
        if not isinstance(groups, list):
            raise SettingsError(str(path), f"'hooks.{event}' is not an array")
        for group in cast("list[object]", groups):
            if not isinstance(group, dict) or not isinstance(cast("Object", group).get("hooks", []), list):
                raise SettingsError(str(path), f"'hooks.{event}' has an entry of an unexpected shape")
        found[event] = cast("list[Object]", groups)
    return found


def is_ours(hook: object) -> bool:
    """Whether an entry was written by us."""
    if not isinstance(hook, dict):
        return False
    entry = cast("Object", hook)
    return SHIM_NAME in str(entry.get("command", "")) or DOOR_PATH in str(entry.get("url", ""))


def _only_ours(group: Object) -> Object | None:
    ours = [hook for hook in cast("list[object]", group.get("hooks", [])) if is_ours(hook)]
    return {**group, "hooks": ours} if ours else None


def without_ours(file: SettingsFile) -> Object:
    """The value without our entries and without the containers that they leave empty."""
    value = copy.deepcopy(file.value)
    hooks = cast("Object", value.get("hooks", {}))
    for event in list(hooks):
        before = cast("list[Object]", hooks[event])
        after = [left for group in before if (left := _without_ours(group)) is not None]
        if after or not before:
            hooks[event] = after
        else:
            del hooks[event]
    if "hooks" in value and not hooks and file.value["hooks"]:
        del value["hooks"]
    return value


def _without_ours(group: Object) -> Object | None:
    hooks = cast("list[object]", group.get("hooks", []))
    left = [hook for hook in hooks if not is_ours(hook)]
    if len(left) == len(hooks):
        return group
    return {**group, "hooks": left} if left else None


def with_entries(file: SettingsFile, entries: Entries) -> Object:
    """The value with exactly these entries as ours."""
    if file.installed == entries:
        return file.value
    value = without_ours(file)
    hooks = cast("Object", value.setdefault("hooks", {}))
    for event, groups in entries.items():
        cast("list[Object]", hooks.setdefault(event, [])).extend(groups)
    return value


def render(file: SettingsFile, value: Object) -> str:
    """The text for a value, in the manner of the file; its very text if the value has not changed."""
    if file.text is not None and value == file.value:
        return file.text
    backup = _backup_text(file.path)
    if backup is not None and _same(backup, value):
        return backup
    found = _INDENT.search(file.text or "")
    indent = found[1] if found else "  "
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text + ("\n" if file.text is None or file.text.endswith("\n") else "")


def _backup_text(path: Path) -> str | None:
    try:
        return Path(f"{path}{BACKUP}").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _same(text: str, value: Object) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


def save(file: SettingsFile, text: str, *, private: bool) -> bool:
    """Write the text by an atomic replace, after a copy of the first state; whether anything changed.

    Raises:
        SettingsError: The file cannot be written.
    """
    if text == file.text:
        return False
    try:
        if file.text is None:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if private else 0o644
        else:
            mode = stat.S_IMODE(file.path.stat().st_mode)
            _back_up(file, mode)
        replace_file(file.path, text.encode("utf-8", "surrogatepass"), mode=mode)
    except OSError as error:
        raise SettingsError(str(file.path), f"it cannot be written: {error.strerror or error}") from error
    return True


def _back_up(file: SettingsFile, mode: int) -> None:
    backup = Path(f"{file.path}{BACKUP}")
    if not backup.exists() and not file.installed:
        replace_file(backup, (file.text or "").encode("utf-8"), mode=mode)


def remove_if_ours_alone(file: SettingsFile, value: Object) -> bool:
    """Remove a file that did not exist before us and holds nothing any more; whether it did."""
    if value or file.text is None or _backup_text(file.path) is not None:
        return False
    file.path.unlink(missing_ok=True)
    return True
