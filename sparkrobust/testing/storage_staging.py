"""The storage suite: staging, publishing and discarding."""

from __future__ import annotations

import copy
from functools import partial

import pytest

from sparkrobust.errors import CorruptTableError, RobustWriteError, UnavailableError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    NotFoundError,
    StagedFile,
    Staging,
    Storage,
)
from sparkrobust.testing import storage_races as races
from sparkrobust.testing.storage_cases import StorageCases, paths_of, staged


class StagingCases(StorageCases):
    """Staged files."""

    def test_staged_bytes_are_invisible_until_they_are_published(
        self, storage: Storage, second: Storage
    ) -> None:
        with storage.stage("staging", "one", "a/final") as writer:
            assert writer.writable()
            assert writer.token
            for number in range(100):
                assert writer.write(b"%03d" % number) == 3
            assert writer.tell() == 300
            writer.write(memoryview(bytearray(b"more")))
            file = writer.finish()
        assert (file.final_path, file.size) == ("a/final", 304)
        assert second.stat("a/final") is None
        assert paths_of(second, "a") == []
        second.publish(copy.deepcopy(file))
        assert storage.read("a/final") == b"".join(b"%03d" % number for number in range(100)) + b"more"

    def test_a_publish_may_be_repeated_by_anybody(self, storage: Storage, second: Storage) -> None:
        file = staged(storage, "a/final", b"data")
        storage.publish(file)
        storage.publish(file)
        second.publish(file)
        assert storage.read("a/final") == b"data"

    def test_a_publish_consumes_so_what_was_deleted_does_not_come_back(
        self, storage: Storage, second: Storage
    ) -> None:
        file = staged(storage, "a/final", b"data")
        storage.publish(file)
        storage.delete("a/final")
        for handle in (storage, second):
            with pytest.raises(NotFoundError):
                handle.publish(file)
        assert storage.stat("a/final") is None

    def test_a_publish_replaces_nothing(self, storage: Storage) -> None:
        for number, there in enumerate([b"", b"same", b"another"]):
            path = f"a/{number}"
            file = staged(storage, path, b"same", f"file {number}")
            storage.put_if_absent(path, there)
            with pytest.raises(AlreadyExistsError):
                storage.publish(file)
            assert storage.read(path) == there
            storage.discard(file.token)
            assert storage.read(path) == there

    def test_what_was_consumed_is_no_proof_that_another_object_is_ours(self, storage: Storage) -> None:
        file = staged(storage, "a/final", b"data")
        storage.publish(file)
        storage.delete("a/final")
        storage.put_if_absent("a/final", b"of another size")
        with pytest.raises(AlreadyExistsError):
            storage.publish(file)
        assert storage.read("a/final") == b"of another size"

    def test_racing_publishers_of_one_file_all_succeed(self, storage: Storage, second: Storage) -> None:
        def publish(file: StagedFile, which: int) -> None:
            [storage, second][which % 2].publish(file)

        for number in range(self.race_rounds // 4):
            file = staged(storage, f"a/{number}", b"data", f"file {number}")
            races.together(8, partial(publish, file))
            assert storage.read(f"a/{number}") == b"data"

    def test_of_racing_publishers_of_one_name_exactly_one_succeeds(self, storage: Storage) -> None:
        def publish(files: list[StagedFile], which: int) -> bool:
            return races.wins(lambda: storage.publish(files[which]))

        for number in range(self.race_rounds // 4):
            files = [staged(storage, f"a/{number}", b"%d" % which, f"{number}-{which}") for which in range(8)]
            won = races.together(8, partial(publish, files))
            assert won.count(True) == 1
            assert storage.read(f"a/{number}") == b"%d" % won.index(True)

    @pytest.mark.parametrize("alone", [True, False])
    def test_what_is_published_last_can_not_be_published_again_from_anything(
        self, storage: Storage, second: Storage, alone: bool
    ) -> None:
        file = staged(storage, "a/final", b"data")
        assert storage.publish_last(file, lambda: None, alone=alone) is None
        assert second.publish_last(file, lambda: second.stat("a/final")) == storage.stat("a/final")
        assert storage.read("a/final") == b"data"
        storage.delete("a/final")
        for publish in (storage.publish, lambda one: second.publish_last(one, lambda: None)):
            with pytest.raises(NotFoundError):
                publish(file)
        assert storage.stat("a/final") is None

    def test_what_has_ended_is_not_published(self, storage: Storage) -> None:
        file = staged(storage, "a/final", b"data")
        assert storage.publish_last(file, lambda: "ended") == "ended"
        assert storage.stat("a/final") is None

    def test_who_slept_before_publishing_the_last_file_can_not_bring_it_back(
        self, storage: Storage, second: Storage
    ) -> None:
        file = staged(storage, "a/final", b"data")

        def sleep_until_all_is_over() -> None:
            second.publish_last(file, lambda: None)
            storage.delete("a/final")

        with pytest.raises(RobustWriteError):
            storage.publish_last(file, sleep_until_all_is_over, alone=True)
        assert storage.stat("a/final") is None

    def test_racing_publishers_of_the_last_file_publish_it_once(
        self, storage: Storage, second: Storage
    ) -> None:
        def publish(file: StagedFile, which: int) -> bool:
            handle = [storage, second][which % 2]
            try:
                handle.publish_last(file, lambda: handle.stat(file.final_path))
            except (UnavailableError, NotFoundError):
                return False
            return True

        for number in range(self.race_rounds // 4):
            file = staged(storage, f"a/{number}", b"data", f"file {number}")
            done = races.together(4, partial(publish, file))
            if not any(done):
                storage.publish_last(file, lambda: None)
            assert storage.read(f"a/{number}") == b"data"
            storage.delete(f"a/{number}")
            storage.discard(file.token)
            with pytest.raises(NotFoundError):
                storage.publish_last(file, lambda: None)

    def test_many_files_are_published_at_once(self, storage: Storage, second: Storage) -> None:
        files = [staged(storage, f"a/{number:02d}", b"%d" % number, f"f{number}") for number in range(40)]
        storage.publish_all(files)
        second.publish_all(files)
        storage.publish_all([])
        assert [storage.read(path) for path in paths_of(storage, "a")] == [b"%d" % n for n in range(40)]

    def test_a_publish_makes_the_folder_of_its_file(self, storage: Storage) -> None:
        file = staged(storage, "new/folder/final", b"data")
        storage.publish(file)
        assert storage.read("new/folder/final") == b"data"

    def test_a_discarded_file_can_not_be_published(self, storage: Storage, second: Storage) -> None:
        file = staged(storage, "a/final", b"data")
        second.discard(file.token)
        second.discard(file.token)
        with pytest.raises(NotFoundError):
            storage.publish(file)
        assert storage.stat("a/final") is None

    def test_a_file_is_discarded_by_the_token_known_before_its_first_byte(
        self, storage: Storage, second: Storage
    ) -> None:
        if storage.staging is Staging.COPY:
            pytest.skip("on this store a staged name can't be taken away before there is something under it")
        with storage.stage("staging", "one", "a/final") as writer:
            second.discard(writer.token)
            with pytest.raises(NotFoundError):
                writer.write(b"data")
                storage.publish(writer.finish())
        assert storage.stat("a/final") is None

    def test_discarding_what_was_published_is_harmless(self, storage: Storage, second: Storage) -> None:
        file = staged(storage, "a/final", b"data")
        storage.publish(file)
        second.discard(file.token)
        assert storage.read("a/final") == b"data"

    @pytest.mark.parametrize("token", ["", "..", "../x", "/etc/x", "a/../../x", "a//x", "a/./x", "x\0"])
    def test_a_token_that_leads_out_of_the_root_is_refused(self, storage: Storage, token: str) -> None:
        with pytest.raises(CorruptTableError):
            storage.discard(token)
        with pytest.raises(CorruptTableError):
            storage.publish(StagedFile(final_path="a/final", token=token, size=1))
        assert storage.stat("a/final") is None

    def test_a_file_that_is_not_finished_is_thrown_away(self, storage: Storage) -> None:
        with pytest.raises(ZeroDivisionError), storage.stage("staging", "one", "a/final") as writer:
            writer.write(b"data")
            raise ZeroDivisionError
        closed = storage.stage("staging", "two", "a/final")
        closed.write(b"data")
        closed.close()
        closed.discard()
        assert list(storage.walk("staging")) == []
        assert storage.stat("a/final") is None
        for use in (closed.finish, lambda: closed.write(b"more")):
            with pytest.raises(ValueError):
                use()

    def test_closing_a_finished_file_keeps_it(self, storage: Storage) -> None:
        writer = storage.stage("staging", "one", "a/final")
        file = writer.finish()
        writer.discard()
        writer.close()
        with pytest.raises(ValueError):
            writer.finish()
        storage.publish(file)
        assert storage.read("a/final") == b""

    def test_a_staged_name_is_used_once(self, storage: Storage) -> None:
        self.need_folders(storage)
        file = staged(storage, "a/final", b"first")
        with pytest.raises(AlreadyExistsError):
            storage.stage("staging", "one", "a/other")
        storage.publish(file)
        assert storage.read("a/final") == b"first"

    def test_a_task_whose_staging_folder_was_taken_away_gets_nowhere(self, storage: Storage) -> None:
        self.need_folders(storage)
        writer = storage.stage("staging", "one", "a/final")
        writer.write(b"data")
        storage.delete_tree("staging")
        with pytest.raises(NotFoundError):
            writer.finish()
        writer.discard()
        with pytest.raises(NotFoundError):
            storage.stage("staging", "two", "a/final")
        assert "staging" not in storage.list("")[1]

    def test_sealed_files_are_published_from_their_new_place(self, storage: Storage, second: Storage) -> None:
        files = [staged(storage, f"a/{number}", b"%d" % number, f"file {number}") for number in range(3)]
        storage.publish(files[0])
        storage.seal("staging", "sealed")
        second.seal("staging", "sealed")
        seals = storage.staging.has_folders
        moved = [file.moved("staging", "sealed") if seals else file for file in files]
        second.publish(moved[1])
        storage.publish_all(moved)
        assert [storage.read(path) for path in paths_of(storage, "a")] == [b"0", b"1", b"2"]

    def test_what_is_still_written_when_its_folder_is_sealed_gets_nowhere(self, storage: Storage) -> None:
        self.need_folders(storage)
        writer = storage.stage("staging", "one", "a/final")
        writer.write(b"data")
        storage.seal("staging", "sealed")
        with pytest.raises(NotFoundError):
            writer.finish()
        with pytest.raises(NotFoundError):
            storage.stage("staging", "two", "a/final")
        assert "staging" not in storage.list("")[1]

    def test_sealing_replaces_nothing_and_needs_something_to_seal(self, storage: Storage) -> None:
        self.need_folders(storage)
        with pytest.raises(NotFoundError):
            storage.seal("nowhere", "sealed")
        storage.make_folder("sealed")
        with pytest.raises(AlreadyExistsError):
            storage.seal("staging", "sealed")
        assert {"staging", "sealed"} <= set(storage.list("")[1])
