"""The stores of the simulated world: each call of the contract is a turn, or several where a real one is.

Three kinds, as different as real stores get: folders and renames (a disk, HDFS), uploads that are
completed (S3), and objects that are copied (Azure).  What is below is plain memory; what an actor
holds is a handle that gives way first.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fault_injection.faults import Fault
from fault_injection.simulation.scheduler import Busy, World
from sparkrobust.core import strict_json
from sparkrobust.core.names import TEMP
from sparkrobust.errors import UnavailableError
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
)
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.turns import CopyingStorage
from sparkrobust.world import Clock

T = TypeVar("T")

_TRIES = 6
"""How often a request is sent to an object store that is busy."""


def _may_be_stale(folder: str) -> bool:
    """What a listing of this folder lacks is asked for by name, or does no harm; see ``faults.py``."""
    return folder.startswith(f"{TEMP}/") or folder.endswith("/sealed")


def _without_newest(memory: MemoryStorage, files: list[FileInfo]) -> list[FileInfo]:
    objects = memory._space.objects
    newest = max(files, key=lambda info: objects[info.path].version, default=None)
    return [info for info in files if info is not newest]


@dataclass
class Upload:
    path: str
    data: bytes | None = None


@dataclass
class Bucket:
    """Objects and uploads, with the answers of an S3-compatible store."""

    clock: Clock
    objects: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    """Path → bytes, version, time."""
    uploads: dict[str, Upload] = field(default_factory=dict)
    versions: int = 0

    def put(self, path: str, data: bytes) -> str:
        self.versions += 1
        self.objects[path] = (data, self.versions, self.clock.now_ms())
        return str(self.versions)

    def begin(self, path: str, name: str) -> str:
        self.uploads[name] = Upload(path)
        return name

    def fill(self, name: str, data: bytes) -> None:
        if name not in self.uploads:
            raise NotFoundError(f"no upload {name}", path=name)
        self.uploads[name].data = data

    def complete(self, name: str) -> None:
        """Nothing happens to an upload that is gone, or whose name is taken; the caller looks."""
        upload = self.uploads.get(name)
        if upload is not None and upload.data is not None and upload.path not in self.objects:
            self.put(upload.path, upload.data)
            del self.uploads[name]

    def abort(self, name: str) -> None:
        self.uploads.pop(name, None)


class SimulatedStorage(Storage):
    """An actor's handle; its calls are turns of the actor that makes them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _turn(self, name: str, path: str, effect: Callable[[], T], *, changes: bool = False) -> T:
        return self._world.call(name, path, effect, changes=changes)

    def _listed(self, name: str, folder: str, effect: Callable[[], T], stale: Callable[[], T]) -> T:
        """A listing that may come from a cache, where it is of what others can do without."""
        other = {Fault.STALE: stale} if _may_be_stale(folder) else {}
        return self._world.call(name, folder, effect, changes=False, other=other)

    def __reduce__(self) -> Any:
        raise TypeError("a simulated store stays in its world")


class SimulatedDisk(SimulatedStorage):
    """Folders and renames."""

    def __init__(self, world: World, memory: MemoryStorage) -> None:
        super().__init__(world)
        self.memory = memory

    @property
    def url(self) -> str:
        return self.memory.url

    @property
    def staging(self) -> Staging:
        return Staging.RENAME

    def paths(self) -> dict[str, int]:
        """What is there, and its size; no turn."""
        return {path: len(found.data) for path, found in self.memory._space.objects.items()}

    def modified_ms(self, path: str) -> int:
        """When it was put; no turn."""
        return self.memory._space.objects[path].modified_ms

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self._turn("read", path, lambda: self.memory.read(path, at_most=at_most))

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        return self._turn("read", path, lambda: self.memory.read_versioned(path, at_most=at_most))

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self.read(path))

    def stat(self, path: str) -> FileInfo | None:
        return self._turn("stat", path, lambda: self.memory.stat(path))

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        def stale() -> tuple[list[FileInfo], list[str]]:
            files, folders = self.memory.list(folder)
            return _without_newest(self.memory, files), folders

        return self._listed("list", folder, lambda: self.memory.list(folder), stale)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        def look() -> list[FileInfo]:
            return list(self.memory.walk(folder))

        yield from self._listed("walk", folder, look, lambda: _without_newest(self.memory, look()))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._turn("put_if_absent", path, lambda: self.memory.put_if_absent(path, data), changes=True)

    def put(self, path: str, data: bytes) -> None:
        self._turn("put", path, lambda: self.memory.put(path, data), changes=True)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        return self._turn(
            "replace", path, lambda: self.memory.replace_if_unchanged(path, data, version), changes=True
        )

    def delete(self, path: str) -> None:
        self._turn("delete", path, lambda: self.memory.delete(path), changes=True)

    def delete_tree(self, folder: str) -> None:
        self._turn("delete_tree", folder, lambda: self.memory.delete_tree(folder), changes=True)

    def make_staging(self, folder: str) -> None:
        self.make_folder(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        self._turn("make_folder", folder, lambda: self.memory.make_folder(folder, under=under), changes=True)

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        token = f"{folder}/{name}"
        self._turn("stage", token, lambda: self.memory.put_if_absent(token, b""), changes=True)
        return StagedBytes(self, token, final_path)

    def finish_staged(self, token: str, data: bytes) -> None:
        def write(data: bytes = data) -> None:
            _, version = self.memory.read_versioned(token)
            self.memory.replace_if_unchanged(token, data, version)

        torn = {Fault.TORN: lambda: write(data[: len(data) // 2])}
        self._world.call("finish", token, write, changes=True, other=torn)

    def seal(self, folder: str, sealed: str) -> None:
        self._turn("seal", folder, lambda: self.memory.seal(folder, sealed), changes=True)

    def publish(self, staged: StagedFile) -> None:
        self._turn("publish", staged.final_path, lambda: self.memory.publish(staged), changes=True)

    def discard(self, token: str) -> None:
        self.delete(token)


class SimulatedObjects(SimulatedStorage):
    """Objects in a bucket; no folders."""

    def __init__(self, world: World, bucket: Bucket, url: str) -> None:
        super().__init__(world)
        self.bucket, self._url = bucket, url

    def _turn(self, name: str, path: str, effect: Callable[[], T], *, changes: bool = False) -> T:
        """A request that is repeated until the store is not busy any more."""
        for _ in range(_TRIES):
            try:
                return self._world.call(name, path, effect, changes=changes, repeats=True)
            except Busy:
                continue
        raise UnavailableError(f"no clear answer to {name} {path}", path=path)

    def _on_condition(self, name: str, path: str, put: Callable[[], str]) -> str:
        """A conditional put, repeated in the same way; after an unclear answer a look tells whose it is."""
        ours: list[Any] = []
        for _ in range(_TRIES):
            try:
                return self._world.call(name, path, put, changes=True, repeats=True)
            except Busy as busy:
                ours.append(busy.done)
            except (AlreadyExistsError, ChangedError, NotFoundError):
                if not ours:
                    raise
                break
        found = self._turn("stat", path, lambda: self.bucket.objects.get(path))
        if found is not None and str(found[1]) in ours:
            return str(found[1])
        if found is not None and name == "put_if_absent":
            raise AlreadyExistsError(f"there is already {path}", path=path)
        raise UnavailableError(f"no clear answer to {name} {path}", path=path)

    @property
    def url(self) -> str:
        return self._url

    def paths(self) -> dict[str, int]:
        return {path: len(found[0]) for path, found in self.bucket.objects.items()}

    def modified_ms(self, path: str) -> int:
        return self.bucket.objects[path][2]

    def _object(self, path: str) -> tuple[bytes, int, int]:
        found = self.bucket.objects.get(checked(path))
        if found is None:
            raise NotFoundError(f"there is no {path}", path=path)
        return found

    def _info(self, path: str) -> FileInfo | None:
        found = self.bucket.objects.get(path)
        return None if found is None else FileInfo(path=path, size=len(found[0]), modified_ms=found[2])

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        return self.read_versioned(path, at_most=at_most)[0]

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        data, version, _ = self._turn("read", path, lambda: self._object(path))
        check_size(path, len(data), at_most)
        return data, str(version)

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self.read(path))

    def stat(self, path: str) -> FileInfo | None:
        return self._turn("stat", path, lambda: self._info(path))

    def _under(self, folder: str) -> list[FileInfo]:
        prefix = f"{folder}/" if folder else ""
        infos = (self._info(path) for path in sorted(self.bucket.objects) if path.startswith(prefix))
        return [info for info in infos if info is not None]

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        def look() -> tuple[list[FileInfo], list[str]]:
            start = len(folder) + 1 if folder else 0
            found = self._under(folder)
            files = [info for info in found if "/" not in info.path[start:]]
            inner = {info.path[: info.path.index("/", start)] for info in found if "/" in info.path[start:]}
            return files, sorted(inner)

        return self._turn("list", folder, look)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        yield from self._turn("walk", folder, lambda: self._under(folder))

    def put_if_absent(self, path: str, data: bytes) -> None:
        def put() -> str:
            if path in self.bucket.objects:
                raise AlreadyExistsError(f"there is already {path}", path=path)
            return self.bucket.put(path, data)

        self._on_condition("put_if_absent", path, put)

    def put(self, path: str, data: bytes) -> None:
        self._turn("put", path, lambda: self.bucket.put(path, data), changes=True)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        def replace() -> str:
            if str(self._object(path)[1]) != version:
                raise ChangedError(f"{path} was changed", path=path)
            return self.bucket.put(path, data)

        return self._on_condition("replace", path, replace)

    def delete(self, path: str) -> None:
        self._turn("delete", path, lambda: self.bucket.objects.pop(path, None), changes=True)

    def delete_tree(self, folder: str) -> None:
        while found := self._turn("list", folder, lambda: self._under(folder)):
            for info in found:
                self.delete(info.path)

    def make_staging(self, folder: str) -> None:
        """Nothing: there are no folders."""

    def make_folder(self, folder: str, *, under: str = "") -> None:
        """Nothing."""

    def seal(self, folder: str, sealed: str) -> None:
        """Nothing."""


class SimulatedBucket(SimulatedObjects):
    """Uploads that are completed."""

    @property
    def staging(self) -> Staging:
        return Staging.MULTIPART

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        upload = self._world.ids.nonce()
        self._turn("begin upload", final_path, lambda: self.bucket.begin(final_path, upload), changes=True)
        return StagedBytes(self, _token(upload, final_path), final_path)

    def finish_staged(self, token: str, data: bytes) -> None:
        upload, path = _of_token(token)
        self._turn("upload", path, lambda: self.bucket.fill(upload, data), changes=True)

    def publish(self, staged: StagedFile) -> None:
        upload, path = _of_token(staged.token)
        self._turn("complete", path, lambda: self.bucket.complete(upload), changes=True)
        found = self.stat(path)
        if found is None:
            raise NotFoundError(f"neither the upload of {path} nor the object is there", path=path)
        if found.size != staged.size:
            raise AlreadyExistsError(f"another object has the name of {path}", path=path)

    def discard(self, token: str) -> None:
        upload, path = _of_token(token)
        self._turn("abort", path, lambda: self.bucket.abort(upload), changes=True)


class SimulatedCopies(CopyingStorage, SimulatedObjects):
    """Objects that are copied, by the real protocol, request by request."""

    def __init__(self, world: World, bucket: Bucket, url: str) -> None:
        super().__init__(world, bucket, url)
        self._ids = world.ids

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        return StagedBytes(self, f"{folder}/{name}", final_path)

    def finish_staged(self, token: str, data: bytes) -> None:
        self._turn("stage", token, lambda: self.bucket.put(token, data), changes=True)

    def copy_if_absent(self, source: str, target: str) -> None:
        def copy() -> None:
            data = self._object(source)[0]
            if target in self.bucket.objects:
                raise AlreadyExistsError(f"there is already {target}", path=target)
            self.bucket.put(target, data)

        self._turn("copy", target, copy, changes=True)

    def require_published(self, staged: StagedFile) -> None:
        found = self.stat(staged.final_path)
        if found is None:
            raise NotFoundError(f"neither {staged.token} nor {staged.final_path} is there", path=staged.token)
        if found.size != staged.size:
            raise AlreadyExistsError(f"another object has the name {staged.final_path}", path=staged.token)


FinishesStaged = SimulatedDisk | SimulatedBucket | SimulatedCopies


def _token(upload: str, path: str) -> str:
    return strict_json.dumps({"upload": upload, "path": path})


def _of_token(token: str) -> tuple[str, str]:
    plain = strict_json.loads(token)
    return plain["upload"], plain["path"]


class StagedBytes(StagedWriter):
    """Bytes on their way; they are there once it is finished."""

    def __init__(self, storage: FinishesStaged, token: str, final_path: str) -> None:
        self.storage, self._token, self.final_path = storage, token, final_path
        self.data = bytearray()
        self.settled = False

    @property
    def token(self) -> str:
        return self._token

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return len(self.data)

    def write(self, data: Any, /) -> int:
        with memoryview(data) as view:
            self.data += view
            return view.nbytes

    def finish(self) -> StagedFile:
        self.storage.finish_staged(self._token, bytes(self.data))
        self.settled = True
        return StagedFile(final_path=self.final_path, token=self._token, size=len(self.data))

    def discard(self) -> None:
        if not self.settled:
            self.settled = True
            self.storage.discard(self._token)

    def close(self) -> None:
        self.discard()
        super().close()
