"""Hooks of the coding agent that record what it does: install them, take them out, see whether they work.

What runs is one file, the shim (``_shim.py``), copied to the user's state home, so that it stays where a settings file says it is.
How a settings file is changed is in ``_settings_file.py``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

from bartack.core.files import replace_file
from bartack.core.trust import is_trusted, make_private
from bartack.core.user_home import user_home
from bartack.errors import (
    BartackError,
    ConfigError,
    ResilienceError,
    SettingsError,
    TokenFileError,
    TokenScopeError,
)
from bartack.plugin._settings_file import (
    DOOR_PATH,
    SHIM_NAME,
    Entries,
    Object,
    load_settings_file,
    remove_if_ours_alone,
    render,
    save,
    with_entries,
    without_ours,
)
from bartack.plugin.events import (
    SCOPES,
    Scope,
    recorded_by_plugins,
    recorded_in_settings,
    settings_path,
)
from bartack.resilience import Outbox, StateStore, load_settings
from bartack.resilience.home import state_home
from bartack.resilience.link import DaemonLink
from bartack.resilience.mirror import iso
from bartack.resilience.spool import Spool
from bartack.resilience.tokens import hook_token, load_token, read_token

Mode = Literal["async", "command", "http"]
MODES: Final[tuple[Mode, ...]] = ("async", "command", "http")
EVENTS: Final = ("PostToolUse", "SessionStart", "Stop", "SessionEnd")
_MATCHER: Final = "Write|Edit|MultiEdit|NotebookEdit"
_TOOL_EVENTS: Final = {"PreToolUse", "PostToolUse", "PostToolUseFailure"}
_NAME: Final = re.compile(r"[A-Za-z]{1,64}")
_TIMEOUT_S: Final = 5
_END_TIMEOUT_S: Final = 1
_MARKER: Final = "autostart-off"


class HookChange(NamedTuple):
    """What an installation has done, or would do: the file, its text before and after, and whether it was written.

    ``left_out`` are the events that an installed plugin records already.
    """

    path: str
    before: str | None
    after: str | None
    changed: bool
    left_out: tuple[str, ...] = ()


def install_hooks(
    *,
    mode: Mode = "async",
    scope: Scope = "local",
    events: tuple[str, ...] = EVENTS,
    root: str | os.PathLike[str] | None = None,
    python: str = sys.executable,
    dry_run: bool = False,
) -> HookChange:
    """Put tracking hooks into a settings file, in place of those that are there; a second time changes nothing.

    Events that an installed plugin records already are left out.

    Args:
        mode: ``async`` records tool events without making the agent wait, ``command`` makes it wait, ``http`` needs the daemon.
        scope: Which settings file.
        events: Which events to record.
        root: The project; by default the working directory.
        python: The interpreter that runs the shim.
        dry_run: Write nothing.

    Raises:
        SettingsError: The file cannot be changed safely.
        TokenScopeError: A token would get into a shared file.
        ConfigError: The interpreter does not answer, or an event has an impossible name.
    """
    if mode == "http" and scope == "project":
        raise TokenScopeError(scope)
    for event in events:
        if not _NAME.fullmatch(event):
            raise ConfigError("events", f"{event!r} is not the name of an event")
    python = os.path.abspath(python)
    _check_interpreter(python)
    file = load_settings_file(_checked_path(scope, root))
    elsewhere = recorded_by_plugins(root)
    left_out = tuple(event for event in events if event in elsewhere)
    entries = {event: [_group(mode, event, python)] for event in events if event not in elsewhere}
    text = render(file, with_entries(file, entries))
    if dry_run:
        return HookChange(str(file.path), file.text, text, changed=False, left_out=left_out)
    install_shim()
    changed = save(file, text, private=mode == "http")
    return HookChange(str(file.path), file.text, text, changed, left_out)


def uninstall_hooks(
    *, scope: Scope = "local", root: str | os.PathLike[str] | None = None, dry_run: bool = False
) -> HookChange:
    """Take tracking hooks out of a settings file, and nothing else.

    Raises:
        SettingsError: The file cannot be changed safely.
    """
    file = load_settings_file(_checked_path(scope, root))
    if not file.installed:
        return HookChange(str(file.path), file.text, file.text, changed=False)
    value = without_ours(file)
    text = render(file, value)
    if dry_run:
        return HookChange(str(file.path), file.text, text, changed=False)
    if remove_if_ours_alone(file, value):
        return HookChange(str(file.path), file.text, None, changed=True)
    return HookChange(str(file.path), file.text, text, save(file, text, private=False))


def _checked_path(scope: Scope, root: str | os.PathLike[str] | None) -> Path:
    """The settings file of a scope; that of a project only if it is in the project, or the project is trusted.

    Raises:
        SettingsError: A symbolic link of the project leads to a file elsewhere.
    """
    path = settings_path(scope, root)
    if scope != "user":
        top = os.path.realpath(path.parent.parent)
        if os.path.commonpath([top, os.path.realpath(path)]) != top and not is_trusted(top):
            problem = f"a symbolic link leads out of {top}; to trust that directory: bartack trust {top}"
            raise SettingsError(str(path), problem)
    return path


def install_shim() -> Path:
    """Bring the shim into the user's state home, as this version has it."""
    home = user_home()
    make_private(home / "bin")
    target = home / "bin" / SHIM_NAME
    if not _is_current(target):
        replace_file(target, _shim_source())
    marker = home / _MARKER
    if load_settings().autostart:
        marker.unlink(missing_ok=True)
    else:
        marker.touch(mode=0o600)
    return target


def shim_path() -> Path:
    """The shim that belongs to this version of the package."""
    return Path(__file__).with_name("_shim.py")


def _shim_source() -> bytes:
    return shim_path().read_bytes()


def _is_current(path: Path) -> bool:
    try:
        return path.read_bytes() == _shim_source()
    except OSError:
        return False


def _check_interpreter(python: str) -> None:
    problem = "it does not answer"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 - asks the interpreter whether it is one
            [python, "-I", "-S", "-c", "print('here')"], capture_output=True, timeout=10, check=False
        )
        if done.stdout.strip() == b"here":
            return
    raise ConfigError("interpreter", f"{python}: {problem}")


def _group(mode: Mode, event: str, python: str) -> Object:
    is_tool = event in _TOOL_EVENTS
    hook = _http_hook(event) if mode == "http" and is_tool else _command_hook(event, python)
    if mode == "async" and is_tool:
        hook["async"] = True
    return {"matcher": _MATCHER, "hooks": [hook]} if is_tool else {"hooks": [hook]}


def _command_hook(event: str, python: str) -> Object:
    shim = str(user_home() / "bin" / SHIM_NAME)
    command = shlex.join([python, "-I", "-S", shim, event])
    timeout = _END_TIMEOUT_S if event == "SessionEnd" else _TIMEOUT_S
    return {"type": "command", "command": command, "timeout": timeout}


def _http_hook(event: str) -> Object:
    token = hook_token(load_token(user_home() / "token"))
    url = f"http://127.0.0.1:{_http_port()}{DOOR_PATH}{event}"
    return {
        "type": "http",
        "url": url,
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": _TIMEOUT_S,
    }


def _http_port() -> int:
    facts = DaemonLink().facts().get("http")
    port = cast("Object", facts).get("port") if isinstance(facts, dict) else None
    return port if isinstance(port, int) and port else load_settings(start=user_home()).http_port


def hook_status(root: str | os.PathLike[str] | None = None) -> dict[str, object]:
    """What is installed where, and whether it works.

    ``state`` is ``working``, ``problems`` or ``not installed``; ``problems`` says what is wrong.
    """
    scopes = {scope: _scope_status(scope, root) for scope in SCOPES}
    problems = [problem for one in scopes.values() for problem in one.problems]
    installed = any(one.events for one in scopes.values())
    shim = user_home() / "bin" / SHIM_NAME
    if installed and not shim.exists():
        problems.append(f"{shim} is missing; install again")
    elif installed and not _is_current(shim):
        problems.append(f"{shim} is of another version; install again")
    problems += _doubles(root)
    if not load_settings(start=root).enabled:
        problems.append("tracking is switched off (PATTERN_TRACKING_ENABLED or tracking.enabled)")
    facts = DaemonLink().facts()
    state = "not installed" if not installed else "problems" if problems else "working"
    return {
        "state": state,
        "problems": problems,
        "scopes": {scope: one._asdict() for scope, one in scopes.items()},
        "shim": {"path": str(shim), "present": shim.exists(), "current": _is_current(shim)},
        "daemon": {"running": DaemonLink().is_running(), "http": facts.get("http")},
        **_waiting(root),
    }


def _doubles(root: str | os.PathLike[str] | None) -> list[str]:
    """The events that are recorded twice, by a settings file and by a plugin."""
    plugins = recorded_by_plugins(root)
    return [
        f"{event} is recorded twice, by {path} and by the plugin {plugins[event]}; install one of them again"
        for event, path in recorded_in_settings(root).items()
        if event in plugins
    ]


class ScopeStatus(NamedTuple):
    """The hooks in one settings file."""

    path: str
    events: tuple[str, ...]
    mode: str
    problems: tuple[str, ...]


def _scope_status(scope: Scope, root: str | os.PathLike[str] | None) -> ScopeStatus:
    path = settings_path(scope, root)
    try:
        entries = load_settings_file(path).installed
    except BartackError as error:
        return ScopeStatus(str(path), (), "", (error.message,))
    problems = [
        f"{path}: the interpreter {python} is gone; install again"
        for python in sorted(_interpreters(entries))
        if not os.access(python, os.X_OK)
    ]
    if _carries_own_token(entries):
        problems.append(f"{path}: its http hooks carry your token itself; install again to replace it")
    return ScopeStatus(str(path), tuple(entries), _mode_of(entries), tuple(problems))


def _hooks(entries: Entries) -> list[Object]:
    found: list[Object] = []
    for groups in entries.values():
        for group in groups:
            hooks = group["hooks"]
            assert isinstance(hooks, list)
            found.extend(hooks)  # pyright: ignore[reportUnknownArgumentType] - checked when they were found to be ours
    return found


def _interpreters(entries: Entries) -> set[str]:
    return {shlex.split(str(hook["command"]))[0] for hook in _hooks(entries) if "command" in hook}


def _carries_own_token(entries: Entries) -> bool:
    """Whether hooks were installed by a version that gave them the user's own token."""
    sent = {str(value) for hook in _hooks(entries) for value in _headers(hook).values()}
    try:
        return bool(sent) and f"Bearer {read_token(user_home() / 'token')}" in sent
    except TokenFileError:
        return False


def _headers(hook: Object) -> Object:
    found = hook.get("headers")
    return cast("Object", found) if isinstance(found, dict) else {}


def _mode_of(entries: Entries) -> str:
    hooks = _hooks(entries)
    if any("url" in hook for hook in hooks):
        return "http"
    if any(hook.get("async") for hook in hooks):
        return "async"
    return "command" if hooks else ""


def _waiting(root: str | os.PathLike[str] | None) -> dict[str, object]:
    places = {os.path.realpath(user_home()), os.path.realpath(state_home(start=root))}
    spooled, last = 0, None
    counts: dict[str, int] = {}
    for place in places:
        spooled += len(Spool(place).names())
        if not os.path.exists(os.path.join(place, "outbox.db")):
            continue
        try:
            with StateStore(place) as store:
                for state, count in Outbox(store).count().items():
                    counts[state] = counts.get(state, 0) + count
                query = "SELECT max(created_at) FROM outbox WHERE event_id LIKE 'hk\\_%' ESCAPE '\\'"
                seen = store.read(lambda connection: connection.execute(query).fetchone()[0])  # noqa: B023 - called at once
                last = max(filter(None, (last, seen)), default=None)
        except ResilienceError:
            continue
    return {"last_event": iso(last), "spool": spooled, "outbox": counts}
