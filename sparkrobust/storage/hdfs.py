"""A table on HDFS.

Theory of operation
-------------------
Every request is one step of the NameNode, which has logged it durably before it answers; a listing
is never stale.  No request of ours makes parents but those that are meant to.

*Appearing.*  HDFS shows a file from its first byte on.  So an object is written in scratch, synced to
the DataNodes' disks, closed, and then renamed; the rename replaces nothing, and needs the folder.

*Publishing* is that rename, out of a staging folder.

*An answer that was lost.*  What a rename moves has a name that nobody else has.  As long as it lies
there, the rename did not happen, whatever was answered; it can be asked for again, and happens once.
Once it is gone, what has the final name tells by its size or content whether it is what was moved.

*Replacing* is :mod:`sparkrobust.storage.hdfs_replacing`.

*Scratch* is one folder inside of ``.hoodie``, never inside of ``.hoodie/.temp``, whose every file Hudi
takes for a marker.  What a crash left there is swept by a later ``delete_tree``, by HDFS's own time.

*Durable* means: on the disks of all DataNodes of the block's pipeline, whatever
``dfs.datanode.synconclose`` says.  Only a file that HDFS keeps with an erasure code, which the client
can't sync, is closed and no more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkrobust.errors import InternalError, InvalidInputError, UnavailableError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    ChangedError,
    FileInfo,
    NotFoundError,
    StagedFile,
    StagedWriter,
    Staging,
    Storage,
    checked,
    enclosing,
    staged_path,
)
from sparkrobust.storage.hdfs_files import HdfsFile, HdfsStagedWriter
from sparkrobust.storage.hdfs_replacing import Replacing
from sparkrobust.storage.hdfs_requests import DEFAULT_PATIENCE, Requests, parent
from sparkrobust.storage.hdfs_scratch import OUT_OF_SIGHT, SCRATCH, Scratch
from sparkrobust.storage.hdfs_settings import HdfsSettings
from sparkrobust.storage.parallel import all_at_once
from sparkrobust.storage.patience import Patience

_ROUNDS = 20


class HdfsStorage(Storage):
    """A table's root on HDFS.

    Parameters
    ----------
    url
        ``hdfs://host:port/path``, ``hdfs://nameservice/path``, or ``hdfs:///path`` with the file system
        that Hadoop's configuration has as its default.
    options
        Hadoop's keys, which come before those of its files.
    patience
        How often a request without a clear answer is sent.
    """

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, *, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        authority, self._root = _parsed(url)
        self._url = f"hdfs://{authority}{self._root}"
        self._requests = Requests(HdfsSettings.of(options or {}, authority), patience)
        self._scratch = Scratch(self._requests, self._root)
        self._replacing = Replacing(self._requests, self._scratch, self._root)

    def __repr__(self) -> str:
        return f"HdfsStorage({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    @property
    def staging(self) -> Staging:
        return Staging.RENAME

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self._requests.read(self._full(path), at_most)

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        return self._requests.read_versioned(self._full(path), at_most)

    def open(self, path: str) -> HdfsFile:
        return HdfsFile(self._requests, self._full(path))

    def stat(self, path: str) -> FileInfo | None:
        found = self._requests.status(self._full(path))
        return None if found is None or found.isdir else _info(path, found)

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        full = self._full(folder)
        try:
            found = self._requests.asked("list", full, lambda client: list(client.list_status(full)))
        except NotFoundError:
            return [], []
        files: list[FileInfo] = []
        folders: list[str] = []
        for status in found:
            path = status.path[len(self._root) + 1 :]
            hidden = path == SCRATCH or path.rpartition("/")[2].startswith(OUT_OF_SIGHT)
            # A file, asked for what is in it, gives itself.
            if hidden or status.path == full:
                continue
            if status.isdir:
                folders.append(path)
            else:
                files.append(_info(path, status))
        return sorted(files, key=lambda info: info.path), sorted(folders)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        files, folders = self.list(folder)
        yield from files
        for inner in folders:
            yield from self.walk(inner)

    # -- writing -------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        full = self._full(path)
        temporary = self._scratch.write(full, data)
        try:
            self._requests.move("create", temporary, full, lambda: self.read(path) == data)
        except BaseException:
            self._requests.drop(temporary)
            raise

    def put(self, path: str, data: bytes) -> None:
        full = self._full(path)
        for _ in range(_ROUNDS):
            version = self._requests.version(full)
            with contextlib.suppress(AlreadyExistsError, ChangedError):
                if version is None:
                    self.put_if_absent(path, data)
                else:
                    self._replacing.replace(full, data, version)
                return
        raise UnavailableError(f"{full} is changed again and again", path=full)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        return self._replacing.replace(self._full(path), data, version)

    def delete(self, path: str) -> None:
        full = self._full(path)
        if self._requests.is_folder(full):  # which is no object
            return
        for _ in range(_ROUNDS):
            self._requests.delete(full)
            if not self._replacing.stop(full):
                return
        raise UnavailableError(f"{full} is written again and again while it is deleted", path=full)

    def delete_tree(self, folder: str) -> None:
        full = self._full(folder)
        if self._requests.is_folder(full):
            # The NameNode takes the whole tree out of sight in one step.
            self._requests.delete(full, tree=True)
        if folder:
            self._scratch.sweep()

    # -- staging -------------------------------------------------------------------------------

    def make_staging(self, folder: str) -> None:
        self.make_folder(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        base, full = self._full(enclosing(folder, under)), self._full(folder)
        if not under:
            self._requests.make_folder(full, parents=True)
        elif not self._requests.is_folder(base):
            raise NotFoundError(f"can't make the folder {full}: there is no {base}", path=full)
        # Level by level below what is there: a folder taken away meanwhile is not made again.
        for part in full[len(base) :].split("/")[1:] if under else ():
            base = f"{base}/{part}"
            self._requests.make_folder(base)

    def make_folders(self, folders: Iterable[str]) -> None:
        all_at_once(self.make_folder, folders)

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        token = checked(f"{folder}/{name}" if folder else name)
        return HdfsStagedWriter(
            self._requests, self._full(token), token=token, final_path=checked(final_path)
        )

    def seal(self, folder: str, sealed: str) -> None:
        source, target = self._full(folder), self._full(sealed)
        try:
            self._requests.asked("seal", source, lambda client: client.rename(source, target, False))
        except NotFoundError:
            if not self._requests.is_folder(target):
                raise
        except AlreadyExistsError:
            # Only drivers get here, and make both folders once.
            if self._requests.is_folder(source):
                raise

    def publish(self, staged: StagedFile) -> None:
        source, target = self._full(staged_path(staged.token)), self._full(staged.final_path)
        try:
            self._requests.move("publish", source, target, lambda: self._is_published(staged))
        except NotFoundError:
            if self._requests.status(source) is None or self._requests.is_folder(parent(target)):
                raise
            self._requests.make_folder(parent(target), parents=True)
            self._requests.move("publish", source, target, lambda: self._is_published(staged))

    def _is_published(self, staged: StagedFile) -> bool:
        found = self.stat(staged.final_path)
        if found is None:
            raise NotFoundError(
                f"neither {staged.token} nor {staged.final_path} is there to be published",
                path=staged.final_path,
            )
        return found.size == staged.size

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        all_at_once(self.publish, staged)

    def discard(self, token: str) -> None:
        self._requests.delete(self._full(staged_path(token)))

    # -- helpers -------------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if checked(path) else self._root


def _info(path: str, found: Any) -> FileInfo:
    return FileInfo(path=path, size=found.length, modified_ms=found.modification_time)


def _parsed(url: str) -> tuple[str, str]:
    """The authority, which may be empty, and the root's path."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "hdfs" or not rest.startswith("/"):
        raise InvalidInputError("not a URL of the form hdfs://host:port/path")
    authority = ""
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
    if "@" in authority:
        # The URL is not repeated: it may hold a password.
        raise InvalidInputError(
            "a URL of a table must not hold a user", hint="HDFS knows a user by HADOOP_USER_NAME or Kerberos"
        )
    root = "/".join(part for part in rest.split("/") if part)
    try:
        checked(root)
    except InternalError:
        root = ""
    if not root:
        raise InvalidInputError("a table needs a folder of its own on HDFS, as hdfs://host:port/folder")
    return authority, f"/{root}"
