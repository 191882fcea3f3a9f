"""A table in this process's memory: the contract in its simplest form, for tests and simulation.

It behaves as a disk does (folders, staging by rename), every call is one step under one lock, and
time comes from whoever makes the first handle of a space.
"""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sparkrobust.errors import InternalError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    ChangedError,
    FileInfo,
    NotFoundError,
    StagedFile,
    StagedWriter,
    Staging,
    Storage,
    check_size,
    checked,
    enclosing,
    staged_path,
)
from sparkrobust.world import Clock


@dataclass(frozen=True, kw_only=True)
class _Object:
    data: bytes
    version: int
    modified_ms: int


@dataclass(eq=False, kw_only=True)
class _Space:
    """What all handles of one name share."""

    clock: Clock
    lock: threading.RLock = field(default_factory=threading.RLock)
    objects: dict[str, _Object] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})
    versions: int = 0


_SPACES: weakref.WeakValueDictionary[str, _Space] = weakref.WeakValueDictionary()
_SPACES_LOCK = threading.Lock()


class MemoryStorage(Storage):
    """A named space in this process; every handle of one name sees the same objects.

    Parameters
    ----------
    name
        The space's name; it lives as long as a handle of it does.
    clock
        For the time of objects; the first handle's is used.
    """

    def __init__(self, name: str, *, clock: Clock | None = None) -> None:
        self._name = name
        with _SPACES_LOCK:
            space = _SPACES.get(name)
            if space is None:
                space = _SPACES[name] = _Space(clock=clock or Clock())
        self._space = space

    @classmethod
    def existing(cls, name: str) -> MemoryStorage | None:
        """Another handle of a space, if there is one of this name."""
        with _SPACES_LOCK:
            known = _SPACES.get(name)  # held, so that the space can't go in between
            return cls._of(name, known) if known is not None else None

    @classmethod
    def _of(cls, name: str, space: _Space) -> MemoryStorage:
        handle = cls.__new__(cls)
        handle._name, handle._space = name, space
        return handle

    def __reduce__(self) -> tuple[Any, ...]:
        return _handle_of, (self._name,)

    def __repr__(self) -> str:
        return f"MemoryStorage({self._name!r})"

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    @property
    def staging(self) -> Staging:
        return Staging.RENAME

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self.read_versioned(path, at_most=at_most)[0]

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        found = self._object(path)
        check_size(path, len(found.data), at_most)
        return found.data, str(found.version)

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self.read(path))

    def stat(self, path: str) -> FileInfo | None:
        with self._space.lock:
            found = self._space.objects.get(checked(path))
        return _info(path, found) if found is not None else None

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        checked(folder)
        with self._space.lock:
            files = [_info(p, o) for p, o in self._space.objects.items() if _parent(p) == folder]
            folders = [path for path in self._space.folders if path and _parent(path) == folder]
        return sorted(files, key=lambda info: info.path), sorted(folders)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        checked(folder)
        with self._space.lock:
            found = [_info(p, o) for p, o in self._space.objects.items() if _is_under(p, folder)]
        yield from found

    # -- writing -------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._space.lock:
            self._require_free(path)
            self._store(path, bytes(data))

    def put(self, path: str, data: bytes) -> None:
        with self._space.lock:
            self._store(path, bytes(data))

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        with self._space.lock:
            if str(self._object(path).version) != version:
                raise ChangedError(f"{path} was changed by somebody else", path=path)
            return str(self._store(path, bytes(data)).version)

    def delete(self, path: str) -> None:
        with self._space.lock:
            self._space.objects.pop(checked(path), None)

    def delete_tree(self, folder: str) -> None:
        checked(folder)
        with self._space.lock:
            for path in [p for p in self._space.objects if _is_under(p, folder)]:
                del self._space.objects[path]
            gone = {path for path in self._space.folders if path == folder or _is_under(path, folder)}
            self._space.folders -= gone - {""}

    # -- staging -------------------------------------------------------------------------------

    def make_staging(self, folder: str) -> None:
        self.make_folder(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        with self._space.lock:
            if enclosing(folder, under) not in self._space.folders:
                raise NotFoundError(f"there is no folder {under}", path=under)
            parts = folder.split("/") if folder else []
            made = {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
            if not made.isdisjoint(self._space.objects):
                raise AlreadyExistsError(f"there is an object in the way of {folder}", path=folder)
            self._space.folders |= made

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        token = checked(f"{folder}/{name}" if folder else name)
        checked(final_path)
        self.put_if_absent(token, b"")
        return _MemoryStagedWriter(self, token, final_path)

    def seal(self, folder: str, sealed: str) -> None:
        checked(folder), checked(sealed)
        space = self._space
        with space.lock:
            if folder not in space.folders:
                if sealed not in space.folders:
                    raise NotFoundError(f"there is no folder {folder}", path=folder)
                return
            if sealed in space.folders:
                raise AlreadyExistsError(f"there is already {sealed}", path=sealed)
            space.objects = {_renamed(path, folder, sealed): found for path, found in space.objects.items()}
            space.folders = {_renamed(path, folder, sealed) for path in space.folders}

    def publish(self, staged: StagedFile) -> None:
        with self._space.lock:
            source = self._space.objects.get(staged_path(staged.token))
            target = self._space.objects.get(checked(staged.final_path))
            if source is None:
                self._require_published(staged, target)
                return
            self._require_free(staged.final_path)
            self.make_folder(_parent(staged.final_path))
            self._space.objects[staged.final_path] = source
            del self._space.objects[staged.token]

    @staticmethod
    def _require_published(staged: StagedFile, found: _Object | None) -> None:
        """What an earlier call has published is there, and is what was staged."""
        if found is None:
            raise NotFoundError(
                f"neither {staged.token} nor {staged.final_path} is there to be published",
                path=staged.final_path,
            )
        if len(found.data) != staged.size:
            raise AlreadyExistsError(f"there is already {staged.final_path}", path=staged.final_path)

    def discard(self, token: str) -> None:
        self.delete(staged_path(token))

    # -- helpers -------------------------------------------------------------------------------

    def _object(self, path: str) -> _Object:
        with self._space.lock:
            found = self._space.objects.get(checked(path))
        if found is None:
            raise NotFoundError(f"there is no {path}", path=path)
        return found

    def _require_free(self, path: str) -> None:
        if checked(path) in self._space.objects or path in self._space.folders:
            raise AlreadyExistsError(f"there is already {path}", path=path)

    def _store(self, path: str, data: bytes) -> _Object:
        if _parent(checked(path)) not in self._space.folders:
            raise NotFoundError(f"there is no folder {_parent(path)}", path=path)
        if path in self._space.folders:
            raise AlreadyExistsError(f"there is a folder {path}", path=path)
        self._space.versions += 1
        stored = _Object(data=data, version=self._space.versions, modified_ms=self._space.clock.now_ms())
        self._space.objects[path] = stored
        return stored


class _MemoryStagedWriter(StagedWriter):
    def __init__(self, storage: MemoryStorage, token: str, final_path: str) -> None:
        self._storage, self._token, self._final_path = storage, token, final_path
        self._data = bytearray()
        self._settled = False

    @property
    def token(self) -> str:
        return self._token

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return len(self._data)

    def write(self, data: Any, /) -> int:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with memoryview(data) as view:
            self._data += view
            return view.nbytes

    def finish(self) -> StagedFile:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        _, version = self._storage.read_versioned(self._token)
        self._storage.replace_if_unchanged(self._token, bytes(self._data), version)
        self._settled = True
        return StagedFile(final_path=self._final_path, token=self._token, size=len(self._data))

    def discard(self) -> None:
        if not self._settled:
            self._settled = True
            self._storage.discard(self._token)

    def close(self) -> None:
        self.discard()
        super().close()


def _handle_of(name: str) -> MemoryStorage:
    handle = MemoryStorage.existing(name)
    if handle is None:
        raise InternalError(f"the table memory://{name} lives in another process")
    return handle


def _info(path: str, found: _Object) -> FileInfo:
    return FileInfo(path=path, size=len(found.data), modified_ms=found.modified_ms)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _renamed(path: str, folder: str, to: str) -> str:
    return to + path[len(folder) :] if path == folder or _is_under(path, folder) else path


def _is_under(path: str, folder: str) -> bool:
    return not folder or path.startswith(folder + "/")
