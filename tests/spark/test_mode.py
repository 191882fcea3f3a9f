"""How files become visible, where the caller says it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from sparkrobust import probe
from sparkrobust.core.guarantees import Promise
from sparkrobust.probe import Point
from sparkrobust.storage.local import LocalStorage
from tests.interop.driver import patched
from tests.interop.tables import OPERATION, options
from tests.moments import at
from tests.spark.tables import DRIVER_BYTES, frame

MODE = "hoodie.write.robust.mode"


def write(
    spark: SparkSession, table: Path, operation: str, rows: list[tuple[object, ...]], mode: str = "direct"
) -> sr.WriteResult:
    chosen = {**options(), OPERATION: operation, DRIVER_BYTES: "0", MODE: mode}
    return sr.write(frame(spark, rows)).options(**chosen).mode("append").save(str(table))


def names(table: Path) -> dict[int, str]:
    return {row["id"]: row["name"] for row in plain_reader.snapshot(table)}


def left(table: Path) -> list[str]:
    found = (path for part in (".robust", ".temp") for path in table.glob(f".hoodie/{part}/**/*"))
    return [path.name for path in found if path.is_file()]


def test_in_mode_direct_every_operation_works_and_it_is_said(
    spark: SparkSession, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sparkrobust")
    results = [
        write(spark, table, "bulk_insert", [(1, "a", 5, "eu"), (2, "b", 5, "us"), (3, "c", 5, "us")]),
        write(spark, table, "upsert", [(1, "a2", 6, "eu"), (4, "d", 5, "as")]),
        write(spark, table, "delete", [(3, "c", 5, "us")]),
    ]
    assert names(table) == {1: "a2", 2: "b", 4: "d"} and left(table) == []
    assert all(result.mode == "direct" and "mode direct" in str(result) for result in results)
    assert "direct" in results[0]._repr_html_()
    assert caplog.text.count("mode=direct") == 1
    opened = sr.Table(str(table))
    assert opened.guarantees().promises == tuple(Promise)
    assert Promise.NOTHING_SPURIOUS not in opened.guarantees("direct").promises
    with pytest.raises(sr.errors.InvalidOptionError, match="copy"):
        opened.guarantees("copy")


def test_a_write_in_mode_direct_that_fails_or_dies_is_undone_and_a_decided_one_finished(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark, table, "upsert", [(1, "a", 5, "eu")])
    with pytest.raises(sr.errors.InvalidKeyError):
        write(spark, table, "upsert", [(1, "a2", 6, "eu"), (None, "no key", 5, "us")])
    assert names(table) == {1: "a"} and left(table) == []
    driver = patched(monkeypatch, LocalStorage)
    with driver.dies_before("put_if_absent", "/decision$"):
        write(spark, table, "upsert", [(1, "a3", 7, "eu")])
    assert len([*table.glob("eu/*.parquet")]) == 2  # visible, and of no commit
    assert names(table) == {1: "a"}
    write(spark, table, "upsert", [(2, "b", 5, "us")], mode="auto")
    assert names(table) == {1: "a", 2: "b"} and len([*table.glob("eu/*.parquet")]) == 1
    with driver.dies_before("publish_last"):
        write(spark, table, "upsert", [(1, "a4", 8, "eu")])
    write(spark, table, "upsert", [(2, "b2", 6, "us")], mode="auto")
    assert names(table) == {1: "a4", 2: "b2"} and left(table) == []


def test_rows_of_a_failed_write_in_mode_direct_are_no_data_of_a_table_without_partitions_either(
    spark: SparkSession, table: Path
) -> None:
    def write(operation: str, rows: list[tuple[object, ...]]) -> sr.WriteResult:
        chosen = {**options(partitions=""), OPERATION: operation, DRIVER_BYTES: "0", MODE: "direct"}
        return sr.write(frame(spark, rows)).options(**chosen).mode("append").save(str(table))

    def breaks() -> None:
        assert len([*table.glob("*.parquet")]) > 1  # visible, and of no commit
        raise ZeroDivisionError

    write("upsert", [(1, "a", 5, "eu")])
    with pytest.raises(ZeroDivisionError), probe.listening(at(Point.STAGE_ENDED, breaks)):
        write("bulk_insert", [(1, "doubled", 6, "eu"), (7, "never", 6, "eu")])
    write("upsert", [(2, "b", 5, "eu")])
    rows = [row["name"] for row in plain_reader.snapshot(table)]
    assert sorted(rows) == ["a", "b"] and left(table) == []
    assert sorted(row["name"] for row in sr.read(spark).load(str(table)).collect()) == ["a", "b"]


def test_copy_where_the_store_does_better_is_refused_and_says_what_auto_does(
    spark: SparkSession, table: Path
) -> None:
    with pytest.raises(sr.errors.InvalidOptionError, match="auto means rename"):
        write(spark, table, "upsert", [(1, "a", 5, "eu")], mode="copy")
    assert not table.exists()
