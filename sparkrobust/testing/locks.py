"""The suite that every lock provider has to pass.

A provider's tests inherit :class:`LockContract` and give it a ``make`` fixture, which makes a handle
on the same lock each time it is called, as several drivers would::

    class TestMyLock(LockContract):
        @pytest.fixture
        def make(self):
            return lambda: MyLock(...)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkrobust.errors import FencedError, LockError, UnavailableError
from sparkrobust.storage.locks import Grip, TableLock

ME, OTHER = "20240101000000000-aa", "20240101000000001-bb"
Make = Callable[[], TableLock]


class LockContract:
    """Each sentence of :mod:`sparkrobust.storage.locks`, as tests."""

    drivers = 8
    turns = 5
    """How often each of them takes the lock; fewer for one that is far away."""

    @pytest.fixture
    def make(self) -> Make:
        """Handles on one lock that nobody has."""
        raise NotImplementedError

    def test_a_lock_that_is_free_is_taken_and_one_that_is_given_back_is_free(self, make: Make) -> None:
        for owner in (ME, OTHER):
            grip = make().acquire(owner, seconds=0)
            assert grip.is_held()
            grip.release()
            assert not grip.is_held()
        assert make().holder() is None

    def test_a_lock_that_is_held_is_had_by_nobody_else_and_the_error_names_its_holder(
        self, make: Make
    ) -> None:
        grip = make().acquire(ME, seconds=0)
        for handle in (make(), make()):
            with pytest.raises(LockError, match=ME) as refused:
                handle.acquire(OTHER, seconds=0)
            assert refused.value.outcome == "Retryable" and refused.value.hint
        assert grip.is_held()
        found = make().holder()
        assert found is not None and found.owner == ME and found.seconds >= 0
        grip.release()

    def test_who_waits_gets_the_lock_when_it_is_given_back(self, make: Make) -> None:
        grip = make().acquire(ME, seconds=0)
        waiting, got = threading.Event(), []

        def wait() -> None:
            lock = make()
            real = lock.try_acquire

            def told(owner: str, nonce: str) -> Grip | None:
                found = real(owner, nonce)
                if found is None:
                    waiting.set()
                return found

            lock.try_acquire = told  # type: ignore[method-assign]
            got.append(lock.acquire(OTHER, seconds=60))

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(60)
        assert not got
        grip.release()
        thread.join(60)
        assert [one.is_held() for one in got] == [True]
        got[0].release()

    def test_a_second_release_takes_nothing_from_the_next_holder(self, make: Make) -> None:
        first = make().acquire(ME, seconds=0)
        first.release()
        second = make().acquire(OTHER, seconds=0)
        first.release()
        assert second.is_held() and not first.is_held()
        with pytest.raises(FencedError, match="lock"):
            first.refuse_if_lost()
        second.release()

    def test_a_try_whose_answer_was_lost_is_found_to_have_taken_the_lock(self, make: Make) -> None:
        lock = make()
        if not lock.shared:
            pytest.skip("no answer can be lost within a process")
        assert lock.try_acquire(ME, "n1") is not None
        again = lock.try_acquire(ME, "n1")
        assert again is not None and again.is_held()
        assert lock.try_acquire(ME, "n2") is None
        lock.withdraw("n2")
        again.release()

    @pytest.mark.parametrize("cut", [KeyboardInterrupt, UnavailableError])
    def test_who_is_cut_short_or_gets_no_answer_while_it_takes_the_lock_leaves_it_free(
        self, make: Make, cut: type[BaseException]
    ) -> None:
        lock = make()
        real = lock.try_acquire

        def taken_all_the_same(owner: str, nonce: str) -> Grip | None:
            real(owner, nonce)
            raise cut("after the lock was taken")

        lock.try_acquire = taken_all_the_same  # type: ignore[method-assign]
        with pytest.raises(LockError if cut is UnavailableError else cut) as told:
            lock.acquire(ME, seconds=0)
        assert "held by" not in str(told.value)
        assert make().holder() is None
        make().acquire(OTHER, seconds=0).release()

    @pytest.mark.parametrize("end", [ValueError, KeyboardInterrupt])
    def test_a_lock_that_is_held_for_a_block_is_free_whatever_ends_the_block(
        self, make: Make, end: type[BaseException]
    ) -> None:
        lock = make()
        with lock.holding(ME, seconds=0) as grip:
            assert grip.is_held()
        with pytest.raises(end), lock.holding(ME, seconds=0) as grip:
            raise end
        assert not grip.is_held()
        make().acquire(OTHER, seconds=0).release()

    @pytest.mark.parametrize("cut", [KeyboardInterrupt, UnavailableError])
    def test_a_lock_that_one_try_does_not_give_back_is_free_after_the_block(
        self, make: Make, cut: type[BaseException]
    ) -> None:
        lock, ended = make(), False
        try:
            with lock.holding(ME, seconds=0) as grip:
                failing(grip, "release", cut, times=1)
            ended = True
        except cut:
            assert cut is KeyboardInterrupt
        assert ended == (cut is UnavailableError)
        make().acquire(OTHER, seconds=0).release()

    def test_a_driver_is_not_in_its_own_way_by_a_lock_that_it_could_not_give_back(self, make: Make) -> None:
        lock = make()
        lock.pause_seconds = 0.01
        with lock.holding(ME, seconds=0) as grip:
            failing(grip, "release", UnavailableError, times=1000)
        with pytest.raises(LockError, match=ME):
            make().acquire(OTHER, seconds=0)
        with lock.holding(ME, seconds=0) as grip:
            assert grip.is_held()
        make().acquire(OTHER, seconds=0).release()

    def test_of_many_who_race_one_holds_it_at_a_time_and_all_get_it(self, make: Make) -> None:
        inside, most, done = [0], [0], [0]

        def drive(number: int) -> None:
            lock = make()
            for turn in range(self.turns):
                grip = lock.acquire(f"{number}-{turn:x}", seconds=120)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                done[0] += 1
                assert grip.is_held()
                inside[0] -= 1
                grip.release()

        with ThreadPoolExecutor(self.drivers) as pool:
            list(pool.map(drive, range(self.drivers)))
        assert (most[0], done[0]) == (1, self.drivers * self.turns)


def failing(of: object, name: str, error: type[BaseException], *, times: int) -> None:
    """Let a method fail so often, before it does anything."""
    real, left = getattr(of, name), [times]

    def failed(*given: object, **named: object) -> object:
        left[0] -= 1
        if left[0] >= 0:
            raise error("nothing was done")
        return real(*given, **named)

    setattr(of, name, failed)
