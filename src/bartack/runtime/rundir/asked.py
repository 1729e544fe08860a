"""Reads what the open questions of a run ask. ``client/answering.py`` answers them."""

from __future__ import annotations

from bartack.core import typed
from bartack.depot import KeptRun
from bartack.runtime.protocol.asked import AgentAsk, ReadQuestion, read_question
from bartack.runtime.state.timeline import value_of
from bartack.runtime.state.worker_state import AskedQuestion


def load_question(run: KeptRun, question: AskedQuestion) -> ReadQuestion:
    """What a question of a run asks."""
    return read_question(_load(run, question), by_agent=question.by_agent)


def load_agent_ask(run: KeptRun, question: AskedQuestion) -> AgentAsk:
    """What an agent of a run asks."""
    return typed.decode(_load(run, question), type=AgentAsk)


def _load(run: KeptRun, question: AskedQuestion) -> bytes:
    return value_of(question.asked, run.open_blobs().get)
