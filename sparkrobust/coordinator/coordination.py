"""How a driver keeps out of the way of others: the lock that they share, the pulse by which they tell
that they live, and how much their clocks may differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.names import HOODIE
from sparkrobust.options import LockProvider, WriteOptions
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.locks import FileSystemLock, InProcessLock, TableLock
from sparkrobust.storage.resolve import storage_for
from sparkrobust.world import Clock, Ids


@dataclass(frozen=True, kw_only=True)
class Coordination:
    """What a driver of a table goes by."""

    lock: TableLock
    lock_seconds: float = 60
    """How long it waits for the lock."""
    pulse: Pulse = field(default_factory=Pulse)
    skew_ms: int = 200
    """How much the clocks of hosts may differ that share a lock."""


def coordination_of(options: WriteOptions, storage: Storage, clock: Clock, ids: Ids) -> Coordination:
    """What the options of a write ask for."""
    return Coordination(
        lock=_lock(options, storage, clock, ids),
        lock_seconds=options.lock_wait_ms / 1000,
        pulse=Pulse(interval_ms=options.heartbeat_interval_ms, tolerable_misses=options.heartbeat_misses),
        skew_ms=options.clock_skew_ms,
    )


def _lock(options: WriteOptions, storage: Storage, clock: Clock, ids: Ids) -> TableLock:
    if options.lock_provider is LockProvider.IN_PROCESS:
        return InProcessLock(storage.url, clock, ids)
    expire = 60 * options.lock_file_expire_minutes or None
    if options.lock_file_folder is None:
        return FileSystemLock(storage, f"{HOODIE}/lock", expire_seconds=expire, clock=clock, ids=ids)
    elsewhere = storage_for(options.lock_file_folder, options.storage)
    elsewhere.make_folder("")
    return FileSystemLock(elsewhere, "lock", expire_seconds=expire, clock=clock, ids=ids)
