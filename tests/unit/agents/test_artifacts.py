from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import request_for

from bartack.agents import Rejection
from bartack.agents.artifacts import check_path, verify_artifacts
from bartack.agents.contract import VerifiedArtifact
from bartack.agents.protocol.messages import Artifact, ExpectedOutput
from bartack.core.checksum import checksum
from bartack.errors import UnsafePathError

pytestmark = pytest.mark.requirement("artifacts-are-verified")


def said(path: str, content: str) -> Artifact:
    return Artifact(path, checksum(content.encode()), len(content))


def test_files_that_are_as_said_are_verified(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("one")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "..foo").write_text("dots")

    verdict = verify_artifacts(
        request_for("implement", tmp_path), [said("link/a.txt", "one"), said("..foo", "dots")]
    )

    assert verdict == [
        VerifiedArtifact("link/a.txt", checksum(b"one"), 3),
        VerifiedArtifact("..foo", checksum(b"dots"), 4),
    ]


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("missing.txt", "", "artifact_missing"),
        ("folder", "", "artifact_missing"),
        ("pipe", "", "artifact_missing"),
        ("a.txt", "longer", "artifact_mismatch"),
        ("a.txt", "two", "artifact_mismatch"),
        ("/etc/hostname", "", "path_escape"),
        ("../a.txt", "", "path_escape"),
        ("a/../a.txt", "one", "path_escape"),
        ("./a.txt", "one", "path_escape"),
        ("a//b", "", "path_escape"),
        ("C:/a", "", "path_escape"),
        ("a\\b", "", "path_escape"),
        ("a\0b", "", "path_escape"),
        ("", "", "path_escape"),
        ("out/secret", "", "path_escape"),
        ("out/not-there-yet", "", "path_escape"),
        (".git/config", "", "path_escape"),
        (".bartack/x", "", "path_escape"),
        ("hidden/config", "", "path_escape"),
        ("state/x", "", "path_escape"),
        ("x" * 1025, "", "path_escape"),
    ],
)
def test_anything_else_is_refused_with_its_code(path: str, content: str, code: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "a.txt").write_text("one")
    os.mkfifo(root / "pipe")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("s")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "hidden").symlink_to(".git")
    request = request_for("implement", root, refused_paths=["state"])

    verdict = verify_artifacts(request, [said(path, content)])

    assert isinstance(verdict, Rejection)
    assert verdict.code == code


def test_every_bad_path_is_listed(tmp_path: Path) -> None:
    verdict = verify_artifacts(request_for("implement", tmp_path), [said("a", ""), said("b", "")])

    assert isinstance(verdict, Rejection)
    assert "a:" in verdict.message
    assert "b:" in verdict.message


@pytest.mark.requirement("artifacts-are-verified")
def test_thousands_of_bad_paths_are_one_readable_error_that_names_the_worst_first(tmp_path: Path) -> None:
    wrong = [said(f"{number}-{'x' * 200}", "text") for number in range(1999)]
    verdict = verify_artifacts(request_for("implement", tmp_path), [*wrong, said("../out.txt", "text")])

    assert isinstance(verdict, Rejection)
    assert verdict.code == "path_escape"
    assert verdict.message.startswith("2000 artifacts are wrong: unsafe path '../out.txt'")
    assert verdict.message.endswith("; and 1997 more")
    assert len(verdict.message) < 4096


def test_a_file_may_be_too_large(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12345")

    verdict = verify_artifacts(request_for("implement", tmp_path), [said("a", "12345")], max_bytes=4)

    assert isinstance(verdict, Rejection)
    assert verdict.code == "artifact_too_large"


def test_expected_files_are_found_or_missed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    wanted = [ExpectedOutput("there", required=True), ExpectedOutput("perhaps", required=False)]
    request = request_for("implement", tmp_path, expected_outputs=wanted)

    assert verify_artifacts(request, []) == [VerifiedArtifact("there", checksum(b"x"), 1, found=True)]

    missing = msgspec.structs.replace(request, expected_outputs=[ExpectedOutput("not", required=True)])
    verdict = verify_artifacts(missing, [])
    assert isinstance(verdict, Rejection)
    assert verdict.code == "artifact_missing"


def test_a_link_made_between_check_and_use_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/a").write_text("x")
    (tmp_path / "a").write_text("x")

    def swap(*args: object) -> str:
        real = check_path(*args)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - passed on
        (root / "d").rename(root / "old")
        (root / "d").symlink_to(tmp_path)
        return real

    monkeypatch.setattr("bartack.agents.artifacts.check_path", swap)

    verdict = verify_artifacts(request_for("implement", root), [said("d/a", "x")])

    assert isinstance(verdict, Rejection)


def test_a_path_is_told_with_its_links_resolved(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()

    assert check_path(str(tmp_path), "d/new.txt") == str(tmp_path.resolve() / "d/new.txt")
    with pytest.raises(UnsafePathError):
        check_path(str(tmp_path), "..")
