"""JSON-RPC 2.0 between two equal sides, without input and output: what to write, and what a message that came is.

Each side sends requests, which the other one answers, and notifications. ``JsonRpc`` numbers the requests of ours and recognises
their answers. What a method means is decided in the dialect of its kind; the lines are read by ``_json_lines.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

import msgspec

from bartack.agents.program._json_lines import Json

NO_SUCH_METHOD: Final = -32601
WRONG_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

RpcId = int | str
"""What names a request."""


class RpcReply(NamedTuple):
    """The answer to a request of ours.

    Attributes:
        id: The request.
        method: What was asked.
        result: What was answered; empty if that is not an object.
    """

    id: int
    method: str
    result: Json


class RpcFailure(NamedTuple):
    """A request of ours was refused.

    Attributes:
        id: The request.
        method: What was asked.
        code: Why, as a number.
        message: The same in words.
        data: What else the other side says about it.
    """

    id: int
    method: str
    code: int
    message: str
    data: object = None


class RpcRequest(NamedTuple):
    """The other side asks, and waits for ``JsonRpc.reply`` or ``JsonRpc.refuse``."""

    id: RpcId
    method: str
    params: Json


class RpcNotification(NamedTuple):
    """The other side reports something."""

    method: str
    params: Json


class RpcFlaw(NamedTuple):
    """Not a message, or the answer to a request that does not wait for one."""

    case: str
    detail: str


RpcMessage = RpcReply | RpcFailure | RpcRequest | RpcNotification | RpcFlaw


class JsonRpc:
    """One connection. All its ``bytes`` are lines to be written, with their newline.

    Args:
        first: The number of the first request.
    """

    def __init__(self, first: int = 1) -> None:
        self._next = first
        self._waiting: dict[int, str] = {}

    # To the other side.

    def request(self, method: str, params: object = None) -> tuple[int, bytes]:
        """Ask something; returns the number of the request, and its line. Structs are written as objects."""
        number = self._next
        self._next += 1
        self._waiting[number] = method
        return number, _line({"id": number, "method": method, "params": {} if params is None else params})

    def notify(self, method: str, params: object = None) -> bytes:
        """Report something."""
        return _line({"method": method} if params is None else {"method": method, "params": params})

    def reply(self, request_id: RpcId, result: object) -> bytes:
        """Answer a request of the other side."""
        return _line({"id": request_id, "result": result})

    def refuse(self, request_id: RpcId, code: int, message: str) -> bytes:
        """Refuse a request of the other side."""
        return _line({"id": request_id, "error": {"code": code, "message": message}})

    @property
    def waiting(self) -> frozenset[int]:
        """Requests of ours that have no answer yet."""
        return frozenset(self._waiting)

    def forget(self) -> None:
        """No answer is expected any longer: the connection is over."""
        self._waiting.clear()

    # From the other side.

    def read(self, value: Json) -> RpcMessage:
        """What a message is. An answer is recognised once."""
        method, request_id = value.get("method"), value.get("id")
        if isinstance(method, str):
            params = value.get("params")
            given = cast("Json", params) if isinstance(params, dict) else {}
            if request_id is None:
                return RpcNotification(method, given)
            if _is_id(request_id):
                return RpcRequest(cast("RpcId", request_id), method, given)
            return RpcFlaw("wrong_id", f"the id of {method[:64]} is neither a number nor a text")
        if "result" not in value and "error" not in value:
            return RpcFlaw("not_a_message", "it has neither a method nor a result")
        return self._answer(request_id, value)

    def _answer(self, request_id: object, value: Json) -> RpcMessage:
        known = isinstance(request_id, int) and not isinstance(request_id, bool)
        asked = self._waiting.pop(cast("int", request_id), None) if known else None
        if asked is None:
            return RpcFlaw("unexpected_reply", f"no request {str(request_id)[:64]} waits for an answer")
        number, error = cast("int", request_id), value.get("error")
        if error is None:
            result = value.get("result")
            return RpcReply(number, asked, cast("Json", result) if isinstance(result, dict) else {})
        said = cast("Json", error) if isinstance(error, dict) else {"message": str(error)}
        code, message = said.get("code"), said.get("message")
        return RpcFailure(
            number,
            asked,
            code if isinstance(code, int) else INTERNAL_ERROR,
            message if isinstance(message, str) else "",
            said.get("data"),
        )


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _line(message: Json) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
