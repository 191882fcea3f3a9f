"""The table's lock as an object that is only ever replaced on condition: Hudi's storage-based lock.

Who has it says until when, and says so again before that time comes; who wants it waits for that time,
by the store's own clock, since those of two hosts may be an hour apart.  Every change names the version
that it replaces, so of two who change it at once one does, and the other learns of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from sparkrobust.core import lock_record
from sparkrobust.core.lock_record import LockRecord
from sparkrobust.core.names import LOCK_RECORD, LOCKS
from sparkrobust.errors import RobustWriteError, UnavailableError
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, Storage
from sparkrobust.storage.locks import Grip, Holder, TableLock, has_time_left, or_the_hosts, time_of
from sparkrobust.world import Clock, Hands, Ids

_CLOCKS_AGREE_SECONDS = 300.0
"""So long it is remembered what the store's time was."""
_TRIES = 3


class StorageLock(TableLock):
    """Hudi's ``StorageBasedLockProvider``.

    Parameters
    ----------
    validity_seconds
        For how long a lock counts that its holder does not renew any more.
    renew_seconds
        How often a holder does.
    """

    shared = True
    pause_seconds = 0.25
    way_out = "write again later; a lock whose owner is dead expires by itself"

    def __init__(
        self,
        storage: Storage,
        *,
        validity_seconds: float = 300,
        renew_seconds: float = 30,
        clock: Clock | None = None,
        ids: Ids | None = None,
        hands: Hands | None = None,
    ) -> None:
        super().__init__(clock or Clock(), ids or Ids())
        self.storage, self.hands = storage, hands or Hands()
        self.validity_seconds, self.renew_seconds = validity_seconds, renew_seconds
        self._ahead_ms, self._compared = 0, -_CLOCKS_AGREE_SECONDS
        self._grips: dict[str, _StorageGrip] = {}
        """Those that are renewed, by their nonces."""

    def __str__(self) -> str:
        return f"{self.storage.url}/{LOCK_RECORD}"

    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        since = self.elapsed()
        found = self.found()
        now = self._store_ms()
        mine = LockRecord(owner=owner, valid_until_ms=now + self.validity_ms, nonce=nonce)
        try:
            if found is None:
                self.storage.make_folder(LOCKS)
                self.storage.put_if_absent(LOCK_RECORD, mine.render())
                version = self.storage.read_versioned(LOCK_RECORD, at_most=lock_record.MAX_BYTES)[1]
            else:
                record, version = found
                if not record.expired and record.nonce == nonce:
                    # An earlier try, whose answer was lost.
                    since -= max(0, now - (record.valid_until_ms - self.validity_ms)) / 1000
                    mine = record
                elif record.is_held(now):
                    return None
                else:
                    version = self.storage.replace_if_unchanged(LOCK_RECORD, mine.render(), version)
        except (AlreadyExistsError, ChangedError, NotFoundError):
            return None  # somebody else was faster
        # It is known before its thread begins, which nothing else could stop if this was cut.
        grip = self._grips[nonce] = _StorageGrip(self, mine, version, since=since)
        grip.start()
        return grip

    def withdraw(self, nonce: str) -> None:
        grip = self._grips.get(nonce)
        if grip is not None:
            grip.stop()
        for _ in range(_TRIES):
            found = self.found()
            if found is None or found[0].expired or found[0].nonce != nonce:
                return
            with suppress(ChangedError, NotFoundError):  # by a renewal that was under way, or by a thief
                self.storage.replace_if_unchanged(
                    LOCK_RECORD, replace(found[0], expired=True).render(), found[1]
                )
                return
        raise UnavailableError(f"{self} changes all the time", path=LOCK_RECORD)

    def forget(self, nonce: str) -> None:
        """Nothing is renewed any more that was taken with this nonce."""
        self._grips.pop(nonce, None)

    @property
    def validity_ms(self) -> int:
        return int(self.validity_seconds * 1000)

    def elapsed(self) -> float:
        """Seconds from some fixed moment."""
        return self._clock.elapsed()

    def found(self) -> tuple[LockRecord, str] | None:
        """The lock's object and its version, if there is one."""
        try:
            data, version = self.storage.read_versioned(LOCK_RECORD, at_most=lock_record.MAX_BYTES)
        except NotFoundError:
            return None
        return lock_record.parse(data, path=f"{self.storage.url}/{LOCK_RECORD}"), version

    def _store_ms(self) -> int:
        """The store's time, which is asked for now and then; the host's clock may be set back meanwhile."""
        if self.elapsed() - self._compared >= _CLOCKS_AGREE_SECONDS:
            compared = self.elapsed()
            self._ahead_ms = time_of(self.storage, self._ids) - int(self.elapsed() * 1000)
            self._compared = compared
        return self._ahead_ms + int(self.elapsed() * 1000)

    def holder(self) -> Holder | None:
        found = self.found()
        if found is None or found[0].expired:
            return None
        now = or_the_hosts(self._store_ms, self._clock)
        if not found[0].is_held(now):
            return None
        # A writer of Hudi's may have said another time than we would have.
        renewed = found[0].valid_until_ms - self.validity_ms
        return Holder(owner=found[0].owner, seconds=max(0, now - renewed) / 1000)

    def renewed(self, record: LockRecord) -> LockRecord:
        """As it stands there if it is renewed now."""
        return replace(record, valid_until_ms=self._store_ms() + self.validity_ms)


class _StorageGrip(Grip):
    def __init__(self, lock: StorageLock, mine: LockRecord, version: str, *, since: float) -> None:
        self._lock, self._mine, self._version, self._since = lock, mine, version, since
        self._lost = self._stopped = False
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Renew it from a thread of its own."""
        self._end = self._lock.hands.every(self._lock.renew_seconds, self._renew)

    def stop(self) -> None:
        """Renew it no more."""
        self._stopped = True
        self._end()
        self._lock.forget(self._mine.nonce)

    def _renew(self) -> None:
        if self._stopped:
            return
        # A store that does not answer is asked again at the next turn; until then the lock may expire.
        with suppress(RobustWriteError):
            since = self._lock.elapsed()
            if self._put(self._lock.renewed(self._mine)):
                self._since = since

    def _put(self, record: LockRecord) -> bool:
        """Replace our own state of the lock, whatever answers were lost before; whether it was still ours."""
        for _ in range(_TRIES):
            if self._lost:
                return False
            try:
                self._version = self._lock.storage.replace_if_unchanged(
                    LOCK_RECORD, record.render(), self._version
                )
                self._mine = record
            except (ChangedError, NotFoundError):
                version = self._version_there()
                self._lost = version is None
                self._version = version or self._version
            else:
                return True
        return False

    def _version_there(self) -> str | None:
        """The object's version, as long as it tells of this taking of the lock."""
        found = self._lock.found()
        if found is None or found[0].expired or found[0].nonce != self._mine.nonce:
            return None
        return found[1]

    def is_held(self) -> bool:
        age = self._lock.elapsed() - self._since
        valid = not self._lost and has_time_left(self._lock.validity_seconds, age)
        return valid and self._version_there() is not None

    def release(self) -> None:
        self.stop()
        self._put(replace(self._mine, expired=True))
        self._lost = True
