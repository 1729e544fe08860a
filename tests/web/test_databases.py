"""The runs of a database in the browser: where they are in the queue, what they do, and requests to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.postgres import new_database
from tests.waiting import PATIENCE_S, until
from tests.web.servers import WebServer
from tests.web.test_pages_in_browser import no_faults, open_page
from tests.web.visits import enter_by

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    large = await ctx.shell("python3", "-c", "print('x' * 100_000)")
    sure = await ctx.ask("Deploy?", type=bool)
    return f"deployed {len(str(large).strip())}: {sure}"
"""


class Kept:
    """A database with a workspace from which runs are submitted, and a node on demand."""

    def __init__(self, folder: Path) -> None:
        self.url = new_database()
        self._folder = folder
        self.workspace = folder / "submitter"
        self.workspace.mkdir()
        (self.workspace / "asking.py").write_text(PROGRAM, encoding="utf-8")
        self._node: subprocess.Popen[bytes] | None = None

    def submit(self) -> None:
        command = [sys.executable, "-m", "bartack", "run", "--on", self.url, "--detach", "asking.py"]
        subprocess.run(command, cwd=self.workspace, check=True, capture_output=True, timeout=PATIENCE_S)

    def start_node(self) -> None:
        words = ["--name", "alpha", "--state-dir", str(self._folder / "seat"), "--lease", "3"]
        with (self._folder / "node.log").open("ab") as log:
            self._node = subprocess.Popen(
                [sys.executable, "-m", "bartack", "node", "run", "--on", self.url, *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        if self._node is not None:
            self._node.kill()
            self._node.wait(PATIENCE_S)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.close()


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A directory without a workspace."""
    place = tmp_path / "empty"
    place.mkdir()
    return place


def only_row(client: httpx.Client) -> dict[str, Any]:
    rows = client.get("/api/v1/runs").json()["runs"]
    assert len(rows) <= 1
    return rows[0] if rows else {}


def queue_of(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = only_row(client).get("queue") or {}
    return found


def post(client: httpx.Client, address: str, **given: object) -> httpx.Response:
    csrf = client.get("/runs").text.partition('name="csrf" value="')[2].partition('"')[0]
    return client.post(address, json=given, headers={"X-CSRF-Token": csrf})


@pytest.mark.requirement("web-shows-databases")
def test_a_run_of_a_database_is_seen_in_the_queue_and_answered_through_the_database(
    kept: Kept, empty: Path
) -> None:
    kept.submit()
    with WebServer(empty, "--on", kept.url) as server, enter_by(server.link) as (client, _):
        queued = only_row(client)
        assert queued["queue"]["state"] == "queued"
        assert "no node takes runs of pool 'default'" in queued["queue"]["reason"]
        listed = client.get("/runs").text
        assert "no node takes runs of pool" in listed
        run = queued["run"]

        kept.start_node()
        until(lambda: only_row(client).get("questions") == ["q1"], "the question")
        assert queue_of(client)["node"] == "alpha"
        moment = client.get(f"/api/v1/runs/{run}").json()
        assert moment["hub"]["alive"]
        assert moment["run"]["queue"]["node"] == "alpha"
        assert [one["question"] for one in client.get("/api/v1/questions").json()["questions"]] == ["Deploy?"]

        answered = post(client, f"/api/v1/runs/{run}/answer", question="q1", value=True)
        assert answered.status_code == httpx.codes.OK, answered.text
        until(lambda: only_row(client).get("status") == "completed", "the end")
        moment = client.get(f"/api/v1/runs/{run}").json()
        assert moment["result"] == "deployed 100000: True"
        assert moment["run"]["status"] == "completed"
        pages = [
            client.get(page).text for page in (f"/r/{run}", f"/r/{run}/journal", f"/r/{run}/program", "/runs")
        ]
        assert "asking.py" in pages[2]
        assert not any(kept.url in page for page in [listed, *pages]), "the server alone knows how to connect"

        forked = post(client, f"/api/v1/runs/{run}/fork", at=moment["last_seq"]).json()["run"]
        ids = [row["run"] for row in client.get("/api/v1/runs").json()["runs"]]
        assert ids == [forked, run]
        assert client.get(f"/r/{forked}").status_code == httpx.codes.OK
        (last,) = [forked[-4:]]
        assert post(client, f"/api/v1/runs/{forked}/cancel", confirm=last).status_code == httpx.codes.OK
        assert client.get(f"/api/v1/runs/{forked}").json()["run"]["status"] == "cancelled"


@pytest.mark.requirement("web-shows-databases")
def test_a_database_is_added_to_the_server_that_this_user_has(kept: Kept, empty: Path) -> None:
    kept.submit()
    with WebServer(empty) as server, enter_by(server.link) as (client, _):
        assert only_row(client) == {}
        words = [sys.executable, "-m", "bartack", "web", "--on", kept.url, "--no-open", "latest"]
        joined = subprocess.run(
            words,
            cwd=empty,
            env={**os.environ},
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        with enter_by(joined.stdout.strip()) as (_, to):
            run = only_row(client)["run"]
            assert to == f"/r/{run}"
            assert client.get(to).status_code == httpx.codes.OK


@pytest.mark.browser
@pytest.mark.requirement("web-shows-databases")
def test_a_page_of_a_run_of_a_database_is_live(kept: Kept, empty: Path, context: BrowserContext) -> None:
    kept.submit()
    with WebServer(empty, "--on", kept.url) as server:
        page = open_page(context, server.link)
        with no_faults(context, server):
            page.locator("#runs").get_by_text("queued").first.wait_for()
            kept.start_node()
            page.locator("#runs").get_by_text("on alpha").wait_for(timeout=PATIENCE_S * 1000)
            page.locator("#runs a.open").click()
            page.evaluate("window.sameDocument = true")
            page.get_by_role("button", name="Yes").click()
            page.locator("#head").get_by_text("completed").wait_for()
            assert page.evaluate("window.sameDocument")
