"""What a person can do to runs through the server: the same as on the command line, as JSON and as forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.programs import LOST
from tests.web.sites import enter, make_site

from bartack import Run
from bartack.runtime.client.answering import user_name
from bartack.web import Site
from bartack.web._actions import is_own_page

UNKNOWN = """
import json, os, signal
from pathlib import Path
from bartack import Context, step, worker

@step(once=True)
def charge() -> int:
    hub = json.loads((Path(os.environ["BARTACK_RUN_DIR"]) / "run.json").read_text())["pid"]
    os.kill(hub, signal.SIGKILL)
    signal.pause()
    return 0

@worker
async def main(ctx: Context) -> int:
    return await charge()
"""


class Person:
    """A browser that has entered a server for a workspace."""

    def __init__(self, site: Site) -> None:
        self.client, self.session = enter(site)

    def ask(self, run: Run | str, action: str, /, **body: object) -> tuple[int, Any]:
        """Act as a script does: the status, and the answer or the code of the refusal."""
        found = self.client.post(
            f"/api/v1/runs/{run if isinstance(run, str) else run.id}/{action}", json=body
        )
        answer = found.json()
        return found.status_code, answer["error"]["code"] if "error" in answer else answer

    def submit(self, run: Run, action: str, /, **fields: object) -> tuple[int, str]:
        """Act as a form does: the status, and where it leads, or what it says."""
        data = {"csrf": self.session.csrf, **fields}
        request = self.client.build_request("POST", f"/r/{run.id}/{action}", data=data)
        del request.headers["X-CSRF-Token"]
        found = self.client.send(request, follow_redirects=False)
        return found.status_code, found.headers.get("location", found.text)


@pytest.fixture
def person(workspace: Path) -> Iterator[Person]:
    one = Person(make_site(workspace))
    with one.client:
        yield one


def entries(run: Run, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in run.events() if entry["kind"] == kind]


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_an_answer_counts_once_and_names_the_person(person: Person, asking: Run) -> None:
    assert person.ask(asking, "answer", question="q2", value=True) == (404, "BT325")
    assert person.ask(asking, "answer", question="q1", value="perhaps") == (422, "BT402")
    assert person.ask(asking, "answer", question="q1", value=True)[0] == 200
    assert asking.wait(60).status == "completed"
    assert person.ask(asking, "answer", question="q1", value=False)[0] == 409

    assert asking.result() == "deployed: True"
    (answered,) = [one for one in entries(asking, "step.finished") if one["step"] == "ask"]
    assert answered["by"] == f"{user_name()} (web)"


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_an_answer_to_a_run_that_is_not_active_is_checked_kept_and_taken_by_its_resume(
    person: Person, asking: Run
) -> None:
    assert person.ask(asking, "interrupt") == (200, {"run": asking.id})
    asking.wait(60)
    assert person.ask(asking, "interrupt") == (409, "BT304")
    assert person.ask(asking, "answer", question="q1", value="perhaps") == (422, "BT402")
    assert person.ask(asking, "answer", question="q1", value="yes")[1]["kept"] is True
    assert person.ask(asking, "answer", question="q1", value="no") == (409, "BT324")
    assert person.ask(asking, "resume") == (200, {"run": asking.id})

    assert asking.wait(60).status == "completed"
    assert asking.result() == "deployed: True"
    (answered,) = [one for one in entries(asking, "step.finished") if one["step"] == "ask"]
    assert answered["by"] == f"{user_name()} (web)"


@pytest.mark.requirement("web-actions-show-their-effect")
@pytest.mark.parametrize("is_active", [True, False], ids=["active", "interrupted"])
def test_an_answer_that_comes_late_says_who_was_first_and_with_what(
    person: Person, asking: Run, monkeypatch: pytest.MonkeyPatch, *, is_active: bool
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    if not is_active:
        asking.interrupt()
        asking.wait(60)
    assert person.ask(asking, "answer", question="q1", value=True)[0] == 200
    if is_active:
        asking.wait(60)
    late = person.client.post(f"/api/v1/runs/{asking.id}/answer", json={"question": "q1", "value": False})
    status, page = person.submit(asking, "answer", question="q1", value="no", type="bool")

    assert (late.status_code, late.json()["error"]["code"]) == (409, "BT324")
    assert late.json()["error"]["message"] == "question q1 was already answered by ann (web): true"
    assert status == 409
    assert "Question q1 was already answered by ann (web): true" in page


@pytest.mark.requirement("web-actions-show-their-effect")
def test_a_form_that_a_script_sends_says_whether_an_answer_is_kept(person: Person, asking: Run) -> None:
    fields = {"csrf": person.session.csrf, "question": "q1", "value": "yes", "type": "bool"}
    asking.interrupt()
    asking.wait(60)
    answer = person.client.post(
        f"/r/{asking.id}/answer", data=fields, headers={"Accept": "application/json"}
    ).json()

    assert answer == {"run": asking.id, "question": "q1", "kept": True}
    (question,) = person.client.get(f"/api/v1/runs/{asking.id}").json()["questions"]
    assert question["kept"] is True


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_a_form_acts_and_leads_back(person: Person, asking: Run) -> None:
    back = f"/r/{asking.id}?at=3"
    answered = person.submit(asking, "answer", question="q1", value="yes", type="bool", back=back)

    assert answered == (303, back)
    assert asking.wait(60).status == "completed"
    status, page = person.submit(asking, "answer", question="q1", value="yes", type="bool")
    assert (status, "was answered" in page or "BT3" in page) == (409, True)


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_failing_and_cancelling_are_confirmed_with_the_end_of_the_id(person: Person, asking: Run) -> None:
    last = asking.id[-4:]
    assert person.submit(asking, "fail", reason="stop")[0] == 422
    assert person.submit(asking, "fail", reason="stop", confirm="xxxx")[0] == 422
    assert person.submit(asking, "fail", reason="stop", confirm=last) == (303, f"/r/{asking.id}")
    assert asking.wait(60).status == "failed"
    assert person.ask(asking, "resume")[0] == 200
    asking.wait(60, until="waiting")
    assert person.ask(asking, "fail", reason="again")[0] == 200
    assert asking.wait(60).error == "again"
    assert person.ask(asking, "cancel") == (422, "BT1022")
    assert person.ask(asking, "cancel", confirm="xxxx") == (422, "BT1022")
    assert asking.state().status == "failed"

    assert person.ask(asking, "cancel", confirm=last, reason="enough")[0] == 200
    assert asking.state().status == "cancelled"
    assert person.ask(asking, "cancel", confirm=last) == (409, "BT304")
    assert person.ask(asking, "resume") == (409, "BT331")


@pytest.mark.requirement("web-forks-at-an-entry")
def test_a_run_is_forked_at_the_last_outcome_at_or_before_an_entry(person: Person, asking: Run) -> None:
    person.ask(asking, "answer", question="q1", value=True)
    asking.wait(60)
    places = [entry["seq"] for entry in entries(asking, "step.finished")]
    assert len(places) == 2

    assert person.ask(asking, "fork", at=places[0] - 1) == (404, "BT334")
    assert person.ask(asking, "fork", at=0)[0] == 422
    status, answer = person.ask(asking, "fork", at=places[1] - 1)
    assert status == 200
    fork = Run.open(answer["run"], asking.dir.parents[2])
    assert [entry["seq"] for entry in entries(fork, "step.finished")] == places[:1]
    assert person.ask(fork, "resume", update=True)[0] == 200
    assert fork.wait(60, until="waiting").status == "waiting"
    status, page = person.submit(asking, "fork", at=str(places[1] + 100))
    assert (status, page.startswith("/r/run-")) == (303, True)
    assert len(entries(Run.open(page.removeprefix("/r/"), asking.dir.parents[2]), "step.finished")) == 2


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_dead_letters_are_retried_and_purged(person: Person, workspace: Path) -> None:
    (workspace / "lost.py").write_text(LOST, encoding="utf-8")
    run = Run.start(workspace / "lost.py", workspace=workspace)
    run.wait(60, until="waiting")
    first, second, third = (letter.id for letter in run.dead_letters.list_messages().letters)

    assert person.ask(run, "letters/purge", letters=[first])[1]["purged"] == 1
    assert person.ask(run, "letters/purge", letters=[first]) == (404, "BT413")
    assert person.ask(run, "letters/retry", letters=[]) == (422, "BT1022")
    assert len(person.ask(run, "letters/retry", letters=[second])[1]["retried"]) == 1
    status, page = person.submit(run, "letters/purge")
    assert (status, "choose at least one dead letter first" in page) == (422, True)
    assert person.submit(run, "letters/purge", letters=[second, third])[0] == 303
    assert run.dead_letters.list_messages().letters == []


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_a_step_of_unknown_outcome_is_decided(person: Person, workspace: Path) -> None:
    (workspace / "unknown.py").write_text(UNKNOWN, encoding="utf-8")
    run = Run.start(workspace / "unknown.py", workspace=workspace)
    run.wait(60)

    person.ask(run, "resume")
    run.wait(60)
    assert person.ask(run, "resume", unknown="perhaps") == (422, "BT1022")
    assert person.submit(run, "resume", unknown="done", value="7")[0] == 303
    assert run.wait(60).status == "completed"
    assert run.result() == 7


def test_settings_of_a_resumed_run_are_checked(person: Person, asking: Run) -> None:
    person.ask(asking, "interrupt")
    asking.wait(60)

    assert person.ask(asking, "resume", set=["durability=process"]) == (422, "BT101")
    assert person.ask(asking, "resume", set=["workers.max=7"])[0] == 200
    assert json.loads((asking.dir / "sets.json").read_text()) == ["workers.max=7"]


@pytest.mark.parametrize("asked", ["run-20260101-000000-00000000", "latest", "..", "%2e%2e", "a%2Fb", "%2e"])
def test_a_run_that_is_not_there_is_not_found(person: Person, asked: str) -> None:
    found = person.client.post(f"/api/v1/runs/{asked}/interrupt", json={})

    assert found.status_code == 404


def test_a_run_is_named_by_its_id_and_never_by_a_path(person: Person, asking: Run) -> None:
    assert person.ask(asking.id[:-2], "answer", question="q9", value=1) == (404, "BT325")
    path = str(asking.dir).replace("/", "%2F")
    assert person.client.post(f"/api/v1/runs/{path}/interrupt", json={}).status_code == 404
    assert asking.state().status == "waiting"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 422),
        (b"[]", 422),
        (b'{"at": "x"}', 422),
        (b'{"to": 1}', 422),
    ],
)
def test_a_body_that_does_not_fit_is_refused(person: Person, body: bytes, status: int) -> None:
    found = person.client.post(
        "/api/v1/runs/latest/fork", content=body, headers={"Content-Type": "application/json"}
    )

    assert found.status_code == status
    assert set(found.json()["error"]) == {"code", "message", "help"}


def test_the_api_takes_json_only(person: Person) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    assert person.client.post("/api/v1/runs/latest/fork", content="at=1", headers=form).status_code == 400


@pytest.mark.parametrize(
    "address", ["//evil.example", "/\\evil.example", "http://evil.example", "", "r", "/a\nb"]
)
def test_a_form_leads_back_to_our_own_pages_only(address: str) -> None:
    assert not is_own_page(address)
    assert is_own_page("/r/run-1?at=3#x")
