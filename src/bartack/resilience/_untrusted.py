"""What the settings of a project cannot say before the person trusts its directory.

A clone is the person's own directory, so its owner need not be the author of its ``bartack.toml``. Settings in it that decide
where code and tokens go are obeyed within bounds that do no harm. Beyond them the directory has to be trusted; until it is, the
setting is left out with a warning. The environment and the ``bartack.toml`` of the state home are the person's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import urlsplit

_log = logging.getLogger("bartack.resilience")
Values = dict[str, object]


def drop_untrusted(config: Values, path: str) -> Values:
    """The configuration without what needs trust; unchanged if its directory has it."""
    folder = os.path.dirname(os.path.abspath(path))
    section = config.get("tracking")
    if not isinstance(section, dict):
        return config
    tracking = _rooted(cast("Values", section), folder)
    harmful = [key for key, fits in _BOUNDS.items() if key in tracking and not fits(tracking[key], folder)]
    if harmful and not is_trusted(folder):
        for key in harmful:
            _log.warning("%s: tracking.%s is not used: %s", path, key, _why(key, tracking[key], folder))
        tracking = {key: value for key, value in tracking.items() if key not in harmful}
    return {**config, "tracking": tracking}


def is_trusted(folder: str) -> bool:
    """Whether the person has said that the settings in a directory are to be obeyed."""
    from bartack.core.trust import (  # noqa: PLC0415 - few settings need trust, and hooks start faster without it
        is_trusted as is_listed,
    )

    return _is_within(folder, _state_home()) or is_listed(folder)


def _rooted(tracking: Mapping[str, object], folder: str) -> Values:
    """The section with the token file as a path that does not depend on the working directory."""
    named = tracking.get("token_file")
    if not isinstance(named, str) or not named or "\0" in named:
        return dict(tracking)
    return {**tracking, "token_file": os.path.join(folder, os.path.expanduser(named))}


def _is_on_this_machine(value: object, folder: str) -> bool:
    import ipaddress  # noqa: PLC0415 - only a configured address needs it

    try:
        host = urlsplit(str(value)).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_own_token(value: object, folder: str) -> bool:
    return isinstance(value, str) and "\0" not in value and (not value or _is_within(value, _state_home()))


def _is_own_outbox(value: object, folder: str) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    place = os.path.join(folder, os.path.expanduser(value))
    return _is_within(place, folder) or _is_within(place, _state_home())


def _asks_for_proof(value: object, folder: str) -> bool:
    return value == "required"


_BOUNDS: Final[Mapping[str, Callable[[object, str], bool]]] = {
    "url": _is_on_this_machine,
    "token_file": _is_own_token,
    "dir": _is_own_outbox,
    "proof": _asks_for_proof,
}
_REASONS: Final = {
    "url": "it is not an address of this machine",
    "token_file": "it is outside of your state home",
    "dir": "it is outside of the project and of your state home",
    "proof": "it would send code to a service that does not prove itself",
}


def _why(key: str, value: object, folder: str) -> str:
    return (
        f"{_REASONS[key]} ({value!r}), and the directory is not trusted. To trust it: bartack trust {folder}"
    )


def _is_within(path: str, folder: str) -> bool:
    place, root = os.path.realpath(path), os.path.realpath(folder)
    return place == root or place.startswith(root.rstrip(os.sep) + os.sep)


def _state_home() -> str:
    from bartack.core.user_home import user_home  # noqa: PLC0415 - see ``is_trusted``

    return str(user_home())
