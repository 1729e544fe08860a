"""The transcript of a run of the pipeline as it has to be, made anew from its journal."""

from __future__ import annotations

from bartack.depot import KeptRun
from bartack.runtime.rundir.pipeline_transcript import FactLines


def fact_transcript(run: KeptRun) -> bytes:
    """The whole transcript of a run whose transcript is made of facts."""
    with run.open_reader() as reader:
        return "".join(FactLines(reader.load_value).take(reader.read())).encode("utf-8", "replace")
