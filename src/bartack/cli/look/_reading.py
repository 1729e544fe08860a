"""Reads the journal of a run once, for all that a command shows of it.

A run of the pipeline has facts beside its state (tasks, rounds, verdicts). They are collected in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.depot import KeptRun
from bartack.errors import RunNotFoundError
from bartack.journal import Entry
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import Timeline

if TYPE_CHECKING:
    from bartack.pipeline.records.facts import Fact, FactMaker
    from bartack.pipeline.records.task_state import Progress
    from bartack.pipeline.report.story import TaskStory


class FactsBeside:
    """Collects the facts of a run of the pipeline while its journal is read; of other runs there are none.

    Attributes:
        facts: Those so far.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: the first entry comes next."""
        self._maker: FactMaker | None = None
        self.facts: list[Fact] = []

    def take(self, entry: Entry, state: State, load: Callable[[Entry], bytes | None]) -> None:
        """Take an entry that the state has already; ``load`` returns its value."""
        if self._maker is None:
            if state.run is None or state.run.worker != PIPELINE:
                return
            from bartack.pipeline.records.facts import FactMaker  # noqa: PLC0415 - only runs of the pipeline need it

            self._maker = FactMaker(load)
        self.facts += self._maker.take([entry])

    @property
    def progress(self) -> Progress | None:
        """How far a run of the pipeline is."""
        if self._maker is None:
            return None
        from bartack.pipeline.records.task_state import make_progress  # noqa: PLC0415 - likewise

        return make_progress(self.facts)

    def story(self, timeline: Timeline) -> list[TaskStory]:
        """What happened for each task; ``timeline`` has all steps."""
        if self._maker is None:
            return []
        from bartack.pipeline.report.story import story_of  # noqa: PLC0415 - likewise

        return story_of(self.facts, timeline)


def read_progress_of(run: KeptRun) -> tuple[State, Progress | None]:
    """What the journal of a run adds up to, and how far it is if it is one of the pipeline.

    Raises:
        RunNotFoundError: The journal does not contain a run.
    """
    state = State()
    with run.open_reader() as reader:
        beside = FactsBeside()
        for entry in reader.read():
            add_entry(state, entry)
            beside.take(entry, state, reader.load_value)
        if state.run is None:
            raise RunNotFoundError(run.id)
        return state, beside.progress


def read_story_of(run: KeptRun, newest: int | None = None) -> tuple[Timeline, list[TaskStory]]:
    """The timeline of a run, and its story if it is one of the pipeline.

    Args:
        run: The run.
        newest: Keep at most this many finished items of the timeline.

    Raises:
        RunNotFoundError: The journal does not contain a run.
    """
    timeline = Timeline(newest)
    with run.open_reader() as reader:
        beside = FactsBeside()
        for entry in reader.read():
            timeline.add_all((entry,))
            beside.take(entry, timeline.state, reader.load_value)
            if beside.facts:
                timeline.newest = None  # a story needs all steps
        if timeline.state.run is None:
            raise RunNotFoundError(run.id)
        story = beside.story(timeline)
    if newest is not None:
        timeline.compact(newest)
    return timeline, story
