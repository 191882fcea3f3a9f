"""A lock of Hudi's is shared with Hudi: whoever has it, the other one waits.

The storage-based lock with Hudi's provider alone, whose own clients of stores nobody can install here; the
others with Hudi's writer.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fault_injection.pyspark_jars import JAVA_OPTIONS, java, pyspark_jars
from fault_injection.servers import Unavailable, s3
from fault_injection.zookeeper_server import ZooKeeper, zookeeper
from sparkrobust.coordinator.coordination import coordination_of
from sparkrobust.core.names import LOCK_RECORD
from sparkrobust.errors import LockError, UnavailableError
from sparkrobust.options import parse
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import TableLock
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.storage.s3_settings import S3Settings, client_of
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.storage.zookeeper_lock import ZooKeeperLock
from sparkrobust.world import Clock, Ids
from tests.interop.oracle import JAR, Oracle, OracleError
from tests.interop.tables import completed, options, ordered, query, row

_TRIES = 10
ME = "20240101000000000-aa"
SOURCES = Path(__file__).with_name("java")


class _Store(BaseHTTPRequestHandler):
    """The object of the lock, for the client in Hudi's process: conditional requests to a storage."""

    protocol_version = "HTTP/1.1"
    """The older one closes a connection after each answer, and Java may send its next request there."""

    server: _Server

    def do_GET(self) -> None:
        try:
            data, version = self.server.storage.read_versioned(LOCK_RECORD)
        except NotFoundError:
            self._answer(404)
        else:
            self._answer(200, data, version)

    def do_PUT(self) -> None:
        data, seen = self.rfile.read(int(self.headers["Content-Length"])), self.headers["If-Match"]
        try:
            version = self._put(data, seen)
        except (AlreadyExistsError, ChangedError, NotFoundError):
            self._answer(412)
        else:
            self._answer(200, b"", version)

    def _put(self, data: bytes, seen: str | None) -> str:
        """As a client that gets an unclear answer, and looks what became of it: the new version."""
        storage = self.server.storage
        for _ in range(_TRIES):
            try:
                if seen:
                    return storage.replace_if_unchanged(LOCK_RECORD, data, seen)
                storage.put_if_absent(LOCK_RECORD, data)
                return storage.read_versioned(LOCK_RECORD)[1]
            except UnavailableError:
                with contextlib.suppress(NotFoundError):
                    found, version = storage.read_versioned(LOCK_RECORD)
                    if found == data:
                        return version
        raise AssertionError(f"no clear answer in {_TRIES} tries")

    def _answer(self, status: int, data: bytes = b"", version: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if version:
            self.send_header("ETag", version)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, storage: Storage) -> None:
        super().__init__(("127.0.0.1", 0), _Store)
        self.storage = storage


class Hudi:
    """Hudi's lock provider, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready"

    def ask(self, order: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A class path with Hudi's provider, and our client in the place of its own."""
    compiler = shutil.which("javac", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or shutil.which("javac")
    if compiler is None:
        pytest.skip("the client in the place of Hudi's has to be compiled, and there is no JDK here")
    out = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join([str(out), os.environ[JAR], f"{pyspark_jars()}/*"])
    sources = [str(source) for source in SOURCES.rglob("*.java")]
    subprocess.run([compiler, "--release", "17", "-cp", path, "-d", str(out), *sources], check=True)
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[], Storage]]]:
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("stores")
        found: dict[str, Callable[[], Storage]] = {
            "disk": lambda: LocalStorage(str(folder / uuid.uuid4().hex))
        }
        with contextlib.suppress(Unavailable):
            server = stack.enter_context(s3(folder))
            client_of(S3Settings.of(server.options(), "tables")).create_bucket(Bucket="tables")
            found["s3"] = lambda: S3Storage(f"s3a://tables/{uuid.uuid4().hex}", server.options())
        yield found


@pytest.fixture(params=["disk", "s3"])
def storage(request: pytest.FixtureRequest, stores: dict[str, Callable[[], Storage]]) -> Storage:
    if request.param not in stores:
        pytest.skip("there is no S3 server here")
    made = stores[request.param]()
    made.make_folder(".hoodie/.locks")
    return made


@pytest.fixture
def start(storage: Storage, classes: str) -> Iterator[Callable[[], Hudi]]:
    """Starts another process that shares the lock by Hudi's own code."""
    server = _Server(storage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "hoodie.base.path": "s3a://tables/t",
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
    }
    with contextlib.ExitStack() as running:

        def start() -> Hudi:
            store = f"-Dtest.store=http://127.0.0.1:{server.server_address[1]}"
            command = [java(), *JAVA_OPTIONS, store, "-cp", classes, "HudisLock"]
            command += [f"{name}={value}" for name, value in settings.items()]
            process = running.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            running.callback(process.kill)
            return Hudi(process)

        yield start
    server.shutdown()
    server.server_close()


on_s3 = pytest.mark.parametrize("storage", ["s3"], indirect=True)
"""For what waits until a lock's time is over."""


@pytest.fixture
def lock(storage: Storage) -> StorageLock:
    return quick_lock(storage)


def quick_lock(storage: Storage) -> StorageLock:
    lock = StorageLock(storage, validity_seconds=10, renew_seconds=1)
    lock.pause_seconds = 0.05
    return lock


def test_who_has_the_storage_based_lock_has_it_alone_be_it_hudi_or_we(
    lock: StorageLock, start: Callable[[], Hudi]
) -> None:
    hudi = start()
    for _ in range(2):
        assert hudi.ask("lock 1") == "true"
        with pytest.raises(LockError, match=r"held by [0-9a-f-]{36}"):
            lock.acquire(ME, seconds=0)
        assert hudi.ask("unlock") == "unlocked"
        grip = lock.acquire(ME, seconds=0)
        assert hudi.ask("lock 1") == "false" and grip.is_held()
        grip.release()


@on_s3
def test_a_lock_whose_holder_in_hudi_was_killed_is_ours_when_its_time_is_over(
    lock: StorageLock, start: Callable[[], Hudi]
) -> None:
    hudi = start()
    assert hudi.ask("lock 1") == "true"
    hudi.process.kill()
    grip = lock.acquire(ME, seconds=60)
    assert grip.is_held()
    assert start().ask("lock 1") == "false"
    grip.release()


@on_s3
def test_a_lock_that_we_do_not_renew_is_hudis_when_its_time_is_over_and_not_ours_any_more(
    storage: Storage, start: Callable[[], Hudi]
) -> None:
    asleep = StorageLock(storage, validity_seconds=10, renew_seconds=1000)
    grip = asleep.acquire(ME, seconds=0)
    hudi = start()
    assert hudi.ask("lock 60") == "true"
    assert not grip.is_held()
    grip.release()
    assert hudi.ask("held") == "true"
    with pytest.raises(LockError):
        asleep.acquire(ME, seconds=0)


def test_of_hudis_and_ours_who_race_one_is_inside_at_a_time_and_all_get_there(
    storage: Storage, start: Callable[[], Hudi], tmp_path: Path
) -> None:
    inside, turns = tmp_path / "inside", 5

    def drive(number: int) -> int:
        others = 0
        for turn in range(turns):
            grip = quick_lock(storage).acquire(f"{number}-{turn:x}", seconds=120)
            try:
                inside.touch(exist_ok=False)
                inside.unlink()
            except OSError:
                others += 1
            assert grip.is_held()
            grip.release()
        return others

    hudis = [start(), start()]
    with ThreadPoolExecutor() as pool:
        theirs = [pool.submit(hudi.ask, f"turns {turns} {inside}") for hudi in hudis]
        mine = [pool.submit(drive, number) for number in range(3)]
        assert [task.result() for task in mine] == [0, 0, 0]
        assert [task.result() for task in theirs] == ["0", "0"]


# -- with Hudi's writer --------------------------------------------------------------------------------------

PACKAGE = "org.apache.hudi.client.transaction.lock"
CONSIDERATE = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": "false",
}
"""Of a writer of Hudi's that leaves the pending writes of others alone."""
IMPATIENT = {
    "hoodie.write.lock.wait_time_ms": "500",
    "hoodie.write.lock.num_retries": "1",
    "hoodie.write.lock.client.num_retries": "1",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def in_zookeeper(keeper: ZooKeeper) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": f"{PACKAGE}.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": keeper.hosts,
        "hoodie.write.lock.zookeeper.port": keeper.hosts.partition(":")[2],
        "hoodie.write.lock.zookeeper.base_path": "/hudi",
        "hoodie.write.lock.zookeeper.lock_key": uuid.uuid4().hex,
    }


@pytest.fixture(params=["file", "zookeeper"])
def shared(request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of a lock, for Hudi and for us."""
    if request.param == "file":
        return {"hoodie.write.lock.provider": f"{PACKAGE}.FileSystemBasedLockProvider"}
    found: dict[str, str] = request.getfixturevalue("in_zookeeper")
    return found


def lock_of(chosen: dict[str, str], table: Path) -> TableLock:
    return coordination_of(parse(chosen), LocalStorage(str(table)), Clock(), Ids()).lock


def test_hudis_writer_waits_for_a_lock_that_we_have_and_we_for_one_another(
    hudi: Oracle, ours: Any, table: Path, shared: dict[str, str]
) -> None:
    ours.write(table, query([row(1)]), options(**shared))
    grip = lock_of(shared, table).acquire("somebody", seconds=10)
    with pytest.raises(OracleError, match="lock"):
        hudi.write(table, query([row(2)]), options(**CONSIDERATE, **shared, **IMPATIENT))
    with pytest.raises(LockError, match="held by somebody"):
        ours.write(table, query([row(2)]), options(**shared, hoodie__write__lock__wait_time_ms="100"))
    assert len(completed(table, "commit")) == 1
    assert grip.is_held(), "a writer of Hudi's that did not get the lock took it away"
    grip.release()
    hudi.write(table, query([row(2)]), options(**CONSIDERATE, **shared))
    ours.write(table, query([row(3)]), options(**shared))
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered([row(1), row(2), row(3)])


def test_hudis_writer_stands_in_the_line_in_zookeeper_where_we_do(
    hudi: Oracle, ours: Any, table: Path, keeper: ZooKeeper, in_zookeeper: dict[str, str]
) -> None:
    ours.write(table, query([row(1)]), options(**in_zookeeper))
    lock, over = lock_of(in_zookeeper, table), threading.Event()
    assert isinstance(lock, ZooKeeperLock)
    seen: set[str] = set()

    def look() -> None:
        with keeper.client() as client:
            while not over.is_set():
                seen.update(client.get_children(lock.path))

    def take() -> int:
        turns = 0
        while not over.is_set():
            grip = lock.acquire(ME, seconds=60)
            assert grip.is_held()
            grip.release()
            turns += 1
        return turns

    with ThreadPoolExecutor() as pool:
        looking = pool.submit(look)
        try:
            hudi.write(table, query([row(2)]), options(**CONSIDERATE, **in_zookeeper))
            assert seen, "Hudi's writer did without the lock"
            taking = pool.submit(take)
            for number in (3, 4):
                hudi.write(table, query([row(number)]), options(**CONSIDERATE, **in_zookeeper))
        finally:
            over.set()
        looking.result()
        assert taking.result() > 0
    assert all(re.fullmatch(r"_c_[0-9a-f-]{36}-lock-\d{10}", name) for name in seen), seen
    assert ordered(hudi.read(table)) == ordered(row(number) for number in range(1, 5))
