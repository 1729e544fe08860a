"""How often the kernel ended a process of our control group for want of memory. Linux only; elsewhere it is not counted."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

_CGROUPS: Final = "/sys/fs/cgroup"
_OWN: Final = "/proc/self/cgroup"


def count_oom_kills(own: str = _OWN, cgroups: str = _CGROUPS) -> int | None:
    """How many processes of our group were killed for want of memory since the group exists; ``None`` if it is not counted."""
    try:
        with open(own, encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for number, controllers, path in (group for group in groups if len(group) == 3):
        places: list[str] = []
        if number == "0":
            places = [f"{cgroups}{path}/memory.events", f"{cgroups}/memory.events"]
        elif "memory" in controllers.split(","):
            places = [f"{cgroups}/memory{path}/memory.oom_control", f"{cgroups}/memory/memory.oom_control"]
        for place in places:
            found = _read_count(place)
            if found is not None:
                return found
    return None


def _read_count(place: str) -> int | None:
    # A group may be seen from inside a container only under another path, or not at all.
    with suppress(OSError, ValueError), open(place, encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None
