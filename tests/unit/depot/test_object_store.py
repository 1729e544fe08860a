"""The object store of large values: a directory, a bucket, and what both promise."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from tests.s3 import s3

from bartack.depot._object_store import Bucket, Folder, ObjectStore, check_objects, open_objects
from bartack.errors import ObjectStoreUnavailableError, UsageError

KEY = "0" * 32


class InMemory(Bucket):
    """The library with a store in memory."""

    def __init__(self) -> None:
        super().__init__("memory")
        self._memory = MemoryStore()

    def _store(self, size: int) -> Any:
        return self._memory


@pytest.fixture(params=["folder", "memory", "bucket"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    if request.param == "folder":
        yield Folder(tmp_path)
    elif request.param == "memory":
        yield InMemory()
    else:
        with s3() as server:
            server.set_environ(monkeypatch)
            yield Bucket("team", "runs/large")


@pytest.mark.requirement("objects-are-a-store")
def test_what_was_put_is_there_until_it_is_deleted(store: ObjectStore) -> None:
    store.put(KEY, b"value")
    store.put("1" * 32, b"")

    assert (store.get(KEY), store.get("1" * 32)) == (b"value", b"")
    store.delete(KEY)
    assert (store.get(KEY), store.get("1" * 32)) == (None, b"")
    store.delete(KEY)


@pytest.mark.requirement("objects-are-a-store")
def test_an_object_is_put_once_more_with_the_same_content(store: ObjectStore) -> None:
    store.put(KEY, b"value")
    store.put(KEY, b"value")

    assert store.get(KEY) == b"value"


@pytest.mark.parametrize("key", ["", "../x", "a/b", "A", ".", "a b"])
def test_a_name_of_an_object_leads_nowhere_else(store: ObjectStore, key: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: store.put(key, b""),
        lambda: store.get(key),
        lambda: store.delete(key),
    ]
    for act in acts:
        with pytest.raises(ObjectStoreUnavailableError, match="is not the name of an object"):
            act()


def test_a_check_leaves_nothing(store: ObjectStore) -> None:
    check_objects(store)

    assert store.get("probe") is None


def test_objects_in_a_directory_are_read_by_this_user_only(tmp_path: Path) -> None:
    Folder(tmp_path).put(KEY, b"value")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {KEY: 0o600}


def test_a_share_that_is_not_there_gets_no_objects_and_its_own_are_not_gone(tmp_path: Path) -> None:
    away = Folder(tmp_path / "not-mounted")
    acts: list[Callable[[], object]] = [
        lambda: away.put(KEY, b"value"),
        lambda: away.get(KEY),
        lambda: away.delete(KEY),
    ]

    for act in acts:
        with pytest.raises(ObjectStoreUnavailableError, match="there is no such directory"):
            act()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("objects-are-a-store")
def test_a_bucket_that_refuses_is_reported_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as server:
        server.set_environ(monkeypatch)
        server.refusal = 403
        store = Bucket("team", "runs")

        with pytest.raises(ObjectStoreUnavailableError, match=r"^s3://team/runs: .*403") as caught:
            store.put(KEY, b"value")

    assert caught.value.retryable
    assert "\n" not in caught.value.problem
    assert server.objects == {}


@pytest.mark.requirement("objects-are-a-store")
def test_an_object_that_a_bucket_does_not_delete_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as server:
        server.set_environ(monkeypatch)
        server.keeps_all = True
        store = Bucket("team")
        store.put(KEY, b"value")

        with pytest.raises(ObjectStoreUnavailableError, match="kept"):
            store.delete(KEY)


def test_a_bucket_that_is_away_is_reported_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as server:
        server.set_environ(monkeypatch)
    store = Bucket("team")

    acts: list[Callable[[], object]] = [
        lambda: store.put(KEY, b""),
        lambda: store.get(KEY),
        lambda: store.delete(KEY),
    ]
    for act in acts:
        with pytest.raises(ObjectStoreUnavailableError, match=r"^s3://team: "):
            act()


def test_a_bucket_is_asked_for_its_objects_below_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as server:
        server.set_environ(monkeypatch)
        store = open_objects("s3://team/runs/large/")
        assert store is not None
        store.put(KEY, b"value" * 2_000_000)

        assert server.requests == [("PUT", f"/team/runs/large/{KEY}")]
        assert store.get(KEY, 10_000_000) == b"value" * 2_000_000


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("s3://team", "s3://team"),
        ("s3://team/a/b.c/", "s3://team/a/b.c"),
        ("file:///srv/objects", "file:///srv/objects"),
    ],
)
def test_an_object_store_is_named_by_a_url(where: str, name: str) -> None:
    store = open_objects(where)

    assert store is not None
    assert store.name == name


def test_without_a_name_there_is_no_object_store() -> None:
    assert open_objects("") is None


@pytest.mark.parametrize(
    "where",
    [
        "team",
        "s3://",
        "s3://Team",
        "s3://team/a b",
        "s3://team/../x",
        "s3://key:pass-word@team/x",
        "gs://team",
        "file://x",
        "file:///",
    ],
)
def test_any_other_name_is_refused_and_not_repeated(where: str) -> None:
    with pytest.raises(UsageError, match=r"depot\.blobs: .*s3://BUCKET/PREFIX") as caught:
        open_objects(where)

    assert "pass-word" not in str(caught.value)
