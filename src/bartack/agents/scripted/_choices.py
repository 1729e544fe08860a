"""Which reply of a script is for which command, and what the agent remembers of that over its own death.

The replies to actions are chosen here (``responses`` of a script); those to prompts in ``scripted.py``.
"""

from __future__ import annotations

import os
from typing import cast

import msgspec

from bartack.agents.protocol.messages import Command, Event
from bartack.agents.scripted._script import ErrorSpec, Inject, Reply
from bartack.agents.scripted.scripted import Script
from bartack.core import typed
from bartack.core.files import replace_file


class Memory(msgspec.Struct):
    """What the agent remembers: in memory, or in a file over its own death."""

    calls: dict[str, int] = {}
    uses: dict[str, int] = {}
    chosen: dict[str, int] = {}
    answers: dict[str, msgspec.Raw] = {}


class Choices:
    """Chooses replies, and remembers which were chosen and what was answered.

    A command that is sent again gets the same reply, and uses nothing up.

    Args:
        script: The replies.
        state: A file for the memory; without one it ends with the agent.
    """

    def __init__(self, script: Script, state: str) -> None:
        self._script = script
        self._state = state
        self._memory = _recall(state)

    def known_answer(self, command: Command) -> Event | None:
        """What was answered to a command that is sent again."""
        answer = self._memory.answers.get(_key(command))
        if not self._script.dedupe or command.retry.cause != "resend" or answer is None:
            return None
        return typed.decode(answer, type=Event)

    def remember_answer(self, command: Command, event: Event) -> None:
        """A command has its answer."""
        self._memory.answers[_key(command)] = msgspec.Raw(msgspec.json.encode(event))
        self._remember()

    def choose(self, command: Command) -> tuple[Reply | ErrorSpec | None, str]:
        """The reply to a command, and its place in the script; ``None``: nothing, for ever."""
        given = self._script.responses.get(command.action)
        if given is None:
            return ErrorSpec("unsupported_action", f"the script has no {command.action}"), command.action
        alone = isinstance(given, Reply)
        replies = [given] if isinstance(given, Reply) else given
        index = self._memory.chosen.get(_key(command)) if command.retry.cause == "resend" else None
        if index is None:
            self._memory.calls[command.action] = self._memory.calls.get(command.action, 0) + 1
            index = self._pick(command, replies, alone=alone)
            if 0 <= index < len(replies):
                place = f"{command.action} {index}"
                self._memory.uses[place] = self._memory.uses.get(place, 0) + 1
                self._memory.chosen[_key(command)] = index
            self._remember()
        if 0 <= index < len(replies):
            return replies[index], f"{command.action} {index}"
        exhausted = ErrorSpec("script_exhausted", f"no reply is left for {command.action}", retryable=False)
        return (None if index == -1 else exhausted), command.action

    def arm(self, reply: Reply, place: str) -> list[Inject]:
        """The faults of a reply that are not used up; this uses them."""
        armed: list[Inject] = []
        for number, inject in enumerate(reply.inject):
            name = f"{place} inject {number}"
            used = self._memory.uses.get(name, 0)
            if not inject.times or used < inject.times:
                self._memory.uses[name] = used + 1
                armed.append(inject)
        if armed:
            self._remember()
        return armed

    def _pick(self, command: Command, replies: list[Reply], *, alone: bool) -> int:
        """Which reply is next; -1: hang, -2: none is left."""
        fitting = [index for index, reply in enumerate(replies) if _holds(reply, command)]
        for index in fitting:
            most = replies[index].times if replies[index].times is not None else (0 if alone else 1)
            if not most or self._memory.uses.get(f"{command.action} {index}", 0) < most:
                return index
        match self._script.defaults.on_exhausted:
            case "hang":
                return -1
            case "error":
                return -2
            case "cycle" if fitting:
                return min(fitting, key=lambda index: self._memory.uses.get(f"{command.action} {index}", 0))
            case _:
                return fitting[-1] if fitting else -2

    def _remember(self) -> None:
        if self._state:
            # It outlives the agent, not the machine.
            replace_file(self._state, msgspec.json.encode(self._memory), synced=False)


def _key(command: Command) -> str:
    return f"{command.run_id} {command.idempotency_key}"


def _holds(reply: Reply, command: Command) -> bool:
    when = reply.when
    if when is None:
        return True
    iteration = command.inputs.get("iteration")
    facts = cast("dict[str, object]", iteration) if isinstance(iteration, dict) else {}
    return (
        when.task in {None, command.task_id}
        and (when.cause is None or when.cause == facts.get("cause"))
        and (when.round is None or when.round == facts.get("round"))
        and when.attempt in {None, command.retry.attempt}
        and all(command.inputs.get(name) == value for name, value in when.input.items())
    )


def _recall(state: str) -> Memory:
    if not state or not os.path.exists(state):
        return Memory()
    with open(state, "rb") as file:
        return typed.decode(file.read() or b"{}", type=Memory)
