"""The steps of the pipeline that read the workspace or write into the run's directory. Each is executed once and journaled.

They run in the worker's process, in the workspace, and decide from what is on the disk at that moment; a replay takes what was
journaled. Who calls them is in ``_agent_calls.py`` and ``_task.py``; the steps with git are in ``worktree/_lanes.py``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.agents.artifacts import open_artifact
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.messages import Finding
from bartack.core.clock import SystemClock
from bartack.core.disk import is_disk_trouble
from bartack.core.files import replace_file
from bartack.core.redact import Redactor
from bartack.errors import (
    AgentBudgetError,
    AgentReplyError,
    BartackError,
    BudgetExceededError,
    PipelineError,
    ReadOnlyViolationError,
    ReviewLimitError,
    RoundLimitError,
    RunDiskError,
    SpecEditError,
    SpecLimitError,
    TasksFailedError,
    TestsGateError,
    UnsafePathError,
)
from bartack.pipeline._proposal import proposal_problem
from bartack.pipeline.records._attempts import find_attempts
from bartack.pipeline.records._done_before import Notebook
from bartack.pipeline.records.receipts import receipts_of, store_receipt
from bartack.pipeline.records.records import (
    Accepted,
    Checks,
    FindingsFile,
    Gate,
    Grant,
    Left,
    Place,
    Settings,
    Shot,
    Stop,
    TestRun,
)
from bartack.pipeline.settings import current_hub, load_settings, newer_settings, renew
from bartack.pipeline.snapshot._paths import first_paths, path_text
from bartack.pipeline.snapshot._patterns import Patterns
from bartack.pipeline.snapshot.listing import SnapshotOptions
from bartack.pipeline.snapshot.manifest import write_manifest
from bartack.pipeline.snapshot.sections import check_edit
from bartack.pipeline.snapshot.snapshot import capture
from bartack.pipeline.worktree._isolated import end_review
from bartack.pipeline.worktree._lanes import check_place
from bartack.pipeline.worktree._whose import Blame, blame, leave_out_others
from bartack.runtime import step, step_info
from bartack.runtime.rundir.pipeline_transcript import cut_line
from bartack.runtime.rundir.receipts import Attempt, FileChange, Receipt, ReceiptArtifact
from bartack.runtime.rundir.snapshots import (
    Change,
    FileEntry,
    Snapshot,
    compare,
    manifest_path,
    read_manifest,
    snapshot_id,
)

MOST_CHANGED: Final = 2000
MOST_CHANGES: Final = 1000
TAIL_BYTES: Final = 16 * 1024
SECRET_BYTES: Final = 1024 * 1024
CANNOT_RUN: Final = frozenset({126, 127})
LINK: Final = "120000"
"""The mode of a symbolic link in a snapshot."""


@contextmanager
def _keeping(place: Place) -> Generator[None]:
    """Something is written into the run's directory: a disk that refuses it interrupts the run, and fails nothing."""
    try:
        yield
    except OSError as error:
        if not is_disk_trouble(error) and not isinstance(error, PermissionError):
            raise
        path = error.filename if isinstance(error.filename, str) else place.run_dir
        raise RunDiskError(path, error.strerror or str(error)) from error


# Snapshots.


@step(name="snapshot")
def take_snapshot(place: Place, settings: Settings, since: str = "") -> Shot:
    """Capture the workspace; ``since``: an earlier snapshot that it is compared with."""
    return _shoot(place, settings, since)


def _shoot(place: Place, settings: Settings, since: str, found: Snapshot | None = None) -> Shot:
    found = found or _capture(place, settings)
    changes = _work(place, since, found) if since else []
    return Shot(
        snapshot_id=found.id,
        files=found.count,
        bytes=found.size_bytes,
        specs_hash=keep_spec(place, settings.spec.file),
        changed=[path_text(change.path) for change in changes[:MOST_CHANGED]],
        changed_more=max(len(changes) - MOST_CHANGED, 0),
        notes=list(found.notes),
        hub=current_hub(),
        settings=newer_settings(place.run_dir, settings),
    )


@step(name="rebase")
def rebase(place: Place, settings: Settings, base: str, refused: str) -> Shot:
    """What the next attempt is compared with: the workspace as it is, without what was refused and is still there.

    A person may have fixed or edited something since. What was refused does not become right by being there.
    """
    now = _capture(place, settings)
    before = {entry.path: entry for entry in _files(place, base)}
    bad = {change.path: change.entry for change in compare(before.values(), _files(place, refused))}
    merged: list[FileEntry] = []
    current = {entry.path: entry for entry in now.files}
    for path in {*current, *before}:
        entry = current.get(path)
        kept = before.get(path) if path in bad and bad[path] == entry else entry
        if kept is not None:
            merged.append(kept)
    merged.sort()
    keep_spec(place, settings.spec.file)
    made = Snapshot(snapshot_id(merged), now.source, lambda: merged)
    with _keeping(place):
        write_manifest(snapshots_of(place), made, moment(SystemClock().now_us()))
    return Shot(snapshot_id=made.id, files=made.count, bytes=made.size_bytes, hub=current_hub())


def note_resume(place: Place, settings: Settings, hub: int) -> None:
    """Remember the workspace as it is when a run is resumed: no agent made the changes since the run was interrupted.

    Of a run whose tasks are side by side it is the worktree that is remembered.
    """
    found = _capture(place, settings)
    replace_file(_resumed(place, hub), found.id.encode())


def _resumed(place: Place, hub: int) -> Path:
    lane = f"-{place.lane}" if place.lane else ""
    return Path(place.run_dir, "work", f"resumed-{hub}{lane}")


def _base(place: Place, base: Shot) -> str:
    """The snapshot that changes of an answer are measured from: what was there when its attempt began.

    That is the one it was commanded for, unless the run was resumed meanwhile and the command sent again.
    """
    now = current_hub()
    if now > base.hub:
        try:
            return _resumed(place, now).read_text()
        except OSError:
            return base.snapshot_id
    return base.snapshot_id


def _capture(place: Place, settings: Settings) -> Snapshot:
    # Without its .git file a worktree would be taken for a part of the repository above it.
    check_place(place)
    chosen = settings.snapshot
    inside = settings.state_dir.strip("/")
    own = [] if os.path.isabs(settings.state_dir) or inside.startswith("..") else [f"/{inside}/"]
    options = SnapshotOptions(
        source=chosen.source,
        roots=tuple(chosen.roots),
        exclude=(*chosen.exclude, *own),
        include=tuple(chosen.include),
        ignore=chosen.ignore,
        threads=chosen.threads,
    )
    found = capture(place.workspace, options, _cache(place))
    with _keeping(place):
        write_manifest(snapshots_of(place), found, moment(SystemClock().now_us()))
    return found


def _cache(place: Place) -> Path | None:
    """The cache of the workspace stands beside its runs."""
    runs = Path(place.run_dir).parent
    if runs.name != "runs":
        return None
    name = f"stat-1-{os.path.basename(place.run_dir)}-{place.lane}" if place.lane else "stat-1"
    return runs.parent / "cache" / name


def snapshots_of(place: Place) -> Path:
    """Where the manifests of a run are."""
    return Path(place.run_dir, "snapshots")


def _files(place: Place, id_: str) -> list[FileEntry]:
    return read_manifest(manifest_path(snapshots_of(place), id_))[1]


def _differences(place: Place, before: str, after: Snapshot) -> list[Change]:
    return [] if before == after.id else compare(_files(place, before), after.files)


def _work(place: Place, before: str, after: Snapshot, own: Collection[str] = ()) -> list[Change]:
    """The differences that count as work; ``own``: what an agent reports, which always does."""
    return leave_out_others(place, _differences(place, before, after), after.source, own)


def keep_spec(place: Place, name: str) -> str:
    """Keep the spec file as it is now, by its checksum; returns that, empty if there is no such file."""
    try:
        content = Path(place.workspace, name).read_bytes()
    except OSError:
        return ""
    digest = sha256(content).hexdigest()
    kept = _kept_spec(place, digest)
    if not kept.exists():
        with _keeping(place):
            replace_file(kept, content, parents=True)
    return f"sha256:{digest}"


def _kept_spec(place: Place, digest: str) -> Path:
    return Path(place.run_dir, "work", "spec", digest.removeprefix("sha256:"))


# Answers.


@step(name="accept")
def accept(
    place: Place, settings: Settings, draft: Receipt, shot: Shot, checks: Checks, since: str = ""
) -> Accepted:
    """Check the workspace after an answer: what was changed, and whether that is allowed.

    Args:
        place: Where.
        settings: What belongs to a snapshot.
        draft: The receipt, as far as it is known.
        shot: The snapshot that forbidden changes are measured from.
        checks: What is forbidden.
        since: An earlier snapshot that the one after the answer is compared with.
    """
    given, settings = settings, newer_settings(place.run_dir, settings) or settings
    isolated = [] if checks.isolated is None else end_review(place, checks.isolated, settings)
    found = _capture(place, settings)
    base = _base(place, shot)
    own = {artifact.path for artifact in draft.artifacts} | set(checks.accused)
    changes = _work(place, draft.snapshot_id, found, own)
    fresh = changes if base == draft.snapshot_id else _work(place, base, found, own)
    attempts = find_attempts(Path(place.run_dir), draft)
    look = _Look(place, base, changes, fresh, own, set(checks.cleared), attempts)
    result = Accepted(result_snapshot_id=found.id)
    if checks.isolated is not None:
        result = msgspec.structs.replace(result, notes=isolated)
    elif checks.review is not None:
        result = _check_review(result, look, settings)
    elif checks.spec is not None:
        result = _check_spec(result, look, draft.event, settings)
    elif checks.proposal is not None:
        problem = proposal_problem(checks.proposal, place.workspace)
        if problem:
            result = msgspec.structs.replace(result, code="invalid_reply", problem=problem)
    if result.code:
        return _refuse(result, draft, attempts)
    guard = Patterns(checks.protect)
    protected = [path_text(change.path) for change in changes if guard.match(change.path)]
    receipt = msgspec.structs.replace(
        draft,
        result_snapshot_id=found.id,
        changes=[_file_change(change) for change in changes[:MOST_CHANGES]],
        changes_more=max(len(changes) - MOST_CHANGES, 0),
        attempts=attempts,
        artifacts=[
            _look_for_secrets(place, artifact, settings) for artifact in _artifacts(draft, changes, settings)
        ],
        created_at=moment(SystemClock().now_us()),
    )
    after = _shoot(place, given, since, found)
    return msgspec.structs.replace(result, receipt=receipt, protected=protected, after=after)


def _refuse(result: Accepted, draft: Receipt, attempts: list[Attempt]) -> Accepted:
    """An answer that is refused: what it has used counts, and a note shows why the agent is asked again."""
    notes = result.notes
    if result.code == "invalid_reply":
        text = f"attempt {attempts[-1].attempt} of {draft.action} refused: {result.problem}"
        notes = [*notes, cut_line(f"{draft.agent.agent_id}  {text}")]
    return msgspec.structs.replace(result, notes=notes, used=draft.usage)


def _artifacts(draft: Receipt, changes: list[Change], settings: Settings) -> list[ReceiptArtifact]:
    """The files of an answer. For an agent that takes prompts only, they are the files that have changed."""
    if draft.action not in settings.prompts:
        return draft.artifacts
    return [
        ReceiptArtifact(
            path=path_text(change.path),
            sha256=f"sha256:{change.entry.sha256}",
            size=change.entry.size,
            found=True,
        )
        for change in changes[:MOST_CHANGES]
        if change.entry is not None
    ]


def _file_change(change: Change) -> FileChange:
    if change.entry is None:
        return FileChange(path=path_text(change.path), change="deleted")
    return FileChange(
        path=path_text(change.path),
        change="added" if change.change == "added" else "modified",
        sha256=f"sha256:{change.entry.sha256}",
        size=change.entry.size,
    )


class _Look(NamedTuple):
    """The workspace as it was when an answer came."""

    place: Place
    base: str
    """The snapshot from which forbidden changes are measured: what was there when the attempt began."""
    changes: list[Change]
    """Since the snapshot that was commanded."""
    fresh: list[Change]
    """Since the base."""
    own: set[str]
    """What the agent reports."""
    cleared: set[str]
    """Files that others changed, as a person decided."""
    attempts: list[Attempt]

    def blame(self, changes: list[Change], settings: Settings) -> Blame:
        """Which of these changes the agent made in this attempt, and which ones it may have made.

        In the worktree of a task nothing else is at work: there all of them are its own, unless the settings decide otherwise.
        """
        recent = {change.path for change in self.fresh}
        counted = [
            change
            for change in changes
            if (change.path in recent or path_text(change.path) in self.own)
            and path_text(change.path) not in self.cleared
        ]
        found = blame(self.place, counted, self.own, self.attempts)
        if not self.place.lane or settings.review.unclear != "auto":
            return found
        made = {change.path for change in (*found.certain, *found.unclear)}
        return Blame([change for change in counted if change.path in made], [])


def _check_review(result: Accepted, look: _Look, settings: Settings) -> Accepted:
    allowed = Patterns(settings.review.writable)
    outside = [change for change in look.changes if not allowed.match(change.path)]
    found = look.blame([change for change in outside if change.change != "added"], settings)
    bad = [path_text(change.path) for change in found.certain]
    if bad and settings.review.strict:
        return msgspec.structs.replace(
            result, code="read_only_violation", problem=first_paths(bad), blamed=bad
        )
    recent = {change.path for change in look.fresh}
    added = [change.path for change in outside if change.change == "added" and change.path in recent]
    notes = [
        *(f"the reviewer changed {path}" for path in bad),
        *(f"the reviewer added {path_text(path)}" for path in added),
    ]
    return _weigh(msgspec.structs.replace(result, notes=notes), found.unclear, "review", settings)


def _weigh(result: Accepted, unclear: list[Change], what: str, settings: Settings) -> Accepted:
    """Changes that an agent may have made lead to a note, a question, or a failure, as the settings decide."""
    paths = [path_text(change.path) for change in unclear]
    review = settings.review
    rule = ("ask" if settings.asks else "warn") if review.unclear == "auto" else review.unclear
    if not paths:
        return result
    if not review.strict or rule == "warn":
        note = (
            f"{first_paths(paths)} changed during the {what}, and the agent did not report it; "
            "this counts as the change of a person or of another program (review.unclear)"
        )
        return msgspec.structs.replace(result, notes=[*result.notes, note])
    code = "unclear" if rule == "ask" else "unclear_change"
    return msgspec.structs.replace(result, code=code, problem=first_paths(paths), blamed=paths)


def _check_spec(result: Accepted, look: _Look, event: str, settings: Settings) -> Accepted:
    spec = settings.spec
    allowed = Patterns(spec.notes)
    own = spec.file.encode()
    found = look.blame([c for c in look.fresh if c.path != own and not allowed.match(c.path)], settings)
    if found.certain:
        problem = (
            f"the spec maintainer changed {first_paths([path_text(change.path) for change in found.certain])}"
        )
        return msgspec.structs.replace(result, code="spec_edit", problem=problem)
    result = _weigh(result, found.unclear, "update of the spec", settings)
    if result.code:
        return result
    edited = next((change for change in look.fresh if change.path == own), None)
    if edited is not None:
        problem, diff = _forbidden_edit(look, edited, settings)
        if problem:
            return msgspec.structs.replace(result, code="spec_edit", problem=problem, diff=diff)
    if edited is not None and event != "spec.updated":
        problem = f"it says {event}, and changed the spec file"
        return msgspec.structs.replace(result, code="invalid_reply", problem=problem)
    # What an attempt has left that a crash has ended belongs to the answer, also if that begins after it.
    left = any(change.path == own for change in look.changes)
    if edited is None and event == "spec.updated" and not left:
        # Not worth another paid call: the file is right as it is, as after an earlier run of the same task.
        note = f"the spec maintainer reported an update, but {spec.file} did not change"
        return msgspec.structs.replace(result, notes=[*result.notes, note])
    return result


def _forbidden_edit(look: _Look, edited: Change, settings: Settings) -> tuple[str, str]:
    """What is wrong with an edit of the spec file, and its difference; nothing if it is allowed."""
    spec, place = settings.spec, look.place
    if edited.entry is not None and edited.entry.mode == LINK:
        return f"the spec maintainer made a symbolic link of {spec.file}", ""
    if _is_creation(edited, settings):
        return "", ""
    before = _spec_before(place, look.base, edited.path)
    after = Path(place.workspace, spec.file).read_bytes() if edited.entry is not None else b""
    verdict = check_edit(before, after, spec.sections, spec.file)
    if not verdict.problem:
        return "", ""
    keep_spec(place, spec.file)
    return f"{spec.file}: {verdict.problem}", verdict.diff


def _is_creation(change: Change, settings: Settings) -> bool:
    return change.change == "added" and settings.spec.create


def _spec_before(place: Place, base: str, own: bytes) -> bytes:
    """The spec file as it was; nothing if it was not there."""
    known = next((entry for entry in _files(place, base) if entry.path == own), None)
    return b"" if known is None else _kept_spec(place, known.sha256).read_bytes()


def _look_for_secrets(place: Place, artifact: ReceiptArtifact, settings: Settings) -> ReceiptArtifact:
    rule = settings.redaction.rule
    secrets = {name: value for name, value in os.environ.items() if rule.covers(name)}
    if not secrets or artifact.size > SECRET_BYTES:
        return artifact
    try:
        with open(open_artifact(place.workspace, artifact.path), "rb") as file:
            content = file.read(SECRET_BYTES)
    except (OSError, UnsafePathError):
        return artifact
    holds = Redactor(secrets, rule).redact_bytes(content) != content
    return msgspec.structs.replace(artifact, contains_secret=holds)


def keep_receipt(place: Place, receipt: Receipt) -> None:
    """Write the file of a receipt that is journaled, unless it is there.

    It is not a step: the journal has the receipt, and a replay finds the same bytes in the file, or writes them.
    """
    with _keeping(place):
        store_receipt(Path(place.run_dir), receipt)


@step(name="count_receipts")
def count_receipts(place: Place, task_id: str) -> int:
    """How many receipts a task has that begins once more: the next one gets the next number."""
    return receipts_of(Path(place.run_dir), task_id)


@step(name="left")
def find_left(place: Place, worker: str) -> list[Left]:
    """The notes of a worker that could not return them."""
    return Notebook(place.run_dir, worker).read()


@step(name="findings")
def write_findings(place: Place, name: str, findings: list[Finding]) -> FindingsFile:
    """Keep findings that are too long for a line, for the agent to read."""
    path = f"work/findings/{name}.json"
    content = msgspec.json.encode(findings)
    file = Path(place.run_dir, path)
    with _keeping(place):
        replace_file(file, content, parents=True)
    return FindingsFile(path=path, sha256=f"sha256:{sha256(content).hexdigest()}", size=len(content))


# The gate.


@step(name="gate")
def judge_tests(
    settings: Settings,
    gate: Gate,
    ran: TestRun | None,
    report: dict[str, object],
    protected: list[str],
    marks: list[str] | None = None,
    place: Place | None = None,
    since: str = "",
) -> Gate:
    """The verdict on the tests of a task, and what they have left.

    Args:
        settings: What is secret in what the test command wrote.
        gate: What is known of it before.
        ran: How the test command ended, where one was run.
        report: What the builder reports about its tests.
        protected: Files that it had to leave alone, and changed.
        marks: Files in which conflicts are still marked.
        place: Where the workspace after them is.
        since: An earlier snapshot that it is compared with.
    """
    status = report.get("status")
    reported = status if isinstance(status, str) else ""
    gate = msgspec.structs.replace(gate, reported=reported)
    if gate.mode == "off":
        gate = msgspec.structs.replace(gate, verdict="pass", unchecked=True)
    elif ran is not None:
        gate = _judge_command(gate, ran, settings)
    else:
        gate = _judge_report(gate, report)
    if gate.verdict == "waived" and report.get("allowed_failures") is not True:
        gate = msgspec.structs.replace(gate, verdict="fail")
    for problem, paths in (
        ("these files must be left as they were", protected),
        ("these files still have conflicts marked in them", marks),
    ):
        if paths:
            finding = Finding(f"{problem}: {', '.join(paths[:50])}", severity="blocker")
            gate = msgspec.structs.replace(gate, verdict="fail", findings=[*gate.findings, finding])
    return gate if place is None else msgspec.structs.replace(gate, after=_shoot(place, settings, since))


def _judge_command(gate: Gate, ran: TestRun, settings: Settings) -> Gate:
    # The end is cut off afterwards: half a secret would not be known as one.
    tail = _without_secrets(ran.output, settings).encode()[-TAIL_BYTES:].decode("utf-8", "ignore")
    passed = ran.exit_code == 0 and not ran.problem
    ended = _without_secrets(ran.problem, settings) or f"ended with {ran.exit_code}"
    command = _without_secrets(ran.command, settings)
    message = f"{command}: {ended}, after {ran.duration_s:.1f} s\n{tail}".rstrip()
    failed = [] if passed else [Finding(message, severity="blocker")]
    return msgspec.structs.replace(
        gate,
        # Whether a waiver counts is decided later, from the report.
        verdict="pass" if passed else gate.verdict,
        exit_code=ran.exit_code,
        duration_s=round(ran.duration_s, 3),
        tail=tail,
        findings=failed,
        disagreement=gate.reported in {"pass", "fail"} and (gate.reported == "pass") != passed,
        stuck=ended if ran.stuck else "",
    )


def _without_secrets(text: str, settings: Settings) -> str:
    """What the test command wrote, as agents and people may see it."""
    redactor = Redactor({**os.environ, **settings.tests.env}, settings.redaction.rule)
    whole = redactor.redact_text(text).encode("utf-8", "replace")
    return b"".join(map(redactor.hide_lines, whole.splitlines(keepends=True))).decode()


def _judge_report(gate: Gate, report: dict[str, object]) -> Gate:
    if gate.reported == "pass":
        return msgspec.structs.replace(gate, verdict="pass")
    if gate.reported == "fail":
        summary = report.get("summary")
        message = f"the tests fail: {summary}" if isinstance(summary, str) and summary else "the tests fail"
        return msgspec.structs.replace(
            gate, verdict="waived", findings=[Finding(message, severity="blocker")]
        )
    missing = f"the builder reported {gate.reported!r}" if gate.reported else "the builder did not report"
    finding = Finding(f"{missing}: the tests have to be run, and to pass", severity="blocker")
    return msgspec.structs.replace(gate, verdict="fail", findings=[finding])


def prepare_steps() -> None:
    """Do now what would otherwise be done while the first answer waits."""
    accept.prepare()
    judge_tests.prepare()


# Where a run stops until a person resumes it.


@step(name="mark")
def count_rewinds() -> int:
    """How often the worker was set back so far."""
    return step_info().rewinds


@step(name="limit")
def stop_here(place: Place, settings: Settings, stop: Stop, seen: int) -> Grant:
    """Fail the first time; executed again by a resume, return the settings as they are then."""
    if step_info().rewinds > seen:
        decided = load_settings(place.run_dir, current_hub())
        return Grant(settings=decided or renew(settings, Path(place.root), Path(place.run_dir)))
    raise _error_of(stop)


_LIMITS: Final = {
    "tests": TestsGateError,
    "review": ReviewLimitError,
    "spec": SpecLimitError,
    "rounds": RoundLimitError,
}


def _error_of(stop: Stop) -> BartackError:
    limit = _LIMITS.get(stop.kind)
    if limit is not None:
        return limit(stop.task_id, stop.problem, stop.detail)
    match stop.kind:
        case "read_only_violation":
            error: BartackError = ReadOnlyViolationError(stop.task_id, stop.problem)
        case "unclear_change":
            error = ReadOnlyViolationError(
                stop.task_id, stop.problem, "an agent that only reads, or another program,"
            )
        case "spec_edit":
            error = SpecEditError(stop.task_id, stop.problem, stop.detail)
        case "invalid_reply":
            error = AgentReplyError(stop.detail, stop.problem, "invalid_reply")
        case "money":
            limit_usd, taken_usd = map(float, stop.detail.split())
            error = BudgetExceededError(limit_usd, taken_usd)
        case "budget":
            error = AgentBudgetError(stop.detail, stop.problem, "budget_exceeded")
        case "tasks":
            error = TasksFailedError(stop.problem)
        case _:
            error = PipelineError(f"{stop.task_id}: {stop.problem}")
    return error
