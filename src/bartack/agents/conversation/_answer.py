"""The answer to one command: whether it is one, which files it names, and what its reply to a prompt says.

What follows from a bad answer is decided in ``_conversation.py``; the files are verified by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bartack.agents.contract import AgentRequest, Rejection
from bartack.agents.in_words import answer_event
from bartack.agents.protocol.messages import Artifact, Event, Usage
from bartack.agents.replies import check_reply, check_version, read_prompt
from bartack.agents.reply import ReadReply


class Answer:
    """What an agent has answered so far.

    ``event`` is set only by an answer that ``take`` accepted. Files add up over the messages of one attempt.
    """

    def __init__(self, request: AgentRequest) -> None:
        self.event: Event | None = None
        self.reply = ReadReply("")
        self.recovered = False
        """It had come before a hub died."""
        self._request = request
        self._files: dict[str, Artifact] = {}

    def begin_attempt(self) -> None:
        """Files of an earlier attempt do not count."""
        self._files = {}

    def add_files(self, artifacts: Iterable[Artifact]) -> None:
        """The agent names files that it has left; the last word about a path counts."""
        self._files.update((artifact.path, artifact) for artifact in artifacts)

    def take(self, event: Event) -> Rejection | None:
        """Take an event that ends the command; returns why it is refused, if it is.

        Raises:
            ReplyFaultsError: It is the reply to a prompt, and not what was asked for.
        """
        problem = check_reply(event)
        if problem:
            return Rejection("invalid_reply", problem)
        pinning = self._request.pinning
        problem = check_version(event, self._request.version, required=pinning == "require")
        if problem and pinning != "warn":
            return Rejection("version_mismatch", problem)
        self.add_files(event.artifacts or ())
        if self._request.action == "prompt":
            self.reply = read_prompt(event, self._request)
        if self._request.command:
            # The reply has to be an event that ends the command.
            said = msgspec.structs.replace(self._request, action=self._request.command)
            answer_event(said, event.sender.agent_id or "", self.reply.value, Usage(), 0)
        self.event = event
        return None

    def drop(self) -> None:
        """The answer was refused."""
        self.event = None
        self.recovered = False

    @property
    def files(self) -> list[Artifact]:
        """The files that were named."""
        return list(self._files.values())

    @property
    def has_files(self) -> bool:
        """Whether there are files to be verified."""
        return bool(self._files or self._request.expected_outputs)
