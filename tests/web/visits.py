"""A browser without a screen: it enters a real server by a link, and asks for pages."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import httpx
from tests.waiting import PATIENCE_S

from bartack.web._sessions import COOKIE


@contextmanager
def enter_by(link: str) -> Generator[tuple[httpx.Client, str]]:
    """A client with the session that a link gives, and the address of the page that it leads to."""
    origin, _, code = link.partition("/enter#")
    host = origin.removeprefix("http://")
    port = host.rpartition(":")[2]
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Host": host, "Origin": origin},
        timeout=PATIENCE_S,
        trust_env=False,
    )
    with client:
        entered = client.post("/enter", json={"code": code})
        assert entered.status_code == httpx.codes.OK, entered.text
        token = entered.headers["set-cookie"].partition("=")[2].partition(";")[0]
        client.headers["Cookie"] = (
            f"{COOKIE}={token}"  # it is for secure connections, as browsers see this one
        )
        yield client, entered.json()["to"]
