"""The list of runs: what each is doing, or why not, and what can be done there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.web.journals import RUN, Writer, started, written_run
from tests.web.showcase import ask_one, fail, fill_run, prompt_three, send
from tests.web.sites import enter, make_client, make_site

from bartack.runtime.state import entries as e

FORM = re.compile(r'<form method="post" action="/r/[^"]*/([a-z]+)"')


class Row:
    """The row of the only run of a workspace."""

    def __init__(self, workspace: Path, *, read_only: bool = False) -> None:
        client, _ = enter(make_site(workspace, read_only=read_only))
        with client:
            page = client.get("/runs").text
            (self.model,) = client.get("/api/v1/runs").json()["runs"]
        self.html = page.partition('<ul class="rows" id="runs"')[2].partition("</ul>")[0]
        self.text = " ".join(
            re.sub("<[^>]*>", "", self.html.replace("</button>", " ").partition(">")[2]).split()
        )
        self.actions = FORM.findall(self.html)


@pytest.mark.requirement("web-lists-what-runs-do")
def test_a_row_says_what_an_active_run_is_doing_without_its_journal(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        prompt_three(run)
        run.mirror(active=True)
    first = run.file.read_bytes().splitlines(keepends=True)[0]
    run.file.write_bytes(first + b"nothing that can be read\n")
    with run.run.socket.listen():
        row = Row(tmp_path)

    assert re.search(r"3 prompts, the oldest \d+ s · 1 command 4 workers", row.text), row.text
    assert row.model["workers"] == 4
    assert [(one["kind"], one["count"]) for one in row.model["open"]] == [
        ("think", 3),
        ("shell", 1),
        ("delegate", 1),
    ]
    assert row.actions == []


@pytest.mark.requirement("web-lists-what-runs-do")
def test_a_row_of_an_interrupted_run_says_where_it_was_and_resumes_it(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        prompt_three(run)
        run.mirror()

    row = Row(tmp_path)
    assert "interrupted" in row.text
    assert "at main/1.0:child:1 think" in row.text
    assert row.actions == ["resume"]
    assert Row(tmp_path, read_only=True).actions == []


@pytest.mark.requirement("web-lists-what-runs-do")
def test_a_row_of_a_failed_run_leads_to_its_failure(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        fill_run(run)
        send(run)
        fail(run)
        run.mirror()

    row = Row(tmp_path)
    assert "main/2:child: not a number Failure" in row.text
    assert f'href="/r/{RUN}/failure"' in row.html
    assert row.actions == []


@pytest.mark.requirement("web-lists-what-runs-do")
def test_a_row_of_an_active_run_answers_a_question_that_is_short(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        ask_one(run)
        run.mirror(active=True)
    with run.run.socket.listen():
        row = Row(tmp_path)
        assert "q1 Publish version 1.4? Yes No" in row.text
        assert row.actions == ["answer"]
        assert Row(tmp_path, read_only=True).actions == []

    # Nothing would take the answer, and the list does not know whether one was left already.
    row = Row(tmp_path)
    assert "q1 Publish version 1.4? Answer" in row.text
    assert row.actions == ["resume"]


@pytest.mark.requirement("web-questions-of-ended-runs-are-closed")
@pytest.mark.parametrize(
    ("status", "words"), [("failed", "It asks again if it is resumed"), ("cancelled", "has ended")]
)
def test_a_question_of_a_run_that_has_ended_is_on_its_page_only(
    tmp_path: Path, status: str, words: str
) -> None:
    with written_run(tmp_path) as run:
        ask_one(run)
        run.write(e.RunEnded(status=status))
        run.mirror()
    client, _ = enter(make_site(tmp_path))
    with client:
        asked = client.get("/questions").text
        page = client.get(f"/r/{RUN}").text

    assert "Publish version" not in asked
    assert "No run waits for an answer." in asked
    assert words in page
    assert f"/r/{RUN}/answer" not in page
    assert "Open when the run ended" in page
    assert Row(tmp_path).actions == []


@pytest.mark.requirement("web-pages-hold-together")
def test_a_question_names_its_program_where_the_questions_of_all_runs_are(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        ask_one(run)
        run.mirror(active=True)
    client, _ = enter(make_site(tmp_path))
    with client, run.run.socket.listen():
        (asked,) = client.get("/api/v1/questions").json()["questions"]

        assert asked["program"].endswith("team.py")
        assert "team.py" in client.get("/questions").text.partition("<article")[2]


@pytest.mark.requirement("web-pages-hold-together")
def test_a_browser_that_has_not_entered_is_led_to_the_page_where_it_can(tmp_path: Path) -> None:
    with make_client(make_site(tmp_path)) as client:
        page = client.get("/runs")

    assert page.status_code == 401
    assert '<a href="/enter">Enter with a link</a>' in page.text
    assert 'href="/runs">To the list' not in page.text


def permission(run: Writer) -> None:
    run.write(started(1, step="think"))
    asked = e.QuestionAsked(
        id="q1", p="main", n=1, agent="ann", ask="permission", tool="shell", about="Run it?"
    )
    run.write(
        asked, value={"text": "Run it?", "options": ["allow", "deny"], "tool": "shell", "input": {"x": 1}}
    )


def typed(run: Writer) -> None:
    run.write(started(1, step="ask", question="q1"), value={"question": "Which?", "type": "int"})


def several(run: Writer) -> None:
    for number in (1, 2):
        asked = {"question": f"Which {number}?", "options": ["red", "blue"]}
        run.write(started(number, step="ask", question=f"q{number}"), value=asked)


@pytest.mark.parametrize(
    ("write", "words", "actions"),
    [
        (permission, "q1 Run it? Answer", []),
        (typed, "q1 Which? Answer", []),
        (several, "q1 Which 1? +1 more red blue", ["answer"]),
    ],
)
@pytest.mark.requirement("web-lists-what-runs-do")
def test_a_row_answers_only_what_it_shows_all_of(
    tmp_path: Path, write: object, words: str, actions: list[str]
) -> None:
    with written_run(tmp_path) as run:
        run.begin()
        assert callable(write)
        write(run)
        run.mirror(active=True)
    with run.run.socket.listen():
        row = Row(tmp_path)

    assert words in row.text
    assert row.actions == actions
