"""The storage suite: names, reading and listing."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkrobust.errors import CorruptTableError, InternalError, InvalidInputError
from sparkrobust.storage.contract import (
    NotFoundError,
    Storage,
)
from sparkrobust.testing import storage_races as races
from sparkrobust.testing.storage_cases import LARGE, StorageCases, paths_of, staged

_BAD_PATHS = ["/a", "a/", "a//b", "..", "a/../b", "a/..", ".", "./a", "a\0b"]
_ODD_NAMES = [
    "with space",
    "per%20cent%",
    "equal=sign",
    "plus+and&more",
    "hash#and?mark",
    "colon:semi;comma,",
    "quote'\"`",
    "brackets[1]{2}*",
    "grüße",
    "日本語",
    "back\\slash",
    ".dot",
    "-dash",
    "~tilde$dollar",
]
_OPERATIONS: dict[str, Callable[[Storage, str], object]] = {
    "read": lambda storage, path: storage.read(path),
    "read_versioned": lambda storage, path: storage.read_versioned(path),
    "open": lambda storage, path: storage.open(path),
    "stat": lambda storage, path: storage.stat(path),
    "list": lambda storage, path: storage.list(path),
    "look": lambda storage, path: storage.look(path),
    "walk": lambda storage, path: list(storage.walk(path)),
    "put_if_absent": lambda storage, path: storage.put_if_absent(path, b"x"),
    "put": lambda storage, path: storage.put(path, b"x"),
    "replace_if_unchanged": lambda storage, path: storage.replace_if_unchanged(path, b"x", "1"),
    "delete": lambda storage, path: storage.delete(path),
    "delete_tree": lambda storage, path: storage.delete_tree(path),
    "make_staging": lambda storage, path: storage.make_staging(path),
    "make_folder": lambda storage, path: storage.make_folder(path),
    "stage": lambda storage, path: storage.stage("staging", "one", path),
    "stage in": lambda storage, path: storage.stage(path, "one", "final"),
    "stage as": lambda storage, path: storage.stage("staging", path, "final"),
}


class ReadingCases(StorageCases):
    """Paths, reading, listing."""

    # -- paths and names ---------------------------------------------------------------------------

    @pytest.mark.parametrize("path", _BAD_PATHS)
    def test_a_path_that_is_not_inside_of_the_root_is_refused_by_every_operation(
        self, storage: Storage, path: str
    ) -> None:
        for name, operation in _OPERATIONS.items():
            try:
                operation(storage, path)
            except InternalError:
                continue
            pytest.fail(f"{name} took {path!r}")

    @pytest.mark.parametrize("name", _ODD_NAMES)
    def test_a_name_with_odd_characters_is_that_name_everywhere(
        self, storage: Storage, second: Storage, name: str
    ) -> None:
        if name in self.odd_names_refused or set(name) & set(self.forbidden_in_names):
            with pytest.raises(InvalidInputError):
                storage.put_if_absent(f"a/{name}", b"1")
            if storage.staging.has_folders:
                with pytest.raises(InvalidInputError):
                    storage.make_folder(f"a/{name}")
            assert storage.list("a") == ([], [])
            return
        storage.make_folder(f"a/{name}")
        path, published = f"a/{name}/{name}", f"a/{name}/2{name}"
        storage.put_if_absent(path, b"1")
        storage.publish(staged(storage, published, b"2", name))
        assert second.read(path) == b"1"
        assert second.read(published) == b"2"
        assert second.list("a")[1] == [f"a/{name}"]
        assert paths_of(second, f"a/{name}") == sorted([path, published])
        assert sorted(info.path for info in second.walk("a")) == sorted([path, published])
        second.delete(path)
        assert storage.stat(path) is None
        second.delete_tree(f"a/{name}")
        assert storage.stat(published) is None

    def test_the_url_names_the_root_and_is_the_same_for_a_copy(
        self, storage: Storage, second: Storage
    ) -> None:
        assert "://" in storage.url
        assert not storage.url.endswith("/")
        assert second.url == storage.url

    # -- reading -----------------------------------------------------------------------------------

    def test_what_is_missing_is_said_to_be_missing(self, storage: Storage) -> None:
        for read in (storage.read, storage.read_versioned, storage.open):
            with pytest.raises(NotFoundError) as caught:
                read("a/missing")
            assert "a/missing" in str(caught.value)
        assert storage.stat("a/missing") is None
        assert storage.stat("no/folder/missing") is None
        assert storage.list("no/folder") == ([], []) and not list(storage.names("no/folder"))
        assert list(storage.walk("no/folder")) == []

    def test_a_folder_is_no_object(self, storage: Storage) -> None:
        storage.make_folder("a/b")
        storage.put_if_absent("a/b/c", b"1")
        assert storage.stat("a/b") is None
        assert storage.stat("") is None
        with pytest.raises(NotFoundError):
            storage.read("a/b")
        storage.delete("a/b")
        assert storage.read("a/b/c") == b"1"

    def test_an_object_is_no_folder(self, storage: Storage) -> None:
        storage.put_if_absent("a/b", b"1")
        assert storage.list("a/b") == ([], [])
        assert list(storage.walk("a/b")) == []
        assert storage.stat("a/b/c") is None
        storage.delete_tree("a/b")
        storage.delete("a/b/c")
        assert storage.read("a/b") == b"1"

    def test_an_object_larger_than_is_read_at_most_is_refused_with_both_sizes(self, storage: Storage) -> None:
        storage.put_if_absent("some", b"12345")
        storage.put_if_absent("none", b"")
        for read in (storage.read, lambda path, at_most: storage.read_versioned(path, at_most=at_most)[0]):
            with pytest.raises(CorruptTableError, match="some: 5 bytes, expected at most 4"):
                read("some", at_most=4)
            assert read("some", at_most=5) == b"12345"
            assert read("none", at_most=0) == b""
            with pytest.raises(NotFoundError):
                read("missing", at_most=4)
        assert storage.read("some") == b"12345"

    @pytest.mark.parametrize("data", [b"", b"1", LARGE], ids=["empty", "one byte", "over 16 MiB"])
    def test_an_object_of_any_size_comes_back_whole(
        self, storage: Storage, second: Storage, data: bytes
    ) -> None:
        storage.put_if_absent("a/created", data)
        storage.put("a/put", data)
        storage.publish(staged(storage, "a/published", data))
        for path in ("a/created", "a/put", "a/published"):
            assert second.read(path) == data
            found = second.stat(path)
            assert found is not None and (found.path, found.size) == (path, len(data))
            with second.open(path) as file:
                assert file.read() == data

    def test_an_open_file_gives_any_part_of_a_large_object(self, storage: Storage) -> None:
        storage.put("a/large", LARGE)
        chance = random.Random(4)
        with storage.open("a/large") as file:
            assert file.seekable() and file.readable()
            assert file.seek(-8, 2) == len(LARGE) - 8
            assert file.read() == LARGE[-8:]
            assert file.read(10) == b""
            for _ in range(30):
                start = chance.randrange(len(LARGE))
                length = chance.choice([1, 100, 70_000, 1_500_000, 9_000_000])
                file.seek(start)
                assert file.read(length) == LARGE[start : start + length]
                assert file.tell() == min(start + length, len(LARGE))

    def test_an_open_file_can_be_read_to_its_end_piece_by_piece(self, storage: Storage) -> None:
        storage.put("a/large", LARGE)
        with storage.open("a/large") as file:
            pieces = list(iter(lambda: file.read(300_000), b""))
        assert b"".join(pieces) == LARGE

    def test_the_times_of_objects_come_from_one_clock(self, storage: Storage) -> None:
        storage.put_if_absent("a/first", b"")
        storage.put_if_absent("a/later", b"")
        first, later = storage.stat("a/first"), storage.stat("a/later")
        assert first is not None and later is not None
        assert 0 < first.modified_ms <= later.modified_ms
        listed = {info.path: info for info in storage.list("a")[0]}
        assert abs(listed["a/first"].modified_ms - first.modified_ms) < 1000

    # -- listing -----------------------------------------------------------------------------------

    def test_a_listing_has_what_is_directly_in_the_folder_sorted(self, storage: Storage) -> None:
        for folder in ("a/z", "a/y/x", "a-", "ab"):
            storage.make_folder(folder)
        for path in ("a/2", "a/10", "a/.hidden", "a/_x", "a/z/1", "a/y/x/1", "a-/1", "ab/1", "top"):
            storage.put_if_absent(path, b"123")
        files, folders = storage.list("a")
        assert [info.path for info in files] == ["a/.hidden", "a/10", "a/2", "a/_x"]
        assert {info.size for info in files} == {3}
        assert folders == ["a/y", "a/z"]
        assert sorted(storage.names("a")) == [".hidden", "10", "2", "_x"]
        files, folders = storage.list("")
        assert "top" in [info.path for info in files]
        assert {"a", "a-", "ab"} <= set(folders) and folders == sorted(folders)

    def test_a_look_has_the_names_that_are_there_whatever_was_seen_before(self, storage: Storage) -> None:
        storage.make_folder("a/z")
        look = storage.look("a")
        assert look.names == frozenset()
        for name in ("1", "2", "z/3"):
            storage.put(f"a/{name}", b"x")
            look = storage.look("a", look)
        assert look.names == storage.look("a").names == {"1", "2"}
        storage.delete("a/1")
        storage.put_if_absent("a/4", b"x")
        look = storage.look("a", look)
        assert storage.look("a", look).names == look.names == {"2", "4"}

    def test_a_walk_has_everything_below_and_nothing_beside(self, storage: Storage) -> None:
        storage.make_folder("a/y/x")
        storage.make_folder("ab")
        everything = ["a/.hidden", "a/2", "a/y/1", "a/y/x/1", "ab/1"]
        for path in everything:
            storage.put_if_absent(path, b"12")
        assert sorted(info.path for info in storage.walk("a")) == everything[:-1]
        assert set(everything) <= {info.path for info in storage.walk("")}
        assert {info.size for info in storage.walk("a")} == {2}

    def test_an_object_is_listed_as_soon_as_it_is_there_and_no_longer(
        self, storage: Storage, second: Storage
    ) -> None:
        for number in range(30):
            path = f"a/{number:03d}"
            storage.put_if_absent(path, b"")
            assert path in paths_of(second, "a")
            if number % 2:
                storage.delete(path)
                assert path not in paths_of(second, "a")

    def test_a_listing_of_more_than_a_page_is_complete(self, storage: Storage) -> None:
        everything = [f"a/{number:04d}" for number in range(1_050)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda path: storage.put_if_absent(path, b""), everything))
        assert paths_of(storage, "a") == everything
        assert sorted(info.path for info in storage.walk("a")) == everything
        storage.delete_tree("a")
        assert storage.list("a") == ([], [])

    def test_another_process_reads_what_this_one_wrote(self, storage: Storage) -> None:
        self.need_processes()
        storage.put_if_absent("a/one", b"data")
        assert races.in_processes(1, races.read_all, storage, "a/one") == [b"data"]
