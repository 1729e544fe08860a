"""One notice by one way: programs that misbehave, receivers that are away, and what the desktop is given."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import sys
import time
from pathlib import Path

import pytest
from tests.unit.notices.receiver import Receiver, answer, open_receiver

from bartack.notices import Notice, Sent, Way, send
from bartack.notices import _send as sending

SECRET = "s3cret-s3cret-s3cret"  # noqa: S105 - of this test
NOTICE = Notice(
    id="run-1:q4:question",
    kind="question",
    run="run-1",
    project="shop",
    at="2026-01-01T00:00:00Z",
    title="shop: q4 waits for your answer",
    text="<b>Ship</b> & go; $(touch x) `id` -x?",
    question="q4",
    link="https://team.example/q4",
)
NOW = 1_767_225_600.9


def command(code: str, limit_s: float = 20.0) -> Way:
    return Way(name="command", argv=[sys.executable, "-c", code], limit_s=limit_s)


def send_by(way: Way, attempts: int = 0) -> Sent:
    return send(way, NOTICE, attempts, {**os.environ, "HOOK_SECRET": SECRET}, NOW)


def webhook(receiver: Receiver) -> Way:
    return Way(name="webhook", url=receiver.url, secret_env="HOOK_SECRET")  # noqa: S106 - the name of a variable


# Commands.


@pytest.mark.requirement("notices-start-commands-without-a-shell")
def test_a_command_gets_the_notice_on_its_input_and_in_variables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import json,os,sys;"
        f"json.dump([json.load(sys.stdin),dict(os.environ),sys.argv[1:],os.getcwd()],open({str(out)!r},'w'))"
    )
    way = Way(name="command", argv=[sys.executable, "-c", code, "$(id)", "; ls"])

    assert send_by(way) == Sent()
    body, environ, arguments, directory = json.loads(out.read_text())
    assert body["id"] == NOTICE.id
    assert body["text"] == NOTICE.text
    assert {name: value for name, value in environ.items() if name.startswith("BARTACK_NOTICE")} == {
        "BARTACK_NOTICE_ID": NOTICE.id,
        "BARTACK_NOTICE_KIND": "question",
        "BARTACK_NOTICE_RUN": "run-1",
        "BARTACK_NOTICE_TITLE": NOTICE.title,
        "BARTACK_NOTICE_TEXT": NOTICE.text,
        "BARTACK_NOTICE_LINK": NOTICE.link,
    }
    assert arguments == ["$(id)", "; ls"]
    assert directory == os.path.realpath(os.environ["HOME"])


@pytest.mark.requirement("slow-commands-are-killed")
def test_a_command_that_hangs_is_killed_with_everything_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os,subprocess,sys,time;"
        "child=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'],start_new_session=True);"
        f"open({str(pids)!r},'w').write(f'{{os.getpid()}} {{child.pid}}');time.sleep(600)"
    )

    found = send_by(command(code, limit_s=3.0))

    assert "took longer than 3 s and was killed" in found.problem
    assert not found.final
    for pid in pids.read_text().split():
        assert not _is_running(int(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_command_that_fails_says_why_and_is_given_up_after_some_attempts() -> None:
    way = command("import sys; sys.exit('no such phone')")

    assert send_by(way) == Sent(f"{sys.executable} ended with 1: no such phone")
    assert send_by(way, attempts=4).final


def test_megabytes_of_output_do_no_harm() -> None:
    flood = (
        "import sys;[s.write('x'*1000000) for s in (sys.stdout,sys.stderr) for _ in range(20)];sys.exit(3)"
    )

    found = send_by(command(flood))

    assert found.problem.startswith(f"{sys.executable} ended with 3: xxx")
    assert len(found.problem) < 1000


def test_a_command_that_leaves_a_process_with_its_pipes_open_has_ended() -> None:
    code = (
        "import subprocess,sys;"
        "subprocess.Popen([sys.executable,'-c','import time;time.sleep(3)'],start_new_session=True)"
    )

    assert send_by(command(code)) == Sent()


def test_a_command_that_is_not_there_is_not_tried_again() -> None:
    found = send_by(Way(name="command", argv=["/no/such/program"]))

    assert found == Sent(f"/no/such/program cannot be started: {os.strerror(errno.ENOENT)}", final=True)


# The desktop.


def test_the_desktop_gets_arguments_with_escaped_markup_and_one_tag_for_one_notice() -> None:
    assert sending.desktop_command(NOTICE, "linux") == [
        "notify-send",
        "--app-name=Bartack",
        f"--hint=string:x-canonical-private-synchronous:{NOTICE.id}",
        "--",
        NOTICE.title,
        "&lt;b&gt;Ship&lt;/b&gt; &amp; go; $(touch x) `id` -x?\nhttps://team.example/q4",
    ]


@pytest.mark.skipif(
    sys.platform == "darwin", reason="NOT CHECKED on macOS, whose desktop has another program: notify-send"
)
def test_the_program_of_the_desktop_is_executed_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "notify-send"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'out')!r}, 'w').write(repr(sys.argv[1:]))\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert send_by(Way(name="desktop")) == Sent()
    assert (tmp_path / "out").read_text() == repr(sending.desktop_command(NOTICE)[1:])


def test_on_a_mac_the_texts_are_arguments_of_a_fixed_script() -> None:
    found = sending.desktop_command(NOTICE, "darwin")

    assert found[0] == "osascript"
    assert found[-2:] == [NOTICE.title, f"{NOTICE.text}\n{NOTICE.link}"]
    assert not any(NOTICE.text in part for part in found[:-2])


def test_a_machine_without_a_desktop_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    found = send_by(Way(name="desktop"))

    assert found.final
    assert "cannot be started" in found.problem


# Webhooks.


@pytest.mark.requirement("webhooks-are-signed")
def test_a_webhook_is_signed_over_time_and_body() -> None:
    with open_receiver(answer(204)) as receiver:
        assert send_by(webhook(receiver)) == Sent()

    headers, body = receiver.requests[0]
    signed = f"{headers['bartack-timestamp']}.".encode() + body
    assert (
        headers["bartack-signature"] == "v1=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    )
    assert headers["bartack-timestamp"] == "1767225600"
    assert headers["bartack-id"] == json.loads(body)["id"] == NOTICE.id
    assert SECRET not in str(receiver.requests)


@pytest.mark.requirement("webhooks-follow-no-redirect")
def test_a_redirect_is_not_followed_and_the_notice_stays() -> None:
    with (
        open_receiver(answer(200)) as elsewhere,
        open_receiver(answer(302, f"Location: {elsewhere.url}")) as receiver,
    ):
        found = send_by(webhook(receiver))

    assert found == Sent("the receiver answered 302")
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("status", "final"),
    [(500, False), (503, False), (401, False), (404, False), (429, False), (410, True), (422, True)],
)
def test_a_refusal_is_final_only_if_it_would_come_again(status: int, final: bool) -> None:
    with open_receiver(answer(status)) as receiver:
        assert send_by(webhook(receiver)) == Sent(f"the receiver answered {status}", final)


def test_a_receiver_can_ask_for_time() -> None:
    with open_receiver(answer(503, "Retry-After: 120")) as receiver:
        assert send_by(webhook(receiver)).wait_s == 120.0


def test_a_receiver_that_closes_in_the_middle_has_not_got_it() -> None:
    with open_receiver(b"HTTP/1.1 200 O") as receiver:
        found = send_by(webhook(receiver))

    assert found == Sent("RemoteProtocolError")


def test_a_receiver_that_never_answers_is_given_up_after_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "POST_S", 0.2)
    with open_receiver(None) as receiver:
        found = send_by(webhook(receiver))

    assert found.problem
    assert not found.final


def test_a_receiver_that_answers_byte_by_byte_is_given_up_after_the_same_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "POST_S", 0.5)
    began = time.monotonic()
    with open_receiver(b"HTTP/1.1 200 X\r\nX: " + b"x" * 1000, drip_s=0.01) as receiver:
        found = send_by(webhook(receiver))

    assert found == Sent("no answer within 0.5 s")
    assert time.monotonic() - began < 10


def test_a_receiver_that_has_said_yes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends after that, however slowly and however much, is not read."""
    monkeypatch.setattr(sending, "POST_S", 30.0)
    with open_receiver(b"HTTP/1.1 200 X\r\nContent-Length: 1000000000\r\n\r\n", drip_s=0.002) as receiver:
        assert send_by(webhook(receiver)) == Sent()


def test_a_receiver_that_is_away_is_tried_again() -> None:
    with open_receiver(answer(200)) as receiver:
        way = webhook(receiver)

    assert send_by(way) == Sent("ConnectError")


@pytest.mark.requirement("webhooks-are-signed")
def test_nothing_is_posted_without_the_secret(tmp_path: Path) -> None:
    open_file = tmp_path / "secret"
    open_file.write_text(SECRET)
    open_file.chmod(0o644)
    with open_receiver(answer(200)) as receiver:
        unset = send(Way(name="webhook", url=receiver.url, secret_env="NO_SUCH"), NOTICE, 0, {}, NOW)  # noqa: S106 - the name of a variable
        readable = send(Way(name="webhook", url=receiver.url, secret_file=str(open_file)), NOTICE, 0, {}, NOW)

    assert unset.problem == "the variable NO_SUCH is not set"
    assert "users other than its owner can read" in readable.problem
    assert receiver.requests == []


def test_the_secret_may_be_in_a_private_file(tmp_path: Path) -> None:
    private = tmp_path / "secret"
    private.touch(0o600)
    private.write_text(SECRET)
    with open_receiver(answer(200)) as receiver:
        assert (
            send(Way(name="webhook", url=receiver.url, secret_file=str(private)), NOTICE, 0, {}, NOW)
            == Sent()
        )
