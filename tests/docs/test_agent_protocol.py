"""The page of the line protocol says what the code sends and takes: members, and examples that validate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from bartack.agents import command_key
from bartack.agents.protocol._payloads import INPUTS, PAYLOADS, Iteration
from bartack.agents.protocol.messages import Command, Event, Finding
from bartack.agents.replies import check_reply
from bartack.agents.schema import schema

PAGE = (Path(__file__).parents[2] / "docs/reference/agent-protocol.md").read_text(encoding="utf-8")
SAID = PAGE.split("## Inputs and payloads")[1].split("\n## ")[0]
SECTIONS: dict[str, str] = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", SAID, re.MULTILINE | re.DOTALL))
EXAMPLES: list[dict[str, Any]] = [json.loads(line) for line in re.findall(r"^\{.*\}$", SAID, re.MULTILINE)]
INHERITED = {"as `implement`, and": "implement", "as `review`, and": "review"}
pytestmark = pytest.mark.requirement("agent-messages-are-documented")


def section_of(action: str) -> str:
    return next(text for head, text in SECTIONS.items() if f"`{action}`" in head)


def members_in(section: str, head: str) -> set[str]:
    """The members in the first column of the table with that head."""
    table = section.split(f"| {head} |")[1].split("\n\n", maxsplit=1)[0]
    first = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    found = {name for cell in first if cell not in INHERITED for name in re.findall(r"`([a-z_]+)`", cell)}
    for cell in first:
        if cell in INHERITED:
            found |= members_in(section_of(INHERITED[cell]), head)
    return found


def payload_of(event: str) -> set[str]:
    """The members of a payload as the page lists them."""
    for section in SECTIONS.values():
        if f"| `payload` of `{event}` |" in section:
            return members_in(section, f"`payload` of `{event}`")
        for row in section.splitlines():
            cells = row.split("|")
            if len(cells) > 3 and f"`{event}`" in cells[1]:
                return set(re.findall(r"`([a-z_]+)`", cells[2]))
    raise AssertionError(f"{event} is not on the page")


@pytest.mark.parametrize("action", INPUTS)
def test_the_inputs_of_an_action_are_on_the_page(action: str) -> None:
    real = set(INPUTS[action].__struct_fields__)

    # One table serves both actions of the orchestration.
    shown = members_in(section_of(action), "`inputs`") - (
        {"request_more_candidates"} if action == "intake" else set()
    )
    assert shown == real


@pytest.mark.parametrize("event", PAYLOADS)
def test_the_payload_of_an_event_is_on_the_page(event: str) -> None:
    assert payload_of(event) == set(PAYLOADS[event].__struct_fields__)


def test_rounds_and_findings_are_on_the_page() -> None:
    assert members_in(SECTIONS["Iteration"], "member of `inputs.iteration`") == set(
        Iteration.__struct_fields__
    )
    assert members_in(SECTIONS["Findings"], "member of a finding") == set(Finding.__struct_fields__)


def test_every_action_has_an_example_each_way_that_validates() -> None:
    checks = {name: jsonschema_rs.validator_for(schema(name, closed=True)) for name in ("command", "event")}

    assert [one["action"] for one in EXAMPLES if one["kind"] == "command"] == list(INPUTS)
    assert len(EXAMPLES) == 2 * len(INPUTS)
    for one in EXAMPLES:
        assert [str(error) for error in checks[one["kind"]].iter_errors(one)] == []


def test_the_examples_are_what_bartack_would_send_and_take() -> None:
    for sent, answer in zip(EXAMPLES[::2], EXAMPLES[1::2], strict=True):
        snapshot = sent["version"]["snapshot_id"]
        key = command_key(sent["action"], sent["task_id"], snapshot, sent["inputs"])

        assert list(sent) == [name for name in ("kind", *Command.__struct_encode_fields__) if name in sent]
        assert sent["idempotency_key"] == answer["idempotency_key"] == key
        assert check_reply(msgspec.convert(answer, type=Event)) == ""


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("orchestration.proposed_tasks", {"plan_candidates": []}),
        ("orchestration.proposed_tasks", None),
        ("orchestration.needs_clarification", {"questions": [" "]}),
        ("review.completed", {"findings": [{"path": "a"}]}),
        ("prompt.completed", {"text": 1}),
    ],
)
def test_the_schema_of_events_refuses_what_bartack_refuses(event: str, payload: object) -> None:
    line = {**EXAMPLES[1], "event": event, "status": "approved", "payload": payload}

    assert not jsonschema_rs.is_valid(schema("event"), line)


def test_the_schema_of_commands_says_what_each_action_gets() -> None:
    line = {**EXAMPLES[0], "inputs": {"goal": "x"}}

    assert not jsonschema_rs.is_valid(schema("command"), line)
    assert jsonschema_rs.is_valid(schema("command"), {**line, "action": "an_action_of_tomorrow"})
