"""Which step of which script answers a request: without I/O, and without memory of conversations.

The newest text of the user with ``[[script:NAME]]``, or that a rule matches, names the script. The number of replies after it is
the number of the step; the last step repeats. So resumed, forked and parallel conversations get the right step. The director only
counts requests of a step, for steps that fail a number of times and for ids that do not repeat. Connections are in ``_http.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec

from bartack.testing.model._conversation import Conversation, Reply, ToolCall, ToolResult, Turn
from bartack.testing.model._script import Scripts, Step, StepFailure, TokenUsage

MARK: Final = re.compile(r"\[\[script:([A-Za-z0-9_][A-Za-z0-9_.-]*)\]\]")
NOT_A_REPLY: Final = "No response requested."
"""What Claude Code puts into a conversation by itself when it resumes one."""
ASIDE: Final = "[SUGGESTION MODE:"
"""How Claude Code begins when it asks, in the same conversation, for a prompt that it could suggest to the user."""
_CALL_ID: Final = re.compile(r"([0-9a-f]{20})_\d+$")
_RESULT: Final = re.compile(r"\{\{result\.([\w.]+)\}\}")
OUTPUT_TOKENS: Final = 20
"""The output tokens of a reply whose step names none."""


class Place(NamedTuple):
    """Where a conversation is in its script."""

    script: str
    step: int


class Answer(msgspec.Struct, frozen=True):
    """What one request gets."""

    place: Place | None
    step: Step
    reply: Reply
    failure: StepFailure | None = None
    is_cut: bool = False
    problem: str = ""
    """Why the test is wrong; empty if it is not."""


Rules = Sequence[tuple[re.Pattern[str], str]]
"""Patterns of prompts without a mark, each with the script that answers them; the first that is found counts."""


def place_of(conversation: Conversation, rules: Rules = ()) -> Place | None:
    """The place of a conversation in its script; ``None`` without a mark or a rule, and for what an agent asks by itself."""
    if not conversation.tools or _is_aside(conversation.turns):
        return None
    for index in range(len(conversation.turns) - 1, -1, -1):
        turn = conversation.turns[index]
        script = _script_of(turn.text, rules) if turn.role == "user" else ""
        if script:
            return Place(script, count_replies(conversation.turns[index + 1 :]))
    return None


def _script_of(text: str, rules: Rules) -> str:
    marks = MARK.findall(text)
    return marks[-1] if marks else next((name for pattern, name in rules if pattern.search(text)), "")


def _is_aside(turns: Sequence[Turn]) -> bool:
    return bool(turns) and turns[-1].role == "user" and turns[-1].text.lstrip().startswith(ASIDE)


def count_replies(turns: Sequence[Turn]) -> int:
    """How many replies of the model there are. Calls that were made together count once, however the agent sends them back."""
    count, last = 0, ""
    for turn in turns:
        if turn.role != "assistant" or (turn.text.strip() == NOT_A_REPLY and not turn.calls):
            continue
        stems = {stem_of(call) for call in turn.calls}
        if last and stems == {last}:
            continue
        last = stems.pop() if len(stems) == 1 else ""
        count += 1
    return count


def stem_of(call_id: str) -> str:
    """What the ids of the calls of one reply have in common; empty for an id that a director has not made."""
    match = _CALL_ID.search(call_id)
    return match[1] if match else ""


def newest_results(turns: Sequence[Turn]) -> list[ToolResult]:
    """The tool results after the last reply."""
    found: list[ToolResult] = []
    for turn in reversed(turns):
        if turn.role == "assistant":
            break
        found[:0] = turn.results
    return found


class Director:
    """Chooses the answers of one server. Not safe for several threads: the server asks one request at a time.

    Args:
        scripts: The steps of each script, by name.
        cwd: What ``{{cwd}}`` is replaced with; empty for the directory that the agent names.
        rules: Which prompts without a mark are answered, too.
    """

    def __init__(self, scripts: Scripts, cwd: str = "", rules: Rules = ()) -> None:
        self._rules = rules
        self._scripts = scripts
        self._cwd = cwd
        self._asked: Counter[tuple[str, int]] = Counter()

    def decide(self, conversation: Conversation) -> Answer:
        """The answer to a request."""
        place = place_of(conversation, self._rules)
        if place is None:
            count = self._count("", 0)
            aside = Step(text=_aside_text(conversation))
            return Answer(None, Step(), self._reply(conversation, aside, f":{count}"))
        count = self._count(*place)
        steps = self._scripts.get(place.script)
        if steps is None:
            return self._wrong(conversation, place, f"there is no script {place.script!r}", count)
        step = steps[min(place.step, len(steps) - 1)]
        if problem := unmet_expectation(step, conversation):
            return self._wrong(conversation, place, problem, count)
        failure = step.fail
        fails = failure is not None and (failure.times == 0 or count <= failure.times)
        tries = count - (failure.times if failure is not None else 0)
        return Answer(
            place,
            step,
            self._reply(conversation, step, f"{place.script}:{place.step}:{count}"),
            failure=failure if fails else None,
            is_cut=step.cut_after is not None and (step.cut_times == 0 or tries <= step.cut_times),
        )

    def _count(self, script: str, step: int) -> int:
        self._asked[script, step] += 1
        return self._asked[script, step]

    def _wrong(self, conversation: Conversation, place: Place, problem: str, count: int) -> Answer:
        text = f"script {place.script!r}, step {place.step}: {problem}"
        reply = self._reply(conversation, Step(), f"{place.script}:{place.step}:{count}")
        return Answer(place, Step(), reply, StepFailure(400, message=text), problem=text)

    def _reply(self, conversation: Conversation, step: Step, seed: str) -> Reply:
        fill = _Fill(self._cwd or conversation.cwd, conversation.turns)
        stem = hashlib.sha256(seed.encode()).hexdigest()[:20]
        tools = [
            ToolCall(
                f"{stem}_{number}",
                tool.name,
                fill.members(tool.input),
                conversation.tools.get(tool.name, ""),
            )
            for number, tool in enumerate(step.tools)
        ]
        given = step.usage
        usage = TokenUsage(
            conversation.size_bytes // 4 if given.input_tokens is None else given.input_tokens,
            OUTPUT_TOKENS if given.output_tokens is None else given.output_tokens,
            given.cache_creation_input_tokens,
            given.cache_read_input_tokens,
        )
        stop_reason = step.stop_reason or ("tool_use" if tools else "end_turn")
        return Reply(stem, conversation.model, fill.text(step.text), tuple(tools), stop_reason, usage)


def _aside_text(conversation: Conversation) -> str:
    """The reply to what an agent asks by itself, in the form that it wants, such as that of a title."""
    values = dict.fromkeys(conversation.members, "ok")
    return msgspec.json.encode(values).decode() if values else "ok"


def unmet_expectation(step: Step, conversation: Conversation) -> str:
    """What a step expects of its request and does not find; empty if all is there."""
    expected = step.expect
    if expected is None:
        return ""
    missing = [name for name in expected.tools if name not in conversation.tools]
    if missing:
        return f"expected the tools {missing}, offered are {sorted(conversation.tools)}"
    texts = [result.text for result in newest_results(conversation.turns)]
    if expected.tool_result and not any(re.search(expected.tool_result, text) for text in texts):
        return f"expected a tool result with {expected.tool_result!r}, got {[text[:500] for text in texts]}"
    return ""


class _Fill:
    """Fills in what the strings of a step leave open: the directory, and members of tool results."""

    def __init__(self, cwd: str, turns: Sequence[Turn]) -> None:
        self._cwd = cwd
        self._turns = turns

    def members(self, value: dict[str, object]) -> dict[str, object]:
        return {key: self._value(item) for key, item in value.items()}

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self.members(cast("dict[str, object]", value))
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        return value

    def text(self, value: str) -> str:
        return _RESULT.sub(lambda match: self._member(match[1]), value.replace("{{cwd}}", self._cwd))

    def _member(self, path: str) -> str:
        """A member of the newest tool result that has it; empty if none has."""
        for turn in reversed(self._turns):
            for result in reversed(turn.results):
                found = _find_member(result.text, path.split("."))
                if found is not None:
                    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
        return ""


def _find_member(text: str, path: list[str]) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    for key in path:
        if isinstance(value, dict):
            value = cast("dict[str, object]", value).get(key)
        elif isinstance(value, list) and key.isdecimal():
            items = cast("list[object]", value)
            value = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return value
