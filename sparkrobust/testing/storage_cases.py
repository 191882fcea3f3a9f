"""What the cases of the storage suite share."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import pytest

from sparkrobust.storage.contract import StagedFile, Storage

LARGE = random.Random(20).randbytes((16 << 20) + 12_345)


def paths_of(storage: Storage, folder: str) -> list[str]:
    """The paths of the objects directly in a folder."""
    return [info.path for info in storage.list(folder)[0]]


def staged(storage: Storage, final_path: str, data: bytes, name: str = "one") -> StagedFile:
    """A finished staged file under the folder ``staging``."""
    with storage.stage("staging", name, final_path) as writer:
        writer.write(data)
        return writer.finish()


class StorageCases:
    """Fixtures, and what a store's tests may set."""

    race_rounds = 40
    """How often each race is run; fewer for a store that is far away."""

    in_other_processes = True
    """Whether a pickled copy reaches the same objects from another process."""

    odd_names_refused: frozenset[str] = frozenset()
    """Names that this store can't have, and says so."""
    forbidden_in_names = ""
    """Characters that no name on this store may have; it has to say so."""

    @pytest.fixture
    def storage(self) -> Storage:
        """An empty root."""
        raise NotImplementedError

    @pytest.fixture
    def second(self, storage: Storage) -> Storage:
        """Another handle on the same root."""
        return copy.deepcopy(storage)

    @pytest.fixture(autouse=True)
    def folders(self, storage: Storage) -> Iterator[None]:
        """What a driver prepares."""
        storage.make_folder("a")
        storage.make_staging("staging")
        yield

    def need_processes(self) -> None:
        if not self.in_other_processes:
            pytest.skip("this store lives in one process")

    def need_folders(self, storage: Storage) -> None:
        if not storage.staging.has_folders:
            pytest.skip("this store has no folders")
