"""Why a run failed: from the failing step outwards through every worker that waited for it, and crashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.reading._failure import read_failure


async def _read(page: RunPage) -> Mapping[str, object]:
    return {"failure": read_failure(page.view)}


PAGE: Final = RunTab("failure", "Failure", "failure.html", _read)
