"""The storage suite: creating, replacing and deleting."""

from __future__ import annotations

from functools import partial

import pytest

from sparkrobust.core.names import MARKER_LIST, MARKER_LISTS_SAY, MARKERS_ARE_LISTED
from sparkrobust.errors import InternalError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    ChangedError,
    NotFoundError,
    Storage,
)
from sparkrobust.testing import storage_races as races
from sparkrobust.testing.storage_cases import LARGE, StorageCases, paths_of


class WritingCases(StorageCases):
    """Conditional writes and their races, deleting, folders."""

    # -- put if absent -----------------------------------------------------------------------------

    @pytest.mark.parametrize("data", [b"", b"second"], ids=["empty", "with content"])
    def test_creating_what_is_there_is_refused_and_changes_nothing(
        self, storage: Storage, second: Storage, data: bytes
    ) -> None:
        storage.put_if_absent("a/one", b"first")
        with pytest.raises(AlreadyExistsError) as caught:
            second.put_if_absent("a/one", data)
        assert "a/one" in str(caught.value)
        assert second.read("a/one") == b"first"

    def test_an_equal_object_of_somebody_else_is_not_our_success(
        self, storage: Storage, second: Storage
    ) -> None:
        storage.put_if_absent("a/one", b"same")
        with pytest.raises(AlreadyExistsError):
            second.put_if_absent("a/one", b"same")

    def test_a_mark_with_content_brings_its_folders_with_it_and_is_put_once(
        self, storage: Storage, second: Storage
    ) -> None:
        storage.make_marks("marks")
        for path in ("marks/p=1/two", "marks/p=1/one", "marks/three"):
            storage.mark(path, b"content", under="marks")
            assert second.read(path) == b"content"
            with pytest.raises(AlreadyExistsError):
                second.mark(path, b"content", under="marks")
        assert paths_of(storage, "marks/p=1") == ["marks/p=1/one", "marks/p=1/two"]

    def test_a_mark_without_content_is_a_file_of_its_name_or_a_line_in_a_list_as_hudi_has_them(
        self, storage: Storage, second: Storage
    ) -> None:
        storage.make_marks("marks")
        names = {f"p={number % 3}/{number}.parquet.marker.CREATE" for number in range(10)}
        for name in names:
            handle, durable = storage if "1" in name else second, "/2" in name
            handle.mark(f"marks/{name}", b"", under="marks", durable=durable)
        found = {info.path.removeprefix("marks/") for info in second.walk("marks")}
        if MARKER_LISTS_SAY in found:
            assert second.read(f"marks/{MARKER_LISTS_SAY}") == MARKERS_ARE_LISTED
            lists = {name for name in found if name.startswith(MARKER_LIST)} - {MARKER_LISTS_SAY}
            lines = [line for name in lists for line in second.read(f"marks/{name}").decode().splitlines()]
            assert len(lines) == len(set(lines))
            found = found - lists - {MARKER_LISTS_SAY} | set(lines)
        assert found == names

    def test_a_mark_never_brings_back_the_folder_that_was_taken_away(self, storage: Storage) -> None:
        self.need_folders(storage)
        for data in (b"", b"with content"):
            with pytest.raises(NotFoundError):
                storage.mark("marks/p=1/one", data, under="marks")
        assert "marks" not in storage.list("")[1]

    def test_a_deleted_name_is_free_again(self, storage: Storage) -> None:
        storage.put_if_absent("a/one", b"1")
        storage.delete("a/one")
        storage.delete("a/one")
        storage.put_if_absent("a/one", b"2")
        assert storage.read("a/one") == b"2"

    @pytest.mark.parametrize("size", [0, 300, 100_000])
    def test_of_racing_threads_exactly_one_creates_the_object(
        self, storage: Storage, second: Storage, size: int
    ) -> None:

        def create(path: str, which: int) -> bool:
            handle = [storage, second][which % 2]
            return races.wins(lambda: handle.put_if_absent(path, b"%d" % which * size))

        for number in range(self.race_rounds):
            path = f"a/{number}"
            won = races.together(8, partial(create, path))
            assert won.count(True) == 1
            assert storage.read(path) == b"%d" % won.index(True) * size

    def test_of_racing_processes_exactly_one_creates_the_object(self, storage: Storage) -> None:
        self.need_processes()
        answers = races.in_processes(4, races.put_rounds, storage, "a", self.race_rounds)
        winners = {number: which for which, won in answers for number in won}
        assert sum(len(won) for _, won in answers) == self.race_rounds
        for number in range(self.race_rounds):
            assert storage.read(f"a/{number}") == b"%d" % winners[number]

    def test_a_reader_sees_a_new_object_whole_or_not_at_all(self, storage: Storage, second: Storage) -> None:
        data = LARGE

        def write_or_read(path: str, which: int) -> set[int]:
            if which == 0:
                storage.put_if_absent(path, data)
                return set()
            seen = set()
            while len(data) not in seen:
                found = second.stat(path)
                if found is not None:
                    seen.add(found.size)
                    seen.add(len(second.read(path)))
            return seen

        for number in range(3):
            path = f"a/{number}"
            seen = races.together(2, partial(write_or_read, path))
            assert seen[1] == {len(data)}

    # -- replacing ---------------------------------------------------------------------------------

    def test_put_creates_and_replaces(self, storage: Storage, second: Storage) -> None:
        storage.put("a/one", b"1")
        second.put("a/one", b"22")
        assert storage.read("a/one") == b"22"
        assert paths_of(storage, "a") == ["a/one"]

    def test_the_version_that_was_read_is_replaced(self, storage: Storage, second: Storage) -> None:
        storage.put_if_absent("a/one", b"1")
        data, version = second.read_versioned("a/one")
        assert data == b"1"
        newer = storage.replace_if_unchanged("a/one", b"2", version)
        assert second.read_versioned("a/one") == (b"2", newer)
        second.replace_if_unchanged("a/one", b"3", newer)
        assert storage.read("a/one") == b"3"

    def test_another_version_than_the_one_read_is_left_alone(self, storage: Storage, second: Storage) -> None:
        storage.put_if_absent("a/one", b"1")
        _, version = storage.read_versioned("a/one")
        second.put("a/one", b"2")
        with pytest.raises(ChangedError) as caught:
            storage.replace_if_unchanged("a/one", b"3", version)
        assert "a/one" in str(caught.value)
        assert storage.read("a/one") == b"2"

    def test_what_was_deleted_is_not_replaced(self, storage: Storage) -> None:
        storage.put_if_absent("a/one", b"1")
        _, version = storage.read_versioned("a/one")
        storage.delete("a/one")
        with pytest.raises(NotFoundError):
            storage.replace_if_unchanged("a/one", b"2", version)
        assert storage.stat("a/one") is None

    def test_no_update_of_racing_threads_is_lost(self, storage: Storage, second: Storage) -> None:
        storage.put_if_absent("a/count", b"0")
        times = max(self.race_rounds // 8, 2)
        races.together(8, lambda which: races.add_one([storage, second][which % 2], "a/count", times))
        assert storage.read("a/count") == b"%d" % (8 * times)

    def test_no_update_of_racing_processes_is_lost(self, storage: Storage) -> None:
        self.need_processes()
        storage.put_if_absent("a/count", b"0")
        times = max(self.race_rounds // 4, 2)
        races.in_processes(4, races.add_rounds, storage, "a/count", times)
        assert storage.read("a/count") == b"%d" % (4 * times)

    def test_of_replacements_of_one_version_exactly_one_holds(
        self, storage: Storage, second: Storage
    ) -> None:
        storage.put_if_absent("a/one", b"start")

        def replace(version: str, which: int) -> bool:
            try:
                [storage, second][which % 2].replace_if_unchanged("a/one", b"%d" % which, version)
            except ChangedError:
                return False
            return True

        for _ in range(self.race_rounds // 2):
            _, version = storage.read_versioned("a/one")
            won = races.together(8, partial(replace, version))
            assert won.count(True) == 1
            assert storage.read("a/one") == b"%d" % won.index(True)
            storage.put("a/one", b"start")

    # -- deleting ----------------------------------------------------------------------------------

    def test_many_objects_are_deleted_and_no_other_one(self, storage: Storage) -> None:
        storage.make_folder("a/b")
        paths = [f"a/b/{number}" for number in range(1003)]
        for path in (*paths, "a/b/stays", "a/too"):
            storage.put_if_absent(path, b"")
        storage.delete_all(["a/b/nothing", *paths])
        storage.delete_all(paths[:2])
        storage.delete_all([])
        assert sorted(info.path for info in storage.walk("a")) == ["a/b/stays", "a/too"]

    def test_a_tree_is_deleted_with_all_that_is_in_it_and_nothing_else(
        self, storage: Storage, second: Storage
    ) -> None:
        for folder in ("a/b/c", "a/bb"):
            storage.make_folder(folder)
        for path in ("a/b/1", "a/b/.2", "a/b/c/3", "a/bb/4", "a/b5"):
            storage.put_if_absent(path, b"")
        second.delete_tree("a/b")
        second.delete_tree("a/b")
        assert sorted(info.path for info in storage.walk("a")) == ["a/b5", "a/bb/4"]
        assert storage.list("a")[1] == ["a/bb"]

    def test_the_root_itself_can_be_deleted_and_made_again(self, storage: Storage) -> None:
        storage.put_if_absent("a/one", b"")
        storage.put_if_absent("top", b"")
        storage.delete_tree("")
        assert list(storage.walk("")) == []
        assert storage.list("") == ([], [])
        storage.make_folder("a")
        storage.put_if_absent("a/one", b"")
        assert storage.stat("a/one") is not None

    # -- folders -----------------------------------------------------------------------------------

    def test_many_folders_are_made_with_their_parents_whether_they_are_there_or_not(
        self, storage: Storage
    ) -> None:
        self.need_folders(storage)
        for _ in range(2):
            storage.make_folders(["a/b/c", "a/d", "a/b", *(f"e/{number}" for number in range(70))])
        assert storage.list("a") == ([], ["a/b", "a/d"])
        assert len(storage.list("e")[1]) == 70
        storage.make_folders([])
        storage.put_if_absent("a/b/c/one", b"")
        storage.put_if_absent("stands", b"")
        with pytest.raises(AlreadyExistsError):
            storage.make_folders(["f", "stands"])

    def test_where_there_are_folders_only_a_driver_makes_them(self, storage: Storage) -> None:
        self.need_folders(storage)
        storage.put_if_absent("a/one", b"")
        _, version = storage.read_versioned("a/one")
        storage.delete_tree("a")
        for attempt in (
            lambda: storage.put_if_absent("a/one", b""),
            lambda: storage.put_if_absent("a/one", b"1"),
            lambda: storage.put("a/one", b"1"),
            lambda: storage.replace_if_unchanged("a/one", b"1", version),
            lambda: storage.stage("a", "one", "final"),
            lambda: storage.make_folder("a/b", under="a"),
        ):
            with pytest.raises(NotFoundError):
                attempt()
        storage.delete("a/one")
        assert "a" not in storage.list("")[1]

    def test_a_folder_is_made_below_one_that_is_there(self, storage: Storage) -> None:
        storage.make_folder("a/b/c", under="a")
        storage.make_folder("a/b/c", under="a/b/c")
        storage.put_if_absent("a/b/c/one", b"")
        with pytest.raises(InternalError):
            storage.make_folder("ab", under="a")
