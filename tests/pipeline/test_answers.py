"""What agents may change: a reviewer nothing, a spec maintainer its sections. What is refused stays as it is, and is done again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.pipeline.team import (
    APPROVED,
    Team,
    edits,
    order,
    outcomes,
    receipts,
    settings,
    statuses,
    wrote,
)

from bartack.config.sections import ReviewConfig, SpecConfig
from bartack.errors import ReceiptConflictError
from bartack.pipeline.records.receipts import encode_receipt, receipt_path, store_receipt

REVIEW: list[dict[str, object]] = [{"type": "review.completed", "status": "approved"}]
MINE = [{"path": "src/a.py", "content": "MINE = 1\n"}]
MEDDLES = {"write": MINE, "events": [{**REVIEW[0], "artifacts": [{"path": "src/a.py"}]}]}
"""A reviewer that edits code, and reports it."""
SECRETLY = {"write": MINE, "events": REVIEW}
"""One that does not report it: that could be the edit of a person."""
BEFORE = "# Spec\n\nIntro.\n\n## Status\n\nold\n\n## Scope\n\nfixed\n"
SPEC = {"README.md": "hello\n", "SPEC.md": BEFORE}


@pytest.mark.requirement("reviewers-only-read")
def test_a_reviewer_that_edits_code_fails_its_step_and_the_edit_stays(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [MEDDLES, APPROVED]})
    with team.running(order("T-1")) as run:
        assert run.error is not None
        assert run.error.kind == "ReadOnlyViolationError"
        assert "src/a.py" in run.error.message
        assert (tmp_path / "src/a.py").read_text() == "MINE = 1\n"
        assert [receipt.action for receipt in receipts(run)] == ["implement"]

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")], "it did not change during the second review"
        first, second = team.commands[1:]
        assert first.idempotency_key == second.idempotency_key
        assert (second.retry.cause, second.retry.code) == ("rejected", "read_only_violation")


@pytest.mark.requirement("review-is-not-paid-twice")
def test_an_answer_counts_without_another_review_when_a_person_has_undone_the_edit(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [MEDDLES, APPROVED]})
    with team.running(order("T-1")) as run:
        (tmp_path / "src/a.py").write_text("A = 1\n")

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert [command.action for command in team.commands] == ["implement", "review"]
        assert [receipt.action for receipt in receipts(run)] == ["implement", "review"]


@pytest.mark.parametrize(("rule", "failed"), [("auto", False), ("warn", False), ("fail", True)])
@pytest.mark.requirement("unclear-changes-are-not-blamed")
def test_a_change_that_is_not_reported_is_what_the_settings_say(
    tmp_path: Path, rule: str, *, failed: bool
) -> None:
    review = msgspec.convert({"unclear": rule}, type=ReviewConfig)

    run = Team(tmp_path, {"review": SECRETLY}).run(order("T-1", using=settings(review=review)))

    logged = b"".join(bytes(entry.value or b"") for entry in run.journal if entry.kind == "output")
    assert (b"src/a.py changed during the review, and the agent did not report it" in logged) == (not failed)
    assert (run.error is not None) == failed
    if run.error is not None:
        assert run.error.kind == "ReadOnlyViolationError"
        assert "or another program, changed src/a.py" in run.error.message


@pytest.mark.parametrize("answer", ["other", "agent"])
def test_a_person_is_asked_who_changed_a_file_where_there_is_one(tmp_path: Path, answer: str) -> None:
    team = Team(tmp_path, {"review": SECRETLY}, answers={"*src/a.py changed during review*": answer})
    using = settings(asks=True)

    run = team.run(order("T-1", using=using))

    assert (run.error is None) == (answer == "other")
    assert [command.action for command in team.commands] == ["implement", "review"]


def test_a_refused_edit_that_is_made_again_is_refused_again(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": MEDDLES})
    with team.running(order("T-1")) as run:
        run.resume()
        run.finish()

        assert run.error is not None
        assert run.error.kind == "ReadOnlyViolationError"


def test_an_edit_of_a_person_between_failure_and_resume_is_no_violation(tmp_path: Path) -> None:
    team = Team(tmp_path, {"review": [MEDDLES, APPROVED]})
    with team.running(order("T-1")) as run:
        (tmp_path / "src/a.py").write_text("A = 3  # a person\n")
        (tmp_path / "README.md").write_text("a person was here\n")

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert (tmp_path / "src/a.py").read_text() == "A = 3  # a person\n"


def test_a_reviewer_may_write_where_it_may_and_add_what_it_wants(tmp_path: Path) -> None:
    writes = [{"path": "reviews/one.md", "content": "new"}, {"path": "notes.txt", "content": "added"}]
    team = Team(tmp_path, {"review": {"write": writes, "events": REVIEW}}, files={"reviews/one.md": "old"})

    run = team.run(order("T-1"))

    assert statuses(run) == [("T-1", "done")]
    logged = [bytes(entry.value or b"") for entry in run.journal if entry.kind == "output"]
    assert b'"the reviewer added notes.txt"' in logged


def test_writable_and_strict_decide_what_a_reviewer_may_do(tmp_path: Path) -> None:
    lax = Team(tmp_path, {"review": MEDDLES}).run(
        order("T-1", using=settings(review=ReviewConfig(strict=False)))
    )
    allowed = Team(tmp_path, {"review": MEDDLES}).run(
        order("T-1", using=settings(review=ReviewConfig(writable=["src/**"])))
    )

    assert lax.error is None
    assert allowed.error is None


# The spec.


@pytest.mark.requirement("spec-edits-are-checked")
def test_an_edit_inside_an_allowed_section_is_accepted(tmp_path: Path) -> None:
    team = Team(
        tmp_path, {"update_spec": edits(BEFORE.replace("old", "new\n\n### Details\n\nmore"))}, files=SPEC
    )

    run = team.run(order("T-1"))

    assert statuses(run) == [("T-1", "done")]
    assert [change.path for change in receipts(run)[-1].changes] == ["SPEC.md"]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (edits(BEFORE.replace("fixed", "loose")), "something outside of the sections"),
        (edits(BEFORE.replace("## Status", "## State")), "the heading '## Status' was changed"),
        (
            {
                **edits("print()\n", path="src/a.py"),
                "events": [{"type": "spec.updated", "artifacts": [{"path": "src/a.py"}]}],
            },
            "the spec maintainer changed src/a.py",
        ),
    ],
)
def test_any_other_edit_fails_and_is_neither_undone_nor_receipted(
    tmp_path: Path, reply: dict[str, object], told: str
) -> None:
    right = edits(BEFORE.replace("old", "right"))
    team = Team(tmp_path, {"update_spec": [reply, right]}, files=SPEC)
    with team.running(order("T-1")) as run:
        assert run.error is not None
        assert run.error.kind == "SpecEditError"
        assert told in run.error.message
        assert [receipt.action for receipt in receipts(run)] == ["implement", "review"]
        (tmp_path / "SPEC.md").write_text(BEFORE)
        (tmp_path / "src/a.py").write_text("A = 1\n")

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert (team.commands[-1].retry.cause, team.commands[-1].retry.code) == ("rejected", "spec_edit")
        assert team.commands[-1].idempotency_key == team.commands[-2].idempotency_key


def test_a_forbidden_edit_that_is_still_there_is_forbidden_again(tmp_path: Path) -> None:
    forbidden = BEFORE.replace("fixed", "loose")
    team = Team(tmp_path, {"update_spec": edits(forbidden)}, files=SPEC)
    with team.running(order("T-1")) as run:
        run.resume()
        run.finish()

        assert run.error is not None
        assert run.error.kind == "SpecEditError"


def test_the_difference_is_shown(tmp_path: Path) -> None:
    team = Team(tmp_path, {"update_spec": edits(BEFORE.replace("fixed", "loose"))}, files=SPEC)

    run = team.run(order("T-1"))

    assert run.error is not None
    assert "-fixed\n+loose" in run.error.message


def test_an_answer_that_denies_a_change_of_the_file_is_asked_for_again(tmp_path: Path) -> None:
    reply = edits(BEFORE.replace("old", "new"), event="spec.no_changes_needed")
    right = edits(BEFORE.replace("old", "right"))

    run = Team(tmp_path, {"update_spec": [reply, right]}, files=SPEC).run(order("T-1"))

    assert run.error is None
    refused = msgspec.json.decode(outcomes(run, "accept")[2])
    assert (refused["code"], refused["problem"]) == (
        "invalid_reply",
        "it says spec.no_changes_needed, and changed the spec file",
    )


def test_a_reported_update_without_a_change_is_a_note_and_not_paid_for_again(tmp_path: Path) -> None:
    team = Team(tmp_path, {"update_spec": {"events": [{"type": "spec.updated"}]}}, files=SPEC)

    run = team.run(order("T-1"))

    assert statuses(run) == [("T-1", "done")]
    assert sum(action == "update_spec" for _, action, _, _ in team.actions) == 1
    accepted = msgspec.json.decode(outcomes(run, "accept")[2])
    assert accepted["notes"] == ["the spec maintainer reported an update, but SPEC.md did not change"]


def test_the_maintainer_may_write_notes_and_the_configured_file(tmp_path: Path) -> None:
    spec = SpecConfig(file="docs/design.md", sections=["Scope"], notes=["notes/**"])
    text = BEFORE.replace("fixed", "loose")
    reply = {
        "write": [{"path": "docs/design.md", "content": text}, {"path": "notes/one.md", "content": "x"}],
        "events": [{"type": "spec.updated"}],
    }
    team = Team(tmp_path, {"update_spec": reply}, files={"docs/design.md": BEFORE})

    run = team.run(order("T-1", using=settings(spec=spec)))

    assert statuses(run) == [("T-1", "done")]


@pytest.mark.parametrize("create", [True, False])
def test_a_missing_spec_file_is_made_only_where_that_is_wanted(tmp_path: Path, *, create: bool) -> None:
    team = Team(tmp_path, {"update_spec": edits("# Spec\n")})

    run = team.run(order("T-1", using=settings(spec=SpecConfig(create=create))))

    assert run.error is None
    assert (tmp_path / "SPEC.md").exists() == create


# Receipts.


@pytest.mark.requirement("receipts")
def test_a_receipt_says_what_changed_whatever_the_agent_claims(tmp_path: Path) -> None:
    writes = [{"path": "src/a.py", "content": "A\n"}, {"path": "README.md", "delete": True}]
    reply = {"write": writes, "events": [{"type": "builder.completed"}]}
    team = Team(tmp_path, {"implement": reply})

    run = team.run(order("T-1"))

    first = receipts(run)[0]
    assert [(change.path, change.change) for change in first.changes] == [
        ("README.md", "deleted"),
        ("src/a.py", "added"),
    ]
    assert first.artifacts == []
    assert [receipt.step for receipt in receipts(run)] == [1, 2]


def test_a_receipt_is_a_file_that_is_never_overwritten(tmp_path: Path) -> None:
    team = Team(tmp_path)
    with team.running(order("T-1")) as run:
        folder = Path(run._scratch.name)
        [first, _] = receipts(run)
        file = folder / receipt_path(first)
        assert file.read_bytes() == encode_receipt(first)
        assert file.stat().st_mode & 0o777 == 0o600
        store_receipt(folder, first)
        file.write_bytes(b"{}")

        with pytest.raises(ReceiptConflictError):
            store_receipt(folder, first)

        assert file.read_bytes() == b"{}"
        file.write_bytes(encode_receipt(first))


@pytest.mark.requirement("receipts-are-written-again")
def test_a_receipt_of_which_a_power_cut_has_left_a_part_is_written_again(tmp_path: Path) -> None:
    team = Team(tmp_path)
    with team.running(order("T-1")) as run:
        folder = Path(run._scratch.name)
        [first, _] = receipts(run)
        file, content = folder / receipt_path(first), encode_receipt(first)
        lost_end = content[: len(content) // 2]
        lost_start = bytes(512) + content[512:]
        for left in (b"", bytes(len(content)), lost_end, lost_start):
            file.write_bytes(left)
            store_receipt(folder, first)
            assert file.read_bytes() == content


def test_a_file_in_the_place_of_a_receipt_stops_the_run_and_nothing_is_done_twice(tmp_path: Path) -> None:
    team = Team(tmp_path)
    with team.start(order("T-1")) as run:
        file = Path(run._scratch.name, "receipts/T-1/step-1.json")
        file.parent.mkdir(parents=True)
        file.write_bytes(b"{}")
        run.start()
        run.finish()
        assert run.error is not None
        assert run.error.kind == "ReceiptConflictError"
        file.unlink()

        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert file.read_bytes() == encode_receipt(receipts(run)[0])
        assert [action for _, action, _, _ in team.actions] == ["implement", "review"]


@pytest.mark.requirement("receipts")
def test_a_receipt_that_is_journaled_and_not_written_is_written_by_who_replays_the_journal(
    tmp_path: Path,
) -> None:
    team = Team(tmp_path)
    with team.running(order("T-1")) as run:
        file = Path(run._scratch.name) / receipt_path(receipts(run)[0])
        accepted = next(step.seq for step in run.steps if step.about == "accept")
        whole = file.read_bytes()
        del run._run.store.entries[accepted:]
        file.unlink()

        run.resume()
        run.finish()

        assert file.read_bytes() == whole
        assert [action for _, action, _, _ in team.actions] == ["implement", "review", "review"]


def test_an_artifact_is_the_same_changed_or_missing(tmp_path: Path) -> None:
    team = Team(tmp_path, {"implement": wrote("src/a.py", "A = 1\n")})
    run = team.run(order("T-1"))
    receipt = receipts(run)[0]

    same = receipt.verify(tmp_path)
    (tmp_path / "src/a.py").write_text("other")
    changed = receipt.verify(tmp_path)
    (tmp_path / "src/a.py").unlink()
    missing = receipt.verify(tmp_path)

    assert [same, changed, missing] == [{"src/a.py": word} for word in ("same", "changed", "missing")]


def test_an_artifact_with_a_secret_in_it_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_TOKEN", "a-long-secret-value")
    team = Team(tmp_path, {"implement": wrote("src/a.py", "KEY = 'a-long-secret-value'\n")})

    run = team.run(order("T-1"))

    assert [artifact.contains_secret for artifact in receipts(run)[0].artifacts] == [True]


def test_an_agent_is_told_why_its_answer_was_refused_and_which_attempt_it_is(tmp_path: Path) -> None:
    edited = edits(BEFORE.replace("old", "new"), event="spec.no_changes_needed")
    team = Team(tmp_path, {"update_spec": [edited, edits(BEFORE.replace("old", "newer"))]}, files=SPEC)
    with team.running(order("T-1")) as run:
        assert statuses(run) == [("T-1", "done")]
        first, second = [command.retry for command in team.commands if command.action == "update_spec"]

    assert (first.attempt, first.cause, first.message) == (1, "first", None)
    assert (second.attempt, second.cause, second.code) == (2, "rejected", "invalid_reply")
    assert second.message == "it says spec.no_changes_needed, and changed the spec file"
