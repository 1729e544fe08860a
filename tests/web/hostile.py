"""Texts that would be markup, script, headers or commands if it were forgotten that they are text; a run that is full of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from tests.crash.test_recorded_runs import JOURNALS
from tests.web.journals import Writer, finished, keep, started
from tests.web.pages import KEY

from bartack.journal import open_reader
from bartack.runtime.protocol.frames import ErrorData, StackLine
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

CORPUS: Final = {
    "script": "<script>alert(1)</script>",
    "handler": '"><img src=x onerror=alert(1)>',
    "address": "javascript:alert(1)",
    "title": "</title><script>alert(1)</script>",
    "svg": "<svg/onload=alert(1)>",
    "template": "{{ 7 * 7 }}{% include 'x' %}${7*7}#{7}",
    "lines": "one\r\ndata: {}\r\n\r\nevent: over\n\nid: 9\n\n",
    "textarea": "</textarea></pre></script><b>",
    "bidi": "\u202egnp.exe\u2066\u200b\ufeff",
    "terminal": "\x1b[31mred\x1b]52;c;aGk=\x07\x1b[2J",
    "control": "a\x00b\x08c\x7fd\x85e\u2028f",
    "attribute": "' autofocus onfocus='alert(1)",
    "entities": "&lt;b&gt;&amp;&#60;script&#62;",
    "word": "w" * 20_000,
}


# Long because each field of each kind of entry is named once.
def fill(writer: Writer, text: str, value: str = "") -> None:
    """Write a run that has a text in every field that can hold one; in values, which may be longer, another one if it is given."""
    run = writer
    long = value or text
    run.begin(project=text, argv=[text], environment={text: text})
    error = ErrorData(
        type=f"m:{text}",
        message=text,
        facts={text: text},
        stack=[StackLine(file=text, line=1, function=text, text=text)],
        cause=ErrorData(type="m:Cause", message=text),
    )
    child = f"main/1:{text[:100]}"
    run.write(started(1, step="delegate", about=text))
    run.write(
        e.WorkerSpawned(path=child, worker=f"m:{text}", p="main", n=1), value={"args": [long, {text: long}]}
    )
    run.write(started(1, child, about=text), value={text: long})
    run.write(finished(1, child), value={"argv": [text], "status": 0, "stdout": long})
    run.write(started(2, "main", "think", about=text), value=_prompt(long))
    run.write(e.ToolCalled(p="main", n=2, call=1, place=1, tool=text), value={text: long})
    run.write(e.ToolFailed(p="main", n=2, call=1, error=error))
    run.write(e.AttemptFailed(p="main", n=2, agent=text, attempt=1, code=text, text=text))
    asked = e.QuestionAsked(p="main", n=2, id="q1", ask="permission", agent=text, tool=text, about=text)
    run.write(asked, value={"text": long, "options": ["allow", "deny"], "tool": text, "input": {text: long}})
    question = {"question": long, "options": [text, "no"], "schema": {"title": long}, "default": long}
    run.write(started(3, step="ask", question="q2", about=text), value=question)
    run.write(e.OutputWritten(p="main", n=4, channel="print"), value=long)
    sent = e.MessageSent(mailbox=text, id=text[:200], size=3, sender=text, metadata={text: text}, topic=text)
    run.write(sent, value={text: long})
    run.write(e.MailboxChanged(mailbox=text, subscribe=text))
    letter = e.LetterAdded(
        message="m-9", mailbox=text, reason="timeout", sender=text, error=text, metadata={text: text}
    )
    run.write(letter, value=long)
    crashed = e.WorkerCrashed(path=child, incarnation=1, reason=text, last_step=text, stderr_tail=text)
    run.write(crashed)
    run.write(e.StepFailed(p=child, n=5, step="shell", fp="f", error=error, about=text))
    run.write(e.WorkerEnded(path=child, error=error, final=True))
    run.write(e.FailureRecorded(worker=child, error=error, p=child, n=5))
    run.write(e.FailureRecorded(worker="main", error=error, suppressed=True))
    folder = run.run.agents / "ann"
    folder.mkdir(parents=True)
    run.write(started(6, "main", "think", about="known"), value={"prompt": "p", "name": "n", "agent": "ann"})
    outcome = {"key": KEY, "agent": "ann", "text": long, "conversation": "talk"}
    run.write(finished(6, step="think"), value=outcome)
    lines: list[dict[str, Any]] = [
        {"event": "agent.text", "key": KEY, "at": "2026-11-18T10:10:10Z", "n": 1, "text": long},
        {"event": "agent.tool", "key": KEY, "at": text, "n": 2, "id": text, "tool": text, "input": long},
    ]
    (folder / "transcript.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "talk").mkdir()
    wire = [
        {"type": "bartack.opened", "kind": text},
        {"type": "bartack.line", "dir": text, "line": {"text": long}},
        {"at": text, "dir": "in", "bytes": 3, "line": {"text": text}},
    ]
    torn = text.replace("\n", " ")
    written = "".join(json.dumps(line) + "\n" for line in wire)
    (folder / "talk" / "stream.ndjson").write_text(f"{written}{torn}\n", newline="\n")
    _write_program(run.run, long)
    run.mirror()


def _prompt(text: str) -> dict[str, Any]:
    command = {"action": text, "task_id": text, "inputs": {text: text}}
    return {"prompt": text, "name": text, "agent": text, "command": command}


def _write_program(run: RunDir, text: str) -> None:
    run.program.mkdir(exist_ok=True)
    (run.program / "team.py").write_text(f"# {text}\n", errors="replace")


def fill_pipeline(entries: list[Any], text: str) -> list[Any]:
    """The entries of a recorded run of the pipeline with a text for its title, its file, its agent and its log lines."""
    words = {"Know that a year may have 53 weeks", "weeks.txt", "example", "start", "builder.completed"}

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return text if value in words else value
        if isinstance(value, list):
            return [changed(one) for one in cast("list[object]", value)]
        if isinstance(value, dict):
            return {name: changed(one) for name, one in cast("dict[str, Any]", value).items()}
        return value

    found: list[Any] = []
    for entry in entries:
        value = (
            None
            if entry.value is None
            else msgspec.Raw(msgspec.json.encode(changed(msgspec.json.decode(entry.value))))
        )
        found.append(msgspec.structs.replace(entry, value=value))
    return found


def restore_pipeline(workspace: Path, text: str) -> RunDir:
    """Put the recorded run of the pipeline into a workspace, with a text in its entries, and for the file of its snapshots."""
    (recorded,) = (JOURNALS / "pipeline").glob("run-*")
    with open_reader(recorded) as reader:
        run = keep(fill_pipeline(list(reader.read()), text), workspace, recorded.name)
    (run.path / "snapshots").mkdir(exist_ok=True)
    for manifest in (recorded / "snapshots").iterdir():
        written = manifest.read_text().replace('"path":"weeks.txt"', f'"path":{json.dumps(text)}')
        (run.path / "snapshots" / manifest.name).write_text(written)
    return run


def texts_in(value: Any) -> list[str]:
    """All texts of a JSON value, the names of members included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in cast("list[object]", value) for text in texts_in(one)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return [text for name, one in members.items() for text in (name, *texts_in(one))]
    return []


def below(workspace: Path) -> list[str]:
    """The addresses of the API that show a run."""
    return [
        "",
        "/steps",
        "/timeline",
        "/messages",
        "/mailboxes",
        "/letters",
        "/talk",
        "/failure",
        "/money",
        "/receipts",
        "/snapshots",
        "/entries",
        "/log",
        "/program",
    ]
