"""Writes that fail from within: tasks, the driver's own steps, another program's doings in between."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.errors import (
    ConflictError,
    FencedError,
    IndeterminateInputError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.spark.frames import Frames
from tests.interop.tables import avro, completed, options, pending, properties
from tests.spark.tables import (
    DRIVER_BYTES,
    BreaksAfter,
    Subject,
    away_for_a_while,
    everything_in,
    frame,
    leftovers,
    names_of,
    refused,
)
from tests.spark.test_routing import WAYS

DROP_METADATA = {"hoodie.write.robust.drop.metadata.table": "true"}


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with two rows in two partitions."""
    subject = Subject(spark, table, options())
    subject.write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")])
    return subject


def data_files(table: Path) -> set[str]:
    return {path for path in everything_in(table) if path.endswith(".parquet")}


def test_a_task_that_raises_fails_the_write_with_the_pipelines_own_error(subject: Subject) -> None:
    df = subject.spark.range(0, 200_000, 1, 2).selectExpr(
        "CAST(id AS int) AS id", "CAST(id AS string) AS name", "id AS ts", "'new' AS region"
    )
    broken = df.mapInArrow(BreaksAfter(90_000), df.schema)
    with refused(subject.path, Exception, "a value of the pipeline's own"):  # type: ignore[type-var]
        subject.save("upsert", broken)
    files = data_files(subject.path)
    with pytest.raises(Exception, match="a value of the pipeline's own"):
        # Its tasks have staged rows by the time that they break.
        subject.save("bulk_insert", broken, {"hoodie.parquet.max.file.size": "100000"})
    assert data_files(subject.path) == files
    assert not pending(subject.path) and not leftovers(subject.path)
    assert len(completed(subject.path, "rollback")) == 1
    assert not (subject.path / "new").exists()
    subject.write("upsert", [(3, "c", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b", 3: "c"}


def test_an_error_of_ours_that_ended_a_task_is_what_the_caller_gets(subject: Subject) -> None:
    df = subject.spark.range(0, 2000, 1, 2).selectExpr(
        "CAST(id AS int) AS id", "CAST(id AS string) AS name", "id AS ts", "'new' AS region"
    )
    away = BreaksAfter(900, UnavailableError("no clear answer to put: 503 SlowDown", hint="wait a little"))
    with refused(subject.path, UnavailableError, "503 SlowDown .wait a little"):
        subject.save("upsert", df.mapInArrow(away, df.schema))
    assert not pending(subject.path) and not leftovers(subject.path)


@pytest.mark.parametrize("failures", [1, 3, 4])
def test_a_store_that_is_away_for_a_while_fails_a_write_of_the_drivers_own_only_if_it_stays_away(
    failures: int, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(1, "a2", 6, "eu"), (2, "b2", 6, "us")]
    here = {DRIVER_BYTES: "4194304"}
    with away_for_a_while(monkeypatch, failures):
        if failures < 4:
            subject.write("upsert", rows, here)
        else:
            with pytest.raises(UnavailableError, match="the store is away"):
                subject.write("upsert", rows, here)
    assert subject.names() == ({1: "a2", 2: "b2"} if failures < 4 else {1: "a", 2: "b"})
    assert not pending(subject.path) and not leftovers(subject.path)


@dataclass(frozen=True)
class OnceThenOthers:
    """Gives its rows as they are, and once the file is there with other keys, or some of them."""

    switch: str
    shift: int
    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if os.path.exists(self.switch):
                ids = [number + self.shift for number in batch["id"].to_pylist()]
                batch = batch.set_column(0, batch.schema.field(0), pa.array(ids, pa.int32()))
                batch = batch.slice(0, self.most)
            yield batch


@pytest.mark.parametrize("way", ["the driver looks the keys up", "Spark joins the keys"])
@pytest.mark.parametrize(("shift", "most"), [(1, 100), (0, 9), (100, 100)])
def test_an_input_that_gives_other_rows_when_it_is_read_again_is_not_committed(
    way: str, shift: int, most: int, subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in WAYS[way]:
        monkeypatch.setattr(module, name, value)
    # As if every kept block were lost: then Spark reads the input again.
    monkeypatch.setattr(Frames, "persist", lambda self, frame: frame)
    switch = tmp_path / "switch"
    rows = [(i, "first", 9, ("eu", "us", "new")[i % 3]) for i in range(10)]
    df = frame(subject.spark, rows).coalesce(1)
    changing = df.mapInArrow(OnceThenOthers(str(switch), shift, most), df.schema)
    begin = Transaction.begin

    def and_then(self: Transaction, **how: Any) -> None:
        begin(self, **how)
        switch.touch()

    monkeypatch.setattr(Transaction, "begin", and_then)
    for operation in ("upsert", "insert"):
        switch.unlink(missing_ok=True)
        with pytest.raises(IndeterminateInputError, match="read again"):
            subject.save(operation, changing)
    assert subject.names() == {1: "a", 2: "b"}
    assert not leftovers(subject.path)
    monkeypatch.undo()
    switch.unlink(missing_ok=True)
    subject.save("upsert", changing)
    assert len(subject.rows()) == 12


# -- drivers that die ----------------------------------------------------------------------------------


def dies_after(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver of the next write be gone after one of its steps: nothing is undone."""
    step_of = getattr(Transaction, step)

    def dies(self: Transaction, *args: Any, **kwargs: Any) -> None:
        step_of(self, *args, **kwargs)
        raise SystemExit(step)

    monkeypatch.setattr(Transaction, step, dies)
    monkeypatch.setattr(Transaction, "abort", lambda self, reason: None)


@pytest.mark.parametrize("step", ["begin", "finalize", "_decide", "commit"])
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_whatever_step_a_driver_dies_after_the_next_write_puts_the_table_right(
    step: str, operation: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        dies_after(step, patched)
        with pytest.raises(SystemExit, match=step):
            subject.write(operation, [(2, "b2", 6, "us"), (3, "c", 5, "new")])
    durable, decided = step == "commit", step in ("_decide", "commit")
    instants = {name.split(".")[0] for name in pending(subject.path)}
    assert len(instants) == (0 if durable else 1)
    seen = sorted(row[1] for row in subject.rows())
    merged = ["a", "b2", "c"] if operation == "upsert" else ["a", "b", "b2", "c"]
    assert seen == (merged if durable else ["a", "b"])
    assert leftovers(subject.path)
    if decided:
        seen = merged

    result = subject.write("upsert", [(1, "a2", 6, "eu")])
    assert set(result.rolled_back) == (set() if decided else instants)
    assert not pending(subject.path) and not leftovers(subject.path)
    assert sorted(row[1] for row in subject.rows()) == ["a2", *seen[1:]]
    for instant in result.rolled_back:
        assert not [path for path in everything_in(subject.path) if f"_{instant}." in path]
        record = avro(completed(subject.path, "rollback")[-1].file)
        assert record["commitsRollback"] == [instant]
        assert record["totalFilesDeleted"] == (0 if step == "begin" else 2)
    assert "1 failed writes" in str(result) or decided


def test_the_first_write_of_a_table_whose_driver_died_is_rolled_back(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(spark, table, options())
    with monkeypatch.context() as patched:
        dies_after("finalize", patched)
        patched.setattr("sparkrobust.spark.writer.forget_table", lambda table: None)
        with pytest.raises(SystemExit):
            subject.write("insert", [(1, "a", 5, "eu")])
    assert data_files(table) == set()
    opened = sr.Table(str(table))
    assert [instant.pending for instant in opened.rollback_failed_writes()] == [True]
    assert data_files(table) == set() and not pending(table) and not leftovers(table)
    subject.write("insert", [(2, "b", 5, "eu")])
    assert subject.names() == {2: "b"}


# -- jobs that run again --------------------------------------------------------------------------------

WRITE_NAME = "hoodie.write.robust.write.id"


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "insert"])
def test_a_job_that_runs_again_gets_the_result_of_its_first_run_and_writes_nothing(
    operation: str, spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options())
    rows = [(1, "a", 5, "eu"), (2, "b", 5, "us")]
    named = {WRITE_NAME: "job of the 18th"}
    first = subject.write(operation, rows, named, mode="errorifexists")
    before = everything_in(table)
    second = subject.write(operation, rows, named, mode="errorifexists")
    assert everything_in(table) == before
    assert second.earlier and not first.earlier
    assert (second.instant, second.completion) == (first.instant, first.completion)
    assert (second.inserted, second.files_created) == (first.inserted, first.files_created) == (2, 2)
    subject.write("upsert", [(1, "a2", 6, "eu")], {WRITE_NAME: "job of the 19th"})
    assert subject.names() == {1: "a2", 2: "b"}


@pytest.mark.parametrize("step", ["begin", "finalize", "_decide", "commit"])
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_job_that_runs_again_after_its_driver_died_commits_what_was_there_and_writes_nothing_twice(
    step: str, operation: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, named = [(2, "b2", 6, "us"), (3, "c", 5, "new")], {WRITE_NAME: "daily"}
    with monkeypatch.context() as patched:
        dies_after(step, patched)
        with pytest.raises(SystemExit, match=step):
            subject.write(operation, rows, named)
    staged = {path for path in everything_in(subject.path) if "/sealed/" in path and ".parquet" in path}
    result = subject.write(operation, rows, named)
    assert result.earlier is (step != "begin")
    assert bool(result.rolled_back) is (step == "begin")
    assert sorted(row[1] for row in subject.rows()) == (
        ["a", "b2", "c"] if operation == "upsert" else ["a", "b", "b2", "c"]
    )
    assert not pending(subject.path)
    written = {path.rpartition("/")[2] for path in data_files(subject.path)}
    assert {path.rpartition("/")[2].rpartition(".")[0] for path in staged} <= written
    subject.write("upsert", [(1, "a", 7, "eu")])
    assert not leftovers(subject.path)


def test_a_table_opened_from_python_goes_by_the_lock_that_its_options_name_and_refuses_what_a_write_would(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, path = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider"}, str(subject.path)
    with monkeypatch.context() as patched:
        dies_after("finalize", patched)
        with pytest.raises(SystemExit):
            subject.write("upsert", [(2, "b2", 6, "us")], lock)
    assert sr.Table(path).rollback_failed_writes() == [], "its heartbeat has not expired"
    with pytest.raises(sr.errors.LockError, match="goes by the lock"):
        sr.Table(path).recover(even_alive=True)
    with pytest.raises(sr.errors.InvalidOptionError, match="needs a lock that all writers have"):
        sr.Table(path, {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"})
    assert [one.fate.value for one in sr.Table(path, lock).recover(even_alive=True)] == ["committed"]
    assert subject.names() == {1: "a", 2: "b2"}
    have_metadata_table(subject.path)
    for end in (sr.Table(path, lock).recover, sr.Table(path, lock).rollback_failed_writes):
        with pytest.raises(UnsupportedTableError, match="metadata table"):
            end()


# -- other programs in between ---------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[Transaction], None]) -> None:
    """Let something happen right after all slots of a write were found done."""
    finalize = Transaction.finalize

    def and_then(self: Transaction, *given: Any) -> list[CompletionMarker]:
        markers = finalize(self, *given)
        happens(self)
        return markers

    monkeypatch.setattr(Transaction, "finalize", and_then)


def test_a_write_that_was_rolled_back_by_another_writer_does_not_commit(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda _: sr.Table(str(subject.path)).rollback_failed_writes())  # type: ignore[arg-type, return-value]
        with pytest.raises(FencedError, match="rolled back by another writer"):
            subject.write("upsert", [(1, "lost", 9, "eu")])
    assert subject.names() == {1: "a", 2: "b"}
    assert not pending(subject.path) and not leftovers(subject.path)
    subject.write("upsert", [(1, "a2", 9, "eu")])
    assert subject.names() == {1: "a2", 2: "b"}


def have_metadata_table(table: Path, partitions: str = "files") -> None:
    """As another writer's first write with ``hoodie.metadata.enable`` leaves it."""
    file = table / ".hoodie" / "hoodie.properties"
    file.write_text(re.sub(r"(?m)^hoodie\.table\.metadata\.partitions=.*\n", "", file.read_text())
                    + f"hoodie.table.metadata.partitions={partitions}\n")  # fmt: skip
    (table / ".hoodie" / "metadata" / ".hoodie").mkdir(parents=True, exist_ok=True)
    (table / ".hoodie" / "metadata" / ".hoodie" / "hoodie.properties").write_text("#\n")


def test_a_metadata_table_that_appears_during_a_write_stops_its_commit(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = data_files(subject.path)
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda transaction: have_metadata_table(subject.path))
        with pytest.raises(UnsupportedTableError, match="metadata table"):
            subject.write("upsert", [(1, "lost", 9, "eu")])
        assert data_files(subject.path) == files and not pending(subject.path)
        assert subject.names() == {1: "a", 2: "b"}
        subject.write("upsert", [(1, "a2", 9, "eu")], DROP_METADATA)
    assert subject.names() == {1: "a2", 2: "b"}
    assert properties(subject.path)["hoodie.table.metadata.partitions"] == ""
    assert not (subject.path / ".hoodie" / "metadata").exists()


@pytest.mark.parametrize("name", ["cow_partitioned", "v8_cow"])
def test_hudis_metadata_table_is_refused_with_the_way_out_and_dropped_when_told(
    name: str, hudi_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hudi_tables / name, tmp_path / "t"))
    before = sr.read(spark).load(str(path))
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in before.schema[5:])
    subject = Subject(spark, path, {}, columns)
    rows = subject.rows()
    place = names_of(columns).index("name")
    changed = [
        tuple("new" if i == place else value + 10_000 if n == "ts" else value for i, (n, value) in
              enumerate(zip(names_of(columns), row, strict=True)))
        for row in rows[:1]
    ]  # fmt: skip
    with refused(path, UnsupportedTableError, "drop.metadata.table=true") as error:
        subject.write("upsert", changed)
    assert "hoodie.metadata.enable=false" in str(error.value)
    said = properties(path)
    result = subject.write("upsert", changed, DROP_METADATA)
    assert (result.updated, result.inserted) == (1, 0)
    assert subject.rows() == sorted([*changed, *rows[1:]], key=repr)
    assert not (path / ".hoodie" / "metadata").exists()
    now = properties(path)
    assert now["hoodie.table.metadata.partitions"] == now["hoodie.table.metadata.partitions.inflight"] == ""
    assert {k: v for k, v in now.items() if "metadata.partitions" not in k} == {
        k: v for k, v in said.items() if "metadata.partitions" not in k
    }
    subject.write("delete", changed)
    assert subject.rows() == sorted(rows[1:], key=repr)


def test_a_write_that_fails_does_not_drop_the_metadata_table(
    hudi_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hudi_tables / "cow_partitioned", tmp_path / "t"))
    subject = Subject(spark, path, {}, "id int, name string, price double, ts bigint, dt string")
    with refused(path, sr.errors.InvalidKeyError, "null or empty"):
        subject.write("upsert", [(None, "n", 1.0, 1, "2024-01-01")], DROP_METADATA)


def test_rows_of_a_file_that_a_pending_clustering_replaces_are_refused(
    hudi_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hudi_tables / "cow_pending_clustering", tmp_path / "t"))
    subject = Subject(spark, path, {}, "id int, name string, price double, ts bigint, dt string")
    with refused(path, ConflictError, "clustering"):
        subject.write("upsert", [(1, "n", 1.0, 9000, "p1")], DROP_METADATA)
    result = subject.write("upsert", [(99, "new", 1.0, 9000, "p1")], DROP_METADATA)
    assert (result.files_created, result.files_rewritten) == (1, 0)
    assert subject.names()[99] == "new" and len(subject.rows()) == 7


def test_the_failed_write_of_a_hudi_table_is_rolled_back_as_hudi_does_it(
    hudi_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hudi_tables / "cow_failed_inflight", tmp_path / "t"))
    (failed,) = {name.split(".")[0] for name in pending(path)}
    subject = Subject(spark, path, {}, "id int, name string, price double, ts bigint, dt string")
    assert subject.names() == {1: "a", 2: "b"}
    result = subject.write("upsert", [(3, "c", 30.0, 3000, "p1")], DROP_METADATA)
    assert result.rolled_back == (failed,)
    assert subject.names() == {1: "a", 2: "b", 3: "c"}
    assert not pending(path) and not [p for p in everything_in(path) if f"_{failed}.parquet" in p]
