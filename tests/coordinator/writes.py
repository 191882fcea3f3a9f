"""Writes without Spark: what drivers and tasks do to a table, as far as a test wants them to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fault_injection.s3_server import S3Server
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action
from sparkrobust.core.key_hashes import hashes_of
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Terms
from sparkrobust.core.names import (
    COMMIT_TIME,
    HEARTBEATS,
    RECORD_KEY,
    ROBUST,
    TEMP,
    BaseFileName,
    MarkerType,
    begin_marker,
    heartbeat_file,
    joined,
    marker_folder,
)
from sparkrobust.core.write_status import NEW_FILE_GROUP, OperationType, WriteStat
from sparkrobust.core.written import StagedFile, WrittenFile
from sparkrobust.options import parse
from sparkrobust.storage.contract import AlreadyExistsError, Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import Grip, InProcessLock
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.s3_settings import S3Settings, client_of
from sparkrobust.world import Ids
from tests.clocks import TestClock
from tests.storage.conftest import BUCKET

SCHEMA = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'


@pytest.fixture(params=["memory", "local", "s3", "azure"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param in ("s3", "azure"):
        made: Storage = request.getfixturevalue(f"{request.param}_table")()
        return made
    if request.param == "memory":
        return MemoryStorage(str(tmp_path))
    return LocalStorage(str(tmp_path / "table"))


@pytest.fixture
def table(storage: Storage) -> HudiTable:
    options = parse(
        {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
        }
    )
    made, new = make_table(storage, options, TestClock(), Ids())
    assert new
    return made


def terms(action: Action = Action.COMMIT, **more: Any) -> Terms:
    replacing = action is Action.REPLACE_COMMIT
    operation = OperationType.INSERT_OVERWRITE_TABLE if replacing else OperationType.INSERT
    return Terms(action=action, operation=operation, schema=SCHEMA, replaces_table=replacing, **more)


def begun(table: HudiTable, action: Action = Action.COMMIT, **more: Any) -> Transaction:
    transaction = Transaction(table, terms(action, **more))
    transaction.begin(slots=1)
    return transaction


def stage(
    table: HudiTable,
    transaction: Transaction,
    partition: str = "p1",
    *,
    token: str = "0-0-1",
    group: str | None = None,
    base: str = "the one before",
    keys: Sequence[str] = (),
) -> str:
    """What a task does: begin marker, staged bytes, the completion marker if there is none.

    It makes a new version of a file group, ``partition/id``, or a new file group; with keys it is a real
    file, in which they are new.
    """
    file_id = f"{table.ids.uuid()}-0"
    if group is not None:
        partition, _, file_id = group.rpartition("/")
    name = BaseFileName(file_id=file_id, write_token=token, instant=transaction.time)
    path = joined(partition, str(name))
    marker = begin_marker(transaction.time, path, MarkerType.CREATE)
    table.storage.mark(marker, b"", under=marker_folder(transaction.time))
    folder = transaction.folder
    with table.storage.stage(folder.staging, f"{name}.x", path) as writer:
        if table.storage.staging.needs_its_token:
            table.storage.put(marker, writer.token.encode())
        writer.write(_parquet(transaction.time, keys) if keys else b"rows")
        staged = writer.finish()
    stat = WriteStat(
        file_id=name.file_id,
        path=path,
        partition_path=partition,
        num_writes=max(1, len(keys)),
        num_inserts=len(keys) or (0 if group else 1),
        num_update_writes=1 if group else 0,
        prev_commit=_instant_of(base) if group else NEW_FILE_GROUP,
        prev_base_file=base if group else None,
        file_size_in_bytes=staged.size,
    )
    file = WrittenFile(stat=stat, staged=staged, new_keys=hashes_of(keys))
    done = CompletionMarker(slot=0, attempt=token, input=Fingerprint(rows=1), files=(file,))
    with contextlib.suppress(AlreadyExistsError):
        table.storage.put_if_absent(folder.completion(0), done.render(folder.nonce))
    return path


def _instant_of(base: str) -> str:
    name = BaseFileName.parse(base)
    return name.instant if name else "20240101000000000"


def _parquet(instant: str, keys: Sequence[str]) -> bytes:
    rows = pa.table({COMMIT_TIME: [instant] * len(keys) + ["0"], RECORD_KEY: [*keys, "carried over"]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


def commit(
    table: HudiTable, partition: str = "p1", group: str | None = None, keys: Sequence[str] = ()
) -> Transaction:
    transaction = begun(table)
    stage(table, transaction, partition, group=group, keys=keys)
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()
    return transaction


class Stop(BaseException):
    """The driver is gone."""


STOPS = ("begun", "staged", "finalized", "decided", "published")


def dead(transaction: Transaction) -> Transaction:
    """The driver of this write is gone, and has been for so long that its heartbeat says nothing."""
    transaction.leave()
    transaction.table.storage.delete(heartbeat_file(transaction.time))
    return transaction


def stopped(table: HudiTable, stop: str, action: Action = Action.COMMIT, **more: Any) -> Transaction:
    """A write whose driver died at this point, long ago."""
    transaction = dead(begun(table, action, **more))
    if stop == "begun":
        return transaction
    stage(table, transaction)
    if stop == "staged":
        return transaction
    markers = transaction.finalize(1)
    if stop == "finalized":
        return transaction
    real, table.storage = table.storage, StopsAt(table.storage, stop)  # type: ignore[assignment]
    try:
        with pytest.raises(Stop):
            transaction.commit(markers)
    finally:
        table.storage = real
    return transaction


class StopsAt:
    """A store under a driver that dies right before it publishes, or before it publishes the commit."""

    def __init__(self, inner: Storage, stop: str) -> None:
        self._inner, self._stop = inner, stop

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def publish_all(self, staged: Any) -> None:
        if self._stop == "decided":
            raise Stop
        self._inner.publish_all(staged)

    def publish_last(self, staged: StagedFile, look: object, *, alone: bool) -> None:
        raise Stop


def data_files(storage: Storage) -> list[str]:
    return sorted(info.path for info in storage.walk("") if info.path.endswith(".parquet"))


@pytest.fixture
def group(table: HudiTable) -> str:
    """A file group that the table has, ``partition/id``."""
    path = (commit(table), data_files(table.storage))[1][0]
    return path.partition("_")[0]


class After(InProcessLock):
    """The lock is had once something has happened."""

    def __init__(self, table: HudiTable, action: Callable[[], object]) -> None:
        super().__init__(f"another name of {table.storage.url}")
        self._action = action

    def try_acquire(self, owner: str, nonce: str) -> Grip | None:
        self._action()
        return super().try_acquire(owner, nonce)


def opened(table: HudiTable) -> HudiTable:
    """The same table as another driver sees it."""
    return HudiTable.open(table.storage, table.clock, table.ids)


def on_s3(table: HudiTable, server: S3Server) -> tuple[Any, str]:
    """A client of the server's, and what the keys of a table begin with there."""
    return client_of(S3Settings.of(server.options(), BUCKET)), table.storage.url.split("/", 3)[3]


def uploads(table: HudiTable, server: S3Server) -> list[str]:
    """The files that are being uploaded into a table on S3."""
    client, prefix = on_s3(table, server)
    found = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    return [upload["Key"] for upload in found if upload["Key"].startswith(prefix)]


def leftovers(storage: Storage) -> list[str]:
    return [info.path for folder in (ROBUST, TEMP, HEARTBEATS) for info in storage.walk(folder)]


@pytest.fixture
def in_memory(tmp_path: Path) -> HudiTable:
    """A table whose store's time is the test's."""
    clock = TestClock()
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    return make_table(MemoryStorage(str(tmp_path), clock=clock), parse(options), clock, Ids())[0]
