"""What a copy says about itself beside its files (``meta.json``): references, what is checked out, directories without files."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from bartack.core import typed
from bartack.errors import WorkspaceKeepError

META: Final = "meta.json"
FORMAT: Final = 1


class Checkout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is checked out in one work tree.

    Attributes:
        head: The name of the branch; empty if HEAD is a commit.
        commit: The commit; empty if there is none yet.
        index: The tree of its index; empty if the index is not copied.
    """

    head: str = ""
    commit: str = ""
    index: str = ""


class TreeMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tree of a copy.

    Attributes:
        tree: Its files.
        empty: Its directories without files, each quoted as in a URL: not every path is text.
        checkout: What is checked out, if it belongs to a repository.
    """

    tree: str
    empty: tuple[str, ...] = ()
    checkout: Checkout | None = None


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole copy.

    Attributes:
        format: How to read it.
        trees: Its trees: ``workspace``, ``run`` and ``lanes/NAME``.
        refs: The references of the repository in the workspace, by name.
        shallow: The commits whose parents are not there.
    """

    format: int
    trees: dict[str, TreeMeta]
    refs: dict[str, str] = {}
    shallow: tuple[str, ...] = ()

    def named(self) -> set[str]:
        """All objects that it names beside its files."""
        named = set(self.refs.values())
        for tree in self.trees.values():
            if tree.checkout is not None:
                named |= {tree.checkout.commit, tree.checkout.index}
        return named - {""}


def encode_meta(meta: Meta) -> bytes:
    """The same bytes for the same copy."""
    return msgspec.json.format(msgspec.json.encode(meta, order="deterministic"), indent=1)


def decode_meta(data: bytes, commit: str) -> Meta:
    """Read one.

    Raises:
        WorkspaceKeepError: It cannot be read.
    """
    try:
        meta = typed.decode(data, type=Meta)
    except msgspec.MsgspecError as error:
        raise WorkspaceKeepError(commit, f"{META}: {error}") from None
    if meta.format != FORMAT:
        raise WorkspaceKeepError(commit, f"{META} has format {meta.format}; this version reads {FORMAT}")
    return meta


def quote_path(path: bytes) -> str:
    """A path as text."""
    return quote_from_bytes(path, safe="/ @+=,~^()[]{}")


def shown_path(path: bytes) -> str:
    """A path for people and for entries of a journal, which are text."""
    return path.decode("utf-8", "backslashreplace")


def unquote_path(text: str) -> bytes:
    """The path of a text."""
    return unquote_to_bytes(text)
