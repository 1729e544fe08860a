"""What a task does before its first command when it has a worktree of its own, and its findings about conflicts."""

from __future__ import annotations

from bartack.agents.protocol.messages import Finding
from bartack.errors import ShellError, WorktreeError
from bartack.pipeline.records.records import KEPT_BYTES, Lane, Place, Settings
from bartack.pipeline.worktree._lanes import note_prepared, open_worktree, place_of
from bartack.runtime import Context


async def enter(ctx: Context, settings: Settings, task_id: str, lane: Lane) -> int:
    """Make the worktree of a task and prepare it, once; returns how many receipts the task has already.

    Raises:
        GitError: It cannot be made.
        WorktreeError: The command that prepares it fails.
    """
    here = Place(run_dir=str(ctx.session.dir.parent))
    opened = await open_worktree(here, lane, task_id)
    if settings.parallel.setup and not opened.ready:
        folder = place_of(here.run_dir, lane).workspace
        try:
            await ctx.shell(
                *settings.parallel.setup,
                cwd=folder,
                timeout_s=settings.tests.timeout_s,
                kept_bytes=KEPT_BYTES,
            )
        except ShellError as error:
            raise WorktreeError(lane.name, f"parallel.setup: {error.message}") from error
        await note_prepared(here, lane)
    return opened.receipts


def conflict_findings(lane: Lane) -> list[Finding]:
    """The findings for the builder about conflicts of its work with that of other tasks."""
    message = (
        "other tasks have changed this, too: where both versions are marked in the file, make one of them that does "
        "both; where they are not, decide which one is right"
    )
    return [Finding(message, path=path, severity="blocker") for path in lane.conflicts]
