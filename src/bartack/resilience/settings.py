"""Settings of resilience and tracking: from the environment, from ``bartack.toml``, else a default.

One table says it all: the variable, the key, the default and what is legal. A value that cannot be used is reported with one
warning and replaced by the default; it is never an error. Nothing is read when this module is imported.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from bartack.core.flaws import Flaw

_log = logging.getLogger("bartack.resilience")

CONFIG_NAME: Final = "bartack.toml"
T = TypeVar("T", int, float, str, bool)


class DefaultInt(int):
    """A default in a signature that can be distinguished from the same value given by a caller."""


class DefaultFloat(float):
    """Like ``DefaultInt``."""


class DefaultStr(str):
    """Like ``DefaultInt``."""

    __slots__ = ()


URL: Final[str] = DefaultStr("http://localhost:8053")
FAILURE_THRESHOLD: Final[int] = DefaultInt(3)
BREAKER_TIMEOUT: Final[float] = DefaultInt(60)
MAX_AGE_DAYS: Final[float] = DefaultInt(7)
MAX_SIZE_MB: Final[float] = DefaultInt(50)
HEALTH_INTERVAL: Final[float] = DefaultInt(30)
HEALTH_TIMEOUT: Final[float] = DefaultFloat(1.0)
ENABLED: Final[bool] = cast("bool", DefaultInt(1))  # bool has no subclasses; this one equals True


class Settings(NamedTuple):
    """What the environment and the configuration say, checked."""

    url: str
    enabled: bool
    cache_dir: str
    max_age_days: float
    max_size_mb: float
    failure_threshold: int
    breaker_timeout: float
    health_interval: float
    health_timeout: float
    delivery: str
    store: str
    http_port: int
    idle_exit: float
    autostart: bool
    max_attempts: int
    backoff_base: float
    backoff_cap: float
    policy: str
    dead_days: float
    compress: bool
    embedded: bool
    token_file: str
    proof: str


class _Option(NamedTuple):
    field: str
    variable: str
    key: str
    default: object
    parse: Callable[[object], object]


def _number(low: float, high: float = math.inf) -> Callable[[object], object]:
    def parse(value: object) -> float:
        number = math.nan if isinstance(value, bool) else float(str(value))
        if not low <= number <= high or math.isinf(number):  # also what is not a number
            raise ValueError(f"not in the range from {low:g} to {high:g}")
        return int(number) if number.is_integer() else number

    return parse


def _count(low: int, high: float = math.inf) -> Callable[[object], object]:
    number = _number(low, high)

    def parse(value: object) -> int:
        found = float(str(number(value)))
        if not found.is_integer():
            raise ValueError("a whole number is needed")
        return int(found)

    return parse


_SWITCH: Final = {"true": True, "1": True, "yes": True, "on": True} | dict.fromkeys(
    ("false", "0", "no", "off"), False
)


def _switch(value: object) -> bool:
    found = _SWITCH.get(str(value).strip().lower())
    if found is None:
        raise ValueError("true or false is needed")
    return found


def _one_of(*names: str) -> Callable[[object], object]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)} is needed")
        return str(value)

    return parse


def _url(value: object) -> str:
    text = str(value).strip().rstrip("/")
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in {"http", "https"} or not rest:
        raise ValueError("an http or https URL is needed")
    return text


def _path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a path is needed")
    return os.path.expanduser(value)


_OPTIONS: Final = (
    _Option("url", "INTELLIGENCE_SERVICE_URL", "tracking.url", str(URL), _url),
    _Option("enabled", "PATTERN_TRACKING_ENABLED", "tracking.enabled", True, _switch),
    _Option("cache_dir", "PATTERN_CACHE_DIR", "tracking.dir", "", _path),
    _Option("max_age_days", "PATTERN_CACHE_MAX_AGE_DAYS", "tracking.max_age_days", 7, _number(0)),
    _Option("max_size_mb", "PATTERN_CACHE_MAX_SIZE_MB", "tracking.max_size_mb", 50, _number(0)),
    _Option(
        "failure_threshold", "CIRCUIT_BREAKER_FAILURE_THRESHOLD", "breaker.failure_threshold", 3, _count(1)
    ),
    _Option("breaker_timeout", "CIRCUIT_BREAKER_TIMEOUT", "breaker.timeout", 60, _number(0)),
    _Option("health_interval", "HEALTH_CHECK_INTERVAL", "health.interval", 30, _number(0)),
    _Option("health_timeout", "HEALTH_CHECK_TIMEOUT", "health.timeout", 1.0, _number(0.001)),
    _Option("delivery", "", "tracking.delivery", "", _one_of("inline", "daemon")),
    _Option("store", "", "tracking.store", "code", _one_of("code", "hash")),
    _Option("http_port", "", "daemon.http_port", 8054, _count(0, 65535)),
    _Option("idle_exit", "", "daemon.idle_exit", 1800, _number(0)),
    _Option("autostart", "", "daemon.autostart", True, _switch),
    _Option("max_attempts", "", "outbox.max_attempts", 12, _count(1)),
    _Option("backoff_base", "", "outbox.backoff_base", 1, _number(0)),
    _Option("backoff_cap", "", "outbox.backoff_cap", 300, _number(0)),
    _Option("policy", "", "outbox.policy", "drop_oldest", _one_of("drop_oldest", "reject")),
    _Option("dead_days", "", "outbox.dead_days", 30, _number(0)),
    _Option("compress", "", "outbox.compress", True, _switch),
    _Option("embedded", "", "lineage.embedded", True, _switch),
    _Option("token_file", "", "tracking.token_file", "", _path),
    _Option("proof", "BARTACK_TRACKING_PROOF", "tracking.proof", "required", _one_of("required", "off")),
)


def load_settings(
    environ: Mapping[str, str] | None = None, *, start: str | os.PathLike[str] | None = None
) -> Settings:
    """Read all settings. ``start`` is where the search for ``bartack.toml`` begins, going up; by default the working directory."""
    environ = os.environ if environ is None else environ
    config = _load_config(find_config(start))
    return Settings(**{option.field: _resolve(option, environ, config) for option in _OPTIONS})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - each option's parser gives the type of its field


def setting_flaws(config: Mapping[str, object]) -> Iterator[Flaw]:
    """What is wrong with the sections of a configuration that are read here. None of it is ever an error."""
    from bartack.core.flaws import Flaw, unknown_name  # noqa: PLC0415 - hooks start faster without it

    keys = {option.key: option for option in _OPTIONS}
    for name in dict.fromkeys(key.partition(".")[0] for key in keys):
        section = config.get(name, {})
        if not isinstance(section, dict):
            yield Flaw((name,), "it is not a table")
            continue
        known = [key.partition(".")[2] for key in keys if key.startswith(f"{name}.")]
        for key, value in cast("dict[str, object]", section).items():
            option = keys.get(f"{name}.{key}")
            if option is None:
                yield unknown_name((name, key), key, known, "there is no such key")
                continue
            try:
                option.parse(value)
            except ValueError as error:
                yield Flaw((name, key), f"{value!r} cannot be used: {error}")


def given(value: T, setting: object) -> T:
    """``value`` if a caller chose it, else ``setting``."""
    if isinstance(value, DefaultInt | DefaultFloat | DefaultStr):
        return cast("T", setting)
    return value


def find_config(start: str | os.PathLike[str] | None = None) -> str | None:
    """The nearest ``bartack.toml`` at or above ``start``."""
    return _find_above(start, CONFIG_NAME, os.path.isfile)


def find_state_dir(start: str | os.PathLike[str] | None) -> str | None:
    """The nearest ``.bartack`` directory at or above ``start``, or the ``state_dir`` of a configuration found there first."""
    config = find_config(start)
    here = _find_above(start, ".bartack", os.path.isdir)
    named = _load_config(config).get("state_dir")
    if config and isinstance(named, str) and named:
        here = os.path.join(os.path.dirname(config), os.path.expanduser(named))
    return here if here is not None and _is_private(here) else None


def _is_private(directory: str) -> bool:
    """Whether only this user can change a state directory; one that others can change is not used, and a warning says so."""
    from bartack.core.trust import check_private  # noqa: PLC0415 - only projects with a state directory need it
    from bartack.errors import UntrustedError  # noqa: PLC0415 - likewise

    try:
        check_private(directory)
    except UntrustedError as error:
        _log.warning("%s", error)
        return False
    return True


def _find_above(start: str | os.PathLike[str] | None, name: str, exists: Callable[[str], bool]) -> str | None:
    try:
        folder: str = os.path.abspath(os.getcwd() if start is None else str(start))
    except OSError:  # the working directory was deleted
        return None
    while True:
        found = os.path.join(folder, name)
        if exists(found):
            return found
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _load_config(path: str | None) -> dict[str, object]:
    if path is None:
        return {}
    import tomllib  # noqa: PLC0415 - only projects with a configuration need it

    from bartack.core.trust import check_settings  # noqa: PLC0415 - likewise
    from bartack.errors import UntrustedError  # noqa: PLC0415 - likewise

    try:
        check_settings(path)
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError, UntrustedError) as error:
        _log.warning("%s cannot be read (%s); defaults are used", path, error)
        return {}
    from bartack.resilience._untrusted import drop_untrusted  # noqa: PLC0415 - as above

    return drop_untrusted(found, path)


def _resolve(option: _Option, environ: Mapping[str, str], config: Mapping[str, object]) -> object:
    text = environ.get(option.variable, "") if option.variable else ""
    if text:
        return _parse(option, option.variable, text)
    table, _, key = option.key.partition(".")
    section = config.get(table)
    value = cast("dict[str, object]", section).get(key) if isinstance(section, dict) else None
    return option.default if value is None else _parse(option, option.key, value)


def _parse(option: _Option, source: str, value: object) -> object:
    try:
        return option.parse(value)
    except ValueError as error:
        shown = option.default if option.default != "" else "the default"
        _log.warning("%s=%r cannot be used (%s); %s is used", source, value, error, shown)
        return option.default
