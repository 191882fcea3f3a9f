"""From the path that a user gives to the store that it lies on.

The scheme decides.  A store that can't put if absent, or that nobody has shown to, is refused here
with the reason; :func:`require_put_if_absent` asks the store itself, since a scheme doesn't tell
what software answers behind it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

from sparkrobust.errors import InvalidInputError, TableNotFoundError, UnsupportedTableError
from sparkrobust.storage import azure_settings
from sparkrobust.storage.contract import AlreadyExistsError, Storage
from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.object_store import ObjectStorage
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.world import Ids

PROBE = "probe-"
"""What the names begin with of the objects by which a store is asked what it can do."""

# As Hadoop reads a path: what stands before a colon is a scheme, unless a slash comes first.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)

_CHECK_THEN_WRITE = "clients look whether the name is free and write then, so two writers can both win"
_NOT_SEEN = "that its client's conditional puts and copies hold there was never seen, for want of a server"
_NOT_HADOOPS = "Spark can't read it; write abfss://container@account.dfs.core.windows.net/path"
_READ_ONLY = "nothing can be written there safely"

_REFUSED = {
    "adl": "the service is retired",
    "az": _NOT_HADOOPS,
    "azure": _NOT_HADOOPS,
    "dbfs": "its put-if-absent could not be measured",
    "ftp": _CHECK_THEN_WRITE,
    "gcs": _NOT_SEEN,
    "gs": _NOT_SEEN,
    "http": _READ_ONLY,
    "https": _READ_ONLY,
    "s3n": "it is the name of a client that Hadoop has given up; write s3a",
    "sftp": _CHECK_THEN_WRITE,
    "smb": _CHECK_THEN_WRITE,
    "viewfs": "it may lead to several clusters, and nothing can be renamed from one to another",
    "webhdfs": "creating a file there makes its missing folders, which would bring back what was taken away",
}
_WAY_OUT = (
    "keep the table on a local or shared disk (a plain path), on S3 (s3a://...), HDFS (hdfs://...) or "
    "Azure (abfss://...)"
)


def storage_for(path: str, options: Mapping[str, str] | None = None) -> Storage:
    """The store of a table's base path.

    Parameters
    ----------
    path
        A plain path, a ``file:`` URL, ``s3://`` / ``s3a://bucket/path``, ``hdfs://host:port/path``, or
        ``abfss://container@account.dfs.core.windows.net/path`` (``abfs``, ``wasbs`` and ``wasb`` likewise).
    options
        Options of the store (``fs.s3a.*``, ``fs.azure.*``, ``dfs.*``); others are ignored.

    Raises
    ------
    UnsupportedTableError
        No table can be kept safely under this scheme; the message says why.
    """
    if not path or not path.strip() or "\0" in path:
        raise InvalidInputError("the path of a table is empty or holds a NUL")
    match = _SCHEME.match(path)
    if match is None or "/" in match.group(1):
        return LocalStorage(path)
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme == "file":
        return LocalStorage(_local_path(rest, path))
    if scheme in ("s3", "s3a"):
        return S3Storage(path, options)
    if scheme in azure_settings.SCHEMES:
        return ObjectStorage(path, options)
    if scheme == "hdfs":
        return HdfsStorage(path, options)
    if scheme == "memory":
        return _memory(rest)
    raise UnsupportedTableError(f"no table can be kept under {scheme}: {_reason(scheme)}", hint=_WAY_OUT)


def _local_path(rest: str, path: str) -> str:
    """The path of a ``file:`` URL; a percent sign is just that, as in Hadoop."""
    if rest.startswith("//"):
        host, slash, inner = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise UnsupportedTableError(f"{path} lies on another machine", hint=_WAY_OUT)
        rest = slash + inner
    if not rest.startswith("/"):
        raise InvalidInputError(f"a file URL needs an absolute path, as file:///folder: {path}")
    return rest


def _memory(rest: str) -> MemoryStorage:
    found = MemoryStorage.existing(rest.removeprefix("//"))
    if found is None:
        raise TableNotFoundError(
            "tables in memory are for tests, which make their MemoryStorage first", hint=_WAY_OUT
        )
    return found


def _reason(scheme: str) -> str:
    if scheme in _REFUSED:
        return _REFUSED[scheme]
    try:
        # Optional, and not needed on executors.
        known = importlib.import_module("fsspec.registry").known_implementations
    except ImportError:
        known = {}
    if scheme in known:
        return f"it is known to fsspec, whose stores mostly can't put if absent ({_CHECK_THEN_WRITE})"
    return "the scheme is not known (a relative path with a colon is written ./like:this)"


def require_put_if_absent(storage: Storage, folder: str) -> None:
    """Ask a store to create one object twice, and refuse it if it does.

    Parameters
    ----------
    storage
        The table's store.
    folder
        An existing folder for the object, which is deleted again.
    """
    name = f"{PROBE}{Ids().nonce()}"
    path = f"{folder}/{name}" if folder else name
    storage.put_if_absent(path, b"1")
    try:
        storage.put_if_absent(path, b"2")
    except AlreadyExistsError:
        return
    finally:
        storage.delete(path)
    raise UnsupportedTableError(
        f"{storage.url} replaces an object that was to be created: it ignores the condition of the request",
        path=storage.url,
        hint="writers could not be kept apart there; use a store with conditional writes",
    )
