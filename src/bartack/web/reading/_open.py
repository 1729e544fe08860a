"""Opens a run for reading: follows it, and waits until its journal was read where that takes a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack.errors import JournalFormatError, JournalNotFoundError, RunBeingReadError, RunNotFoundError
from bartack.web.following._follow import Followed
from bartack.web.models._run import Moment
from bartack.web.reading._moment import read_beginning, read_moment
from bartack.web.reading._view import RunView

if TYPE_CHECKING:
    from bartack.web._site import Site


async def follow(site: Site, asked: str) -> Followed:
    """Follow the run that is meant; a page or a request looks at it.

    Raises:
        RunNotFoundError: There is none, or more than one.
        JournalNotFoundError: It was deleted while it was followed.
        UntrustedError: Another user can change it.
    """
    await site.look_for(asked)
    try:
        return site.followers.look_at(site.find_run(asked))
    except RunNotFoundError:
        if site.followers.was_there(asked):
            raise JournalNotFoundError(asked) from None
        raise


async def open_view(site: Site, asked: str, at: int | None = None) -> RunView:
    """The run that is meant, at an entry, when its journal was read.

    Raises:
        RunBeingReadError: Its journal is long, and still being read.
        JournalFormatError: A newer version wrote it.
        JournalNotFoundError: It was deleted.
        RunNotFoundError: There is none, or more than one.
        UntrustedError: Another user can change it.
    """
    followed = await follow(site, asked)
    await followed.wait_until_built()
    _check(followed)
    return RunView(followed, at, site.settings)


def _check(followed: Followed) -> None:
    problem = followed.follower.problem
    if followed.follower.state == "deleted":
        raise JournalNotFoundError(str(followed.run.path))
    if followed.follower.state == "newer" and problem is not None:
        raise problem


async def open_moment(site: Site, asked: str, at: int | None = None) -> Moment:
    """The run that is meant after an entry; while its journal is being read, or if it cannot be read, what is known besides.

    Raises:
        JournalNotFoundError: It was deleted.
        RunNotFoundError: There is none, or more than one.
        UntrustedError: Another user can change it.
    """
    try:
        return read_moment(await open_view(site, asked, at))
    except (RunBeingReadError, JournalFormatError):
        return read_beginning(await follow(site, asked), site.settings)
