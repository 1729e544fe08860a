"""Both directions of a conversation with Codex, copied to ``stream.ndjson``, and what is read back of a dead hub's part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

from bartack.agents.codex._messages import LOGIN
from bartack.agents.codex._thread import SentResult
from bartack.agents.codex._tokens import priced, reply_usage
from bartack.agents.program._json_lines import Json, JsonLine, JsonRead, object_of, objects_of, text_of
from bartack.agents.program._stream import BEGUN, SENT, Stream
from bartack.agents.program_config import Price
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage
from bartack.core.closing import Closing

STREAM_BYTES: Final = 64 * 1024 * 1024
"""After this much only what is read back is copied."""
_SECRET: Final = f'"method":"{LOGIN}"'.encode()
_PROMPT: Final = b'"method":"turn/start"'
_PARTS: Final = (b'{"method":"item/agentMessage/delta"', b'{"method":"item/commandExecution/outputDelta"')
"""Lines that come once more, as a whole."""


_READ_BACK: Final = frozenset(
    {"turn/started", "thread/tokenUsage/updated", "item/completed", "item/tool/call"}
)


class ThreadPast(NamedTuple):
    """What a dead hub's part of a conversation shows.

    Attributes:
        usage: What it has used, as far as Codex has reported it.
        finished: Tools of ours whose results were sent, by call.
        delivered: Those whose results Codex has taken.
        turns: The turns of this step, each with its thread.
        reported: How many replies of each turn Codex has reported.
        model: The model that replied.
    """

    usage: Usage
    finished: dict[str, SentResult]
    delivered: list[str]
    turns: dict[str, str]
    reported: Counter[str]
    model: str


class CodexStream(Closing):
    """See the module. Made by ``open``, which takes the conversation for this process."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._copied = stream.path.stat().st_size

    @classmethod
    def open(cls, agent: str, folder: Path, kind: str) -> Self:
        """Take a conversation.

        Raises:
            AgentBusyError: Another process has it.
        """
        return cls(Stream.open(agent, folder, kind))

    def copy_in(self, read: JsonRead, case: str) -> None:
        """A line came."""
        if isinstance(read, BadLine):
            self._stream.mark("bartack.bad_line", case=case or read.case, bytes=read.size)
        elif not read.raw.startswith(_PARTS) and (self._copied < STREAM_BYTES or _is_kept(read)):
            self._copied += len(read.raw)
            self._stream.copy(read.raw, "in")

    def copy_out(self, line: bytes) -> None:
        """A line goes out; a mark comes before each prompt."""
        if _SECRET in line:
            return
        if _PROMPT in line:
            self._stream.mark(SENT)
        self._copied += len(line)
        self._stream.copy(line, "out")

    def begin_step(self) -> None:
        """What comes from now on belongs to another step than what is there."""
        self._stream.mark(BEGUN)

    def read_past(self, prices: Mapping[str, Price] | None = None) -> ThreadPast:
        """What was copied before this process took the conversation, priced by the settings."""
        reader = _PastReader()
        for line in self._stream.read_forwards():
            reader.take(line.value)
        used = total_usage(reader.usages)
        usage = priced(used, reader.model, prices) if reader.usages else Usage()
        return ThreadPast(
            usage, reader.finished, reader.delivered, reader.turns, reader.reported, reader.model
        )

    def close(self) -> None:
        """Release the conversation."""
        self._stream.close()


class _PastReader:
    """Reads a stream from its first line on."""

    def __init__(self) -> None:
        self.model = ""
        self.usages: list[Usage] = []
        self.finished: dict[str, SentResult] = {}
        self.delivered: list[str] = []
        self.turns: dict[str, str] = {}
        self.reported: Counter[str] = Counter()
        self._calls: dict[object, tuple[str, str]] = {}

    def take(self, copied: Json) -> None:
        """The next line."""
        if text_of(copied, "type") == BEGUN:
            self._begin_step()
            return
        value = object_of(copied, "line")
        params, method = object_of(value, "params"), text_of(value, "method")
        self.model = text_of(value, "result", "model") or self.model
        match method:
            case "initialize":
                self._calls.clear()  # another process, with numbers of its own
            case "item/tool/call":
                self._calls[value.get("id")] = (text_of(params, "callId"), text_of(params, "tool"))
            case "turn/started":
                self.turns[text_of(params, "turn", "id")] = text_of(params, "threadId")
            case "thread/tokenUsage/updated" if text_of(params, "turnId") in self.turns:
                self.reported[text_of(params, "turnId")] += 1
                self.usages.append(reply_usage(params))
            case "item/completed" if text_of(params, "item", "type") == "dynamicToolCall":
                self.delivered.append(text_of(params, "item", "id"))
            case "" if text_of(copied, "dir") == "out":
                self._sent(value)
            case _:
                pass

    def _begin_step(self) -> None:
        self.usages.clear()
        self.finished.clear()
        self.delivered.clear()
        self.turns.clear()
        self.reported.clear()

    def _sent(self, value: Json) -> None:
        call_id, name = self._calls.get(value.get("id"), ("", ""))
        items = objects_of(value, "result", "contentItems")
        if call_id and items:
            self.finished[call_id] = SentResult(name, text_of(items[0], "text"))


def _is_kept(read: JsonLine) -> bool:
    return text_of(read.value, "method") in _READ_BACK
