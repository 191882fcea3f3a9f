"""A store as the tasks of a write in mode ``direct`` see it: what they finish is visible at once.

That is the RFC's own order: data files under their final names, then the completion marker, and who
lost deletes his own.  What a task finishes is published right then, and from there on known by its
final path alone (:attr:`StagedFile.in_place`).  All else goes to the store beneath: a driver needs
no wrapper, as it finds the files where they are to be.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sparkrobust.core.names import HOODIE
from sparkrobust.storage.contract import Ended, FileInfo, Look, StagedFile, StagedWriter, Staging, Storage


class DirectStorage(Storage):
    """A wrapper around the table's store, which travels with the plan of a write."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"DirectStorage({self._inner!r})"

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def staging(self) -> Staging:
        return self._inner.staging

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        writer = self._inner.stage(folder, name, final_path)
        return writer if _is_ours(final_path) else _DirectWriter(self._inner, writer)

    def discard(self, token: str) -> None:
        if _is_path(token) and not _is_ours(token):
            self._inner.delete(token)
        else:
            self._inner.discard(token)

    def mark(self, path: str, data: bytes, *, under: str, durable: bool = False) -> None:
        # What it tells of is visible as soon as it is there.
        self._inner.mark(path, data, under=under, durable=True)

    # -- as the store beneath does it ------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self._inner.read(path, at_most=at_most)

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        return self._inner.read_versioned(path, at_most=at_most)

    def open(self, path: str) -> io.BufferedIOBase | io.RawIOBase:
        return self._inner.open(path)

    def stat(self, path: str) -> FileInfo | None:
        return self._inner.stat(path)

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        return self._inner.list(folder)

    def names(self, folder: str) -> Iterable[str]:
        return self._inner.names(folder)

    def look(self, folder: str, before: Look | None = None) -> Look:
        return self._inner.look(folder, before)

    def settles_in(self, folder: str) -> float | None:
        return self._inner.settles_in(folder)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        return self._inner.walk(folder)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._inner.put_if_absent(path, data)

    def make_marks(self, folder: str) -> None:
        self._inner.make_marks(folder)

    def put(self, path: str, data: bytes) -> None:
        self._inner.put(path, data)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        return self._inner.replace_if_unchanged(path, data, version)

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def delete_all(self, paths: Iterable[str]) -> None:
        self._inner.delete_all(paths)

    def delete_tree(self, folder: str) -> None:
        self._inner.delete_tree(folder)

    def delete_mark(self, folder: str) -> None:
        self._inner.delete_mark(folder)

    def make_staging(self, folder: str) -> None:
        self._inner.make_staging(folder)

    def make_folders(self, folders: Iterable[str]) -> None:
        self._inner.make_folders(folders)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        self._inner.make_folder(folder, under=under)

    def seal(self, folder: str, sealed: str) -> None:
        self._inner.seal(folder, sealed)

    def publish(self, staged: StagedFile) -> None:
        self._inner.publish(staged)

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        self._inner.publish_all(staged)

    def publish_last(
        self, staged: StagedFile, look: Callable[[], Ended | None], *, alone: bool = False
    ) -> Ended | None:
        return self._inner.publish_last(staged, look, alone=alone)


class _DirectWriter(StagedWriter):
    """Finishing it makes it visible, whole."""

    def __init__(self, storage: Storage, inner: StagedWriter) -> None:
        self._storage, self._inner = storage, inner

    @property
    def token(self) -> str:
        return self._inner.token

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        """Nothing: it is durable when it is finished."""

    def write(self, data: Any, /) -> int:
        return self._inner.write(data) or 0

    def finish(self) -> StagedFile:
        staged = self._inner.finish()
        self._storage.publish(staged)
        return staged.published()

    def discard(self) -> None:
        self._inner.discard()

    def close(self) -> None:
        self._inner.close()
        super().close()


def _is_ours(path: str) -> bool:
    """Whether it is no data file, but of the table's own bookkeeping."""
    return path.startswith(f"{HOODIE}/")


def _is_path(token: str) -> bool:
    """Whether it is a path, and not what a store says of an upload."""
    return not token.startswith("{")
