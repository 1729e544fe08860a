"""A site in memory, and a browser that has entered it."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from bartack.web import Site, make_app
from bartack.web._peer import JudgePeer
from bartack.web._sessions import COOKIE, Session


def allow_peer(client: object, server: object) -> str:
    """The process of a test, which has no connection."""
    return ""


def make_site(
    *workspaces: Path,
    read_only: bool = False,
    judge_peer: JudgePeer = allow_peer,
    name: str = "bartack.localhost",
    port: int = 8055,
) -> Site:
    """A site without a server."""
    return Site(workspaces, read_only=read_only, judge_peer=judge_peer, name=name, port=port)


def make_client(site: Site) -> TestClient:
    """A browser that has not entered; its requests look like those of a page of the site."""
    client = TestClient(make_app(site), base_url=site.origin, follow_redirects=False)
    client.headers["Origin"] = site.origin
    return client


def enter(site: Site, client: TestClient | None = None) -> tuple[TestClient, Session]:
    """A browser that has entered, and its session. Every request carries its cookie and its token."""
    client = client or make_client(site)
    token = site.sessions.enter(site.sessions.new_code()).token
    session = site.sessions.find(token)
    assert session is not None
    client.headers["Cookie"] = (
        f"{COOKIE}={token}"  # the cookie is for secure connections, and the client has no such
    )
    client.headers["X-CSRF-Token"] = session.csrf
    return client, session
