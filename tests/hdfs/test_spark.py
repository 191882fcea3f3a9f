"""A table on HDFS, written and read by Spark, and by a driver that is killed; looked at by a plain reader."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.storage.hdfs_settings import client_of
from tests.interop.tables import META, OPERATION, options, pending
from tests.spark.tables import DRIVER_BYTES, frame, leftovers
from tests.spark.test_stopped_drivers import Driver, alive, until

COLUMNS = "id int, ts bigint, region string"
Rows = list[tuple[Any, ...]]


class Subject:
    """A table on HDFS."""

    def __init__(self, spark: SparkSession, storage: HdfsStorage, scratch: Path) -> None:
        self.spark, self.storage, self.url = spark, storage, storage.url
        self._scratch, self._copies = scratch, 0

    def write(self, operation: str, rows: Rows, mode: str = "append", *, by: str = "tasks") -> sr.WriteResult:
        most = "0" if by == "tasks" else "4194304"
        chosen = {**options(), OPERATION: operation, DRIVER_BYTES: most}
        return sr.write(frame(self.spark, rows, COLUMNS)).options(**chosen).mode(mode).save(self.url)

    def copy(self) -> Path:
        """All that HDFS shows of the table, with what our own listings leave out, on the local disk."""
        client = client_of(self.storage._requests.settings)
        root, self._copies = self.storage._root, self._copies + 1
        target = self._scratch / f"copy{self._copies}"
        for found in client.list_status(root, True):
            path = target / found.path.removeprefix(f"{root}/")
            if found.isdir:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(client.read(found.path).read())
        return target

    def rows(self) -> Rows:
        """By our reader and by a plain one; no file is there that no commit names."""
        ours = [row.asDict() for row in sr.read(self.spark).load(self.url).collect()]
        copy = self.copy()
        plain = plain_reader.snapshot(copy)
        assert sorted(map(repr, ours)) == sorted(map(repr, plain))
        table = HudiTable.open(self.storage)
        commits = [table.commit(done) for done in table.timeline.completed_writes]
        named = {stat.path for commit in commits for stat in commit.write_stats}
        assert {str(file.relative_to(copy)) for file in copy.rglob("*.parquet")} <= named
        # A version that was replaced stays claimed for a day.
        assert not [path for path in leftovers(copy) if "/.scratch/claims-" not in path]
        assert not pending(copy)
        return sorted(tuple(value for name, value in row.items() if name not in META) for row in ours)


@pytest.fixture
def subject(spark: SparkSession, storage: HdfsStorage, tmp_path: Path) -> Subject:
    return Subject(spark, storage, tmp_path)


def test_a_table_on_hdfs_takes_every_operation_and_a_failed_one_leaves_nothing(subject: Subject) -> None:
    subject.write("bulk_insert", [(1, 5, "eu"), (2, 5, "us"), (3, 5, "us")])
    result = subject.write("upsert", [(1, 6, "eu"), (2, 1, "us"), (4, 5, "as")])
    assert (result.updated, result.inserted) == (1, 1)
    assert subject.write("delete", [(3, 5, "us")], by="the driver").deleted == 1
    assert subject.rows() == [(1, 6, "eu"), (2, 5, "us"), (4, 5, "as")]
    for operation, by in (("upsert", "tasks"), ("upsert", "the driver"), ("bulk_insert", "tasks")):
        with pytest.raises(sr.errors.InvalidKeyError, match="null or empty"):
            subject.write(operation, [(5, 5, "new"), (None, 5, "eu")], by=by)
    with pytest.raises(sr.errors.UnsafePathError, match="a colon"):
        subject.write("bulk_insert", [(6, 5, "12:30")])
    assert subject.rows() == [(1, 6, "eu"), (2, 5, "us"), (4, 5, "as")]
    assert not (subject.copy() / "new").exists()
    opened = sr.Table(subject.url)
    assert opened.guarantees().mode == "rename" and opened.guarantees().url == subject.url
    subject.write("insert", [(9, 1, "eu")], mode="overwrite")
    assert subject.rows() == [(9, 1, "eu")]


def test_a_killed_driver_is_rolled_back_by_the_next_write_and_its_task_that_lives_on_gets_nowhere(
    subject: Subject, tmp_path: Path
) -> None:
    subject.write("upsert", [(0, 0, "old")], by="the driver")
    fifo, java = tmp_path / "fifo", None
    driver = Driver(subject.url, fifo, tmp_path / "log", "tests.hdfs.dying_driver")
    try:
        java = driver.hears("started")["java"]
        driver.hears("writing")
        until(lambda: staged(subject.storage), "a staged file")
        until(Path(f"{fifo}.pid").exists, "the task says who it is")
        os.kill(driver.process.pid, signal.SIGKILL)
        driver.process.wait()
        until(lambda: not alive(java), "Java has ended with its driver")
        task = int(Path(f"{fifo}.pid").read_text())
        assert alive(task) and staged(subject.storage)

        result = subject.write("upsert", [(9, 9, "new")])
        assert len(result.rolled_back) == 1
        assert subject.rows() == [(0, 0, "old"), (9, 9, "new")]
        assert alive(task)
    finally:
        driver.end(java)  # opens the fifo, too
    until(lambda: not alive(task), "the task has ended")
    assert subject.rows() == [(0, 0, "old"), (9, 9, "new")]


def staged(storage: HdfsStorage) -> list[str]:
    return [info.path for info in storage.walk(".hoodie/.robust") if "/staging/" in info.path]
