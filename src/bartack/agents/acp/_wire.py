"""What is written to an agent that speaks ACP: requests, answers and notifications, as actions of its conversation."""

from __future__ import annotations

from bartack.agents.conversation._actions import ActionQueue, Send
from bartack.agents.program._json_lines import Json
from bartack.agents.program._json_rpc import JsonRpc, RpcId, RpcMessage


class Wire:
    """One connection after the other; ``renew`` begins the next."""

    def __init__(self, actions: ActionQueue) -> None:
        self._actions = actions
        self._rpc = JsonRpc()

    def renew(self) -> None:
        """A new process: answers of the last one do not count any longer."""
        self._rpc = JsonRpc()

    def read(self, value: Json) -> RpcMessage:
        """What a message of the agent is."""
        return self._rpc.read(value)

    def request(self, method: str, params: Json) -> None:
        """Ask the agent something."""
        self._actions.add(Send(self._rpc.request(method, params)[1]))

    def notify(self, method: str, params: Json) -> None:
        """Report something to it."""
        self._actions.add(Send(self._rpc.notify(method, params)))

    def reply(self, request_id: RpcId, result: Json) -> None:
        """Answer a request of it."""
        self._actions.add(Send(self._rpc.reply(request_id, result)))

    def refuse(self, request_id: RpcId, code: int, problem: str) -> None:
        """Refuse a request of it."""
        self._actions.add(Send(self._rpc.refuse(request_id, code, problem)))
