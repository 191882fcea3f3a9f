"""The lock and the pulse of a table are what the options say, Hudi's own among them."""

from __future__ import annotations

from typing import Any

import pytest

from sparkrobust.coordinator.coordination import Coordination, coordination_of
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.heartbeat import Pulse
from sparkrobust.errors import (
    InvalidOptionError,
)
from sparkrobust.options import parse
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.locks import FileSystemLock, InProcessLock
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
from sparkrobust.world import Clock, Ids

LOCK = ".hoodie/lock"


def test_a_lock_in_zookeeper_is_called_as_its_table_unless_the_options_say_otherwise(
    in_memory: HudiTable,
) -> None:
    given = {
        "hoodie.write.lock.provider": "ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": "b, a:7",
        "hoodie.write.lock.zookeeper.base_path": "/hudi/",
    }

    def name(storage: Storage, **more: str) -> str:
        return str(coordination_of(parse(given | more), storage, Clock(), Ids()).lock)

    storage, key = in_memory.storage, "hoodie.write.lock.zookeeper.lock_key"
    assert name(storage) == "zookeeper://a:7,b:2181/hudi/t"
    assert name(storage, **{"hoodie.table.name": "u"}) == "zookeeper://a:7,b:2181/hudi/u"
    assert name(storage, **{"hoodie.table.name": "u", key: "v"}) == "zookeeper://a:7,b:2181/hudi/v"
    with pytest.raises(InvalidOptionError, match="lock_key: the lock in ZooKeeper needs it"):
        name(MemoryStorage("no table"))


def test_the_lock_and_the_pulse_are_what_hudis_own_options_say(storage: Storage, tmp_path: Any) -> None:
    def of(**options: str) -> Coordination:
        given = {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}
        return coordination_of(parse(given), storage, Clock(), Ids())

    plain = of()
    assert isinstance(plain.lock, InProcessLock) and not plain.lock.shared
    assert (plain.lock_seconds, plain.skew_ms, plain.pulse) == (60, 200, Pulse())
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    shared = of(
        write__lock__provider=provider,
        write__lock__wait_time_ms="1500",
        client__heartbeat__interval_in_ms="5000",
        client__heartbeat__tolerable__misses="3",
        time__generator__max_expected_clock_skew_ms="10",
    )
    assert isinstance(shared.lock, FileSystemLock)
    assert (shared.lock.path, shared.lock.expire_seconds) == (LOCK, None)
    assert (shared.lock_seconds, shared.skew_ms) == (1.5, 10)
    assert shared.pulse == Pulse(interval_ms=5000, tolerable_misses=3)
    folder = str(tmp_path / "locks")
    elsewhere = of(
        write__lock__provider="FileSystemBasedLockProvider",
        write__lock__filesystem__path=folder,
        write__lock__filesystem__expire="5",
    )
    assert isinstance(elsewhere.lock, FileSystemLock) and elsewhere.lock.expire_seconds == 300
    grip = elsewhere.lock.acquire("me", seconds=0)
    assert (tmp_path / "locks" / "lock").exists()
    grip.release()
    renewed = of(
        write__lock__provider=provider.replace("FileSystemBased", "StorageBased"),
        write__lock__storage__validity__timeout__secs="50",
        write__lock__storage__renew__interval__secs="5",
    )
    assert isinstance(renewed.lock, StorageLock) and renewed.lock.shared
    assert (renewed.lock.validity_seconds, renewed.lock.renew_seconds) == (50, 5)
    in_zookeeper = of(
        table__name="t",
        write__lock__provider="ZookeeperBasedLockProvider",
        write__lock__zookeeper__url="a, b:7",
        write__lock__zookeeper__port="5",
        write__lock__zookeeper__base_path="/hudi/",
        write__lock__zookeeper__session_timeout_ms="3000",
    )
    assert isinstance(in_zookeeper.lock, ZooKeeperLock)
    assert (in_zookeeper.lock.hosts, in_zookeeper.lock.path) == ("a:5,b:7", "/hudi/t")
    assert (in_zookeeper.lock.session_seconds, in_zookeeper.lock.connect_seconds) == (3, 15)
