from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.runs.stories import Begin, Call, Story, finished

HIDDEN = "s3cr3t-and-long-enough"


def contents(file: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream is not None
            found[member.name.partition("/")[2]] = stream.read()
    return found


@pytest.fixture
def secretive(story: Begin, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A run that has the secret everywhere."""
    monkeypatch.setenv("SOME_API_KEY", HIDDEN)
    told = story("dddd0004")
    told.tell(finished(1, about=f"curl {HIDDEN}"), json.dumps({"reply": f"a {HIDDEN}"}).encode()).end()
    for name in ("transcript.txt", "hub.log", ".failed"):
        (told.run.path / name).write_text(f"{name} {HIDDEN}\n")
    (told.run.program / "team.py").write_text(f"KEY = '{HIDDEN}'\n")
    (told.run.work / "private.txt").write_text("never packed")
    Path("bartack.toml").write_text("# settings\n")
    Path("workspace.txt").write_text("never packed")
    return told


def test_a_bundle_has_what_helps_and_lists_it(call: Call, secretive: Story, tmp_path: Path) -> None:
    shown = call("bundle", "latest")

    packed = contents(tmp_path / f"{secretive.id}.tar.gz")
    assert shown.returncode == 0
    assert set(packed) == {
        "versions.json",
        "doctor.json",
        "journal.ndjson",
        "run.json",
        ".failed",
        "hub.log",
        "transcript.txt",
        "program/team.py",
        "bartack.toml",
    }
    assert [line.split()[0].partition("/")[2] for line in shown.stdout.splitlines()] == list(packed)
    assert "look at its contents" in shown.stderr


@pytest.mark.requirement("bundles-have-no-secrets")
@pytest.mark.parametrize("options", [[], ["--prompts"]])
def test_no_secret_of_the_environment_is_in_a_bundle(
    call: Call, secretive: Story, options: list[str]
) -> None:
    call("bundle", "latest", "-o", "b.tar.gz", *options)

    packed = contents(Path("b.tar.gz"))
    assert [name for name, content in packed.items() if HIDDEN.encode() in content] == []
    assert packed["program/team.py"] == b"KEY = '$env:SOME_API_KEY'\n"


@pytest.mark.requirement("bundles-have-no-secrets")
@pytest.mark.parametrize(
    ("settings", "packed_as"),
    [
        (
            '[tests]\nenv = {DB_PASSWORD = "in the file only", CI = "1"}\n',
            'env = {DB_PASSWORD = "***", CI = "1"}',
        ),
        ("[tests.env]\nDB_PASSWORD = 'in the file only'\n", "DB_PASSWORD = '***'"),
    ],
)
def test_no_secret_of_the_settings_is_in_a_bundle(
    call: Call, completed: Story, settings: str, packed_as: str
) -> None:
    Path("bartack.toml").write_text(settings)

    call("bundle", "latest", "-o", "b.tar.gz")

    assert contents(Path("b.tar.gz"))["bartack.toml"].decode().splitlines()[1] == packed_as


@pytest.mark.requirement("bundles-have-no-secrets")
def test_values_are_left_out_unless_asked_for(call: Call, secretive: Story) -> None:
    call("bundle", "latest", "-o", "without.tar.gz")
    call("bundle", "latest", "-o", "with.tar.gz", "--prompts")

    without = contents(Path("without.tar.gz"))["journal.ndjson"].splitlines()[-1]
    with_them = contents(Path("with.tar.gz"))["journal.ndjson"].splitlines()[-1]
    assert "value" not in json.loads(without)
    assert json.loads(without)["value_size"] > 0
    assert json.loads(with_them)["value"] == {"reply": "a $env:SOME_API_KEY"}


def test_a_bundle_is_never_written_over_another_file(call: Call, completed: Story) -> None:
    Path("b.tar.gz").write_text("precious")

    assert call("bundle", "latest", "-o", "b.tar.gz").returncode == 2
    assert Path("b.tar.gz").read_text() == "precious"


def test_a_damaged_journal_is_packed_as_far_as_it_goes(call: Call, completed: Story) -> None:
    lines = (completed.run.path / "journal.ndjson").read_bytes().splitlines(keepends=True)
    lines[3] = b"x" * len(lines[3])
    (completed.run.path / "journal.ndjson").write_bytes(b"".join(lines))

    shown = call("bundle", str(completed.run.path), "-o", "b.tar.gz", "--json")

    assert shown.returncode == 0
    packed = [json.loads(line) for line in contents(Path("b.tar.gz"))["journal.ndjson"].splitlines()]
    assert packed[-1]["error"] == "BT201"


def test_the_list_is_there_for_programs(call: Call, completed: Story) -> None:
    shown = json.loads(call("bundle", "latest", "-o", "b.tar.gz", "--json").stdout)

    assert shown["file"] == "b.tar.gz"
    assert {member["name"].partition("/")[2] for member in shown["members"]} >= {"journal.ndjson"}
