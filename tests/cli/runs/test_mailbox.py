from __future__ import annotations

import contextlib
import io
import json

import pytest
from tests.cli.runs.stories import Call, Story

from bartack.cli.runs._mailbox import _receive
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.requests import Request


def left(told: Story) -> list[dict[str, object]]:
    return [json.loads(path.read_bytes()) for path in sorted(told.run.inbox.iterdir())]


def test_mailboxes_are_listed_with_their_counts(call: Call, asking: Story) -> None:
    shown = call("mailbox", "list", "latest").stdout

    assert [line.split() for line in shown.splitlines()] == [
        ["mailbox", "queued", "scheduled", "held", "sent", "received"],
        ["tasks", "1", "0", "0", "1", "0"],
    ]
    assert json.loads(call("mailbox", "list", "latest", "--json").stdout)["tasks"]["queued"] == 1
    assert call("mailbox", "list").stdout == shown


def test_a_run_without_mailboxes_says_so(call: Call, failed: Story) -> None:
    assert call("mailbox", "list", "latest").stdout == "The run has no mailboxes yet.\n"


def test_peeking_takes_nothing(call: Call, asking: Story) -> None:
    first = call("mailbox", "peek", "latest", "tasks")

    assert first.stdout.split()[0] == "m-5"
    assert first.stdout.endswith('main  {"a":"b"}\n')
    assert call("mailbox", "peek", "latest", "tasks").stdout == first.stdout
    assert json.loads(call("mailbox", "peek", "latest", "tasks", "--json").stdout)["value"] == {"a": "b"}
    assert call("mailbox", "peek", "latest", "empty").stdout == ""


@pytest.mark.requirement("newest-run-by-default")
@pytest.mark.parametrize("run", [(), ("latest",), ("run-20260101-000000-cccc0003",), ("20260101-000000-c",)])
def test_without_a_name_the_newest_run_is_taken_and_reported(
    call: Call, completed: Story, asking: Story, run: tuple[str, ...]
) -> None:
    note = "" if run else f"the newest run is {asking.id}"
    peeked = call("mailbox", "peek", *run, "tasks", "-n", "3")
    assert (peeked.returncode, peeked.stdout.split()[0]) == (0, "m-5")
    sent = call("mailbox", "send", *run, "tasks", "[1, 2]", "--key", "once")
    assert (sent.returncode, sent.stdout) == (0, "once\n")
    listed = call("mailbox", "list", *run)

    assert [json.loads(path.read_bytes())["value"] for path in asking.run.inbox.iterdir()] == [[1, 2]]
    for shown in (peeked, sent, listed):
        assert (note in shown.stderr) if note else ("newest" not in shown.stderr)


def test_a_mailbox_has_to_be_named(call: Call, asking: Story) -> None:
    for words in ((), ("latest",)):
        assert "missing argument 'NAME'" in call("mailbox", "peek", *words).stderr
    assert call("mailbox", "peek", "--help").returncode == 0


def test_a_message_to_a_run_that_nobody_runs_is_kept(call: Call, asking: Story) -> None:
    shown = call("mailbox", "send", "latest", "tasks", "[1, 2]", "--key", "once")

    assert (shown.returncode, shown.stdout) == (0, "once\n")
    assert f"bartack resume {asking.id}" in shown.stderr
    (message,) = left(asking)
    assert (message["value"], message["mailbox"], message["key"]) == ([1, 2], "tasks", "once")
    assert set(message) == {"value", "mailbox", "key", "id", "at", "seal"}
    assert [path.name for path in asking.run.inbox.iterdir()] == ["m-once.json"]


def test_what_waits_for_the_next_process_is_listed_and_shown(call: Call, asking: Story) -> None:
    call("mailbox", "send", "latest", "tasks", "[1, 2]", "--key", "once")
    call("mailbox", "send", "latest", "new", '"x"')

    shown = call("mailbox", "list", "latest").stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["mailbox", "queued", "kept", "scheduled", "held", "sent", "received"],
        ["new", "0", "1", "0", "0", "0", "0"],
        ["tasks", "1", "1", "0", "0", "1", "0"],
    ]
    assert json.loads(call("mailbox", "list", "latest", "--json").stdout)["new"]["kept"] == 1
    lines = call("mailbox", "peek", "latest", "tasks").stdout.splitlines()
    assert lines[0].endswith('main  {"a":"b"}')
    assert lines[1].split()[0] == "once"
    assert lines[1].endswith("kept  [1,2]")
    assert len(call("mailbox", "peek", "latest", "tasks", "-n", "1").stdout.splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_message_is_read_from_stdin(
    call: Call, asking: Story, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"from": "stdin"}\n'))

    assert call("mailbox", "send", "latest", "tasks", *words).returncode == 0
    assert left(asking)[0]["value"] == {"from": "stdin"}


def test_a_text_is_sent_as_it_is(call: Call, asking: Story) -> None:
    call("mailbox", "send", "latest", "tasks", "not json", "--text")

    assert left(asking)[0]["value"] == "not json"


@pytest.mark.parametrize(
    "words",
    [["send", "latest", "tasks", "{"], ["send", "latest", "$sys", "1"], ["peek", "latest", "a b"]],
)
def test_what_is_no_message_or_no_mailbox_is_refused(call: Call, asking: Story, words: list[str]) -> None:
    assert call("mailbox", *words).returncode == 2
    assert left(asking) == []


def test_receiving_needs_somebody_who_runs_the_run(call: Call, asking: Story) -> None:
    assert call("mailbox", "receive", "latest", "tasks").returncode == 9


class Counter(io.StringIO):
    """An output that notes what becomes of it."""

    def __init__(self, seen: list[str], *, broken: bool) -> None:
        super().__init__()
        self._seen = seen
        self._broken = broken

    def flush(self) -> None:
        self._seen.append("flushed")
        if self._broken:
            raise BrokenPipeError


class OneMessage(HubClient):
    """A hub that has one message."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def ask(
        self,
        do: str,
        request: Request | None = None,
        value: bytes | None = None,
        timeout_s: float | None = None,
        by_id: str = "",
    ) -> bytes:
        """Note what is asked for."""
        del request, value, timeout_s, by_id
        self._seen.append(do)
        return b'{"id": "m-1", "value": {"n": 1}}'


@pytest.mark.parametrize("broken", [False, True])
def test_a_message_is_acknowledged_only_when_its_line_is_out(
    monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("sys.stdout", Counter(seen, broken=broken))

    with contextlib.suppress(BrokenPipeError):
        _receive(OneMessage(seen), Request(mailbox="box"), as_json=False)

    assert seen == (["receive", "flushed"] if broken else ["receive", "flushed", "ack"])
