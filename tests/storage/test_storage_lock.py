"""Hudi's storage-based lock: its object, its times, and what comes of lost answers and wrong clocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkrobust.core.names import LOCK_RECORD, LOCKS
from sparkrobust.errors import (
    CorruptTableError,
    FencedError,
    LockError,
    PermissionDeniedError,
    UnavailableError,
)
from sparkrobust.storage.contract import ChangedError, Storage
from sparkrobust.storage.locks import Holder
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.testing.locks import ME, OTHER, LockContract, Make, failing
from sparkrobust.world import Clock, Hands
from tests.clocks import TestClock
from tests.storage.test_locks import InMemory, OnDisk, OnS3, quick

HUDIS_OWNER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class RecordLock(LockContract):
    @pytest.fixture
    def make(self, storage: Storage) -> Make:
        return lambda: quick(StorageLock(storage))


class TestInMemory(RecordLock, InMemory):
    pass


class TestOnDisk(RecordLock, OnDisk):
    pass


class TestOnS3(RecordLock, OnS3):
    pass


# -- times -----------------------------------------------------------------------------------------------


class Turns(Hands):
    """What is to be done again and again is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []

    def every(self, seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        self.work.append(work)
        return lambda: self.work.remove(work)

    def renew(self) -> None:
        for work in self.work:
            work()


@pytest.fixture
def clock() -> TestClock:
    """The store's."""
    return TestClock()


@pytest.fixture
def storage(unique: Callable[[], str], clock: TestClock) -> MemoryStorage:
    storage = MemoryStorage(unique(), clock=clock)
    storage.make_folder(LOCKS)
    return storage


@pytest.fixture
def hands() -> Turns:
    return Turns()


@pytest.fixture
def lock(storage: MemoryStorage, clock: TestClock, hands: Turns) -> StorageLock:
    return StorageLock(storage, clock=clock, hands=hands)


def record(storage: Storage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(storage.read(LOCK_RECORD))
    return found


def hudis(storage: MemoryStorage, *, valid_until: int, expired: bool = False) -> None:
    plain = {"expired": expired, "validUntil": valid_until, "owner": HUDIS_OWNER}
    storage.put(LOCK_RECORD, json.dumps(plain, separators=(",", ":")).encode())


def test_the_object_says_who_has_the_lock_until_when_and_stays_when_it_is_given_back(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hands: Turns
) -> None:
    grip = lock.acquire(ME, seconds=0)
    found = record(storage)
    assert found.pop("nonce")
    assert found == {"expired": False, "validUntil": clock.ms + 300_000, "owner": ME}
    clock.sleep(10)
    grip.release()
    found = record(storage)
    found.pop("nonce")
    assert found == {"expired": True, "validUntil": clock.ms + 290_000, "owner": ME}
    assert hands.work == []


def test_a_lock_that_hudi_has_is_waited_for_and_taken_when_its_time_is_over(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock
) -> None:
    hudis(storage, valid_until=clock.ms + 20_000)
    with pytest.raises(LockError, match=HUDIS_OWNER):
        lock.acquire(ME, seconds=20)
    grip = lock.acquire(ME, seconds=20)
    assert grip.is_held()


def test_a_lock_that_hudi_gave_back_is_free(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock
) -> None:
    hudis(storage, valid_until=clock.ms + 1_000_000, expired=True)
    assert lock.acquire(ME, seconds=0).is_held()


def test_a_holder_that_renews_has_it_for_as_long_as_it_lives(
    clock: TestClock, lock: StorageLock, hands: Turns
) -> None:
    grip = lock.acquire(ME, seconds=0)
    for _ in range(10):
        clock.sleep(200)
        hands.renew()
        assert grip.is_held()
        with pytest.raises(LockError, match=ME):
            lock.acquire(OTHER, seconds=0)


def test_a_holder_that_slept_relies_on_nothing_and_takes_nothing_from_who_came_after_it(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hands: Turns
) -> None:
    first = lock.acquire(ME, seconds=0)
    clock.sleep(241)
    with pytest.raises(FencedError, match="lock"):
        first.refuse_if_lost()
    clock.sleep(60)
    second = lock.acquire(OTHER, seconds=0)
    hands.renew()
    assert not first.is_held() and second.is_held()
    first.release()
    assert second.is_held() and record(storage)["owner"] == OTHER


def test_a_lock_that_somebody_took_away_is_not_renewed(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hands: Turns
) -> None:
    grip = lock.acquire(ME, seconds=0)
    hudis(storage, valid_until=clock.ms + 1)
    before = storage.read(LOCK_RECORD)
    assert not grip.is_held()
    hands.renew()
    grip.release()
    assert storage.read(LOCK_RECORD) == before


def test_a_renewal_whose_answer_got_lost_is_found_at_the_next_one(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hands: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    grip = lock.acquire(ME, seconds=0)
    replace = storage.replace_if_unchanged

    def lossy(path: str, data: bytes, version: str) -> str:
        replace(path, data, version)
        raise UnavailableError("no answer")

    clock.sleep(200)
    with monkeypatch.context() as network:
        network.setattr(storage, "replace_if_unchanged", lossy)
        hands.renew()
    assert record(storage)["validUntil"] == clock.ms + 300_000
    hands.renew()
    clock.sleep(200)
    assert grip.is_held()
    grip.release()
    assert record(storage)["expired"]


def test_a_store_that_is_away_for_a_while_costs_nobody_the_lock(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hands: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    grip = lock.acquire(ME, seconds=0)

    def away(*_: object) -> str:
        raise UnavailableError("no answer")

    with monkeypatch.context() as network:
        network.setattr(storage, "replace_if_unchanged", away)
        for _ in range(7):
            clock.sleep(30)
            hands.renew()
    assert grip.is_held()
    hands.renew()
    clock.sleep(200)
    assert grip.is_held()


def test_a_driver_that_is_interrupted_once_it_has_the_lock_renews_it_no_more(
    storage: MemoryStorage, lock: StorageLock, hands: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals: list[Callable[[], object]] = []

    def cut(seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        renewals.append(work)  # its thread goes on, and nobody knows what stops it
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(hands, "every", cut)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(ME, seconds=0)
    assert record(storage)["expired"]
    other = lock.acquire(OTHER, seconds=0)
    before = storage.read(LOCK_RECORD)
    failing(storage, "replace_if_unchanged", AssertionError, times=1)
    renewals[0]()
    assert other.is_held() and storage.read(LOCK_RECORD) == before


def test_who_may_only_read_is_told_who_has_the_lock_by_the_clock_of_the_host(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock
) -> None:
    lock.acquire(ME, seconds=0)
    clock.sleep(7)
    for change in ("put", "put_if_absent", "make_folder"):
        failing(storage, change, PermissionDeniedError, times=1000)
    assert StorageLock(storage, clock=clock).holder() == Holder(owner=ME, seconds=7)


def test_a_lock_that_is_taken_away_while_it_is_withdrawn_is_left_to_who_has_it(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock
) -> None:
    assert lock.try_acquire(ME, "n") is not None
    replace = storage.replace_if_unchanged

    def late(path: str, data: bytes, version: str) -> str:
        hudis(storage, valid_until=clock.ms + 1)
        return replace(path, data, version)

    storage.replace_if_unchanged = late  # type: ignore[method-assign]
    lock.withdraw("n")
    assert record(storage)["owner"] == HUDIS_OWNER


def test_a_lock_that_can_never_be_withdrawn_is_tried_a_few_times_and_no_more(
    storage: MemoryStorage, lock: StorageLock
) -> None:
    assert lock.try_acquire(ME, "n") is not None
    failing(storage, "replace_if_unchanged", ChangedError, times=1000)
    with pytest.raises(UnavailableError, match="changes all the time"):
        lock.withdraw("n")


def test_a_lock_that_cannot_be_asked_for_is_not_said_to_be_free(
    storage: MemoryStorage, lock: StorageLock
) -> None:
    failing(storage, "read_versioned", UnavailableError, times=1)
    with pytest.raises(UnavailableError):
        lock.holder()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_writer_whose_clock_is_an_hour_off_takes_no_living_lock_and_waits_for_no_dead_one(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock, hours: int
) -> None:
    class Off(Clock):
        def now_ms(self) -> int:
            return clock.ms + hours * 3_600_000

        def elapsed(self) -> float:
            return clock.elapsed()

        def sleep(self, seconds: float) -> None:
            clock.sleep(seconds)

    theirs = StorageLock(storage, clock=Off(), hands=Turns())
    grip = lock.acquire(ME, seconds=0)
    with pytest.raises(LockError):
        theirs.acquire(OTHER, seconds=100)
    grip.release()
    other = theirs.acquire(OTHER, seconds=0)
    assert record(storage)["validUntil"] == clock.ms + 300_000 and other.is_held()
    with pytest.raises(LockError):
        lock.acquire(ME, seconds=100)
    clock.sleep(201)
    assert lock.acquire(ME, seconds=0).is_held()


def test_of_two_thieves_of_one_lock_one_gets_it(
    storage: MemoryStorage, clock: TestClock, lock: StorageLock
) -> None:
    hudis(storage, valid_until=clock.ms)
    clock.sleep(1)
    seen = storage.read_versioned(LOCK_RECORD)

    class Late(MemoryStorage):
        """Has read the lock before the other one took it."""

        def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
            return seen

    late = StorageLock(Late._of(storage._name, storage._space), clock=clock, hands=Turns())
    assert lock.acquire(ME, seconds=0).is_held()
    assert late.try_acquire(OTHER, "n") is None
    assert record(storage)["owner"] == ME


def test_an_object_that_is_no_lock_is_an_error_and_stays(storage: MemoryStorage, lock: StorageLock) -> None:
    storage.put(LOCK_RECORD, b"{}")
    with pytest.raises(CorruptTableError, match=r"table_lock\.json"):
        lock.acquire(ME, seconds=0)
    assert storage.read(LOCK_RECORD) == b"{}"
