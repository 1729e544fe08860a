"""The program that a run executes, from the copy in its directory, and how the files of the project differ from it now."""

from __future__ import annotations

from typing import Final

from bartack.runtime.program.pin import current_program
from bartack.runtime.program.source import pinned_files
from bartack.web._hide import CUT_BYTES
from bartack.web._threads import in_thread
from bartack.web.models._work import FileNow, Program, ProgramFile
from bartack.web.reading._files import read_regular
from bartack.web.reading._snapshots import diff_lines
from bartack.web.reading._view import RunView

MOST_FILES: Final = 200


async def read_program(view: RunView) -> Program:
    """The files of the program, each with its text and what became of it in the project."""
    created = view.spans.state.run
    root = "" if created is None else created.root
    pinned = current_program(view.run.path, view.spans.state.next_program)

    def read() -> tuple[list[ProgramFile], int]:
        names = pinned_files(pinned) if pinned.is_dir() else []
        return [_file(str(pinned), root, name) for name in names[:MOST_FILES]], max(
            len(names) - MOST_FILES, 0
        )

    files, left_out = await in_thread(read)
    return view.hider.hide(
        Program(
            program="" if created is None else created.program,
            worker="" if created is None else created.worker,
            root=root,
            files=files,
            left_out=left_out,
            environment={} if created is None else created.environment,
            forked_from="" if created is None else created.forked_from,
            argv=[] if created is None else created.argv,
        )
    )


def _file(pinned: str, root: str, name: str) -> ProgramFile:
    content, size = read_regular(pinned, name, CUT_BYTES) or (b"", 0)
    source = read_regular(root, name, CUT_BYTES) if root else None
    now: FileNow = "missing" if source is None else "same" if source == (content, size) else "changed"
    text = content.decode("utf-8", "replace")
    compared = now == "changed" and source is not None and max(size, source[1]) <= CUT_BYTES
    return ProgramFile(
        path=name,
        size=size,
        text=text,
        cut=size > CUT_BYTES,
        now=now,
        lines=diff_lines(text, source[0].decode("utf-8", "replace"))
        if compared and source is not None
        else [],
    )
