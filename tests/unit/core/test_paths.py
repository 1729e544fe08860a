"""Paths that have to stay below their directory, by name and at use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.core.paths import open_below, safe_join
from bartack.errors import UnsafePathError

UNSAFE_WORDS = [
    ("", "empty"),
    ("/etc/passwd", "absolute"),
    ("//host/share", "absolute"),
    ("..", "'..'"),
    ("../x", "'..'"),
    ("a/../../x", "'..'"),
    ("a/..", "'..'"),
    ("a/../b", "'..'"),
    (".", "itself"),
    ("././/", "itself"),
    ("a\0b", "NUL"),
    ("a\\b", "backslash"),
    ("..\\x", "backslash"),
    ("\\\\host\\share", "backslash"),
    ("C:/x", "drive"),
    ("c:x", "drive"),
    ("a/C:/x", "drive"),
    ("a\ud800", "character"),
]


def _join(root: Path, relative: str) -> None:
    safe_join(root, relative)


def _open(root: Path, relative: str) -> None:
    os.close(open_below(root, relative))


BOTH = pytest.mark.parametrize("use", [_join, _open])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    made = tmp_path / "root"
    (made / "inside").mkdir(parents=True)
    (made / "inside" / "file").write_text("ours")
    return made


@BOTH
@pytest.mark.parametrize(("relative", "reason"), UNSAFE_WORDS)
def test_refuses_unsafe_words(
    root: Path, use: Callable[[Path, str], None], relative: str, reason: str
) -> None:
    with pytest.raises(UnsafePathError) as caught:
        use(root, relative)

    assert caught.value.path == relative
    assert reason in caught.value.reason


@BOTH
@pytest.mark.parametrize(
    ("target", "relative"),
    [
        ("../outside/file", "link"),
        ("../outside", "link/file"),
        ("../outside", "link"),
        ("../outside/none", "link"),
        ("../outside", "link/none/deeper/file"),
        ("..", "link/outside/file"),
        ("/", "link/etc"),
        ("inside/../../outside", "link/file"),
        ("../root-beside", "link/file"),
        ("link", "link"),
        ("link", "link/file"),
    ],
)
def test_refuses_links_that_lead_out_or_in_a_circle(
    root: Path, use: Callable[[Path, str], None], target: str, relative: str
) -> None:
    (root.parent / "root-beside").mkdir()
    (root / "link").symlink_to(target)

    with pytest.raises(UnsafePathError, match="symbolic link"):
        use(root, relative)


@BOTH
def test_refuses_a_chain_of_links_that_leads_out(root: Path, use: Callable[[Path, str], None]) -> None:
    (root / "inside" / "second").symlink_to("../../outside")
    (root / "first").symlink_to("inside/second")

    with pytest.raises(UnsafePathError, match="symbolic link"):
        use(root, "first/file")


@BOTH
def test_refuses_two_links_that_lead_to_each_other(root: Path, use: Callable[[Path, str], None]) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")

    with pytest.raises(UnsafePathError, match="symbolic link"):
        use(root, "one/file")


@pytest.mark.parametrize(
    "relative", ["file", "a/b/c", "./file", "a//b", "inside/file", "...", "a..b", "a b\n"]
)
def test_joins_paths_that_stay_below(root: Path, relative: str) -> None:
    assert safe_join(root, relative) == root / relative
    assert safe_join(str(root), relative) == root / relative


def test_joins_below_a_root_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert safe_join(tmp_path / "none" / "root", "a/b") == tmp_path / "none" / "root" / "a" / "b"


def test_joins_through_links_that_stay_below(root: Path) -> None:
    (root / "link").symlink_to("inside")
    (root / "absolute").symlink_to(root / "inside")

    assert safe_join(root, "link/file") == root / "link" / "file"
    assert safe_join(root, "absolute/none") == root / "absolute" / "none"


def test_joins_below_a_root_that_is_reached_through_a_link(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)

    assert safe_join(alias, "inside/file") == alias / "inside" / "file"


def test_joins_below_the_root_of_the_file_system() -> None:
    assert safe_join("/", "none/file") == Path("/none/file")


@given(st.text(st.sampled_from("ab./\\:\0C"), max_size=12))
@settings(max_examples=300, deadline=None)
def test_whatever_is_joined_stays_below(relative: str) -> None:
    try:
        joined = safe_join("/none/root", relative)
    except UnsafePathError:
        return

    assert os.path.normpath(joined).startswith("/none/root/")


def test_opens_files_below(root: Path) -> None:
    fd = open_below(root, "inside/file")

    assert os.read(fd, 10) == b"ours"
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_opens_below_a_root_that_is_reached_through_a_link(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)

    fd = open_below(alias, "./inside//file")

    assert os.read(fd, 10) == b"ours"
    os.close(fd)


def test_creates_files_below_for_their_owner_alone(root: Path) -> None:
    fd = open_below(root, "inside/made", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"x")
    os.close(fd)

    assert (root / "inside" / "made").read_bytes() == b"x"
    assert (root / "inside" / "made").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_EXCL])
def test_creates_nothing_through_a_link(root: Path, flags: int) -> None:
    (root / "link").symlink_to("../outside/made")

    with pytest.raises(UnsafePathError, match="'link' is a symbolic link"):
        open_below(root, "link", flags)

    assert not (root.parent / "outside" / "made").exists()


@pytest.mark.parametrize(
    ("relative", "error"),
    [("none", FileNotFoundError), ("none/file", FileNotFoundError), ("inside/file/x", NotADirectoryError)],
)
def test_says_as_the_system_does_what_is_not_there(root: Path, relative: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        open_below(root, relative)


def test_leaves_no_descriptor_open(root: Path) -> None:
    (root / "link").symlink_to("inside")
    before = set(os.listdir("/dev/fd"))

    for relative in ("link/file", "none/x", "inside/none", "inside/file/x"):
        with pytest.raises((UnsafePathError, OSError)):
            open_below(root, relative)
    os.close(open_below(root, "inside/file"))

    assert set(os.listdir("/dev/fd")) <= before  # others of this process may close what is theirs


SWAPPER = """
import os, sys

os.chdir(sys.argv[1])
os.mkdir("real")
open("real/file", "w").write("ours")
os.symlink("../outside", "evil")
os.rename("real", "door")
print("ready", flush=True)
while True:
    os.rename("door", "real"), os.rename("evil", "door")
    os.rename("door", "evil"), os.rename("real", "door")
"""


def test_a_link_that_is_swapped_in_between_check_and_use_leads_nowhere(root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(root)], stdout=subprocess.PIPE, text=True
    ) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == "ready\n"
        seen: set[bytes] = set()
        refused = 0
        for _ in range(20_000):
            try:
                fd = open_below(root, "door/file")
            except (UnsafePathError, FileNotFoundError, NotADirectoryError):
                refused += 1
            else:
                seen.add(os.read(fd, 10))
                os.close(fd)
            if seen and refused > 200:
                break
        swapper.kill()

    assert seen == {b"ours"}
    assert refused > 0
