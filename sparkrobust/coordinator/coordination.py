"""How a driver keeps out of the way of others: the lock that they share, the pulse by which they tell
that they live, and how much their clocks may differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkrobust.coordinator.properties import read_properties
from sparkrobust.core.conflicts import Strategy
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.core.names import HOODIE, LOCK_FILE
from sparkrobust.errors import InvalidOptionError
from sparkrobust.options import FailedWritesPolicy, LockProvider, WriteOptions
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.locks import FileSystemLock, InProcessLock, TableLock
from sparkrobust.storage.resolve import storage_for
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
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
    strategy: Strategy = Strategy.START_TIME
    """How the writes are found that may stand in the way of one."""
    failed_writes: FailedWritesPolicy = FailedWritesPolicy.EAGER
    rollback_delay_ms: int = 60 * 60_000
    """The age at which the plan of a table service may be rolled back that is removed then."""


def coordination_of(options: WriteOptions, storage: Storage, clock: Clock, ids: Ids) -> Coordination:
    """What the options of a write ask for."""
    return Coordination(
        lock=_lock(options, storage, clock, ids),
        lock_seconds=options.lock_wait_ms / 1000,
        pulse=Pulse(interval_ms=options.heartbeat_interval_ms, tolerable_misses=options.heartbeat_misses),
        skew_ms=options.clock_skew_ms,
        strategy=Strategy(options.conflict_strategy.value),
        failed_writes=options.failed_writes_policy,
        rollback_delay_ms=options.rollback_delay_minutes * 60_000,
    )


def _lock(options: WriteOptions, storage: Storage, clock: Clock, ids: Ids) -> TableLock:
    if options.lock_provider is LockProvider.IN_PROCESS:
        return InProcessLock(storage.url, clock, ids)
    if options.lock_provider is LockProvider.STORAGE:
        return StorageLock(
            storage,
            validity_seconds=options.lock_validity_seconds,
            renew_seconds=options.lock_renew_seconds,
            clock=clock,
            ids=ids,
        )
    if options.lock_provider is LockProvider.ZOOKEEPER:
        assert options.zookeeper_hosts and options.zookeeper_base
        key = options.zookeeper_key or _table_name(storage, clock)
        # In one order, as the lock's name tells who shares it.
        hosts = sorted(host.strip() for host in options.zookeeper_hosts.split(","))
        return ZooKeeperLock(
            ",".join(host if ":" in host else f"{host}:{options.zookeeper_port}" for host in hosts),
            f"{options.zookeeper_base.rstrip('/')}/{key}",
            session_seconds=options.zookeeper_session_ms / 1000,
            connect_seconds=options.zookeeper_connect_ms / 1000,
            clock=clock,
            ids=ids,
        )
    expire = 60 * options.lock_file_expire_minutes or None
    if options.lock_file_folder is None:
        return FileSystemLock(storage, LOCK_FILE, expire_seconds=expire, clock=clock, ids=ids)
    elsewhere = storage_for(options.lock_file_folder, options.storage)
    return FileSystemLock(elsewhere, "lock", expire_seconds=expire, clock=clock, ids=ids)


def _table_name(storage: Storage, clock: Clock) -> str:
    """What the table is called that is there."""
    if not any(storage.list(HOODIE)):
        raise InvalidOptionError(
            "hoodie.write.lock.zookeeper.lock_key: the lock in ZooKeeper needs it, or hoodie.table.name"
        )
    return read_properties(storage, clock)["hoodie.table.name"]
