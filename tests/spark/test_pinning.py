"""Bulk inserts of rows that may be others when Spark makes a part of them again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.errors import IndeterminateInputError
from sparkrobust.spark.determinacy import may_change
from tests.interop.tables import options
from tests.spark.tables import Subject, frame, leftovers
from tests.spark.test_failures import OnceThenOthers

SHOWN = "spark.sql.debug.maxToStringFields"
PIN = "hoodie.write.robust.pin.input"


def wide(df: DataFrame) -> DataFrame:
    """More columns than Spark shows of a plan, the one that matters last."""
    more = [F.col("id").alias(f"c{number}") for number in range(60)]
    return df.select(*more, F.rand().alias("x")).repartition(3, "x")


def newest(df: DataFrame) -> DataFrame:
    """By a number that two rows of a key may have in common."""
    turn = F.row_number().over(Window.partitionBy("id").orderBy(F.desc("ts")))
    return df.withColumn("turn", turn).where("turn = 1").repartition(3, "region")


PLANS: dict[str, tuple[bool, Callable[[DataFrame], DataFrame]]] = {
    "rows as they are": (False, lambda df: df),
    "by chance, and no shuffle": (False, lambda df: df.where(F.rand() < 0.5)),
    "a shuffle by content": (False, lambda df: df.repartition(3, "id")),
    "an aggregate": (False, lambda df: df.groupBy("region").agg(F.max("id").alias("id"))),
    "by chance above a shuffle": (False, lambda df: df.repartition(3, "id").withColumn("x", F.rand())),
    "a shuffle by turns": (True, lambda df: df.repartition(3)),
    "a shuffle by chance": (True, lambda df: df.withColumn("x", F.rand()).repartition(3, "x")),
    "a new id below a shuffle": (True, lambda df: df.withColumn("u", F.expr("uuid()")).repartition(3, "u")),
    "some rows, whichever": (True, lambda df: df.repartition(3, "id").limit(5).repartition(2, "id")),
    "hidden behind many columns": (True, wide),
    "one row of each key": (False, lambda df: df.dropDuplicates(["id"])),
    "one row of each key, sent elsewhere": (
        True,
        lambda df: df.dropDuplicates(["id"]).repartition(3, "region"),
    ),
    "the newest row of each key, sent elsewhere": (True, newest),
    "the largest of each key, sent elsewhere": (
        False,
        lambda df: df.groupBy("id").agg(F.max("ts").alias("ts")).repartition(3, "ts"),
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_that_goes_by_chance_below_a_shuffle_may_change(
    plan: str, spark: SparkSession, tmp_path: Path
) -> None:
    changes, made = PLANS[plan]
    # From a file: rows that stand in the plan are worked off while it is made.
    frame(spark, [(i, "n", 1, "eu") for i in range(10)]).write.parquet(str(tmp_path / "rows"))
    assert may_change(made(spark.read.parquet(str(tmp_path / "rows")))) is changes


def test_plans_that_are_looked_at_at_once_are_each_its_own_and_leave_no_trace(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame(spark, [(i, "n", 1, "eu") for i in range(10)]).write.parquet(str(tmp_path / "rows"))
    rows, out = spark.read.parquet(str(tmp_path / "rows")), sys.stdout
    shown = spark.conf.get(SHOWN, None)
    frames = [wide(rows) if number % 2 else rows for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(may_change, frames * 3))
    assert found == [False, True] * 12
    assert sys.stdout is out and capsys.readouterr().out == ""
    assert spark.conf.get(SHOWN, None) == shown
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("sparkrobust")] == []


@pytest.mark.parametrize("mode", ["NONE", "PARTITION_SORT"])
def test_rows_that_may_change_are_stored_and_then_written(
    mode: str, spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options())
    rows = spark.range(0, 1000, 1, 4).selectExpr(
        "CAST(id AS int) AS id", "'n' AS name", "id AS ts", "IF(id % 2 = 0, 'eu', 'us') AS region"
    )
    chosen = {"hoodie.bulkinsert.sort.mode": mode}
    result = subject.save("bulk_insert", rows.repartition(3), chosen)
    assert "pin" in result.seconds
    assert (result.inserted, result.slots) == (1000, 3)
    assert sorted(subject.names()) == list(range(1000))
    assert not leftovers(table)
    again = subject.save("bulk_insert", rows.repartition(3), chosen, {PIN: "off"})
    assert "pin" not in again.seconds and again.inserted == 1000
    empty = subject.save("bulk_insert", rows.where("id < 0").repartition(3), chosen)
    assert empty.inserted == 0


@pytest.mark.parametrize(("shift", "most"), [(1, 100), (0, 9)])
def test_a_bulk_insert_that_is_to_be_checked_notices_other_rows(
    shift: int, most: int, spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(spark, table, options())
    subject.write("upsert", [(100, "a", 1, "eu")])
    switch = tmp_path / "switch"
    df = frame(spark, [(i, "n", 1, "eu") for i in range(10)]).coalesce(1)
    changing = df.mapInArrow(OnceThenOthers(str(switch), shift, most), df.schema)
    begin = Transaction.begin

    def and_then(self: Transaction, **how: Any) -> None:
        begin(self, **how)
        switch.touch()

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "begin", and_then)
        with pytest.raises(IndeterminateInputError, match="read again"):
            subject.save("bulk_insert", changing, {PIN: "check"})
    assert subject.names() == {100: "a"} and not leftovers(table)
    assert subject.save("bulk_insert", df, {PIN: "check"}).inserted == 10
