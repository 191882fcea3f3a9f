"""The table's lock: one holder at a time, who learns of it when the lock was lost.

A lock is for being good neighbours: two drivers that decide at once, and Hudi's writers, which know
nothing of our decisions.  What is exact rests on put-if-absent, not on a lock that may expire while its
holder sleeps.  So a holder asks ``is_held`` before its next lasting step, and leaves a mark in the table
before it decides anything (:mod:`sparkrobust.coordinator.locking`).
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sparkrobust.core.names import HOODIE, ROBUST, joined
from sparkrobust.errors import CommitOutcome, FencedError, LockError, RobustWriteError, UnavailableError
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, Storage
from sparkrobust.world import Clock, Ids

LOCK_LOST = "lock-lost"
"""The kind of the error of a holder who had the lock, and lost it."""
_TRIES = 10
_RELEASES = 3
"""Tries to give a lock back that the store does not answer."""
_MARGIN = 0.2
"""The share of a lock's validity that has to be left for a step that takes the lock for granted."""

Waiting: TypeAlias = Callable[[], AbstractContextManager[object]]
"""What is around each wait for a lock, in which nothing of it is held."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who has a lock, as far as can be told."""

    owner: str
    """Empty where the lock does not say, as Hudi's own file lock does not."""
    seconds: float
    """Since it was taken, or renewed last."""

    @property
    def name(self) -> str:
        return self.owner or "a writer that does not say who it is"

    def __str__(self) -> str:
        return f"{self.name}, for {self.seconds:.0f} s"


class Grip(ABC):
    """A lock that is held."""

    @abstractmethod
    def is_held(self) -> bool:
        """Whether it is still ours, for long enough to take a step."""

    @abstractmethod
    def release(self) -> None:
        """Give it back; nothing happens if it is another one's by now."""

    def refuse_if_lost(self) -> None:
        """``FencedError`` if it is not ours any more."""
        if not self.is_held():
            raise FencedError(
                "the table's lock expired, or was taken away, while this write held it",
                kind=LOCK_LOST,
                hint="write again; let the lock expire later if writes take so long",
            )


class TableLock(ABC):
    """One table's lock; each driver has a handle of its own."""

    shared: bool
    """Whether writers on other hosts, whose clocks may differ, take the same one."""
    pause_seconds: float
    """Between two tries."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids
        self._asked_for: set[str] = set()
        """By their nonces: the takings that have begun, and are not given back."""
        self._owed: set[str] = set()
        """Those that could not be given back, and may stand in our own way."""

    @contextmanager
    def holding(self, owner: str, *, seconds: float, waiting: Waiting = nullcontext) -> Iterator[Grip]:
        """Have the lock in the block; it is given back whatever ends the block, or cuts the way into it.

        Raises
        ------
        LockError
            As :meth:`acquire`.
        """
        nonce = self._ids.nonce()
        try:
            grip = self._acquired(owner, nonce, seconds, waiting)
            try:
                yield grip
            finally:
                self._give_back(nonce, grip.release)
        finally:
            # An interrupt may have come between any two steps: then there is no grip to give back by.
            self._withdraw(nonce)

    def acquire(self, owner: str, *, seconds: float) -> Grip:
        """Take the lock, waiting for it as long as that; who does not get it leaves nothing of it behind.

        Raises
        ------
        LockError
            Another one has it; the message says who, and for how long.
        """
        nonce = self._ids.nonce()
        grip = self._acquired(owner, nonce, seconds, nullcontext)
        self._asked_for.discard(nonce)
        return grip

    def _acquired(self, owner: str, nonce: str, seconds: float, waiting: Waiting) -> Grip:
        grip = None
        self._asked_for.add(nonce)
        try:
            grip, why_not = self._waited_for(owner, nonce, seconds, waiting)
        finally:
            if grip is None:
                self._withdraw(nonce)  # a try that nobody answered may have taken it
        if grip is None:
            raise self._not_had(owner, seconds, why_not)
        return grip

    def _waited_for(
        self, owner: str, nonce: str, seconds: float, waiting: Waiting
    ) -> tuple[Grip | None, UnavailableError | None]:
        started = self._clock.elapsed()
        while True:
            why_not: UnavailableError | None = None
            try:
                grip = self._tried(owner, nonce)
                if grip is not None:
                    return grip, None
            except UnavailableError as error:
                why_not = error  # tried again: the next try finds it if it is ours
            left = seconds - (self._clock.elapsed() - started)
            if left <= 0:
                return None, why_not
            with waiting():
                if why_not is None:
                    self.wait(min(self.pause_seconds, left))
                else:
                    self._clock.sleep(min(self.pause_seconds, left))

    def _tried(self, owner: str, nonce: str) -> Grip | None:
        grip = self.try_acquire(owner, nonce)
        if grip is None and self._owed:
            for owed in tuple(self._owed):
                self.withdraw(owed)
                self._owed.discard(owed)
            grip = self.try_acquire(owner, nonce)
        return grip

    def _withdraw(self, nonce: str) -> None:
        self._give_back(nonce, partial(self.withdraw, nonce))

    def _give_back(self, nonce: str, release: Callable[[], None]) -> None:
        """Give back what was taken with this nonce; what can't be, this handle does when it is next used."""
        if nonce not in self._asked_for:
            return
        self._owed.add(nonce)  # first of all, as even this may be cut
        for number in range(_RELEASES):
            if number:
                self._clock.sleep(self.pause_seconds)
            try:
                release()
            except UnavailableError:
                continue
            except RobustWriteError:
                break  # it expires, or its file is named to who waits for it
            self._owed.discard(nonce)
            break
        self._asked_for.discard(nonce)

    def _not_had(self, owner: str, seconds: float, why_not: UnavailableError | None) -> LockError:
        holder = None
        with suppress(UnavailableError):  # then that is what the message says
            holder = self.holder()
        return LockError(
            f"{owner} waited {seconds:.0f} s for the lock {self} in vain: "
            + (f"it is held by {holder}" if holder else str(why_not or "others were faster")),
            hint=self.way_out,
            outcome=CommitOutcome.RETRYABLE,
        )

    way_out = "write again later"

    @abstractmethod
    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        """Take it if it is free; ``None`` if it is not.

        Parameters
        ----------
        owner
            ``<instant>-<nonce>`` of a write, or what else is going to be done.
        nonce
            The same in all tries of one ``acquire``: a lock with it is ours, though the answer was lost.
        """

    def wait(self, seconds: float) -> None:
        """So long, or until it is worth another try."""
        self._clock.sleep(seconds)

    @abstractmethod
    def withdraw(self, nonce: str) -> None:
        """Take away what the tries with this nonce have left: the lock itself, or a place in a line for it.

        Nothing happens if it is another one's.
        """

    @abstractmethod
    def holder(self) -> Holder | None:
        """Who has it now.

        Raises
        ------
        UnavailableError
            Nobody can tell.
        """

    @abstractmethod
    def __str__(self) -> str: ...


# -- within a process ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Held:
    owner: str
    nonce: str
    since: float


_held: dict[str, _Held] = {}
_held_guard = threading.Lock()


class InProcessLock(TableLock):
    """Between the threads of one driver; never expires, as its holder can't die alone."""

    shared = False
    pause_seconds = 0.01

    def __init__(self, name: str, clock: Clock | None = None, ids: Ids | None = None) -> None:
        super().__init__(clock or Clock(), ids or Ids())
        self._name = name

    def __str__(self) -> str:
        return f"of this process for {self._name}"

    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        mine = _Held(owner=owner, nonce=nonce, since=self._clock.elapsed())
        with _held_guard:
            if _held.setdefault(self._name, mine) is not mine:
                return None
        return _InProcessGrip(self._name, mine)

    def withdraw(self, nonce: str) -> None:
        with _held_guard:
            found = _held.get(self._name)
            if found is not None and found.nonce == nonce:
                del _held[self._name]

    def holder(self) -> Holder | None:
        found = _held.get(self._name)
        if found is None:
            return None
        return Holder(owner=found.owner, seconds=self._clock.elapsed() - found.since)


class _InProcessGrip(Grip):
    def __init__(self, name: str, mine: _Held) -> None:
        self._name, self._mine = name, mine

    def is_held(self) -> bool:
        return _held.get(self._name) is self._mine

    def release(self) -> None:
        with _held_guard:
            if self.is_held():
                del _held[self._name]


# -- a file in the table ---------------------------------------------------------------------------------


class FileSystemLock(TableLock):
    """Hudi's ``FileSystemBasedLockProvider``: a file that is there as long as somebody has the lock.

    Hudi's writers leave it empty, and read nothing in it; ours says who we are.  Hudi deletes an expired
    one and makes its own, so two thieves of Hudi's may both believe to have it; ours replaces just the
    version that it saw.

    Parameters
    ----------
    path
        The file, in the storage's root.
    expire_seconds
        After which a lock that was not released may be taken; ``None``: never.
    """

    shared = True
    pause_seconds = 0.1

    def __init__(
        self,
        storage: Storage,
        path: str,
        *,
        expire_seconds: float | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        super().__init__(clock or Clock(), ids or Ids())
        self.storage, self.path, self.expire_seconds = storage, path, expire_seconds

    @property
    def way_out(self) -> str:  # type: ignore[override]
        expires = "" if self.expire_seconds else ", or set hoodie.write.lock.filesystem.expire"
        return f"write again later; if its owner is dead, remove the file{expires}"

    def __str__(self) -> str:
        return f"{self.storage.url}/{self.path}"

    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        mine = signed(owner, nonce)
        since = self._clock.elapsed()
        if "/" not in self.path:
            self.storage.make_folder("")  # its own; one in a table is not made again once the table is gone
        try:
            self.storage.put_if_absent(self.path, mine)
        except AlreadyExistsError:
            return self._mine_or_expired(mine, since)
        return _FileGrip(self, mine, self._clock, since=since)

    def _mine_or_expired(self, mine: bytes, since: float) -> Grip | None:
        try:
            data, version = self.storage.read_versioned(self.path)
            if data == mine:
                # An earlier try, whose answer was lost.
                return _FileGrip(self, mine, self._clock, since=since - self._age())
            if self.expire_seconds is None or self._age() <= self.expire_seconds:
                return None
            self.storage.replace_if_unchanged(self.path, mine, version)
        except (ChangedError, NotFoundError):
            return None  # somebody else is at it
        return _FileGrip(self, mine, self._clock, since=since)

    def withdraw(self, nonce: str) -> None:
        with suppress(NotFoundError):
            if _said(self.storage.read(self.path), "nonce") != nonce:
                return
            # As when it is given back: one that may have expired could be a thief's by now.
            if self.expire_seconds is None or has_time_left(self.expire_seconds, self._age()):
                self.storage.delete(self.path)

    def _age(self) -> float:
        return self._age_by(self._store_ms)

    def _age_by(self, now_ms: Callable[[], int]) -> float:
        found = self.storage.stat(self.path)
        if found is None:
            raise NotFoundError(f"{self.path} is gone", path=self.path)
        return (now_ms() - found.modified_ms) / 1000

    def _store_ms(self) -> int:
        beside = ROBUST if self.path.startswith(f"{HOODIE}/") else self.path.rpartition("/")[0]
        return time_of(self.storage, self._ids, beside)

    def holder(self) -> Holder | None:
        try:
            owner = owner_in(self.storage.read(self.path))
            seconds = self._age_by(partial(or_the_hosts, self._store_ms, self._clock))
        except NotFoundError:
            return None
        return Holder(owner=owner, seconds=max(0, seconds))


class _FileGrip(Grip):
    def __init__(self, lock: FileSystemLock, mine: bytes, clock: Clock, *, since: float) -> None:
        self._lock, self._mine, self._clock, self._since = lock, mine, clock, since

    def _has_time_left(self) -> bool:
        limit = self._lock.expire_seconds
        return limit is None or has_time_left(limit, self._clock.elapsed() - self._since)

    def is_held(self) -> bool:
        return self._has_time_left() and self._is_there()

    def _is_there(self) -> bool:
        try:
            return self._lock.storage.read(self._lock.path) == self._mine
        except NotFoundError:
            return False

    def release(self) -> None:
        # One that may have expired is not looked at first and deleted then: it could be a thief's by then.
        if self._has_time_left() and self._is_there():
            self._lock.storage.delete(self._lock.path)


def has_time_left(validity_seconds: float, age_seconds: float) -> bool:
    """Whether a lock of this age is valid for long enough to take a step."""
    return age_seconds < validity_seconds * (1 - _MARGIN)


def or_the_hosts(store_ms: Callable[[], int], clock: Clock) -> int:
    """The time to show an age by: the store's, or the host's for who can't put the file that tells it."""
    try:
        return store_ms()
    except RobustWriteError:
        return clock.now_ms()


def signed(owner: str, nonce: str) -> bytes:
    """What says whose a lock is, where Hudi's writers read nothing."""
    return json.dumps({"owner": owner, "nonce": nonce}).encode()


def owner_in(data: bytes) -> str:
    """Who has signed it; empty where it was nobody of ours."""
    return _said(data, "owner")


def _said(data: bytes, key: str) -> str:
    try:
        return str(json.loads(data)[key])
    except (ValueError, TypeError, KeyError):
        return ""


def time_of(storage: Storage, ids: Ids, folder: str = ROBUST) -> int:
    """The store's own time in milliseconds, told by a file that is made for it in this folder."""
    storage.make_folder(folder)
    for _ in range(_TRIES):
        path = joined(folder, f"now-{ids.nonce()}")
        storage.put(path, b"")
        try:
            found = storage.stat(path)
        finally:
            storage.delete(path)
        if found is not None:
            return found.modified_ms
        # Another writer that swept what the dead have left took it for theirs.
    raise UnavailableError(f"{path} was put, and is not there, as {_TRIES - 1} others before it", path=path)
