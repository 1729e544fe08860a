"""The object store that keeps the largest values of a database, each as one object under a name that is used once.

``s3://bucket/prefix`` is a bucket of S3, or of a service that speaks its protocol. Its address and the credentials come from the
usual variables of the environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, …) or from the machine. Nothing of
that is kept. ``file:///path`` is a directory that all machines share. ``postgres/_objects.py`` decides what objects are called, and
when they are written and deleted.

``obstore`` is imported here, when an object of a bucket is used for the first time, and nowhere else.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bartack.core.files import replace_file
from bartack.errors import ObjectStoreUnavailableError, UsageError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

SETTING: Final = "depot.blobs"
CONNECT_S: Final = 5
ANSWER_S: Final = 30
"""How long a request may take, and"""
SLOWEST: Final = 1 << 20
"""how many bytes a second are expected, so that a request with many has more time."""
_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9!_.*'()=-]+)*)/?")
_KEY: Final = re.compile(r"[a-z0-9-]+")
PROBE: Final = "probe"
"""The object that a check writes, reads and deletes."""


class ObjectStore(Protocol):
    """See the module. Objects are not changed: each name gets one content."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Keep an object; it is durable when this returns.

        Raises:
            ObjectStoreUnavailableError: It is not known whether the store has it.
        """
        ...

    def get(self, key: str, size: int = 0) -> bytes | None:
        """The content of an object; ``None`` if it is not there.

        Args:
            key: Its name.
            size: How long it is about, for how long to wait.

        Raises:
            ObjectStoreUnavailableError: The store does not answer, or refuses.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if it is there.

        Raises:
            ObjectStoreUnavailableError: It is not known whether the store still has it.
        """
        ...


def open_objects(where: str) -> ObjectStore | None:
    """The object store of this name, without a look at it; ``None`` if the name is empty.

    Raises:
        UsageError: It is not the name of one.
    """
    if not where:
        return None
    bucket = _BUCKET.fullmatch(where)
    if bucket is not None and ".." not in where:
        return Bucket(bucket[1], bucket[2].strip("/"))
    path = where.removeprefix("file://")
    if path != where and path.startswith("/") and Path(path) != Path("/"):
        return Folder(Path(path))
    # The name is not repeated: there may be credentials in it.
    problem = "an object store is named as s3://BUCKET/PREFIX or file:///PATH; credentials belong into AWS_… variables"
    raise UsageError(SETTING, problem)


def check_objects(store: ObjectStore) -> None:
    """Write, read and delete an object.

    Raises:
        ObjectStoreUnavailableError: That is not possible.
    """
    store.put(PROBE, b"bartack")
    store.get(PROBE)
    store.delete(PROBE)


class Folder:
    """An object store in a directory. Its files can be read by this user only.

    Args:
        path: The directory. It is not made here: a share that is not mounted has none, and gets no objects.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """See ``ObjectStore.name``."""
        return f"file://{self.path}"

    def put(self, key: str, content: bytes) -> None:
        """See ``ObjectStore.put``."""
        try:
            replace_file(self._place(key), content)
        except FileNotFoundError:
            raise self._absent() from None
        except OSError as error:
            raise ObjectStoreUnavailableError(self.name, _of_system(error)) from error

    def get(self, key: str, size: int = 0) -> bytes | None:
        """See ``ObjectStore.get``."""
        del size
        try:
            return self._place(key).read_bytes()
        except FileNotFoundError:
            if self.path.is_dir():
                return None
            raise self._absent() from None
        except OSError as error:
            raise ObjectStoreUnavailableError(self.name, _of_system(error)) from error

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        try:
            self._place(key).unlink()
        except FileNotFoundError:
            if not self.path.is_dir():
                raise self._absent() from None
        except OSError as error:
            raise ObjectStoreUnavailableError(self.name, _of_system(error)) from error

    def _absent(self) -> ObjectStoreUnavailableError:
        return ObjectStoreUnavailableError(self.name, "there is no such directory")

    def _place(self, key: str) -> Path:
        return self.path / _checked(key)


class Bucket:
    """An object store in a bucket of S3, or of a service that speaks its protocol.

    Args:
        bucket: Its name.
        prefix: How the names of objects begin, without a slash at either end.
    """

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._stores: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """See ``ObjectStore.name``."""
        return "/".join(["s3:/", self._bucket, *([self._prefix] if self._prefix else [])])

    def put(self, key: str, content: bytes) -> None:
        """See ``ObjectStore.put``. In one request: what a writer leaves that is killed is nothing, or the whole object."""
        library = load_obstore()
        try:
            library.put(self._store(len(content)), _checked(key), content, use_multipart=False)
        except Exception as error:
            raise self._away(error) from error

    def get(self, key: str, size: int = 0) -> bytes | None:
        """See ``ObjectStore.get``."""
        library = load_obstore()
        try:
            return bytes(library.get(self._store(size), _checked(key)).bytes())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._away(error) from error

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        library = load_obstore()
        try:
            library.delete(self._store(0), _checked(key))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._away(error) from error

    def _store(self, size: int) -> Any:
        """The store of the library, with enough time for an object of a size."""
        seconds = ANSWER_S << (size // (ANSWER_S * SLOWEST)).bit_length()
        found = self._stores.get(seconds)
        if found is None:
            from obstore.store import S3Store  # noqa: PLC0415 - only large values in a bucket need it

            options: ClientConfig = {
                "timeout": timedelta(seconds=seconds),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                # The library reads the other variables itself, and no more this one when it is given options.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true"},
            }
            # The caller tries again: it knows for how long, and reports it.
            patience: RetryConfig = {"max_retries": 1, "retry_timeout": timedelta(seconds=CONNECT_S)}
            try:
                found = S3Store(
                    self._bucket, prefix=self._prefix or None, client_options=options, retry_config=patience
                )
            except Exception as error:
                raise self._away(error) from error
            self._stores[seconds] = found
        return found

    def _away(self, error: Exception) -> ObjectStoreUnavailableError:
        if isinstance(error, ObjectStoreUnavailableError):
            return error
        # What the library adds after the first line is for its developers.
        return ObjectStoreUnavailableError(self.name, str(error).split("\n", 1)[0] or type(error).__name__)


@cache
def load_obstore() -> Any:
    """The library.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import obstore  # noqa: PLC0415 - only large values in a bucket need it
    except ImportError as error:
        problem = f"it needs {error.name or 'obstore'}, which is not installed; install bartack[s3]"
        raise UsageError(SETTING, problem) from None
    return obstore


def _checked(key: str) -> str:
    """The name of an object, which may come from a database: it leads nowhere else."""
    if not _KEY.fullmatch(key):
        raise ObjectStoreUnavailableError(SETTING, f"{key!r} is not the name of an object")
    return key


def _of_system(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
