"""Proof of knowing a token without sending it: what the messages are made of, and the service's side of them.

A connection begins with a challenge. The client sends a nonce. The service answers with a nonce of its own and a proof over both
nonces and over both ends of the connection, so that a proof that was made for another connection is worth nothing: not one that was
recorded, and not one that was fetched from the service by a process in between. Only then does the client send a request, each
with a number that grows and a proof of its own. The client's side is in ``_proven.py``; docs/reference/tracking.md has the format.
"""

from __future__ import annotations

import hmac
import os
import re
from collections import OrderedDict
from typing import Final, NamedTuple

PROOF_PATH: Final = "/api/pattern-traceability/proof"
NONCE_HEADER: Final = "X-Bartack-Nonce"
PROOF_HEADER: Final = "X-Bartack-Proof"
SCHEME: Final = "Bartack"
UNIX_ENDS: Final = "unix"
_FORMAT: Final = "bartack-proof 1"
_NONCE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COUNT: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_FRESH_MOST: Final = 1024
_PROVEN_MOST: Final = 4096


def new_nonce() -> str:
    """A value that was never used before."""
    return os.urandom(32).hex()


def tcp_ends(client: tuple[object, ...], server: tuple[object, ...]) -> str:
    """Both ends of a connection, as the client and the service see them alike."""
    return f"{client[0]} {client[1]} {server[0]} {server[1]}"


class Handshake(NamedTuple):
    """What both sides know after a challenge."""

    token: str
    client_nonce: str
    server_nonce: str
    ends: str

    def server_proof(self) -> str:
        """What only a service with the token can say on this connection."""
        return self._proof("server")

    def request_proof(self, count: int, method: str, target: str) -> str:
        """What only a client with the token can say with its request of this number."""
        return self._proof("request", str(count), method, target)

    def is_from_service(self, proof: str) -> bool:
        """Whether a proof is that of a service with the token."""
        return _NONCE.fullmatch(self.server_nonce) is not None and _equal(proof, self.server_proof())

    def _proof(self, role: str, *words: str) -> str:
        # The role is in it: what one side has said can never be handed back to it as the word of the other.
        text = "\n".join((_FORMAT, role, self.client_nonce, self.server_nonce, self.ends, *words))
        return hmac.new(self.token.encode(), text.encode(), "sha256").hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


class _Session(NamedTuple):
    handshake: Handshake
    last: int


class ProofSessions:
    """The service's side: answers challenges and admits requests. For one thread.

    A challenge costs the client nothing, so those that were not followed by a proof have a table of their own: they cannot
    displace a session of a client that knows the token.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._fresh: OrderedDict[str, _Session] = OrderedDict()
        self._proven: OrderedDict[str, _Session] = OrderedDict()

    def challenge(self, nonce: str, ends: str) -> dict[str, str] | None:
        """The headers that prove the service on this connection; ``None`` if the nonce is not one."""
        if not _NONCE.fullmatch(nonce) or not ends:
            return None
        handshake = Handshake(self._token, nonce, new_nonce(), ends)
        _put(self._fresh, _Session(handshake, 0), _FRESH_MOST)
        return {NONCE_HEADER: handshake.server_nonce, PROOF_HEADER: handshake.server_proof()}

    def admits(self, authorization: str, ends: str, method: str, target: str) -> bool:
        """Whether a request comes from a client with the token, on its own connection and for the first time."""
        scheme, *words = authorization.split(" ")
        if scheme.lower() != SCHEME.lower() or len(words) != 3 or not _COUNT.fullmatch(words[1]):
            return False
        nonce, count, proof = words[0], int(words[1]), words[2]
        session = self._proven.get(nonce) or self._fresh.get(nonce)
        if session is None or session.handshake.ends != ends or count <= session.last:
            return False
        if not _equal(proof, session.handshake.request_proof(count, method, target)):
            return False
        self._fresh.pop(nonce, None)
        _put(self._proven, _Session(session.handshake, count), _PROVEN_MOST)
        return True


def _put(table: OrderedDict[str, _Session], session: _Session, most: int) -> None:
    nonce = session.handshake.server_nonce
    table[nonce] = session
    table.move_to_end(nonce)
    if len(table) > most:
        table.popitem(last=False)
