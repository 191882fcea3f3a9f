"""Hudi's lock in ZooKeeper: its nodes, and what becomes of it when its holder, or ZooKeeper, is gone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.servers import free_port
from fault_injection.zookeeper_server import ZooKeeper
from sparkrobust import probe
from sparkrobust.errors import FencedError, InvalidOptionError, LockError, UnavailableError
from sparkrobust.probe import Point
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
from sparkrobust.testing.locks import ME, OTHER, LockContract

Make = Callable[[], ZooKeeperLock]
HUDIS = "_c_7c9e6679-7425-40de-944b-e07fc1f90ae7-lock-"
"""A node of Curator's, before its number."""


class TestContract(LockContract):
    @pytest.fixture
    def make(self, make: Make) -> Make:  # type: ignore[override]
        return make


def line(server: ZooKeeper, lock: ZooKeeperLock) -> list[str]:
    """Who stands in line, in no order."""
    with server.client() as client:
        return list(client.get_children(lock.path))


def test_the_node_of_a_holder_is_named_as_curators_and_goes_with_it(server: ZooKeeper, make: Make) -> None:
    lock = make()
    grip = lock.acquire(ME, seconds=10)
    (name,) = line(server, lock)
    assert re.fullmatch(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}", name)
    grip.release()
    assert line(server, lock) == []


def test_a_lock_that_hudi_has_is_waited_for_and_names_the_host_that_has_it(
    server: ZooKeeper, make: Make
) -> None:
    lock = make()
    with server.client() as hudi:
        hudi.ensure_path(lock.path)
        node = hudi.create(f"{lock.path}/{HUDIS}", b"10.0.0.7", ephemeral=True, sequence=True)
        with pytest.raises(LockError, match=r"held by 10\.0\.0\.7"):
            lock.acquire(ME, seconds=1)
        assert line(server, lock) == [node.rpartition("/")[2]], "who gave up still stands in line"
    lock.acquire(ME, seconds=10).release()


def test_hudi_behind_us_waits_for_us(server: ZooKeeper, make: Make) -> None:
    lock = make()
    grip = lock.acquire(ME, seconds=10)
    with server.client() as hudi:
        behind = hudi.create(f"{lock.path}/{HUDIS}", b"10.0.0.7", ephemeral=True, sequence=True)
        number = behind.rpartition("-")[2]
        assert min(name.rpartition("-")[2] for name in line(server, lock)) < number
        assert grip.is_held()
        grip.release()
        assert line(server, lock) == [behind.rpartition("/")[2]]


HOLDER = """
import sys
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
grip = ZooKeeperLock(sys.argv[1], sys.argv[2], session_seconds=2).acquire("20240101000000000-aa", seconds=60)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_process_that_was_killed_is_free_when_its_session_is_over(
    server: ZooKeeper, make: Make
) -> None:
    lock = make()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, server.hosts, lock.path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    ) as holder:  # fmt: skip
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(LockError, match=ME):
            lock.acquire(OTHER, seconds=0)
        holder.kill()
    lock.acquire(OTHER, seconds=60).release()


def test_a_holder_whose_session_ended_while_it_slept_holds_nothing_when_it_wakes(
    server: ZooKeeper, make: Make
) -> None:
    lock = make()
    grip = lock.acquire(ME, seconds=10)
    with server.client() as somebody:
        (node,) = somebody.get_children(lock.path)
        somebody.delete(f"{lock.path}/{node}")
    assert not grip.is_held()
    with pytest.raises(FencedError, match="lock"):
        grip.refuse_if_lost()
    other = make().acquire(OTHER, seconds=10)
    grip.release()
    assert other.is_held()
    other.release()


def test_a_holder_that_zookeeper_does_not_answer_relies_on_nothing(server: ZooKeeper, make: Make) -> None:
    lock = make()
    lock.connect_seconds = 1
    grip = lock.acquire(ME, seconds=10)
    server.process.send_signal(signal.SIGSTOP)
    try:
        assert not grip.is_held()
    finally:
        server.process.send_signal(signal.SIGCONT)
    grip.release()
    make().acquire(OTHER, seconds=60).release()


def test_a_zookeeper_that_is_not_there_is_named_in_the_error() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    lock = ZooKeeperLock(hosts, "/locks/t", connect_seconds=0.5)
    with pytest.raises(LockError, match=f"ZooKeeper at {hosts} does not answer"):
        lock.acquire(ME, seconds=1)


def test_a_zookeeper_that_is_not_there_is_not_said_to_have_a_free_lock() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    lock = ZooKeeperLock(hosts, "/locks/t", connect_seconds=0.5)
    with pytest.raises(UnavailableError, match=f"ZooKeeper at {hosts} does not answer"):
        lock.holder()


# -- writes ------------------------------------------------------------------------------------------------


def options(server: ZooKeeper, **more: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "cities",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": server.hosts.partition(":")[0],
        "hoodie.write.lock.zookeeper.port": server.hosts.partition(":")[2],
        "hoodie.write.lock.zookeeper.base_path": "/hudi",
        **{f"hoodie.write.lock.{name}": value for name, value in more.items()},
    }


def test_a_write_begins_and_commits_under_the_lock_in_zookeeper_and_leaves_none(
    server: ZooKeeper, spark: SparkSession, tmp_path: Path
) -> None:
    held: dict[Point, int] = {}

    def look(point: Point, facts: object) -> None:
        with server.client() as client:
            there = client.exists("/hudi/cities")
            held[point] = there.children_count if there else 0

    with probe.listening(look):
        sr.write(spark.range(10)).options(**options(server)).save(str(tmp_path / "t"))
    assert held[Point.REQUESTED] == held[Point.DECIDED] == held[Point.COMMIT_PUBLISHED] == 1
    assert held[Point.STAGE_ENDED] == 0
    assert sr.read(spark).load(str(tmp_path / "t")).count() == 10
    with server.client() as client:
        assert client.get_children("/hudi/cities") == []


def test_a_write_that_does_not_get_the_lock_fails_clearly_and_leaves_nothing(
    server: ZooKeeper, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    sr.write(spark.range(10)).options(**options(server)).save(path)
    grip = ZooKeeperLock(server.hosts, "/hudi/cities").acquire("somebody", seconds=10)
    impatient = options(server, wait_time_ms="300")
    with pytest.raises(LockError, match="held by somebody") as refused:
        sr.write(spark.range(20)).options(**impatient).mode("append").save(path)
    assert refused.value.outcome == "Retryable"
    grip.release()
    assert sr.read(spark).load(path).count() == 10
    sr.write(spark.range(20)).options(**impatient).mode("append").save(path)
    assert sr.read(spark).load(path).count() == 20


def test_a_lock_in_zookeeper_that_is_not_told_where_is_refused_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = {"hoodie.write.lock.provider": "ZookeeperBasedLockProvider"}
    with pytest.raises(InvalidOptionError, match=r"zookeeper\.url: .*\n.*base_path: "):
        sr.write(spark.range(1)).options(**given).save(str(tmp_path / "t"))
