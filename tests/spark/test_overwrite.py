"""A table in place of another one: everything is new, and a failure leaves the old one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.storage.local import LocalStorage
from tests.interop.tables import avro, completed, options, pending, properties, stats
from tests.spark.tables import Subject, everything_in, leftovers


@pytest.fixture
def old(spark: SparkSession, table: Path) -> Subject:
    """A partitioned table with rows."""
    subject = Subject(spark, table, options())
    subject.write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")])
    return subject


def test_an_overwrite_may_change_key_partition_and_schema(old: Subject) -> None:
    files = old.files()
    new = Subject(
        old.spark,
        old.path,
        options("code,day", "", None, hoodie__table__name="other"),
        "code string, name string, day int",
    )  # fmt: skip
    result = new.write("bulk_insert", [("x", "n", 1), ("x", "m", 2)], mode="overwrite")
    assert result.inserted == 2
    assert new.rows() == [("x", "m", 2), ("x", "n", 1)]
    (commit,) = completed(old.path, "replacecommit")
    record = avro(commit.file)
    assert record["operationType"] == "INSERT_OVERWRITE_TABLE"
    assert sorted(record["partitionToReplaceFileIds"]) == ["eu", "us"]
    assert all((old.path / file).is_file() for file in files), "the cleaner's business, not the write's"
    said = properties(old.path)
    assert said["hoodie.table.name"] == "other"
    assert said["hoodie.table.recordkey.fields"] == "code,day"
    assert said["hoodie.table.partition.fields"] == ""
    assert "hoodie.table.ordering.fields" not in said

    new.write("upsert", [("x", "upserted", 2), ("y", "z", 3)])
    assert new.rows() == [("x", "n", 1), ("x", "upserted", 2), ("y", "z", 3)]
    assert not pending(old.path) and not leftovers(old.path)
    with pytest.raises(sr.errors.InvalidOptionError, match="contradict"):
        old.write("upsert", [(1, "a", 5, "eu")])


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_an_overwrite_combines_as_its_operation_does_and_looks_nothing_up(
    operation: str, old: Subject
) -> None:
    result = old.write(operation, [(1, "low", 1, "eu"), (1, "high", 2, "eu")], mode="overwrite")
    left = ["high"] if operation == "upsert" else ["high", "low"]
    assert sorted(row[1] for row in old.rows()) == left
    assert (result.inserted, result.updated, result.files_rewritten) == (len(left), 0, 0)
    old.write("upsert", [], mode="overwrite")
    assert old.rows() == []


def test_a_table_may_be_overwritten_with_its_own_rows(old: Subject) -> None:
    df = sr.read(old.spark).load(str(old.path)).where("id = 2")
    old.save("upsert", df, mode="overwrite")
    assert old.rows() == [(2, "b", 5, "us")]


def fails_at(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the transaction break after one of its steps."""
    step_of = getattr(Transaction, step)

    def breaks(self: Transaction, *args: object, **kwargs: object) -> None:
        step_of(self, *args, **kwargs)
        raise OSError(f"broken after {step}")

    monkeypatch.setattr(Transaction, step, breaks)


@pytest.mark.parametrize("step", ["begin", "finalize", "_refuse_if_given_up", "_stage_commit"])
def test_a_failed_overwrite_leaves_the_old_table(
    step: str, old: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, before = old.rows(), everything_in(old.path)
    fails_at(step, monkeypatch)
    with pytest.raises(OSError, match=step):
        old.write("bulk_insert", [(3, "c", 1, "new")], {"hoodie.table.name": "new"}, mode="overwrite")
    monkeypatch.undo()
    assert old.rows() == rows
    after = everything_in(old.path)
    assert after[".hoodie/hoodie.properties"] == before[".hoodie/hoodie.properties"]
    assert not pending(old.path) and not leftovers(old.path)
    assert [name for name in after if name.endswith(".parquet")] == [
        name for name in before if name.endswith(".parquet")
    ]
    old.write("upsert", [(3, "c", 1, "new")], mode="overwrite")
    assert old.rows() == [(3, "c", 1, "new")]
    assert len(stats(old.path)) == 1


def test_an_overwrite_whose_driver_died_after_the_properties_changed_is_finished_by_the_next_write(
    old: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "publish_all", _dies)
        patched.setattr(Transaction, "abort", lambda self, reason: None)
        with pytest.raises(SystemExit):
            old.write("bulk_insert", [(3, "c", 1, "new")], {"hoodie.table.name": "new"}, mode="overwrite")
    assert properties(old.path)["hoodie.table.name"] == "new", "the moment that this test is about"
    assert len(pending(old.path)) == 2

    result = old.write("upsert", [(4, "d", 1, "eu")], {"hoodie.table.name": "new"})
    assert not result.rolled_back
    assert old.rows() == [(3, "c", 1, "new"), (4, "d", 1, "eu")]
    assert not pending(old.path) and not leftovers(old.path)


def _dies(*args: object) -> None:
    raise SystemExit
