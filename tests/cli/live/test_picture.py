"""The picture of a run: what its state, its scoreboards and the transcripts of its agents say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.cli.runs.stories import Begin, Story, an_error, finished, started

from bartack.agents import Usage
from bartack.agents.contract import CallFinished, CallStarted, CallText, CallTool, CallUsage
from bartack.cli.app._pipeline_options import PIPELINE
from bartack.cli.live._draw import Picture, Row
from bartack.cli.live._picture import ENDED, Pictures
from bartack.journal import open_reader
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.rundir.find import read_state
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.spans import Spans

AT = "2026-01-01T00:00:00.000Z"
TASKS = ("names", "weeks", "greet")


def picture_of(told: Story, after_s: float = 10.0, bodies: Sequence[str] = ()) -> Picture:
    """The picture some time after the last entry."""
    state = read_state(told.run)
    pictures = Pictures(told.run, limit_usd=5.0)
    made = pictures.make(state, state.last_at + int(after_s * 1e6), lambda path: bodies)
    pictures.close()
    return made


def row(told: Story, name: str, bodies: Sequence[str] = ()) -> Row:
    (found,) = [row for row in picture_of(told, bodies=bodies).rows if row.name == name]
    return found


def spawn(told: Story, place: int, name: str, *args: object, n: int = 1) -> str:
    path = f"main/{n}.{place}:{name}"
    call = json.dumps({"args": args}).encode()
    told.tell(e.WorkerSpawned(path=path, worker=f"team:{name}", p="main", n=n), call)
    return path


@pytest.mark.requirement("live-view-shows-the-run")
def test_workers_are_named_by_what_tells_them_from_their_siblings(story: Begin) -> None:
    told = story("aaaa0001").tell(started(1, "delegate", "some"))
    for place, (name, args) in enumerate(
        [
            ("builder", ("b3",)), ("builder", (7,)), ("builder", ("too long to be a part of a name",)),
            ("builder", ({"a": 1},)), ("judge", ()), ("odd", ("\x1b[2J",)),
        ],
        1,
    ):  # fmt: skip
        spawn(told, place, name, *args)

    picture = picture_of(told)

    assert [(row.name, row.depth) for row in picture.rows] == [
        ("main", 0),
        ("builder b3", 1),
        ("builder 7", 1),
        ("builder 1.3", 1),
        ("builder 1.4", 1),
        ("judge", 1),
        ("odd", 1),
    ]
    assert (picture.rows[0].verb, picture.rows[0].text) == ("delegate", "6 workers")


@pytest.mark.parametrize(
    ("kind", "about", "shown"),
    [
        ("shell", "make all", ("busy", "shell", "shell", "make all")),
        ("receive", "findings", ("waits", "receive findings", "receive", "findings")),
        ("sleep", "30 s", ("waits", "sleep", "sleep", "30 s")),
        ("send_supervised", "inbox", ("waits", "send_supervised", "send_supervised", "inbox")),
        ("body", "team.crunch", ("busy", "step", "step", "team.crunch")),
        ("delegate", "one", ("none", "delegate", "delegate", "one")),
    ],
)
def test_a_worker_is_shown_with_its_open_step(
    story: Begin, kind: str, about: str, shown: tuple[str, ...]
) -> None:
    found = row(story("aaaa0001").tell(started(1, kind, about)), "main")

    assert (found.doing, found.kind, found.verb, found.text) == shown
    assert found.since_s == 10.0


@pytest.mark.requirement("live-view-shows-the-run")
def test_a_body_that_is_not_recorded_yet_is_shown_by_its_name(story: Begin) -> None:
    told = story("aaaa0001")

    assert (row(told, "main").verb, row(told, "main", ["team.crunch"]).text) == ("starting", "team.crunch")
    told.tell(finished(1))
    assert row(told, "main").verb == "running"


def test_a_worker_that_failed_and_one_that_is_done_are_shown_so(story: Begin) -> None:
    told = story("aaaa0001").tell(started(1, "delegate", "both"))
    for place in (1, 2):
        spawn(told, place, "one", place)
    told.tell(e.WorkerEnded(path="main/1.1:one"), b"1", after_s=3.0)
    told.tell(e.WorkerEnded(path="main/1.2:one", error=an_error("it broke\nbadly")), after_s=1.0)
    told.tell(e.FailureRecorded(worker="main/1.2:one", error=an_error()))

    picture = picture_of(told)

    assert picture.status == "failing"
    done, failed = picture.rows[1:]
    assert (done.doing, done.verb, done.since_s) == ("done", "done", 3.0)
    assert (failed.doing, failed.verb, failed.text) == ("failed", "failed", "it broke")


def test_of_many_workers_that_have_ended_the_last_are_shown(story: Begin) -> None:
    told = story("aaaa0001").tell(started(1, "delegate", "many"))
    for place in range(1, 101):
        path = spawn(told, place, "one", place)
        told.tell(e.WorkerEnded(path=path), b"1")

    picture = picture_of(told)

    assert (len(picture.rows), picture.hidden) == (1 + ENDED, 100 - ENDED)
    assert picture.rows[-1].name == "one 100"


def test_mailboxes_letters_steps_and_time_are_counted(story: Begin) -> None:
    told = story("aaaa0001").tell(finished(1)).tell(finished(2))
    for number in range(3):
        message = e.MessageSent(
            mailbox="findings", id=f"m-{number}", size=3, sender="main", p="main", n=3 + number, fp="f"
        )
        told.tell(message, b"[1]", after_s=1.0)
    told.tell(e.MessageTaken(mailbox="findings", id="m-0", p="main", n=6, fp="f"), b"[1]")
    told.tell(
        e.LetterAdded(mailbox="lost", message="m-9", size=2, sender="main", reason="undeliverable"), b"[9]"
    )

    picture = picture_of(told)

    assert [(box.name, box.queued, box.oldest_s) for box in picture.boxes][:1] == [("findings", 2, 11.0)]
    assert (picture.letters, picture.elapsed_s) == (1, 13.0)
    assert picture.steps == 6


def prompt(told: Story, n: int, **args: object) -> str:
    """Open a prompt; return its key."""
    told.tell(
        started(n, "think", "Look around"),
        msgspec.json.encode({"prompt": "Look around", "name": "x", **args}),
    )
    return step_key(told.id, "main", n, 0)


def say(told: Story, agent: str, *events: msgspec.Struct) -> None:
    folder = told.run.agents / agent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "transcript.ndjson").open("ab") as file:
        for event in events:
            file.write(msgspec.json.encode(event) + b"\n")


@pytest.mark.requirement("live-view-shows-agents")
def test_a_prompt_shows_the_last_line_of_its_agent_and_what_it_has_used(story: Begin) -> None:
    told = story("aaaa0001")
    key = prompt(told, 1, agent="ann")
    usage = Usage(input_tokens=900, output_tokens=100, turns=3, cost_usd=0.21)
    say(
        told,
        "ann",
        CallStarted(key=key, at=AT, n=1, pid=7, conversation="", attempt=1),
        CallText(key=key, at=AT, n=2, text="I look.\nreading \x1b[2Jsrc/dates.py\n\n"),
        CallUsage(key=key, at=AT, n=3, usage=usage),
        CallText(key="ik:of-another-step", at=AT, n=4, text="not this"),
    )

    picture = picture_of(told)

    (found,) = picture.rows
    assert (found.doing, found.verb, found.text) == ("agent", "think ann", r"reading \x1b[2Jsrc/dates.py")
    assert (found.turn, found.usd, picture.usd, picture.tokens) == (3, 0.21, 0.21, 1000)
    assert (picture.paid, picture.limit_usd) == (True, 5.0)


@pytest.mark.requirement("live-view-shows-agents")
def test_what_an_agent_says_is_shown_as_it_comes(story: Begin) -> None:
    told = story("aaaa0001")
    key = prompt(told, 1, agent="ann")
    pictures = Pictures(told.run)
    state = read_state(told.run)

    def shown() -> str:
        return pictures.make(state, state.last_at, lambda path: []).rows[0].text

    assert shown() == ""
    say(
        told,
        "ann",
        CallText(key=key, at=AT, n=1, text="x" * 100_000),
        CallText(key=key, at=AT, n=2, text="first"),
    )
    assert shown() == "first"
    say(
        told, "ann", CallTool(key=key, at=AT, n=3, id="t", tool="Read", phase="started", input='{"path":"a"}')
    )
    assert shown() == 'Read {"path":"a"}'
    with (told.run.agents / "ann/transcript.ndjson").open("ab") as file:
        file.write(b'{"event":"agent.text","key":"' + key.encode()[:9])
        file.flush()
        assert shown() == 'Read {"path":"a"}'
        file.write(key.encode()[9:] + b'","at":"' + AT.encode() + b'","n":4,"text":"second"}\nnonsense\n')
    assert shown() == "second"
    say(told, "ann", CallFinished(key=key, at=AT, n=5, reason="completed", duration_s=1.0))
    assert shown() == ""
    pictures.close()
    shutil.rmtree(told.run.agents)  # not all of its lines are some


def test_a_prompt_that_waits_shows_for_what(story: Begin) -> None:
    told = story("aaaa0001")
    prompt(told, 1, agent="ann")
    asked = e.QuestionAsked(
        p="main", n=1, id="q1", ask="permission", agent="ann", tool="Bash", fp="f", about="?"
    )
    told.tell(asked, b'{"text":"May it?","options":["allow","deny"]}')

    assert (row(told, "main").doing, row(told, "main").text) == ("waits", "waits for an answer: q1")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Story]:
    """A run of the pipeline with three tasks: two have workers, one waits."""
    tasks = [{"id": name, "depends_on": ["names"] if name == "greet" else []} for name in TASKS]
    told = Story(tmp_path / ".bartack/runs/run-20260101-000000-aaaa0009")
    told.begin(worker=PIPELINE, args=msgspec.json.encode({"args": [{"tasks": tasks}]}))
    told.tell(started(1, "delegate", "names, weeks"))
    for place, name in enumerate(TASKS[:2], 1):
        args = msgspec.json.encode({"args": [{}, {"id": name}]})
        path, worker = f"main/1.{place}:task", "bartack.pipeline._task:task"
        told.tell(e.WorkerSpawned(path=path, worker=worker, p="main", n=1), args)
    yield told
    told.journal.close()
    shutil.rmtree(told.run.path)  # its receipts and transcripts are none


@pytest.mark.requirement("live-view-shows-the-run")
def test_tasks_of_the_pipeline_have_their_names_and_those_that_wait_are_there(pipeline: Story) -> None:
    done = e.StepFinished(p="main/1.1:task", n=1, step="think", fp="f", usd=0.42)
    pipeline.tell(done, b"{}").tell(e.WorkerEnded(path="main/1.1:task"), b"{}")
    command: dict[str, object] = {
        "action": "implement_changes",
        "task_id": "weeks",
        "key": "ik:own",
        "inputs": {},
    }
    value = msgspec.json.encode({"prompt": "", "name": "", "agent": "ann", "command": command})
    pipeline.tell(started(1, "think", "implement weeks", p="main/1.2:task"), value)
    for number in (1, 2):
        path = pipeline.run.path / f"receipts/names/step-{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    say(pipeline, "ann", CallText(key="ik:own", at=AT, n=1, text="at work"))

    picture = picture_of(pipeline)

    assert picture.title.endswith(" · pipeline")
    assert [(row.name, row.verb, row.text, row.usd) for row in picture.rows] == [
        ("main", "delegate", "2 tasks", None),
        ("names", "done, 2 receipts", "", 0.42),
        ("weeks", "implement changes ann", "at work", None),
        ("greet", "waits for names", "", None),
    ]


@pytest.mark.requirement("spans-are-the-state")
def test_the_picture_is_the_same_from_spans(completed: Story, failed: Story, delegated: Story) -> None:
    for told in (completed, failed, delegated):
        with_state = read_state(told.run)
        with open_reader(told.run.path) as reader:
            spans = Spans.of(reader.read())
        at = with_state.last_at
        pictures = Pictures(told.run)

        assert pictures.make(with_state, at, lambda path: []) == pictures.make(
            spans.state, at, lambda path: []
        )
