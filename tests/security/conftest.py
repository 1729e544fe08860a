from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.users import OWN, User, missing, remove_leftovers


@pytest.fixture(scope="session")
def users() -> Iterator[tuple[User, User]]:
    """Somebody with a project, and another user who is up to no good. Both are gone afterwards; those of killed tests, too."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    remove_leftovers()
    made: list[User] = []
    with tempfile.TemporaryDirectory(prefix="bartack-security-") as place:
        Path(place).chmod(0o755)
        try:
            made.append(User(f"{OWN}owner-{os.getpid()}", Path(place, "owner")))
            made.append(User(f"{OWN}other-{os.getpid()}", Path(place, "other")))
            yield made[0], made[1]
        finally:
            for user in made:
                user.remove()


@pytest.fixture
def owner(users: tuple[User, User]) -> User:
    """The user who is attacked."""
    return users[0]


@pytest.fixture
def other(users: tuple[User, User]) -> User:
    """The user who attacks."""
    return users[1]


@pytest.fixture
def shared(users: tuple[User, User]) -> Iterator[Path]:
    """A directory like /tmp: every user can make files in it."""
    with tempfile.TemporaryDirectory(prefix="bartack-shared-") as place:
        Path(place).chmod(0o1777)
        yield Path(place)
