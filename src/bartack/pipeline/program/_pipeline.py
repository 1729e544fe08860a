"""The program that a run of the pipeline executes."""

from bartack.pipeline import main, task

__all__ = ["main", "task"]
