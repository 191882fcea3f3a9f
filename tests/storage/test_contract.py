"""Every store keeps the contract."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkrobust.storage import posix
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.object_store import ObjectStorage
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.testing.storage import StorageContract


class PickledContract(StorageContract):
    """The other handle is one that travelled."""

    @pytest.fixture
    def second(self, storage: Storage) -> Storage:
        copy: Storage = pickle.loads(pickle.dumps(storage))
        return copy


class TestMemory(PickledContract):
    in_other_processes = False

    @pytest.fixture
    def storage(self, unique: Callable[[], str]) -> MemoryStorage:
        return MemoryStorage(unique())


class TestLocal(PickledContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        storage = LocalStorage(str(tmp_path / "table"))
        storage.make_folder(".hoodie")
        return storage


class TestLocalBeforeThereIsATable(PickledContract):
    """Without ``.hoodie`` there is no scratch folder, and files are made beside their place."""

    race_rounds = 8

    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(str(tmp_path / "table"))


class TestLocalOnAPoorFileSystem(PickledContract):
    """Neither nameless files, nor a no-replace rename, nor a lock on a folder."""

    race_rounds = 24
    in_other_processes = False  # another process would have the better ways again

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
        monkeypatch.setattr(posix, "_create_nameless", lambda path, data: False)
        monkeypatch.setattr(posix, "_rename_natively", None)
        acquire = posix._acquire

        def only_files(descriptor: int, folder: str) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EBADF, "no locks on folders here")
            acquire(descriptor, folder)

        monkeypatch.setattr(posix, "_acquire", only_files)
        storage = LocalStorage(str(tmp_path / "table"))
        storage.make_folder(".hoodie")
        return storage


class TestS3(PickledContract):
    race_rounds = 8

    @pytest.fixture
    def storage(self, s3_table: Callable[[], S3Storage]) -> S3Storage:
        return s3_table()


class TestAzure(PickledContract):
    race_rounds = 8
    odd_names_refused = frozenset({"back\\slash"})

    @pytest.fixture
    def storage(self, azure_table: Callable[[], ObjectStorage]) -> ObjectStorage:
        return azure_table()
