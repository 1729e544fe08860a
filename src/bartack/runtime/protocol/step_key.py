"""The idempotency keys of steps."""

from __future__ import annotations

from hashlib import sha256


def step_key(run: str, p: str, n: int, rewinds: int) -> str:
    """The idempotency key of a step: the same on every attempt at it, another one after its worker was set back."""
    return "ik:" + sha256(f"{run}\n{p}\n{n}\n{rewinds}".encode()).hexdigest()
