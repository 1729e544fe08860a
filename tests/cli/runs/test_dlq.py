from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.runs.stories import Begin, Call, Story

from bartack.messaging.options import Terms
from bartack.runtime import Run
from bartack.runtime.state import entries as e

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> object:
    await ctx.send_supervised("@nobody", "lost", retries=0, on_error="dead_letter")
    await ctx.mailbox.news.subscribe("news.*")
    await ctx.mailbox.out.send("ready")
    return await ctx.mailbox.gate.receive(timeout_s=60)
"""


@pytest.fixture
def dead(story: Begin) -> Story:
    """A run that nobody runs, with three dead letters: one to nobody, one that was given back, one that arrived after all."""
    told = story("dddd0004")
    lost = e.LetterAdded(
        message="m-5",
        mailbox="@gone",
        reason="no_receiver",
        size=6,
        sender="main",
        key="k",
        attempts=2,
        retry_at=1,
    )
    told.tell(lost, b'"lost"')
    for number in (6, 8):
        told.tell(
            e.MessageSent(
                mailbox="tasks", id=f"m-{number}", size=1, sender="main", p="main", n=number, fp="f"
            ),
            b"[1]",
        )
        told.tell(
            e.MessageMoved(mailbox="tasks", id=f"m-{number}", to="dead", reason="nack", error="ValueError")
        )
    told.tell(e.LetterMoved(message="m-8", to="retrying", by="command"))
    told.tell(e.MessageTaken(mailbox="tasks", id="m-8", p="main", n=9, fp="f"), b"[1]")
    opened = e.SendOpened(id="s-99", mailbox="tasks", size=1, sender="main", terms=Terms())
    told.tell(opened, b"2").tell(e.HubStopped(reason="interrupted"))
    return told.end()


def ids(call: Call, *options: str) -> list[str]:
    shown = call("dlq", "list", "latest", "--json", *options)
    assert shown.returncode == 0
    return [json.loads(line)["message_id"] for line in shown.stdout.splitlines()]


def letter_id(call: Call, message: str) -> str:
    lines = call("dlq", "list", "latest", "--json").stdout.splitlines()
    return next(str(found["id"]) for found in map(json.loads, lines) if found["message_id"] == message)


def test_dead_letters_are_listed_with_their_reasons(call: Call, dead: Story) -> None:
    shown = call("dlq", "list", "latest").stdout

    rows = [line.split()[1:5] for line in shown.splitlines()]
    assert rows == [
        ["mailbox", "reason", "state", "attempts"],
        ["@gone", "no_receiver", "waiting", "2"],
        ["tasks", "nack", "waiting", "1"],
    ]


def test_a_run_without_dead_letters_says_so(call: Call, asking: Story) -> None:
    assert call("dlq", "list", "latest").stdout == "There are no dead letters.\n"
    assert call("dlq", "list", "latest", "--json").stdout == ""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), ["m-5", "m-6"]),
        (("--mailbox", "t*"), ["m-6"]),
        (("--reason", "no_receiver"), ["m-5"]),
        (("--state", "redelivered"), ["m-8"]),
        (("--key", "k"), ["m-5"]),
        (("--min-attempts", "2"), ["m-5"]),
        (("--sender", "nobody"), []),
        (("--newer-than", "1"), []),
        (("--older-than", "1"), ["m-5", "m-6"]),
        (("-n", "1"), ["m-5"]),
    ],
)
def test_options_choose_letters(call: Call, dead: Story, options: tuple[str, ...], found: list[str]) -> None:
    assert ids(call, *options) == found


def test_a_letter_is_shown_with_its_message_and_its_history(call: Call, dead: Story) -> None:
    letter = letter_id(call, "m-6")

    shown = call("dlq", "show", "latest", letter).stdout
    facts = json.loads(call("dlq", "show", "latest", letter, "--json").stdout)

    assert "nack ValueError" in shown
    assert (facts["value"], facts["mailbox"], facts["sender"]) == ([1], "tasks", "main")
    assert [note["event"] for note in facts["history"]] == ["dead"]


@pytest.mark.parametrize("command", ["show", "retry", "purge"])
def test_a_letter_that_is_not_there_is_one_clear_error(call: Call, dead: Story, command: str) -> None:
    shown = call("dlq", command, "latest", "dl-000000000000", *(["--yes"] if command == "purge" else []))

    assert (shown.returncode, shown.stdout) == (7, "")
    assert "there is no dead letter 'dl-000000000000'" in shown.stderr


@pytest.mark.requirement("letters-are-kept")
def test_a_letter_is_tried_again_without_a_hub(call: Call, dead: Story) -> None:
    letter = letter_id(call, "m-6")

    shown = call("dlq", "retry", "latest", letter)

    assert (shown.returncode, shown.stdout) == (0, f"{letter}  accepted\n")
    assert ids(call, "--state", "retrying") == ["m-6"]
    assert json.loads(call("mailbox", "peek", "latest", "tasks", "--json").stdout)["id"] == "m-6"
    assert call("dlq", "retry", "latest", letter).stdout == "There is nothing to retry.\n"


def test_a_retry_that_is_refused_ends_with_1(call: Call, dead: Story) -> None:
    shown = call("dlq", "retry", "latest", "--mailbox", "@gone")

    assert shown.returncode == 1
    assert shown.stdout.endswith("rejected (no_receiver)\n")


def test_no_seconds_are_a_limit_too(call: Call, dead: Story) -> None:
    shown = call("dlq", "purge", "latest", "--mailbox", "*", "--newer-than", "0", "--yes")

    assert (shown.returncode, shown.stdout) == (0, "Removed 0 dead letters.\n")
    assert len(ids(call)) == 2


def test_what_a_command_is_to_change_has_to_be_said(call: Call, dead: Story) -> None:
    assert call("dlq", "retry", "latest").returncode == 2
    assert call("dlq", "purge", "latest", "--yes").returncode == 2
    assert ids(call) == ["m-5", "m-6"]


def test_letters_are_removed_only_with_a_yes(call: Call, dead: Story) -> None:
    assert call("dlq", "purge", "latest", "--all").returncode == 2
    assert ids(call) == ["m-5", "m-6"]

    shown = call("dlq", "purge", "latest", "--reason", "nack", "--yes", "--json")

    assert json.loads(shown.stdout) == {"purged": 1}
    assert ids(call) == ["m-5"]


def test_a_purge_that_chooses_nothing_says_so(call: Call, dead: Story) -> None:
    assert call("dlq", "purge", "latest", "--mailbox", "nowhere").stdout == "Removed 0 dead letters.\n"


def test_letters_are_exported_with_their_messages(call: Call, dead: Story, tmp_path: Path) -> None:
    assert call("dlq", "export", "latest", "-o", str(tmp_path / "letters.ndjson")).returncode == 0

    lines = [json.loads(line) for line in (tmp_path / "letters.ndjson").read_text().splitlines()]
    assert [(line["message_id"], line["value"]) for line in lines] == [("m-5", "lost"), ("m-6", [1])]


def test_a_run_that_has_ended_takes_no_retry_but_a_purge(call: Call, story: Begin) -> None:
    told = story("eeee0005")
    told.tell(e.LetterAdded(message="m-5", mailbox="box", reason="timeout"), b"1")
    told.tell(e.WorkerEnded(path="main")).tell(e.RunEnded(status="completed"))
    told.end()

    assert call("dlq", "retry", "latest", "--all").returncode == 9
    assert call("dlq", "purge", "latest", "--all", "--yes").stdout == "Removed 1 dead letter.\n"


def test_an_unknown_run_is_not_found(call: Call) -> None:
    assert call("dlq", "list", "run-x").returncode == 7


@pytest.mark.requirement("letters-are-kept")
def test_a_hub_that_runs_is_asked(call: Call, tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(PROGRAM)
    run = Run.start("team.py", workspace=tmp_path)
    with run.join() as session:
        assert session.mailbox.out.receive(20) == "ready"
        queue = session.dead_letters
        added = queue.add_message("news", {"by": "hand"}, "a person", {"a": 1})

        assert [letter.mailbox for letter in queue.list_messages().letters] == ["@nobody", "news"]
        assert call("dlq", "retry", "latest", added).stdout == f"{added}  accepted\n"
        assert session.mailbox.news.receive(20) == {"by": "hand"}
        assert queue.show(added).state == "redelivered"
        assert call("mailbox", "publish", "latest", "news.today", "7").stdout == "news\n"
        assert json.loads(call("dlq", "purge", "latest", "--all", "--yes", "--json").stdout) == {"purged": 1}
        assert session.send_supervised("gate", "done", ack="delivered", timeout_s=60).unwrap()
    assert run.wait(60).status == "completed"


@pytest.mark.requirement("newest-run-by-default")
def test_without_a_name_the_letters_of_the_newest_run_are_meant(
    call: Call, completed: Story, dead: Story
) -> None:
    listed = call("dlq", "list", "--mailbox", "@*")
    letter = listed.stdout.splitlines()[1].split()[0]
    shown, exported = call("dlq", "show", letter), call("dlq", "export")
    purged = call("dlq", "purge", letter, "--yes")

    assert (shown.returncode, "@gone" in shown.stdout) == (0, True)
    assert len(exported.stdout.splitlines()) == 2
    for said in (listed, shown, exported, purged):
        assert f"the newest run is {dead.id}" in said.stderr
    assert "newest" not in call("dlq", "list", "latest").stderr
