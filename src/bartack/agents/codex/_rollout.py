"""What Codex itself writes down about the replies of a thread: the tokens of each, as soon as it has come.

On the wire it reports them when the tools of the reply have ended. A process that is killed meanwhile has only written them down.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bartack.agents.codex._home import find_rollouts
from bartack.agents.codex._tokens import usage_of
from bartack.agents.program._json_lines import MAX_JSON_LINE, JsonLine, object_of, read_json_line, text_of
from bartack.agents.protocol.messages import Usage

_RECORD: Final = b'"type":"token_usage_record"'
_NAMES: Final = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")


def read_replies(home: Path, threads: Iterable[str]) -> dict[str, list[Usage]]:
    """What the replies of each turn of some threads have used, by the id of the turn. A file that cannot be read has none."""
    found: dict[str, list[Usage]] = {}
    for path in [path for thread in threads for path in find_rollouts(home, thread)]:
        try:
            with path.open("rb") as file:
                while raw := file.readline(MAX_JSON_LINE):
                    if _RECORD in raw:
                        _take(raw.strip(), found)
        except OSError:
            continue
    return found


def _take(raw: bytes, found: dict[str, list[Usage]]) -> None:
    read = read_json_line(raw)
    if isinstance(read, JsonLine):
        turn = text_of(read.value, "payload", "turn_id")
        found.setdefault(turn, []).append(usage_of(object_of(read.value, "payload", "usage"), _NAMES))
