"""The options of ``bartack run`` and ``resume`` that queue runs for the node. It imports little, as ``run`` needs it."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from bartack.cli.app._grouped import grouped
from bartack.cli.app._options import is_given
from bartack.errors import UsageError


class DetachOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options that were given."""

    detach: bool = False
    priority: int | None = None
    after: tuple[str, ...] = ()
    retry: int | None = None
    schedule: str = ""
    start_key: str = ""

    def check(self, *, is_for_nodes: bool = False) -> None:
        """Raise unless they go together.

        Args:
            is_for_nodes: A node of a database is to run it. Its queue has priorities, and no order between runs.

        Raises:
            UsageError: They do not.
        """
        if is_for_nodes and (self.after or self.retry is not None):
            raise UsageError(
                "bartack run", "--after and --retry are for the node of this user: leave out --on"
            )
        if (
            not self.detach
            and not is_for_nodes
            and (self.priority is not None or self.after or self.retry is not None)
        ):
            raise UsageError(
                "bartack run", "--priority, --after and --retry are for runs in the queue: add --detach"
            )
        if (self.schedule or self.start_key) and not self.detach:
            raise UsageError("bartack run", "--schedule and --start-key are for the node")
        if self.start_key and not set(self.start_key) <= set("0123456789abcdef"):
            raise UsageError("bartack run", f"--start-key is a digest, not {self.start_key!r}")


_OPTIONS: Final = (
    click.option(
        "-d",
        "--detach",
        is_flag=True,
        help="Let the node run it: it survives this terminal, crashes and reboots. 'bartack attach' shows it.",
    ),
    click.option(
        "--priority", type=int, metavar="N", help="With --detach: runs with a higher number are taken first."
    ),
    click.option(
        "--after", multiple=True, metavar="RUN", help="With --detach: begin when RUN has completed."
    ),
    click.option(
        "--retry",
        type=click.IntRange(0, 100),
        metavar="N",
        help="With --detach: resume it up to N times if it fails (node.retries).",
    ),
    # For the node: the schedule that the run belongs to, and the key by which a repeated start finds its run.
    click.option("--schedule", default="", hidden=True),
    click.option("--start-key", default="", hidden=True),
)


detach_options = grouped("detaching", DetachOptions, _OPTIONS)
"""Adds the options to a command; it receives them together, as ``detaching``."""


# Of ``bartack resume --all``.

_WITH_ALL: Final = frozenset({"everywhere", "failed", "since", "yes", "detach", "as_json", "workspace"})
"""Parameters of the command that go with ``--all``."""


class AllOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options that were given."""

    everywhere: bool = False
    failed: bool = False
    since: str | None = None
    yes: bool = False

    def check(self) -> None:
        """Raise unless they go together, and with the other parameters of the command.

        Raises:
            UsageError: They do not.
        """
        if not self.everywhere and (self.failed or self.since is not None or self.yes):
            raise UsageError("bartack resume", "--failed, --since and --yes are for all runs: add --all")
        if self.everywhere and (others := _others()):
            raise UsageError("bartack resume", f"--all cannot be combined with {' and '.join(others)}")


def _others() -> list[str]:
    """The parameters that were given and that are for one run."""
    return [
        parameter.human_readable_name if isinstance(parameter, click.Argument) else parameter.opts[-1]
        for parameter in click.get_current_context().command.params
        if parameter.name not in _WITH_ALL and is_given(parameter.name or "")
    ]


_ALL_OPTIONS: Final = (
    click.option(
        "--all",
        "everywhere",
        is_flag=True,
        help="Let the node resume the interrupted runs of all workspaces.",
    ),
    click.option("--failed", is_flag=True, help="With --all: also runs that failed or are held."),
    click.option(
        "--since", metavar="AGE", help="With --all: only runs that changed within this time: 12h, 7d."
    ),
    click.option("--yes", is_flag=True, help="With --all: queue the runs without asking."),
)


all_options = grouped("every", AllOptions, _ALL_OPTIONS)
"""Adds the options to a command; it receives them together, as ``every``."""
