"""Programs for a mount namespace of their own: ``on_a_small_disk.py PROGRAM FOLDER``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sparkrobust.errors import PermissionDeniedError, RobustWriteError, StorageFullError
from sparkrobust.storage import posix
from sparkrobust.storage.local import LocalStorage


def mount(folder: str, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", folder], check=True)


def raised(action: Callable[[], object]) -> RobustWriteError:
    try:
        action()
    except RobustWriteError as error:
        return error
    raise AssertionError("no error")


def full_disk(folder: str) -> None:
    mount(folder, "size=1m")
    storage = LocalStorage(folder + "/table")
    for name in (".hoodie", "a", "staging"):
        storage.make_folder(name)
    storage.put_if_absent("a/there", b"before")
    _, version = storage.read_versioned("a/there")
    much = b"x" * (2 << 20)

    def stage() -> None:
        with storage.stage("staging", "one", "a/new") as writer:
            for _ in range(32):
                writer.write(much[: 1 << 16])
            writer.finish()

    for action in (
        lambda: storage.put_if_absent("a/new", much),
        lambda: storage.put("a/new", much),
        lambda: storage.put("a/there", much),
        lambda: storage.replace_if_unchanged("a/there", much, version),
        stage,
    ):
        error = raised(action)
        assert isinstance(error, StorageFullError), repr(error)
        assert folder in str(error) and error.path is not None
        assert [info.path for info in storage.walk("")] == ["a/there"]
        assert storage.read("a/there") == b"before"
        rests = [path for path in Path(folder).rglob("*") if path.is_file()]
        assert [path.name for path in rests] == ["there"], rests
    storage.put_if_absent("a/new", b"there is room for this")


def full_disk_without_nameless_files(folder: str) -> None:
    posix._create_nameless = lambda path, data: False
    full_disk(folder)


def read_only_disk(folder: str) -> None:
    mount(folder, "size=1m")
    storage = LocalStorage(folder + "/table")
    for name in (".hoodie", "a", "b", "staging"):
        storage.make_folder(name)
    storage.put_if_absent("a/there", b"before")
    with closing(storage.stage("staging", "one", "a/new")) as writer:
        file = writer.finish()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    for action in (
        lambda: storage.put_if_absent("a/new", b""),
        lambda: storage.put_if_absent("a/new", b"1"),
        lambda: storage.put("a/there", b"1"),
        lambda: storage.delete("a/there"),
        lambda: storage.delete_tree("a"),
        lambda: storage.make_folder("c"),
        lambda: storage.stage("staging", "two", "a/new"),
        lambda: storage.publish(file),
    ):
        error = raised(action)
        assert isinstance(error, PermissionDeniedError), repr(error)
        assert "read-only" in str(error) and folder in str(error)
    assert storage.read("a/there") == b"before"


if __name__ == "__main__":
    {program.__name__: program for program in (full_disk, full_disk_without_nameless_files, read_only_disk)}[
        sys.argv[1]
    ](sys.argv[2])
    print("passed")
