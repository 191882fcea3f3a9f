"""Any sequence of calls does the same in memory and on a disk, errors included."""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkrobust.errors import RobustWriteError
from sparkrobust.storage.contract import StagedFile, StagedWriter, Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage

FOLDERS = st.sampled_from(["a", "a/b", "c"])
PATHS = st.sampled_from(["a/1", "a/2", "a/b", "a/b/3", "c/4"])
DATA = st.sampled_from([b"", b"1", b"two"])
WHICH = st.integers(0, 3)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put_if_absent"), PATHS, DATA),
        st.tuples(st.just("put"), PATHS, DATA),
        st.tuples(st.just("replace"), PATHS, DATA, st.booleans()),
        st.tuples(st.just("read"), PATHS),
        st.tuples(st.just("stat"), PATHS),
        st.tuples(st.just("list"), FOLDERS),
        st.tuples(st.just("walk"), FOLDERS),
        st.tuples(st.just("delete"), PATHS),
        st.tuples(st.just("delete_tree"), FOLDERS),
        st.tuples(st.just("make_folder"), FOLDERS, st.sampled_from(["", "a", "c"])),
        st.tuples(st.just("stage"), PATHS, DATA),
        st.tuples(st.just("publish"), WHICH),
        st.tuples(st.just("publish again"), WHICH),
        st.tuples(st.just("discard"), WHICH),
    ),
    max_size=40,
)


class Driver:
    """Runs steps on one store and says what each came to, without what may differ."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.files: list[StagedFile] = []
        self.names = itertools.count()
        self.storage.make_folder("a")
        self.storage.make_staging("staging")

    def run(self, step: tuple[Any, ...]) -> Any:
        name, *arguments = step
        try:
            return getattr(self, name.replace(" ", "_"))(*arguments)
        except RobustWriteError as error:
            return type(error).__name__

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.storage.put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.storage.put(path, data)

    def replace(self, path: str, data: bytes, stale: bool) -> None:
        _, version = self.storage.read_versioned(path)
        self.storage.replace_if_unchanged(path, data, "stale" if stale else version)

    def read(self, path: str) -> tuple[bytes, bytes]:
        with self.storage.open(path) as file:
            return self.storage.read(path), file.read()

    def stat(self, path: str) -> int | None:
        found = self.storage.stat(path)
        return found.size if found else None

    def list(self, folder: str) -> Any:
        files, folders = self.storage.list(folder)
        return [(info.path, info.size) for info in files], folders

    def walk(self, folder: str) -> Any:
        return sorted((info.path, info.size) for info in self.storage.walk(folder))

    def delete(self, path: str) -> None:
        self.storage.delete(path)

    def delete_tree(self, folder: str) -> None:
        self.storage.delete_tree(folder)

    def make_folder(self, folder: str, under: str) -> None:
        if folder == under or folder.startswith(under + "/") or not under:
            self.storage.make_folder(folder, under=under)

    def stage(self, path: str, data: bytes) -> None:
        with self.storage.stage("staging", str(next(self.names)), path) as writer:
            self.finish(writer, data)

    def finish(self, writer: StagedWriter, data: bytes) -> None:
        writer.write(data)
        self.files.append(writer.finish())

    def publish(self, which: int) -> None:
        if which < len(self.files):
            self.storage.publish(self.files[which])

    publish_again = publish

    def discard(self, which: int) -> None:
        if which < len(self.files):
            self.storage.discard(self.files[which].token)


@contextmanager
def stores() -> Iterator[tuple[Driver, Driver]]:
    with tempfile.TemporaryDirectory() as folder:
        yield Driver(MemoryStorage(uuid.uuid4().hex)), Driver(LocalStorage(folder + "/table"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
@example([("make_folder", "a/b", ""), ("stage", "a/b", b""), ("publish", 0)])
@example([("put_if_absent", "a/b", b""), ("stage", "a/b/3", b""), ("publish", 0)])
def test_memory_and_disk_do_the_same(steps: list[tuple[Any, ...]]) -> None:
    with stores() as (memory, disk):
        for step in steps:
            assert memory.run(step) == disk.run(step), step
        assert memory.walk("") == disk.walk("")
