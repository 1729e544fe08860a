"""What the API answers: its views of a run, its lists, its errors, its downloads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.crash.test_recorded_runs import restore
from tests.web.journals import RUN, Writer, finished, started, written_run
from tests.web.live import Served, run, serve
from tests.web.sites import make_site

from bartack.core.redact import Redactor
from bartack.runtime.protocol.frames import ErrorData, Site, StackLine
from bartack.runtime.state import entries as e
from bartack.web._hide import CUT_BYTES, Hider

BASE = f"/api/v1/runs/{RUN}"
ERROR = ErrorData(type="builtins:ValueError", message="no", code="")
TRAVERSAL = [
    "..",
    "../..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "a%00b",
    "....//",
    ".",
    "~",
    "run-..%2f..",
]


async def fetch(served: Served, path: str) -> Any:
    answer = await served.get(path)
    assert answer.status == 200, answer.body
    return answer.json


# Refusals.


@pytest.mark.requirement("web-errors-have-one-form")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/runs/run-1", 404),
        ("/api/v1/runs/nothing/steps", 404),
        (f"{BASE}?at=-1", 422),
        (f"{BASE}?at=x", 422),
        (f"{BASE}?at=1&at=2", 422),
        (f"{BASE}?nonsense=1", 422),
        (f"{BASE}/step?p=main&n=99", 404),
        (f"{BASE}/step?p=main", 422),
        (f"{BASE}/value/1", 404),
        (f"{BASE}/value/99999", 404),
        (f"{BASE}/value/x", 422),
        (f"{BASE}/letters/dl-000000000000", 404),
        (f"{BASE}/talk/ik:none", 404),
        (f"{BASE}/receipts/t/1", 404),
        (f"{BASE}/receipts/t/1/artifacts/0", 404),
        (f"{BASE}/snapshots/diff?a=x&b=y", 404),
        (f"{BASE}/snapshots/diff?a=snap-000000000000&b=snap-000000000001", 404),
        (f"{BASE}/steps?status=nonsense", 422),
        (f"{BASE}/timeline?px=0", 422),
        (f"{BASE}/events?view=nonsense", 422),
        ("/api/v1/runs?status=nonsense", 422),
        ("/api/v1/nothing", 404),
        ("/api/v1/patterns/unknown", 404),
    ],
)
def test_a_refusal_has_a_code_a_message_and_a_status(tmp_path: Path, path: str, status: int) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            async with serve(make_site(tmp_path)) as served:
                answer = await served.get(path)
                assert answer.status == status, answer.body
                assert set(answer.json) == {"error"}
                assert answer.json["error"]["code"].startswith("BT")
                assert answer.json["error"]["message"]

    run(look)


@pytest.mark.requirement("web-paths-stay-below-runs")
def test_no_part_of_an_address_leads_out_of_a_run(tmp_path: Path) -> None:
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("do not show")

    async def look() -> None:
        with written_run(tmp_path / "ws") as writer:
            writer.begin()
            (writer.run.path / "link").symlink_to(secret)
            (writer.run.agents / "ann").mkdir(parents=True)
            (writer.run.agents / "ann" / "transcript.ndjson").symlink_to(secret)
            writer.write(started(1, step="think"), value={"prompt": "p", "name": "n", "agent": "../../.."})
            writer.write(
                finished(1, step="think"), value={"key": "ik:1", "agent": "ann", "conversation": "../../.."}
            )
            async with serve(make_site(tmp_path / "ws")) as served:
                for part in TRAVERSAL:
                    for path in (
                        f"/api/v1/runs/{part}",
                        f"/api/v1/runs/{part}/steps",
                        f"{BASE}/value/{part}",
                        f"{BASE}/letters/{part}",
                        f"{BASE}/talk/{part}",
                        f"{BASE}/receipts/{part}/1",
                        f"{BASE}/receipts/t/1/artifacts/{part}",
                        f"{BASE}/snapshots/diff?a={part}&b={part}",
                        f"/api/v1/patterns/{part}",
                        f"/static/x/{part}",
                    ):
                        answer = await served.get(path)
                        assert answer.status in {404, 422}, (path, answer)
                        assert b"do not show" not in answer.body
                for query in ("", "?raw=true"):
                    answer = await served.get(f"{BASE}/talk/ik:1{query}")
                    assert answer.status == 200
                    assert answer.json.get("lines", []) == []

    run(look)


def test_a_pipe_in_the_place_of_a_file_holds_up_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            (writer.run.agents / "ann").mkdir(parents=True)
            os.mkfifo(writer.run.agents / "ann" / "transcript.ndjson")
            os.mkfifo(writer.run.program / "team.py")
            writer.write(started(1, step="think"), value={"prompt": "p", "name": "n", "agent": "ann"})
            async with serve(make_site(tmp_path)) as served:
                (call,) = (await fetch(served, f"{BASE}/talk"))["calls"]
                assert (await fetch(served, f"{BASE}/talk/{call['key']}")).get("lines", []) == []
                assert (await fetch(served, f"{BASE}/program"))["files"] == []
            shutil.rmtree(writer.run.agents)  # what checks the wires of each test would wait for ever

    run(look)


# Steps.


def test_steps_are_filtered_and_paged(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for n in range(1, 451):
                writer.journal.stage(
                    e.draft(finished(n, step="body" if n % 3 else "shell", about=f"part {n}"))
                )
            writer.journal.commit()
            async with serve(make_site(tmp_path)) as served:
                last = await fetch(served, f"{BASE}/steps")
                assert (last["total"], last["page"], last["pages"], len(last["steps"])) == (450, 3, 3, 50)
                assert last.get("next", 0) == 0
                first = await fetch(served, f"{BASE}/steps?page=1")
                assert (first["next"], first["steps"][0]["n"], first["steps"][-1]["n"]) == (2, 1, 200)
                shells = await fetch(served, f"{BASE}/steps?kind=shell&q=PART%203")
                assert {step["kind"] for step in shells["steps"]} == {"shell"}
                assert all("part 3" in step["about"] for step in shells["steps"])
                assert (await fetch(served, f"{BASE}/steps?kind=shell&kind=body"))["total"] == 450
                assert (await fetch(served, f"{BASE}/steps?worker=main/9:x"))["total"] == 0
                assert (await fetch(served, f"{BASE}/steps?at=10"))["total"] == 6
                assert (await fetch(served, f"{BASE}/steps?status=open"))["total"] == 0

    run(look)


def test_the_bookkeeping_of_the_pipeline_is_folded(tmp_path: Path) -> None:
    found = restore("pipeline", tmp_path)

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            steps = await fetch(served, f"/api/v1/runs/{found.id}/steps")
            assert [step["kind"] for step in steps["steps"]] == ["delegate", "think", "body", "shell"]
            everything = await fetch(served, f"/api/v1/runs/{found.id}/steps?all=true")
            assert everything["total"] == steps["total"] + steps["folded"]
            assert everything.get("folded", 0) == 0

    run(look)


def test_one_step_has_what_it_was_asked_its_outcome_its_tools_and_its_neighbours(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            (writer.run.program / "team.py").write_text("".join(f"line {n}\n" for n in range(1, 30)))
            writer.begin()
            writer.write(finished(1))
            prompt = {"prompt": "do it", "name": "n", "agent": "ann"}
            writer.write(started(2, step="think", site=Site("team.py", 7)), value=prompt)
            writer.write(e.ToolCalled(p="main", n=2, call=1, place=1, tool="look"), value={"at": "x"})
            writer.write(e.ToolFinished(p="main", n=2, call=1), value="seen")
            outcome = {"key": "ik:1", "agent": "ann", "text": "done", "conversation": "c1"}
            writer.write(finished(2, step="think", usd=0.25), value=outcome)
            writer.write(started(3))
            async with serve(make_site(tmp_path)) as served:
                step = await fetch(served, f"{BASE}/step?p=main&n=2")
                assert step["asked"]["value"]["prompt"] == "do it"
                assert step["value"]["value"]["text"] == "done"
                assert (step["key"], step["usd"]) == ("ik:1", 0.25)
                assert [(tool["tool"], tool["status"]) for tool in step["tools"]] == [("look", "finished")]
                assert step["site"]["line"] == 7
                assert step["site"]["around"][0] == [3, "line 3"]
                assert step["site"]["around"][-1] == [11, "line 11"]
                assert (step["before"]["n"], step["after"]["n"]) == (1, 3)
                assert step["entries"] == [6, 9]
                tool = await fetch(served, f"{BASE}/step?p=main/do:2.1&n=0")
                assert (tool["asked"]["value"], tool["value"]["value"]) == ({"at": "x"}, "seen")
                then = await fetch(served, f"{BASE}/step?p=main&n=2&at=7")
                assert (then["status"], then.get("value")) == ("open", None)

    run(look)


@pytest.mark.requirement("web-large-values-are-cut")
def test_a_large_value_is_shown_by_its_beginning_and_can_be_downloaded(tmp_path: Path) -> None:
    text = "x" * (CUT_BYTES + 1000)

    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            seq = writer.write(finished(1), value=text)
            small = writer.write(finished(2), value={"deep": [1, 2]})
            async with serve(make_site(tmp_path)) as served:
                shown = await fetch(served, f"{BASE}/value/{seq}")
                assert shown["cut"]
                assert shown["size"] == len(text) + 2
                assert len(shown["text"]) == CUT_BYTES
                step = await fetch(served, f"{BASE}/step?p=main&n=1")
                assert step["value"]["cut"]
                assert step["blob"]["size"] == len(text) + 2
                whole = await served.get(f"{BASE}/value/{seq}?download=true")
                assert json.loads(whole.body) == text
                assert whole.headers["content-type"] == "application/octet-stream"
                assert whole.headers["content-disposition"] == f'attachment; filename="entry-{seq}.json"'
                assert (await fetch(served, f"{BASE}/value/{small}"))["value"] == {"deep": [1, 2]}

    run(look)


@pytest.mark.parametrize("raw", [b"1e999", b'{"a":' + b"9" * 400 + b"}"])
def test_a_number_that_is_out_of_range_holds_up_nothing(tmp_path: Path, raw: bytes) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.journal.stage(e.draft(finished(1), raw))
            writer.journal.commit()
            async with serve(make_site(tmp_path)) as served:
                shown = await fetch(served, f"{BASE}/value/{writer.seq}")
                assert shown.get("text", "").encode()[:50] == raw[:50] or shown["value"] == json.loads(raw)
                assert (await fetch(served, f"{BASE}/entries"))["entries"][-1]["value"]["size"] == len(raw)
                assert (await fetch(served, f"{BASE}/step?p=main&n=1"))["status"] == "finished"

    run(look)


@pytest.mark.parametrize("raw", [b"[" * 50_000 + b"]" * 50_000, b'"\\ud800"', b"not JSON at all"])
def test_what_no_value_can_stand_for_is_shown_as_text(raw: bytes) -> None:
    shown = Hider(Redactor({})).show(raw)

    assert (shown.cut, shown.size, shown.text.encode()) == (True, len(raw), raw)


# Messages, calls, money.


def test_messages_are_a_window_and_dead_letters_have_their_history(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for n in range(1, 302):
                sent = e.MessageSent(mailbox="a" if n % 2 else "b", id=f"m-{n}", size=1, sender="main")
                writer.journal.stage(e.draft(sent, b'"hi"'))
            writer.journal.commit()
            writer.write(e.MessageTaken(mailbox="a", id="m-1", p="main", n=1, fp="f"), value="hi")
            writer.write(e.MessageMoved(mailbox="a", id="m-3", to="dead", reason="timeout", attempts=2))
            async with serve(make_site(tmp_path)) as served:
                window = await fetch(served, f"{BASE}/messages")
                assert [window["messages"][0]["id"], window["messages"][-1]["id"]] == ["m-102", "m-301"]
                before = await fetch(served, f"{BASE}/messages?before={window['next']}")
                assert [one["id"] for one in before["messages"]][-1] == "m-101"
                first = before["messages"][0]
                assert (first["id"], first["status"], first["receiver"]) == ("m-1", "received", "main")
                of_a = await fetch(served, f"{BASE}/messages?mailbox=a&worker=main&status=dead")
                assert [(one["id"], one["reason"]) for one in of_a["messages"]] == [("m-3", "timeout")]
                letter = of_a["messages"][0]["letter"]
                shown = await fetch(served, f"{BASE}/letters/{letter}")
                assert (shown["reason"], shown["attempts"], shown["value"]["value"]) == ("timeout", 2, "hi")
                assert [note["event"] for note in shown["history"]] == ["dead"]
                assert (await fetch(served, f"{BASE}/letters?at={writer.seq - 1}")) == []
                boxes = {box["name"]: box for box in await fetch(served, f"{BASE}/mailboxes")}
                assert (boxes["a"]["queued"], boxes["b"]["queued"]) == (149, 150)

    run(look)


def test_money_is_summed_by_agent_task_and_worker_and_says_what_was_not_paid_again(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for n, agent in enumerate(("ann", "bob", "ann"), 1):
                command: dict[str, object] = {"action": "implement", "task_id": f"t{n}", "inputs": {}}
                writer.write(
                    started(n, step="think"),
                    value={"prompt": "", "name": "", "agent": agent, "command": command},
                )
                usage = {"input_tokens": 10, "turns": 1}
                outcome = {"key": f"ik:{n}", "agent": agent, "usage": usage}
                writer.write(finished(n, step="think", usd=0.5 * n), value=outcome)
                if n == 2:
                    writer.write(e.HubStarted(hub=2))
            async with serve(make_site(tmp_path)) as served:
                money = await fetch(served, f"{BASE}/money")
                assert (money["spent_usd"], money["kept_usd"], money["resumes"]) == (3.0, 1.5, 1)
                assert [(one["name"], one["usd"], one["calls"]) for one in money["by_agent"]] == [
                    ("ann", 2.0, 2),
                    ("bob", 1.0, 1),
                ]
                assert money["by_agent"][0]["usage"] == {"input_tokens": 20, "turns": 2}
                assert [one["name"] for one in money["by_task"]] == ["t3", "t2", "t1"]
                assert [point[2] for point in money["points"]] == [0.5, 1.5, 3.0]
                then = await fetch(served, f"{BASE}/money?at={money['points'][0][1]}")
                assert (then["spent_usd"], then.get("kept_usd", 0)) == (0.5, 0)

    run(look)


def test_a_prompt_and_an_outcome_that_are_blobs_are_read_when_they_are_shown(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.write(
                started(1, step="think"), value={"prompt": "p" * 70_000, "name": "n", "agent": "ann"}
            )
            outcome = {"key": "ik:own", "agent": "ann", "text": "t" * 70_000, "conversation": "c1"}
            writer.write(finished(1, step="think"), value=outcome)
            async with serve(make_site(tmp_path)) as served:
                (call,) = (await fetch(served, f"{BASE}/talk"))["calls"]
                assert (call["agent"], call["prompt_chars"], call["conversation"]) == ("ann", 70_000, "c1")
                talk = await fetch(served, f"{BASE}/talk/{call['key']}")
                assert len(talk["prompt"]["value"]["prompt"]) == 70_000

    run(look)


# Failures.


@pytest.mark.requirement("web-failure-through-all-workers")
def test_a_failure_is_shown_through_all_workers_with_source_lines_and_the_next_command(
    tmp_path: Path,
) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            (writer.run.program / "team.py").write_text("".join(f"line {n}\n" for n in range(1, 30)))
            (writer.run.program / "shop.pw").write_text("worker main {\n  ask two\n}\n")
            writer.begin()
            stack = [
                StackLine(file="/usr/lib/python3/x.py", line=3, function="f", text="elsewhere"),
                StackLine(file=str(writer.run.program / "team.py"), line=9, function="inner"),
                StackLine(
                    file=str(writer.run.program / "shop.pw"), line=2, function="main", column=3, width=3
                ),
            ]
            cause = ErrorData(type="builtins:KeyError", message="cause")
            error = ErrorData(
                type="builtins:ValueError", message="cannot parse 'two'", stack=stack, cause=cause
            )
            writer.write(started(1, step="delegate", site=Site("team.py", 5)))
            writer.write(e.WorkerSpawned(path="main/1:outer", worker="team:outer", p="main", n=1))
            writer.write(started(1, "main/1:outer", "delegate", site=Site("team.py", 20)))
            inner = "main/1:outer/1:inner"
            writer.write(e.WorkerSpawned(path=inner, worker="team:inner", p="main/1:outer", n=1))
            crashed = e.WorkerCrashed(path=inner, incarnation=1, reason="SIGSEGV", stderr_tail="boom\n")
            writer.write(crashed)
            writer.write(e.StepFailed(p=inner, n=1, step="body", fp="f", error=error))
            writer.write(e.WorkerEnded(path=inner, error=error, origin=(inner, 1)))
            writer.write(e.FailureRecorded(worker=inner, error=error, p=inner, n=1))
            writer.write(e.FailureRecorded(worker="main", error=ERROR, suppressed=True))
            writer.write(e.RunEnded(status="failed"))
            async with serve(make_site(tmp_path)) as served:
                failure = await fetch(served, f"{BASE}/failure")
                assert (failure["worker"], failure["n"]) == (inner, 1)
                assert [(one["worker"], one["how"], one["step"]) for one in failure["chain"]] == [
                    (inner, "failed", f"{inner}:1"),
                    ("main/1:outer", "delegated", "main/1:outer:1"),
                    ("main", "delegated", "main:1"),
                ]
                assert [one["site"]["line"] for one in failure["chain"]] == [2, 20, 5]
                assert failure["chain"][1]["site"]["around"][4] == [20, "line 20"]
                places = failure["causes"][0]["stack"]
                assert places[0]["around"] == [[3, "elsewhere"]]
                assert (places[2]["file"], places[2]["column"], places[2]["width"]) == ("shop.pw", 3, 3)
                assert failure["causes"][1]["message"] == "cause"
                assert [one["message"] for one in failure["suppressed"]] == ["no"]
                assert [(one["reason"], one["stderr_tail"]) for one in failure["crashes"]] == [
                    ("SIGSEGV", "boom\n")
                ]
                assert failure["commands"] == [f"bartack resume {RUN}"]
                before = await fetch(served, f"{BASE}/failure?at=9")
                assert before.get("error") is None

    run(look)


# Receipts, snapshots, program.


def test_receipts_are_compared_with_the_files_and_their_files_can_be_had(tmp_path: Path) -> None:
    found = restore("pipeline", tmp_path)
    (artifact,) = tmp_path.glob("weeks.txt")
    content = artifact.read_bytes()

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            base = f"/api/v1/runs/{found.id}/receipts"
            (row,) = (await fetch(served, base))["receipts"]
            assert row["verified"] == {"weeks.txt": "same"}
            answer = await served.get(f"{base}/weeks/1/artifacts/0")
            assert (answer.status, answer.body) == (200, content)
            assert answer.headers["content-disposition"] == 'attachment; filename="artifact-1-0"'
            assert answer.headers["content-type"] == "application/octet-stream"
            artifact.write_text("another text")
            assert (await fetch(served, f"{base}/weeks/1"))["verified"] == {"weeks.txt": "changed"}
            artifact.unlink()
            assert (await fetch(served, f"{base}/weeks/1"))["verified"] == {"weeks.txt": "missing"}
            for place in (tmp_path / "inside.txt", tmp_path.parent / "outside.txt"):
                place.write_bytes(content)
                artifact.symlink_to(place)
                linked = await served.get(f"{base}/weeks/1/artifacts/0")
                assert (linked.status, content in linked.body) == (404, False)
                artifact.unlink()
            assert (await fetch(served, f"{base}?at=5"))["receipts"] == []

    run(look)


def test_snapshots_are_compared_by_file_and_by_line_where_both_contents_can_be_had(tmp_path: Path) -> None:
    found = restore("pipeline", tmp_path)
    (tmp_path / "kept.txt").write_text("one\ntwo\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "kept.txt"], cwd=tmp_path, check=True)
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=tmp_path, check=True)
    (tmp_path / "kept.txt").write_text("one\nthree\n")
    _write_manifest(found.path, "snap-e94d6745a5a7", {"kept.txt": b"one\ntwo\n", "lost.txt": b"1"})
    _write_manifest(
        found.path, "snap-026019feae98", {"kept.txt": b"one\nthree\n", "lost.txt": b"2", "new.txt": b"3"}
    )

    async def look() -> None:
        async with serve(make_site(tmp_path)) as served:
            base = f"/api/v1/runs/{found.id}/snapshots"
            listed = (await fetch(served, base))["snapshots"]
            assert [one["id"] for one in listed] == ["snap-e94d6745a5a7", "snap-026019feae98"]
            assert {one["task"] for one in listed} == {"weeks"}
            assert all(one["kept"] for one in listed)
            diff = await fetch(served, f"{base}/diff?a={listed[0]['id']}&b={listed[1]['id']}")
            files = {one["path"]: one for one in diff["files"]}
            assert files["kept.txt"]["lines"] == ["@@ -1,2 +1,2 @@", " one", "-two", "+three"]
            assert "lines" not in files["lost.txt"]
            assert (files["new.txt"]["change"], files["new.txt"]["size_after"]) == ("added", 1)

    run(look)


def _write_manifest(run_dir: Path, name: str, files: dict[str, bytes]) -> None:
    listed = [
        {
            "path": path,
            "mode": "100644",
            "size": len(content),
            "sha256": f"sha256:{hashlib.sha256(content).hexdigest()}",
        }
        for path, content in files.items()
    ]
    manifest = {"schema": 1, "snapshot_id": name, "source": "git", "captured_at": "2026-11-16T09:46:37Z"}
    (run_dir / "snapshots").mkdir(exist_ok=True)
    whole = {**manifest, "count": len(listed), "bytes": 0, "files": listed}
    (run_dir / "snapshots" / f"{name}.manifest.json").write_text(json.dumps(whole))


def test_the_program_is_compared_with_the_project(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for name, pinned, now in (
                ("team.py", "a\nb\n", "a\nc\n"),
                ("same.py", "x", "x"),
                ("gone.py", "y", None),
            ):
                (writer.run.program / name).write_text(pinned)
                if now is not None:
                    (tmp_path / name).write_text(now)
            async with serve(make_site(tmp_path)) as served:
                files = {one["path"]: one for one in (await fetch(served, f"{BASE}/program"))["files"]}
                assert {name: one["now"] for name, one in files.items()} == {
                    "team.py": "changed",
                    "same.py": "same",
                    "gone.py": "missing",
                }
                assert files["team.py"]["lines"] == ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]

    run(look)


# Journal and log.


def test_entries_and_the_log_are_shown_in_parts(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            for n in range(1, 301):
                writer.journal.stage(
                    e.draft(e.OutputWritten(p="main", n=n, channel="print"), b'"line %d"' % n)
                )
            writer.journal.commit()
            writer.write(e.WorkerCrashed(path="main", incarnation=1, reason="SIGKILL"))
            async with serve(make_site(tmp_path)) as served:
                entries = await fetch(served, f"{BASE}/entries?from=1&limit=3")
                assert [one["kind"] for one in entries["entries"]] == [
                    "journal.opened",
                    "run.created",
                    "hub.started",
                ]
                assert entries["next"] == 4
                assert (await fetch(served, f"{BASE}/entries?limit=2"))["entries"][-1]["seq"] == writer.seq
                log = await fetch(served, f"{BASE}/log")
                assert [log["lines"][0]["text"], log["lines"][-2]["text"]] == ["line 102", "line 300"]
                assert log["lines"][-1]["text"] == "crash: SIGKILL"
                earlier = await fetch(served, f"{BASE}/log?before={log['next']}")
                assert earlier["lines"][-1]["text"] == "line 101"
                assert earlier.get("next", 0) == 0
                then = await fetch(served, f"{BASE}/log?at=10")
                assert then["lines"][-1]["text"] == "line 6"

    run(look)


# Lists.


@pytest.mark.requirement("web-lists-runs")
def test_runs_are_listed_filtered_and_found_by_their_words(tmp_path: Path) -> None:
    names = [f"run-20261118-10101{n}-0123abcd" for n in range(4)]

    async def look() -> None:
        for name in names:
            with written_run(tmp_path, name) as writer:
                _end(writer, name == names[1])
        (tmp_path / ".bartack/runs/run-20261118-101019-0123abcd").mkdir()
        (tmp_path / ".bartack/runs/run-20261118-101018-0123abcd").mkdir()
        (tmp_path / ".bartack/runs/run-20261118-101018-0123abcd/run.json").write_text("{}")
        async with serve(make_site(tmp_path)) as served:
            listed = await fetch(served, "/api/v1/runs")
            assert [one["run"] for one in listed["runs"]] == ["run-20261118-101018-0123abcd", *names[::-1]]
            assert listed["counts"] == {"unreadable": 1, "failed": 1, "completed": 3}
            failed = await fetch(served, "/api/v1/runs?status=failed&status=waiting")
            assert [(one["run"], one["error"]) for one in failed["runs"]] == [(names[1], "main: no")]
            assert (await fetch(served, "/api/v1/runs?q=TEAM.py"))["total"] == 4
            assert (await fetch(served, "/api/v1/runs?q=no&status=failed"))["total"] == 1
            assert (await fetch(served, "/api/v1/runs?ws=elsewhere"))["total"] == 0
            part = await fetch(served, "/api/v1/runs?limit=2")
            rest = await fetch(served, f"/api/v1/runs?limit=2&after={part['next']}")
            assert [one["run"] for one in rest["runs"]] == names[2:0:-1]
            assert (await served.get("/api/v1/runs/latest")).json["run"]["run"] == names[-1]

    run(look)


def _end(writer: Writer, failed: bool) -> None:
    writer.begin()
    if failed:
        writer.write(e.WorkerEnded(path="main", error=ERROR), e.FailureRecorded(worker="main", error=ERROR))
    writer.write(e.RunEnded(status="failed" if failed else "completed"))
    writer.mirror()


@pytest.mark.requirement("web-lists-runs")
def test_a_site_without_runs_or_with_an_unreadable_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "bad/.bartack/runs").mkdir(parents=True)
    (tmp_path / "bad/.bartack").chmod(0o777)

    async def look() -> None:
        site = make_site(tmp_path)
        site.workspaces.append(tmp_path / "bad")
        async with serve(site) as served:
            listed = await fetch(served, "/api/v1/runs")
            assert listed["runs"] == []
            assert [one["code"][:2] for one in listed["problems"]] == ["BT"]
            assert (await fetch(served, "/api/v1/questions"))["questions"] == []

    run(look)


def test_the_status_of_a_killed_run_is_that_of_the_end_of_its_journal(tmp_path: Path) -> None:
    async def look() -> None:
        with written_run(tmp_path) as writer:
            writer.begin()
            writer.mirror()
            mirror = json.loads(writer.run.summary() or b"")
            writer.run.mark(json.dumps({**mirror, "status": "running", "pid": 1}).encode())
            async with serve(make_site(tmp_path)) as served:
                (row,) = (await fetch(served, "/api/v1/runs"))["runs"]
                assert row["status"] == "interrupted"
            writer.write(e.FailureRecorded(worker="main", error=ERROR), e.RunEnded(status="failed"))
            async with serve(make_site(tmp_path)) as served:
                (row,) = (await fetch(served, "/api/v1/runs"))["runs"]
                assert (row["status"], row["error"]) == ("failed", "main: no")

    run(look)


def test_questions_of_all_runs_are_listed_the_oldest_first(tmp_path: Path) -> None:
    names = [f"run-20261118-10101{n}-0123abcd" for n in range(2)]

    async def look() -> None:
        for name in names:
            with written_run(tmp_path, name) as writer:
                writer.begin()
                writer.write(
                    started(1, step="ask", question="q1"), value={"question": f"of {name}?", "type": "bool"}
                )
                writer.write(e.HubStopped(reason="waiting"))
                writer.mirror()
        async with serve(make_site(tmp_path)) as served:
            asked = (await fetch(served, "/api/v1/questions"))["questions"]
            assert [(one["run"], one["type"]) for one in asked] == [(name, "bool") for name in names]
            assert asked[0]["question"] == f"of {names[0]}?"

    run(look)
