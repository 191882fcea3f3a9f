"""Every lock provider keeps the contract; what is each one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sparkrobust.core.names import ROBUST
from sparkrobust.errors import FencedError, LockError, PermissionDeniedError, UnavailableError
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import FileSystemLock, Holder, InProcessLock, TableLock, time_of
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.testing.locks import ME, OTHER, LockContract, Make, failing
from sparkrobust.world import Ids
from tests.clocks import TestClock

LOCK = ".hoodie/lock"


Lock = TypeVar("Lock", bound=TableLock)


def quick(lock: Lock) -> Lock:
    """One that asks again soon."""
    lock.pause_seconds = 0.01
    return lock


class InMemory(LockContract):
    """Where an object in the table is the lock; so are the next two."""

    @pytest.fixture
    def storage(self, unique: Callable[[], str]) -> Storage:
        return MemoryStorage(unique())


class OnDisk(LockContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage(str(tmp_path / "table"))


class OnS3(LockContract):
    drivers, turns = 4, 2

    @pytest.fixture
    def storage(self, s3_table: Callable[[], S3Storage]) -> Storage:
        return s3_table()


class TestInProcess(LockContract):
    @pytest.fixture
    def make(self, unique: Callable[[], str]) -> Make:
        name = unique()
        return lambda: InProcessLock(name)


class FileLock(LockContract):
    @pytest.fixture
    def make(self, storage: Storage) -> Make:
        storage.make_folder(".hoodie")
        return lambda: quick(FileSystemLock(storage, LOCK))


class TestFileInMemory(FileLock, InMemory):
    pass


class TestFileOnDisk(FileLock, OnDisk):
    pass


class TestFileOnS3(FileLock, OnS3):
    pass


class TestExpiringFile(LockContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        storage = LocalStorage(str(tmp_path / "table"))
        storage.make_folder(".hoodie")
        return lambda: quick(FileSystemLock(storage, LOCK, expire_seconds=600))


# -- the file --------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def storage(unique: Callable[[], str], clock: TestClock) -> MemoryStorage:
    storage = MemoryStorage(unique(), clock=clock)
    storage.make_folder(".hoodie")
    return storage


def test_a_file_that_hudi_left_empty_is_a_lock_whose_owner_is_not_known(
    storage: MemoryStorage, clock: TestClock
) -> None:
    storage.put(LOCK, b"")
    with pytest.raises(LockError, match=r"does not say who it is.*remove the file"):
        FileSystemLock(storage, LOCK, clock=clock).acquire(ME, seconds=3)
    storage.delete(LOCK)
    grip = FileSystemLock(storage, LOCK, clock=clock).acquire(ME, seconds=3)
    grip.release()
    assert storage.stat(LOCK) is None


def test_a_lock_without_expiry_is_never_taken_away(storage: MemoryStorage, clock: TestClock) -> None:
    grip = FileSystemLock(storage, LOCK, clock=clock).acquire(ME, seconds=0)
    clock.sleep(1e6)
    with pytest.raises(LockError):
        FileSystemLock(storage, LOCK, clock=clock).acquire(OTHER, seconds=0)
    assert grip.is_held()


def test_who_takes_an_expired_lock_learns_whose_it_was_and_that_one_finds_it_lost(
    storage: MemoryStorage, clock: TestClock
) -> None:
    lock = FileSystemLock(storage, LOCK, expire_seconds=60, clock=clock)
    first = lock.acquire(ME, seconds=0)
    clock.sleep(60)
    with pytest.raises(LockError):
        lock.acquire(OTHER, seconds=0)
    clock.sleep(1)
    second = lock.acquire(OTHER, seconds=0)
    assert second.is_held()
    assert not first.is_held()
    first.release()
    assert second.is_held(), "who had lost it took it away again"


@pytest.mark.parametrize(("seconds", "stays"), [(79, False), (81, True)])
def test_what_an_interrupted_driver_has_taken_is_removed_unless_a_thief_may_have_it_by_now(
    storage: MemoryStorage, clock: TestClock, seconds: int, stays: bool
) -> None:
    lock = FileSystemLock(storage, LOCK, expire_seconds=100, clock=clock)
    assert lock.try_acquire(ME, "n") is not None
    lock.withdraw("another")
    assert storage.stat(LOCK)
    clock.sleep(seconds)
    lock.withdraw("n")
    assert (storage.stat(LOCK) is not None) == stays


def test_a_lock_that_cannot_be_asked_for_is_not_said_to_be_free(storage: MemoryStorage) -> None:
    lock = FileSystemLock(storage, LOCK)
    failing(storage, "read", UnavailableError, times=1)
    with pytest.raises(UnavailableError):
        lock.holder()


def test_who_may_only_read_is_told_who_has_the_lock_by_the_clock_of_the_host(
    storage: MemoryStorage, clock: TestClock
) -> None:
    lock = FileSystemLock(storage, LOCK, clock=clock)
    lock.acquire(ME, seconds=0)
    clock.sleep(7)
    for change in ("put", "put_if_absent", "make_folder"):
        failing(storage, change, PermissionDeniedError, times=1000)
    assert lock.holder() == Holder(owner=ME, seconds=7)


def test_a_holder_does_not_rely_on_a_lock_that_is_about_to_expire(
    storage: MemoryStorage, clock: TestClock
) -> None:
    grip = FileSystemLock(storage, LOCK, expire_seconds=100, clock=clock).acquire(ME, seconds=0)
    clock.sleep(79)
    grip.refuse_if_lost()
    clock.sleep(2)
    with pytest.raises(FencedError, match="expired, or was taken away"):
        grip.refuse_if_lost()


def test_two_thieves_of_one_expired_lock_do_not_both_get_it(storage: MemoryStorage, clock: TestClock) -> None:
    lock = FileSystemLock(storage, LOCK, expire_seconds=60, clock=clock)
    lock.acquire("dead", seconds=0)
    clock.sleep(61)
    seen = storage.read_versioned(LOCK)
    assert lock.acquire(ME, seconds=0).is_held()

    class Slow(MemoryStorage):
        """Has read the lock before the other thief took it."""

        def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
            return seen

        def stat(self, path: str) -> None:  # type: ignore[override]
            found = super().stat(path)
            return found and type(found)(path=path, size=0, modified_ms=0)  # type: ignore[return-value]

    late = Slow._of(storage._name, storage._space)
    assert FileSystemLock(late, LOCK, expire_seconds=60, clock=clock).try_acquire(OTHER, "n") is None
    assert b'"owner": "20240101000000000-aa"' in storage.read(LOCK)


def test_a_store_that_does_not_answer_is_asked_again_until_the_time_is_over(
    storage: MemoryStorage, clock: TestClock
) -> None:
    class Away(MemoryStorage):
        times = 3

        def put_if_absent(self, path: str, data: bytes) -> None:
            Away.times -= 1
            if Away.times >= 0:
                raise UnavailableError("no answer")
            super().put_if_absent(path, data)

    away = Away._of(storage._name, storage._space)
    assert FileSystemLock(away, LOCK, clock=clock, ids=Ids()).acquire(ME, seconds=10).is_held()
    Away.times = 1000
    with pytest.raises(LockError, match=ME):
        FileSystemLock(away, LOCK, clock=clock, ids=Ids()).acquire(OTHER, seconds=10)


class Swept(MemoryStorage):
    """Where others sweep up what was put a moment ago, so often."""

    def __init__(self, times: int) -> None:
        super().__init__(f"swept {times}")
        self.times = times

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        if self.times:
            self.times -= 1
            self.delete(path)


def test_the_stores_time_is_asked_again_when_another_writer_swept_up_the_file_that_tells_it() -> None:
    storage = Swept(times=2)
    assert time_of(storage, Ids()) > 0
    assert storage.list(ROBUST) == ([], [])


def test_a_store_that_never_has_what_was_put_is_not_asked_for_its_time_for_ever() -> None:
    with pytest.raises(UnavailableError, match="was put, and is not there"):
        time_of(Swept(times=1000), Ids())
