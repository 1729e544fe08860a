"""A step as the request to its agent, and the result of an agent as the outcome of the step."""

from __future__ import annotations

import os

import msgspec

from bartack.agents import AgentRequest, AgentResult, Usage
from bartack.agents.in_words import answer_event, reply_schema
from bartack.agents.protocol.ids import parse_moment
from bartack.agents.protocol.messages import ROLES, Budget, ExpectedOutput, ToolSpec, Version
from bartack.agents.reply import DECLINE_REQUEST
from bartack.agents.schema_flaws import find_schema_flaw
from bartack.errors import AgentRequestError
from bartack.runtime.kernel.actions import StartPrompt
from bartack.runtime.protocol.steps import CommandArgs, ThinkArgs, ThinkOutcome, UsageFacts


def check_schemas(agent: str, args: ThinkArgs) -> None:
    """Check the schemas of the reply and of the tools: nothing is started for one that no value can be checked with.

    Raises:
        AgentRequestError: One of them is not a JSON Schema.
    """
    schemas = {f"the schema of the tool {tool.name}": tool.schema for tool in args.tools}
    if args.schema is not None:
        schemas = {"the schema of its reply": args.schema, **schemas}
    for what, schema in schemas.items():
        flaw = find_schema_flaw(schema)
        if flaw:
            raise AgentRequestError(agent, f"{what} is invalid at {flaw}", "bad_request")


def make_request(action: StartPrompt, run_id: str, workspace: str) -> AgentRequest:
    """What an agent is asked for a step."""
    args, command = action.args, action.args.command
    # Where there is a budget, what is reserved is all that the call may cost, whatever it asked for.
    budget = Budget(usd=action.reserved_usd or args.max_usd, tokens=args.max_tokens, turns=args.max_turns)
    if command is None:
        return AgentRequest(
            run_id=run_id,
            key=action.key,
            worker=action.p or action.path,
            step=action.n,
            epoch=action.epoch,
            inputs=_prompt_inputs(action),
            tools=[ToolSpec(tool.name, tool.description, tool.schema) for tool in args.tools],
            cwd=workspace,
            name=args.name,
            budget=budget,
            timeout_s=action.timeout_s,
            limits_count=args.has_own_deadline,
            attempt=action.attempt,
            may_decline=args.may_decline,
            system=args.system,
            continues=args.continues,
            trace=action.trace,
            rejected=action.rejected[0],
            rejected_because=action.rejected[1],
        )
    return AgentRequest(
        run_id=run_id,
        key=command.key or action.key,
        worker=action.p or action.path,
        step=action.n,
        epoch=action.epoch,
        action=command.action,
        role=command.role or ROLES.get(command.action, "general"),
        task_id=command.task_id,
        inputs=command.inputs,
        expected_outputs=_outputs(command),
        version=Version(command.snapshot_id, command.specs_hash or None),
        pinning=command.pinning,
        cwd=os.path.normpath(os.path.join(workspace, command.cwd)) if command.cwd else workspace,
        name=args.name,
        budget=_command_budget(action, command, budget),
        timeout_s=action.timeout_s,
        limits_count=args.has_own_deadline,
        attempt=action.attempt,
        refused_paths=command.refused_paths,
        rejected=command.rejected or action.rejected[0],
        rejected_because=command.rejected_because or action.rejected[1],
        attempts_before=command.attempts_before,
        trace=action.trace,
    )


def in_words(action: StartPrompt, request: AgentRequest, *, may_ask: bool) -> AgentRequest:
    """The same for an agent that takes prompts only: a command becomes the text that describes it, and a schema of its answer."""
    command = action.args.command
    if command is None:
        return msgspec.structs.replace(request, may_ask=may_ask)
    text = f"{command.prompt}\n\n{refusal(command)}" if command.rejected_because else command.prompt
    inputs: dict[str, object] = {"text": text, "result_schema": reply_schema(command.action)}
    return msgspec.structs.replace(
        request, action="prompt", command=command.action, inputs=inputs, pinning="warn", may_ask=may_ask
    )


def refusal(command: CommandArgs) -> str:
    """The text about a refused answer, for an agent that only takes prompts."""
    number = f" (attempt {command.attempts_before})" if command.attempts_before else ""
    return f"Your last answer{number} was refused ({command.rejected}): {command.rejected_because}"


def as_answer(request: AgentRequest, agent: str, result: AgentResult) -> AgentResult:
    """The result of a command that was given in words: its reply as the event that ends the command."""
    now_us = parse_moment(result.event.occurred_at) or 0
    event = answer_event(request, agent, result.value, result.usage, now_us)
    notes = [*result.notes, *(str(denied) for denied in result.denials)]
    return msgspec.structs.replace(result, event=event, text="", value=None, notes=notes)


def _command_budget(action: StartPrompt, command: CommandArgs, budget: Budget) -> Budget:
    """What a command may use: what was reserved for it, where the hub knows how many are given at a time."""
    reserved = action.reserved
    if not command.share:
        return msgspec.structs.replace(budget, tokens=command.max_tokens)
    return Budget(
        usd=budget.usd,
        tokens=reserved.tokens or command.max_tokens,
        turns=reserved.turns or budget.turns,
        wall_s=reserved.wall_s or None,
    )


def _outputs(command: CommandArgs) -> list[ExpectedOutput]:
    return [
        ExpectedOutput(output.path, output.required, output.description or None)
        for output in command.expected_outputs
    ]


def _prompt_inputs(action: StartPrompt) -> dict[str, object]:
    args = action.args
    text = f"{args.prompt}\n\n{DECLINE_REQUEST}" if args.may_decline else args.prompt
    context: dict[str, object] = {"name": args.name}
    if args.system:
        context["system"] = args.system
    inputs: dict[str, object] = {
        "text": text,
        "iteration": {"epoch": action.epoch, "step": action.n},
        "context": context,
    }
    if args.schema is not None:
        inputs["result_schema"] = args.schema
    return inputs


def make_outcome(action: StartPrompt, name: str, result: AgentResult) -> ThinkOutcome:
    """The outcome of a step whose agent has answered."""
    args = action.args
    wanted = args.schema is not None and args.command is None and not result.declined
    return ThinkOutcome(
        key=action.key,
        agent=name,
        text=result.text if args.command is None else "",
        value=msgspec.Raw(_json(result.value)) if wanted else None,
        declined=result.declined,
        conversation=result.conversation,
        usd=result.usage.cost_usd or 0.0,
        tokens=result.usage.tokens,
        turns=result.usage.turns or 1,
        result=None if args.command is None else msgspec.Raw(_json(result)),
        usage=usage_facts(result.usage),
        usd_estimated=result.usd_estimated,
    )


def usage_facts(usage: Usage) -> UsageFacts | None:
    """What an agent reports that it used, as the journal has it; ``None`` if it reports nothing."""
    return None if usage == Usage() else UsageFacts(*msgspec.structs.astuple(usage))


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
