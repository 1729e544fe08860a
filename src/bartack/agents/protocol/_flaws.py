"""What is wrong with the files that an answer names, in words that an agent's author can act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from bartack.agents.protocol.messages import Count, Sum
from bartack.core import typed
from bartack.core.text import cut

_WANTED: Final = {
    "path": "the path of the file, relative to the workspace",
    "sha256": "sha256: and 64 hex digits in lower case, of the file as it was left",
    "size": "its number of bytes",
}
SHOWN: Final = 3
"""At most this many files are named; an answer may name thousands."""
LONGEST: Final = 400
"""No file takes more of the text than this; a path may be any length."""
_TYPES: Final[dict[str, object]] = {"path": str, "sha256": Sum, "size": Count}


def find_flaws(artifacts: object) -> str:
    """What is wrong with the member ``artifacts`` of an event, the first few files each with all that is; empty if nothing is."""
    if artifacts is None:
        return ""
    if not isinstance(artifacts, list):
        return f"artifacts is a list of files, each with path, sha256 and size, not {_shown(artifacts)}"
    items = cast("list[object]", artifacts)
    flaws = [flaw for place, item in enumerate(items) if (flaw := _flaws_of(place, item))]
    return first_few(flaws)


def first_few(problems: Sequence[str]) -> str:
    """What is wrong with some files, in a text that stays readable however many there are."""
    shown = [cut(text, LONGEST) for text in problems[:SHOWN]]
    more = len(problems) - SHOWN
    listed = "; ".join(shown)
    # The number comes first as well: a view that shows only the beginning shows it.
    return f"{len(problems)} artifacts are wrong: {listed}; and {more} more" if more > 0 else listed


def _flaws_of(place: int, item: object) -> str:
    if not isinstance(item, dict):
        return f"artifacts[{place}] is an object with path, sha256 and size, not {_shown(item)}"
    members = cast("dict[str, object]", item)
    flaws = [flaw for name in _WANTED if (flaw := _flaw(members, name))]
    path = members.get("path")
    named = f" ({path})" if isinstance(path, str) else ""
    return f"artifacts[{place}]{named}: {', '.join(flaws)}" if flaws else ""


def _flaw(members: dict[str, object], name: str) -> str:
    wanted = _WANTED[name]
    if name not in members:
        return f"{name} is missing ({wanted})"
    try:
        typed.convert(members[name], type=_TYPES[name])
    except msgspec.ValidationError:
        return f"{name} is {_shown(members[name])}, and has to be {wanted}"
    return ""


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return cut(text, 80)
