"""The reply to a command in words has to be an event that ends the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agents.stage import request_for

from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._answer import Answer
from bartack.agents.in_words import reply_schema
from bartack.agents.program._answers import completed
from bartack.agents.protocol.messages import Usage
from bartack.agents.reply import ReplyFaultsError


def review(root: Path) -> AgentRequest:
    inputs = {"text": "Review it.", "result_schema": reply_schema("review")}
    return request_for("prompt", root, command="review", inputs=inputs)


def test_a_reply_that_is_such_an_event_is_taken(tmp_path: Path) -> None:
    answer = Answer(request := review(tmp_path))
    findings: list[str] = []
    value = {"event": "review.completed", "status": "approved", "payload": {"findings": findings}}

    assert answer.take(completed(request, "stub", "", value, Usage(), 0)) is None
    assert answer.reply.value == value


def test_a_reply_that_lacks_something_is_to_be_fixed(tmp_path: Path) -> None:
    answer = Answer(request := review(tmp_path))
    value = {"event": "review.completed", "status": "approved", "payload": {"findings": "none"}}

    with pytest.raises(ReplyFaultsError, match="findings"):
        answer.take(completed(request, "stub", "", value, Usage(), 0))
    assert answer.event is None
