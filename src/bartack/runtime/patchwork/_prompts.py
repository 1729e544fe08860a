"""``think`` and ``ask``: prompts to an agent and questions to a person, with the type of what is wanted and with do-blocks.

A do-block is a tool of the prompt. An agent calls it through the scheduler, as a branch of the worker. A person runs it by
answering with its number; the question is then asked again, with what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.errors import BartackError, ReplyInvalidError, SessionFailedError
from bartack.language import schema, types
from bartack.runtime.context.agents import ThinkOptions, prompt_op
from bartack.runtime.context.part import encode_args
from bartack.runtime.patchwork._caller import Caller
from bartack.runtime.patchwork._fiber import Fiber
from bartack.runtime.patchwork._patterns import Written, as_type
from bartack.runtime.patchwork._values import decoded, plain, text
from bartack.runtime.protocol.steps import AskArgs, ThinkOutcome, ToolSpec
from bartack.runtime.protocol.values import Buffer, encode
from bartack.runtime.scheduler.operations import StepOp, Tool

Block = Callable[[], object]
WrittenTool = tuple[str, str, Block]
"""A do-block as the compiler writes it: name, description, function."""

_decode_outcome: Final = typed.decoder(ThinkOutcome).decode
_SIMPLE: Final = {types.BOOL: "bool", types.INT: "int", types.NUMBER: "float"}
_NO_ARGUMENTS: Final[dict[str, object]] = {"type": "object", "properties": {}, "additionalProperties": False}
_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")


class ReplyType(NamedTuple):
    """What is to be replied."""

    type: types.Type
    may_decline: bool

    @property
    def is_text(self) -> bool:
        """Whether any text will do."""
        return types.definition_of(self.type) is types.STRING

    @property
    def schema(self) -> dict[str, object] | None:
        """The JSON schema of a reply; none for text."""
        return None if self.is_text else dict(schema(self.type))

    @property
    def compared(self) -> dict[str, object] | None:
        """The schema as prompts and questions are compared with recorded ones."""
        return None if self.is_text else dict(schema(self.type, nullable=False))


# Agents.


def think(
    rt: Caller, prompt: str, kind: Written, tools: Sequence[WrittenTool], *, may_decline: bool
) -> object:
    """Ask the agent of the declaration; null if it may be unanswered and is.

    Raises:
        ReplyInvalidError: The reply is not of the type, also after it was asked to correct it.
    """
    wanted = ReplyType(as_type(kind), may_decline)
    site = rt.site
    options = ThinkOptions(
        agent=site.agent or None,
        timeout_s=site.timeout_s,
        once=site.once,
        tools=[_tool(tool) for tool in tools],
    )
    operation = prompt_op(
        rt.scheduler,
        prompt,
        wanted.schema,
        options,
        lambda data: _reply(wanted, _decode_outcome(data)),
        may_decline=may_decline,
        compared=wanted.compared,
    )
    if not may_decline:
        return rt.perform(operation)
    try:
        return _answered(rt.perform(operation))
    except ReplyInvalidError:
        return None


def _reply(wanted: ReplyType, outcome: ThinkOutcome) -> object:
    if outcome.declined:
        return None
    if wanted.is_text:
        return outcome.text
    return None if outcome.value is None else decoded(outcome.value)


def _answered(value: object) -> object:
    """An answer, or null for an empty one."""
    return None if isinstance(value, str) and not value.strip() else value


def _tool(written: WrittenTool) -> Tool:
    name, description, block = written

    async def run(_arguments: Buffer) -> bytes:
        return encode(plain(await Fiber(block)), f"the value of {name}")

    return Tool(ToolSpec(name, description, _NO_ARGUMENTS), run)


# People.


def ask(
    rt: Caller, question: str, kind: Written, tools: Sequence[WrittenTool], *, may_decline: bool
) -> object:
    """Ask a person; null if the question may be unanswered and is.

    Raises:
        QuestionTimeoutError: No answer came in time.
        NoAnswerError: No person is there to answer.
    """
    wanted = ReplyType(as_type(kind), may_decline)
    result = ""
    while True:
        answer = rt.perform(_question(rt, _shown(question, tools, result), wanted, tools))
        place = _action(answer, tools)
        if place is None:
            return _answered(answer) if may_decline else answer
        result = _act(tools[place])


def _shown(question: str, tools: Sequence[WrittenTool], result: str) -> str:
    if not tools:
        return question
    actions = [
        f"  do {place}: {description or name}" for place, (name, description, _) in enumerate(tools, 1)
    ]
    results = [result] if result else []
    return "\n".join([question, *results, "Answer, or first run one of these:", *actions])


def _act(tool: WrittenTool) -> str:
    """Run a do-block for a person; what became of it, in a line."""
    name, _, block = tool
    try:
        return f"{name}: {text(plain(block()))}"
    except SessionFailedError:
        raise
    except BartackError as error:
        return f"{name} failed: {error.message}"


def _names_of(place: int) -> tuple[str, ...]:
    return f"do {place}", f"do_{place}"


def _action(answer: object, tools: Sequence[WrittenTool]) -> int | None:
    if not isinstance(answer, str):
        return None
    word = answer.strip().lower()
    return next((place for place in range(len(tools)) if word in _names_of(place + 1)), None)


def _question(rt: Caller, question: str, wanted: ReplyType, tools: Sequence[WrittenTool]) -> StepOp[object]:
    extra: list[object] = [word for place in range(len(tools)) for word in _names_of(place + 1)]
    if wanted.may_decline:
        extra.append("")
    args = _asked(question, wanted, wanted.schema, extra)
    written = encode_args(_asked(question, wanted, wanted.compared, extra))
    timeout_s = rt.site.timeout_s
    if timeout_s is not None:
        args = msgspec.structs.replace(args, timeout_s=timeout_s)
    is_bool = types.definition_of(wanted.type) is types.BOOL

    def decode(data: Buffer) -> object:
        answer = decoded(data)
        return _boolean(answer) if is_bool and isinstance(answer, str) else answer

    return StepOp("ask", encode_args(args), decode, about=question[:120], written=written)


def _asked(question: str, wanted: ReplyType, found: dict[str, object] | None, extra: list[object]) -> AskArgs:
    """What a person is asked: by the plain kinds of questions where that is enough, else by a schema."""
    kind = types.definition_of(wanted.type)
    literals = types.literals_of(kind)
    if wanted.is_text:
        return AskArgs(question=question)
    if literals is not None:
        values = [_plain_number(literal) for literal in literals]
        return AskArgs(
            question=question,
            type="json",
            options=[value if isinstance(value, str) else text(value) for value in values],
            schema={"enum": [*values, *extra]},
        )
    if isinstance(kind, types.Scalar) and kind in _SIMPLE and not extra:
        return AskArgs(question=question, type=_SIMPLE[kind])
    if kind is types.BOOL:
        extra = [*extra, *_YES, *_NO]
    return AskArgs(
        question=question, type="json", schema={"anyOf": [found, {"enum": extra}]} if extra else found
    )


def _plain_number(value: str | float | bool | None) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _boolean(answer: str) -> object:
    word = answer.strip().lower()
    return True if word in _YES else False if word in _NO else answer
