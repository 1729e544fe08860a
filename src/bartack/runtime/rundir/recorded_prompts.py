"""The prompts of a finished run as a script: what each agent replied, and which tools it called, without the agent.

A rule of such a script matches the beginning of its prompt, as far as the journal has it, and answers once. So the rules of prompts
with the same beginning are used in the order in which these were answered.
"""

from __future__ import annotations

import re
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.depot import KeptRun
from bartack.runtime.protocol.steps import ThinkOutcome
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import Timeline

CANNOT_DETERMINE: Final = "CANNOT_DETERMINE"

Rule = dict[str, object]


def recorded_prompts(run: KeptRun, agent: str = "") -> list[Rule]:
    """Rules that answer the prompts of a run as its agents did, in the order of the journal.

    Args:
        run: The run.
        agent: Only those of this agent; empty: all.
    """
    with run.open_reader() as reader:
        entries = list(reader.read())
        steps = {step.seq: step for step in Timeline.of(entries).steps if step.status == "finished"}
        calls: dict[tuple[str, int], list[tuple[int, Rule]]] = {}
        rules: list[Rule] = []
        for entry in entries:
            data = e.decode_entry(entry.kind, msgspec.json.encode(entry.data))
            if isinstance(data, e.ToolCalled):
                _add_call(calls, data, reader.load_value(entry))
            elif isinstance(data, e.StepFinished) and data.step == "think" and entry.seq in steps:
                outcome = typed.decode(reader.load_value(entry) or b"null", type=ThinkOutcome | None)
                if outcome is not None and outcome.result is None and agent in {"", outcome.agent}:
                    rules.append(_rule(data, outcome, [call for _, call in calls.get((data.p, data.n), [])]))
    return rules


def _add_call(
    calls: dict[tuple[str, int], list[tuple[int, Rule]]], data: e.ToolCalled, arguments: bytes | None
) -> None:
    """Calls from the same place on are superseded: the agent did something else."""
    before = [made for made in calls.get((data.p, data.n), []) if made[0] < data.place]
    given = cast("dict[str, object]", msgspec.json.decode(arguments or b"{}"))
    call: Rule = {"tool": data.tool, **({"arguments": given} if given else {})}
    calls[data.p, data.n] = [*before, (data.place, call)]


def _rule(step: e.StepFinished, outcome: ThinkOutcome, calls: list[Rule]) -> Rule:
    rule: Rule = {"pattern": rf"\A{re.escape(step.about)}"} if step.about else {}
    if outcome.declined:
        rule["text"] = CANNOT_DETERMINE
    elif outcome.value is not None:
        rule["value"] = msgspec.json.decode(outcome.value)
    else:
        rule["text"] = outcome.text
    if calls:
        rule["call"] = calls
    if outcome.usd:
        rule["usd"] = outcome.usd
    if outcome.tokens:
        rule["tokens"] = {"input": outcome.tokens}
    return rule
