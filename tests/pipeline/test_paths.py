"""Files that change their nature between a look and a use: nothing outside the workspace is read, and nobody is fooled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.team import Team, order, receipts, wrote

from bartack.agents.artifacts import check_path
from bartack.errors import PlanPathError
from bartack.pipeline._main import _sum_of
from bartack.pipeline._steps import _look_for_secrets
from bartack.pipeline.records.records import Place, Settings
from bartack.runtime.rundir.receipts import Receipt, ReceiptArtifact

SECRET = "open-sesame-and-more"  # noqa: S105 - opens nothing


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with a file in a directory, and the same file outside."""
    workspace = tmp_path / "workspace"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/a.py").write_text("A = 1\n")
    (tmp_path / "a.py").write_text(SECRET)
    return workspace


@pytest.fixture
def swap(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets a directory become a link to the outside as soon as a path in it was checked."""

    def checked(root: str, path: str, refused: tuple[str, ...] = ()) -> str:
        real = check_path(root, path, refused)
        (place / "src").rename(place / "old")
        (place / "src").symlink_to(place.parent)
        return real

    return lambda: monkeypatch.setattr("bartack.agents.artifacts.check_path", checked)


def receipt_of(tmp_path: Path) -> Receipt:
    (tmp_path / "team").mkdir()
    return receipts(Team(tmp_path / "team", {"implement": wrote("src/a.py", "A = 1\n")}).run(order("T-1")))[0]


@pytest.mark.requirement("receipts")
def test_a_file_that_becomes_a_link_while_it_is_verified_is_missing(
    place: Path, swap: Callable[[], None]
) -> None:
    receipt = receipt_of(place.parent)
    assert receipt.verify(place) == {"src/a.py": "same"}
    swap()

    assert receipt.verify(place) == {"src/a.py": "missing"}


@pytest.mark.requirement("receipts")
def test_a_receipt_for_a_file_that_leads_out_or_is_gone_or_changed_says_so(place: Path) -> None:
    receipt = receipt_of(place.parent)
    (place / "src/a.py").write_text("A = 2\n")
    changed = receipt.verify(place)
    (place / "src/a.py").unlink()
    missing = receipt.verify(place)
    (place / "src/a.py").symlink_to(place.parent / "team/src/a.py")

    assert (changed, missing) == ({"src/a.py": "changed"}, {"src/a.py": "missing"})
    assert receipt.verify(place) == {"src/a.py": "missing"}


def test_secrets_are_not_looked_for_outside_of_the_workspace(
    place: Path, swap: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_TOKEN", SECRET)
    artifact = ReceiptArtifact(path="src/a.py", sha256="sha256:", size=6)
    where = Place(run_dir=str(place.parent), workspace=str(place))
    (place / "src/a.py").write_text(SECRET)
    assert _look_for_secrets(where, artifact, Settings()).contains_secret
    (place / "src/a.py").write_text("A = 1\n")
    swap()

    assert not _look_for_secrets(where, artifact, Settings()).contains_secret


def test_a_plan_that_becomes_a_link_while_it_is_read_is_refused(
    place: Path, swap: Callable[[], None]
) -> None:
    swap()

    with pytest.raises(PlanPathError):
        _sum_of(Place(run_dir=str(place.parent), workspace=str(place)), "src/a.py")


@pytest.mark.requirement("spec-edits-are-checked")
def test_a_spec_file_that_becomes_a_link_is_a_forbidden_edit(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "SPEC.md").write_text("# Spec\n\n## Status\n\nnew\n")
    team = Team(
        workspace,
        {
            "update_spec": {
                "write": [{"path": "SPEC.md", "delete": True}],
                "events": [{"type": "spec.updated"}],
            }
        },
        files={"SPEC.md": "# Spec\n\n## Status\n\nold\n"},
    )
    with team.start(order("T-1")) as run:
        run.start()
        run.wait_for("step.started", about="update_spec T-1")
        (workspace / "SPEC.md").unlink(missing_ok=True)
        (workspace / "SPEC.md").symlink_to(tmp_path / "SPEC.md")
        run.finish()

        assert run.error is not None
        assert run.error.kind == "SpecEditError"
        assert "symbolic link" in run.error.message
