from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.journal import Draft, open_journal
from bartack.journal._format import encode_line
from bartack.testing import VirtualClock

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]
Damage = Callable[[bytes], bytes]

COMMANDS = ["show", "verify", "export"]
AT = "2026-01-01T00:00:00.000Z"


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def entries_of(shown: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in shown.stdout.splitlines()]


def blob_of(directory: Path) -> Path:
    return next(path for path in (directory / "blobs").rglob("*") if path.is_file())


@pytest.fixture
def damaged(journal_dir: Path) -> Callable[[Damage], Path]:
    def damage_file(damage: Damage) -> Path:
        file = journal_dir / "journal.ndjson"
        file.write_bytes(damage(file.read_bytes()))
        return journal_dir

    return damage_file


# show


def test_show_prints_one_line_an_entry(call: Call, journal_dir: Path) -> None:
    shown = call("journal", "show", str(journal_dir))

    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(f'     1  {AT}  journal.opened        {{"format":1,')
    assert lines[1:4] == [
        f'     2  {AT}  run.started           {{"name":"first"}}',
        f'     3  {AT}  step.started          {{"n":1}}',
        f'     4  {AT}  step.finished         {{"n":1}} value: [1,2]',
    ]
    assert lines[4].startswith(f'     5  {AT}  step.finished         {{"n":2}} value: 70.0 kB in blob ')
    assert len(lines) == 5


def test_the_file_and_its_directory_are_the_same_journal(call: Call, journal_dir: Path) -> None:
    for command in COMMANDS:
        by_file = call("journal", command, str(journal_dir / "journal.ndjson"))
        assert by_file.stdout == call("journal", command, str(journal_dir)).stdout
        assert by_file.returncode == 0


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("--from", "3"), [3, 4, 5]),
        (("--to", "2"), [1, 2]),
        (("--from", "4", "--to", "4"), [4]),
        (("--from", "99"), []),
        (("--kind", "step.*"), [3, 4, 5]),
        (("--kind", "run.*", "--kind", "*.finished"), [2, 4, 5]),
        (("--kind", "nothing"), []),
        (("--kind", "step.finished", "--to", "4"), [4]),
    ],
)
def test_show_prints_only_what_is_asked_for(
    call: Call, journal_dir: Path, options: tuple[str, ...], places: list[int]
) -> None:
    shown = call("journal", "show", str(journal_dir), *options)
    as_json = call("journal", "show", str(journal_dir), "--json", *options)

    assert [int(line[:6]) for line in shown.stdout.splitlines()] == places
    assert [entry["seq"] for entry in entries_of(as_json)] == places


def test_show_for_programs_has_the_large_value_only_when_asked(call: Call, journal_dir: Path) -> None:
    short = entries_of(call("journal", "show", str(journal_dir), "--json"))
    full = entries_of(call("journal", "show", str(journal_dir), "--json", "--full"))

    assert short[:4] == full[:4]
    assert short[3] == {
        "seq": 4,
        "commit": 3,
        "at": 1_767_225_600_000_000,
        "kind": "step.finished",
        "data": {"n": 1},
        "value": [1, 2],
    }
    assert "value" not in short[4]
    assert isinstance(short[4]["blob"], dict)
    assert full[4]["value"] == "x" * 70_000
    assert "blob" not in full[4]


def test_show_in_full_prints_the_large_value(call: Call, journal_dir: Path) -> None:
    assert call("journal", "show", str(journal_dir), "--full").stdout.endswith("x" * 70_000 + '"\n')


def test_show_never_prints_what_could_steer_a_terminal(call: Call, tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        journal.append("note", {"text": "a\x9b31mb\x7f\u202ec\x1b[2J"}, b'"\xc2\x9b"')

    shown = call("journal", "show", str(tmp_path / "run"), "--full").stdout

    assert '"a\\x9b31mb\\x7f\\u202ec\\u001b[2J"' in shown
    assert all(character.isprintable() for character in shown.replace("\n", ""))


def test_a_time_beyond_the_calendar_is_shown_as_its_number(call: Call, tmp_path: Path) -> None:
    with open_journal(tmp_path / "run", clock=VirtualClock(10**18)):
        pass

    assert f"     1  {10**18}  journal.opened" in call("journal", "show", str(tmp_path / "run")).stdout


# follow


def test_follow_prints_entries_as_they_are_written_and_ends_with_an_interrupt(
    start: Start, journal_dir: Path
) -> None:
    process = start("journal", "show", str(journal_dir), "--follow", "--from", "5")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("     5")
    with open_journal(journal_dir) as journal:
        assert "journal.opened" in process.stdout.readline()
        journal.append("note", {"text": "while it is followed"})
        assert "while it is followed" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert process.stderr.read() == ""


def test_follow_ends_behind_the_last_entry_that_is_wanted(start: Start, journal_dir: Path) -> None:
    process = start("journal", "show", str(journal_dir), "-f", "--to", "5", "--json")
    shown, _ = process.communicate(timeout=60)

    assert [json.loads(line)["seq"] for line in shown.splitlines()] == [1, 2, 3, 4, 5]
    assert process.returncode == 0


def test_follow_ends_when_the_journal_is_deleted(start: Start, journal_dir: Path) -> None:
    process = start("journal", "show", str(journal_dir), "-f", "--from", "5")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    (journal_dir / "journal.ndjson").unlink()

    assert process.wait(60) == 1
    assert process.stderr.read().startswith("error[BT206]: ")


# verify


@pytest.mark.requirement("verify-tells-by-exit-code")
def test_verify_says_that_a_journal_is_whole(call: Call, journal_dir: Path) -> None:
    shown = call("journal", "verify", str(journal_dir))

    size = (journal_dir / "journal.ndjson").stat().st_size
    assert shown.returncode == 0
    assert shown.stdout.splitlines() == [
        f"journal  {journal_dir}/journal.ndjson",
        "state    intact",
        "format   1",
        f"entries  5 in 4 commits, {size} bytes",
        f"time     {AT} to {AT}",
        "owners   1, one after the other",
        "values   1 large, 0 of them damaged or missing",
    ]


def test_verify_for_programs(call: Call, journal_dir: Path) -> None:
    report = json.loads(call("journal", "verify", str(journal_dir), "--json").stdout)

    assert report["ok"] is True
    assert (report["entries"], report["commits"], report["owners"]) == (5, 4, 1)
    assert (report["damage"], report["blobs"], report["blob_problems"]) == (None, 1, [])


@pytest.mark.parametrize("lost", [1, 5, 100])
@pytest.mark.requirement("verify-tells-by-exit-code")
def test_an_unfinished_line_is_no_damage(call: Call, damaged: Callable[[Damage], Path], lost: int) -> None:
    directory = damaged(lambda content: content[:-lost])
    (directory / "lock").unlink(missing_ok=True)  # which says that the line was acknowledged

    shown = call("journal", "verify", str(directory))

    assert shown.returncode == 0
    assert "entry 5 after it is unfinished and was never acknowledged" in shown.stdout
    assert len(call("journal", "show", str(directory)).stdout.splitlines()) == 4
    assert len(call("journal", "export", str(directory)).stdout.splitlines()) == 4


@pytest.mark.parametrize(
    ("found", "put", "entry"),
    [
        (b'"first"', b'"fiRst"', 2),
        (b'{"n":1}}', b'{"n":3}}', 3),
        (b'\n{"seq":3', b' {"seq":3', 2),
    ],
    ids=["early", "group", "newline"],
)
@pytest.mark.requirement("verify-tells-by-exit-code", "show-prints-what-is-left")
def test_damage_is_named_and_nothing_behind_it_is_shown(
    call: Call, damaged: Callable[[Damage], Path], found: bytes, put: bytes, entry: int
) -> None:
    directory = damaged(lambda content: content.replace(found, put, 1))
    before = files_below(directory)

    verified = call("journal", "verify", str(directory))
    report = json.loads(call("journal", "verify", str(directory), "--json").stdout)
    shown = call("journal", "show", str(directory))
    exported = call("journal", "export", str(directory))

    assert verified.returncode == shown.returncode == exported.returncode == 10
    assert f", entry {entry}: " in verified.stdout
    assert (report["ok"], report["damage"]["torn"], report["damage"]["seq"]) == (False, False, entry)
    assert f"damaged at byte {report['damage']['offset']}" in shown.stderr
    assert "error[BT201]" in shown.stderr
    assert "error[BT201]" in exported.stderr
    assert len(shown.stdout.splitlines()) == len(exported.stdout.splitlines()) == entry - 1
    assert files_below(directory) == before


def test_a_damaged_large_value_is_named(call: Call, journal_dir: Path) -> None:
    blob = blob_of(journal_dir)
    blob.write_bytes(b"y" * blob.stat().st_size)

    verified = call("journal", "verify", str(journal_dir))
    exported = call("journal", "export", str(journal_dir))

    assert verified.returncode == exported.returncode == 10
    assert "state    large values are damaged" in verified.stdout
    assert (
        f"damaged  blob {blob.parent.name}{blob.name}: the content does not match its checksum"
        in verified.stdout
    )
    assert exported.stderr.startswith("error[BT212]")


def test_a_missing_large_value_is_named(call: Call, journal_dir: Path) -> None:
    blob_of(journal_dir).unlink()

    assert call("journal", "verify", str(journal_dir)).returncode == 10
    assert call("journal", "export", str(journal_dir)).stderr.startswith("error[BT211]")
    assert call("journal", "show", str(journal_dir)).returncode == 0


# bad paths


def newer_format() -> bytes:
    body = b'"kind":"journal.opened","data":{"format":2,"fence":1,"pid":1,"by":"bartack 9"}'
    return encode_line([body], 1, 1, 0, 0)[0]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "code", "exit_code"),
    [
        pytest.param(b"hello\n", "BT201", 10, id="text"),
        pytest.param(b"", "BT201", 10, id="empty"),
        pytest.param(b'{"a":1}\n{"a":2}\n', "BT201", 10, id="other JSON lines"),
        pytest.param(bytes(range(256)) * 50, "BT201", 10, id="binary"),
        pytest.param(newer_format(), "BT207", 1, id="newer format"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(
    call: Call, tmp_path: Path, command: str, content: bytes, code: str, exit_code: int
) -> None:
    (tmp_path / "journal.ndjson").write_bytes(content)

    for path in (tmp_path, tmp_path / "journal.ndjson"):
        shown = call("journal", command, str(path))
        assert shown.returncode == exit_code
        assert shown.stderr.startswith(f"error[{code}]: {tmp_path}/journal.ndjson")
        assert shown.stdout == ""
    assert files_below(tmp_path) == {str(tmp_path / "journal.ndjson"): content}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "code", "exit_code"),
    [
        ("missing", "BT208", 7),
        ("empty-directory", "BT208", 7),
        ("file/below", "BT208", 7),
        ("loop", "BT104", 1),
        ("x" * 300, "BT208", 7),
        ("", "BT208", 7),
    ],
)
def test_a_path_without_a_journal_is_one_clear_error(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    name: str,
    code: str,
    exit_code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty-directory").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "loop").symlink_to("loop")

    shown = call("journal", command, name)

    assert shown.returncode == exit_code
    assert shown.stderr.startswith(f"error[{code}]: ")
    assert len(shown.stderr.splitlines()) == 3
    assert shown.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_journal_that_may_not_be_read_is_one_clear_error(
    call: Call, journal_dir: Path, command: str
) -> None:
    (journal_dir / "journal.ndjson").chmod(0)

    shown = call("journal", command, str(journal_dir))

    assert shown.returncode == 1
    assert shown.stderr.startswith("error[BT104]: ")


# export


@pytest.mark.requirement("export-is-complete")
def test_export_prints_every_entry_with_its_value(call: Call, journal_dir: Path) -> None:
    shown = call("journal", "export", str(journal_dir))

    exported = entries_of(shown)
    assert shown.returncode == 0
    assert [entry["seq"] for entry in exported] == [1, 2, 3, 4, 5]
    assert [entry["commit"] for entry in exported] == [1, 2, 3, 3, 5]
    assert exported[1]["data"] == {"name": "first"}
    assert exported[3]["value"] == [1, 2]
    assert exported[4]["value"] == "x" * 70_000


def test_export_keeps_to_one_line_an_entry_whatever_the_blob_holds(call: Call, tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        pretty = journal.put_blob(b'{\n  "a": [1,\n 2]\n}')
        binary = journal.put_blob(b"\xff\x00\n")
        journal.stage(Draft("pretty", {}, ref=pretty), Draft("binary", {}, ref=binary))
        journal.commit()

    exported = entries_of(call("journal", "export", str(tmp_path / "run")))

    assert exported[1]["value"] == {"a": [1, 2]}
    assert exported[2]["value_base64"] == base64.b64encode(b"\xff\x00\n").decode()
    assert "value" not in exported[2]


def test_export_into_a_file(call: Call, journal_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.ndjson"
    target.write_text("what was there before")

    shown = call("journal", "export", str(journal_dir), "-o", str(target))

    assert (shown.returncode, shown.stdout) == (0, "")
    assert target.read_text() == call("journal", "export", str(journal_dir)).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.ndjson", "run"]


def test_an_export_through_a_link_replaces_what_the_link_means(
    call: Call, journal_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "out.ndjson"
    target.write_text("what was there before")
    (tmp_path / "link").symlink_to(target)

    call("journal", "export", str(journal_dir), "-o", str(tmp_path / "link"))

    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == call("journal", "export", str(journal_dir)).stdout


def test_an_export_that_fails_leaves_the_file_as_it_was(
    call: Call, journal_dir: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.ndjson"
    target.write_text("what was there before")
    blob_of(journal_dir).unlink()

    shown = call("journal", "export", str(journal_dir), "-o", str(target))

    assert shown.returncode == 10
    assert target.read_text() == "what was there before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.ndjson", "run"]


def test_an_export_never_overwrites_the_journal_itself(call: Call, journal_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(journal_dir / "journal.ndjson")
    before = files_below(journal_dir)

    for target in (journal_dir / "journal.ndjson", tmp_path / "link"):
        shown = call("journal", "export", str(journal_dir), "-o", str(target))
        assert shown.returncode == 2
        assert "is the journal itself" in shown.stderr
    assert files_below(journal_dir) == before


def test_an_export_into_a_pipe_writes_into_it(call: Call, journal_dir: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        shown = call("journal", "export", str(journal_dir), "-o", str(pipe))
        if not pipe.is_fifo():
            reader.kill()
        read, _ = reader.communicate(timeout=60)

    assert shown.returncode == 0
    assert read == call("journal", "export", str(journal_dir)).stdout


@pytest.mark.parametrize("target", ["missing/out", "file/out", "directory"])
def test_an_export_to_an_impossible_place_is_one_clear_error(
    call: Call, journal_dir: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()

    shown = call("journal", "export", str(journal_dir), "-o", str(tmp_path / target))

    assert shown.returncode == 1
    assert shown.stderr.startswith(f"error[BT104]: {tmp_path / target}: ")


@pytest.mark.requirement("looking-takes-no-lock")
def test_a_journal_can_be_looked_at_while_somebody_owns_it(call: Call, journal_dir: Path) -> None:
    with open_journal(journal_dir) as journal:
        journal.append("note", {})
        codes = [call("journal", command, str(journal_dir)).returncode for command in COMMANDS]
        exported = entries_of(call("journal", "export", str(journal_dir)))

        assert codes == [0, 0, 0]
        assert exported[-1]["kind"] == "note"
        assert journal.append("note", {}) == 8


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.requirement("looking-takes-no-lock")
def test_looking_changes_nothing(call: Call, journal_dir: Path, command: str) -> None:
    before = files_below(journal_dir)

    call("journal", command, str(journal_dir))

    assert files_below(journal_dir) == before
