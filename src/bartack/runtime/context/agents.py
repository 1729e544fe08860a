"""The members of ``ctx`` that ask: agents and people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

import msgspec

from bartack.core import typed
from bartack.errors import ReplyInvalidError, TypeMismatchError
from bartack.runtime.context.part import Members, Seconds, check_options, encode_args, limit_here, seconds_of
from bartack.runtime.context.tool_functions import ToolFunction, tools_by_name
from bartack.runtime.protocol.steps import AskArgs, CommandArgs, OutputArgs, ThinkArgs, ThinkOutcome
from bartack.runtime.protocol.values import Buffer, Codec, codec, encode, schema_of
from bartack.runtime.scheduler.operations import PromptOp, StepOp
from bartack.runtime.scheduler.results import Reply
from bartack.runtime.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from bartack.agents import AgentResult

T = TypeVar("T")

_decode: Final = typed.decoder(ThinkOutcome).decode
_ASKED: Final[dict[object, str]] = {str: "str", bool: "bool", int: "int", float: "float"}


class ThinkOptions(TypedDict, total=False):
    """How an agent is asked.

    Attributes:
        tools: Functions that the agent may call while it works on this. They run in this worker.
        agent: Which agent; else that of the worker, else that of the project.
        system: Instructions that it gets beforehand.
        continues: An earlier reply whose conversation is continued.
        max_usd: What the call may cost.
        max_turns: How often it may use its tools.
        max_tokens: How many tokens of all kinds it may use.
        timeout_s: How long it may take.
        once: It must not be asked twice, whatever happens.
    """

    tools: Sequence[ToolFunction]
    agent: str | None
    system: str
    continues: Reply[object] | None
    max_usd: float | None
    max_turns: int | None
    max_tokens: int | None
    timeout_s: Seconds | None
    once: bool


class OutputFile(TypedDict, total=False):
    """A file that an agent is to leave."""

    path: Required[str]
    required: bool
    description: str


class CommandOptions(TypedDict, total=False):
    """How an agent is commanded.

    Attributes:
        agent: Which agent; else that of the worker, else that of the project.
        role: The role it does it in; else that of the action.
        expected_outputs: The files it is to leave.
        snapshot_id: The snapshot it works on.
        specs_hash: The checksum of the spec file.
        pinning: What is done about an answer that saw other files.
        key: The idempotency key; else that of the step.
        cwd: Where it works, relative to the workspace; else in the workspace itself.
        refused_paths: Below which it must not leave anything.
        rejected: Why an earlier answer to the same key was refused: a code of the line protocol.
        rejected_because: The same in words, for the agent.
        share: How many such commands are given at a time: what is left of a budget is for all of them.
        attempts_before: How many attempts at the same key there were before this step.
        prompt: The same in words, for an agent that knows prompts and no actions: it gets this instead.
        max_usd: What it may cost.
        max_tokens: How many tokens it may use.
        max_turns: How often it may use its tools.
        timeout_s: How long it may take.
        once: It must not be asked twice, whatever happens.
    """

    agent: str
    role: Literal["", "builder", "reviewer", "spec_maintainer", "orchestration", "general"]
    expected_outputs: Sequence[OutputFile]
    snapshot_id: str
    specs_hash: str
    pinning: Literal["strict", "require", "warn"]
    key: str
    cwd: str
    refused_paths: Sequence[str]
    rejected: str
    rejected_because: str
    attempts_before: int
    share: int
    prompt: str
    max_usd: float | None
    max_tokens: int | None
    max_turns: int | None
    timeout_s: Seconds | None
    once: bool


@cache
def _result_reader() -> Callable[[Buffer], AgentResult]:
    """Reads the outcome of a command. It is made before one is sent, so the wait for an answer does not include it."""
    from bartack.agents import AgentResult  # noqa: PLC0415 - few workers command agents

    decode = typed.decoder(AgentResult).decode

    def read(data: Buffer) -> AgentResult:
        outcome = _decode(data)
        assert outcome.result is not None, "a command ends with a result"
        return msgspec.structs.replace(decode(outcome.result), took_s=outcome.took_s)

    return read


class AgentMembers(Members):
    """Agents and people."""

    @overload
    def think(
        self, prompt: str, *, may_decline: Literal[False] = False, **options: Unpack[ThinkOptions]
    ) -> StepOp[str]: ...
    @overload
    def think(
        self, prompt: str, *, may_decline: Literal[True], **options: Unpack[ThinkOptions]
    ) -> StepOp[str | None]: ...
    @overload
    def think(
        self,
        prompt: str,
        *,
        type: type[T],
        may_decline: Literal[False] = False,
        **options: Unpack[ThinkOptions],
    ) -> StepOp[T]: ...
    @overload
    def think(
        self, prompt: str, *, type: type[T], may_decline: Literal[True], **options: Unpack[ThinkOptions]
    ) -> StepOp[T | None]: ...
    def think(
        self,
        prompt: str,
        *,
        type: object = str,  # noqa: A002 - the name that annotations have everywhere
        may_decline: bool = False,
        **options: Unpack[ThinkOptions],
    ) -> StepOp[object]:
        """Ask an agent.

        Args:
            prompt: The text of the prompt.
            type: What it has to reply.
            may_decline: It may decline to answer; that is ``None``.
            options: See ``ThinkOptions``.

        Raises:
            AgentError: The agent could not do it.
            ReplyInvalidError: Its reply is not of this type, also after it was asked to correct it.
            BudgetExceededError: Too little of the budget is left for it.
        """
        kind = _ReplyKind(type)
        return prompt_op(
            self._scheduler,
            prompt,
            kind.schema,
            options,
            lambda data: kind.value(_decode(data)),
            may_decline=may_decline,
        )

    @overload
    def think_reply(
        self, prompt: str, *, may_decline: Literal[False] = False, **options: Unpack[ThinkOptions]
    ) -> StepOp[Reply[str]]: ...
    @overload
    def think_reply(
        self, prompt: str, *, may_decline: Literal[True], **options: Unpack[ThinkOptions]
    ) -> StepOp[Reply[str | None]]: ...
    @overload
    def think_reply(
        self,
        prompt: str,
        *,
        type: type[T],
        may_decline: Literal[False] = False,
        **options: Unpack[ThinkOptions],
    ) -> StepOp[Reply[T]]: ...
    @overload
    def think_reply(
        self, prompt: str, *, type: type[T], may_decline: Literal[True], **options: Unpack[ThinkOptions]
    ) -> StepOp[Reply[T | None]]: ...
    def think_reply(
        self,
        prompt: str,
        *,
        type: object = str,  # noqa: A002 - the name that annotations have everywhere
        may_decline: bool = False,
        **options: Unpack[ThinkOptions],
    ) -> StepOp[Reply[object]]:
        """Ask an agent, and learn what there is to know of the call. The arguments are those of ``think``."""
        kind = _ReplyKind(type)
        return prompt_op(
            self._scheduler,
            prompt,
            kind.schema,
            options,
            lambda data: kind.reply(_decode(data)),
            may_decline=may_decline,
        )

    def command(
        self,
        action: str,
        inputs: Mapping[str, object],
        *,
        task_id: str,
        **options: Unpack[CommandOptions],
    ) -> StepOp[AgentResult]:
        """Have an agent do something that takes more than a prompt: an action of the line protocol.

        Args:
            action: What to do.
            inputs: What it needs for that. Nothing in it may differ when the step is executed again.
            task_id: The task it is done for.
            options: See ``CommandOptions``.

        Raises:
            AgentError: The agent could not do it; its class and ``reason`` have the cause.
            BudgetExceededError: Too little of the budget is left for it.
        """
        check_options(options, CommandOptions)
        outputs = [OutputArgs(**output) for output in options.get("expected_outputs", ())]
        command = CommandArgs(
            action=action,
            task_id=task_id,
            inputs=dict(inputs),
            role=options.get("role", ""),
            expected_outputs=outputs,
            snapshot_id=options.get("snapshot_id", "none"),
            specs_hash=options.get("specs_hash", ""),
            pinning=options.get("pinning", "strict"),
            key=options.get("key", ""),
            cwd=options.get("cwd", ""),
            refused_paths=list(options.get("refused_paths", ())),
            rejected=options.get("rejected", ""),
            rejected_because=options.get("rejected_because", ""),
            attempts_before=options.get("attempts_before", 0),
            share=options.get("share", 0),
            max_tokens=options.get("max_tokens"),
            prompt=options.get("prompt", ""),
        )
        args = ThinkArgs(
            prompt="",
            name=self._scheduler.facts.name,
            agent=options.get("agent", "") or self._scheduler.facts.agent,
            max_usd=options.get("max_usd"),
            max_turns=options.get("max_turns"),
            timeout_s=limit_here(self._scheduler, "prompt", options.get("timeout_s")),
            once=options.get("once", False),
            command=command,
        )
        plain = msgspec.structs.replace(command, rejected_because="", attempts_before=0, share=0)
        written = encode_args(msgspec.structs.replace(args, command=plain))
        return self._step("think", args, _result_reader(), f"{action} {task_id}", written=written)

    @overload
    def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        default: str | None = None,
        timeout_s: Seconds | None = None,
    ) -> StepOp[str]: ...
    @overload
    def ask(
        self,
        question: str,
        *,
        type: type[T],
        options: Sequence[str] | None = None,
        default: T | None = None,
        timeout_s: Seconds | None = None,
    ) -> StepOp[T]: ...
    def ask(
        self,
        question: str,
        *,
        type: object = str,  # noqa: A002 - the name that annotations have everywhere
        options: Sequence[str] | None = None,
        default: object = None,
        timeout_s: Seconds | None = None,
    ) -> StepOp[object]:
        """Ask a person. The question stays open until it is answered, also across restarts.

        Args:
            question: What is asked.
            type: What the answer has to be.
            options: The answers to choose from.
            default: The answer if none comes in time, or none can come.
            timeout_s: How long to wait; 0: as long as it takes. Default: ``questions.timeout_s`` of the settings.

        Raises:
            QuestionTimeoutError: No answer came in time.
            NoAnswerError: No person is there to answer.
        """
        kind: Codec[object] = codec(type)
        asked = _ASKED.get(type, "json")
        schema = _answer_schema(type) if asked == "json" else None
        args = AskArgs(
            question=question,
            type=asked,
            options=_choices(schema) if options is None else list(options),
            schema=schema,
            default=None if default is None else msgspec.Raw(kind.encode(default)),
            timeout_s=None if timeout_s is None else seconds_of(timeout_s),
        )
        return self._step("ask", args, kind.decode, question)


def _answer_schema(annotation: object) -> dict[str, object] | None:
    """What an answer has to fit. Words to choose from are shown in the order in which they are written."""
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    return schema_of(annotation)


def _choices(schema: dict[str, object] | None) -> list[str] | None:
    """The words to choose from, where only certain values are wanted."""
    values = (schema or {}).get("enum")
    if not isinstance(values, list):
        return None
    return [
        value if isinstance(value, str) else encode(value).decode() for value in cast("list[object]", values)
    ]


def prompt_op(
    scheduler: Scheduler,
    prompt: str,
    schema: dict[str, object] | None,
    options: ThinkOptions,
    decode: Callable[[Buffer], T],
    *,
    may_decline: bool = False,
    compared: dict[str, object] | None = None,
) -> StepOp[T]:
    """A prompt whose reply has to fit a JSON schema; without one it is text. ``decode`` gets an encoded ``ThinkOutcome``.

    ``compared`` is the schema as it is held against a recorded prompt, where that differs from what the agent is given.
    """
    check_options(options, ThinkOptions)
    scheduler.check_here("ctx.think")
    tools = tools_by_name(options.get("tools", ()))
    continues = options.get("continues")
    facts = scheduler.facts
    args = ThinkArgs(
        prompt=prompt,
        name=facts.name,
        schema=schema,
        tools=[tool.spec for tool in tools.values()],
        agent=options.get("agent") or "",
        system=options.get("system", ""),
        may_decline=may_decline,
        continues="" if continues is None else continues.conversation,
        max_usd=options.get("max_usd"),
        max_turns=options.get("max_turns"),
        timeout_s=limit_here(scheduler, "prompt", options.get("timeout_s")),
        once=options.get("once", False),
        max_tokens=options.get("max_tokens"),
    )
    written = encode_args(args if compared is None else msgspec.structs.replace(args, schema=compared))
    if not args.agent:
        args = msgspec.structs.replace(args, agent=facts.agent)
    # Unlike what is compared, what is sent keeps the order of the schema: agents write the fields of a reply in it.
    op = StepOp("think", msgspec.json.encode(args), decode, about=prompt[:120], written=written)
    return PromptOp(op, tools) if tools else op


class _ReplyKind:
    """What an agent has to reply."""

    def __init__(self, annotation: object) -> None:
        self.schema = schema_of(annotation)
        self._codec: Codec[object] = codec(annotation)

    def value(self, outcome: ThinkOutcome) -> object:
        """The reply as a value."""
        if outcome.declined:
            return None
        if self.schema is None:
            return outcome.text
        try:
            return self._codec.decode(b"null" if outcome.value is None else outcome.value)
        except TypeMismatchError as error:
            raise ReplyInvalidError(outcome.agent, error.message, outcome.text) from error

    def reply(self, outcome: ThinkOutcome) -> Reply[object]:
        """The reply with everything around it."""
        return Reply(
            self.value(outcome),
            outcome.text,
            outcome.key,
            outcome.agent,
            outcome.conversation,
            outcome.usd,
            outcome.tokens,
            outcome.turns,
            usd_estimated=outcome.usd_estimated,
        )
