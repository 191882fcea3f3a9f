"""What the drivers run: the write that is hit, and what a fresh one then finds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkrobust as sr
from fault_injection.spark.comparison.subjects import BY_NAME, CATALOG, MANY, TASKS, Subject
from fault_injection.spark.inside import here
from fault_injection.spark.plain_reader import snapshot_files

FIRST = (0, 2_000)
INSERTED = (2_000, 22_000)
MERGED = (0, 30_000)
"""Enough for a file to be open for a while."""
NEXT = (100_000, 100_100)
_HALF = 5
"""Batches."""


def text() -> Any:
    """A column by which a row of another version, or half a row, is told from the right one."""
    return F.concat(*(F.sha2(F.concat_ws("-", "id", "ts", F.lit(part)), 512) for part in "ab"))


def rows(spark: SparkSession, first: int, end: int, version: int, how: str = "plain") -> DataFrame:
    """Rows whose contents follow from their number and version."""
    plain = spark.range(first, end, 1, TASKS).withColumn("ts", F.lit(version).cast("long"))
    return HOW[how](plain.withColumn("text", text()))


@dataclass(frozen=True)
class Source:
    """Passes rows on, and says where it is."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        which = {"partition": context.partitionId(), "attempt": context.attemptNumber()}
        here("source begins", **which)
        for number, batch in enumerate(batches, 1):
            yield batch
            if number == _HALF:
                here("source half", **which)
        here("source ends", **which)


def _sourced(frame: DataFrame) -> DataFrame:
    return frame.mapInArrow(Source(), frame.schema)


def _in_any_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, in another order each time, as a database or a queue gives them."""
    chance = np.random.default_rng()
    for batch in batches:
        yield batch.take(pa.array(chance.permutation(batch.num_rows)))


def _with_chance(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, and a number by chance with each."""
    for batch in batches:
        numbers = np.frombuffer(os.urandom(8 * batch.num_rows), dtype=np.int64)
        yield batch.append_column("chance", pa.array(numbers))


def _chance_of_sparks(frame: DataFrame) -> DataFrame:
    mixed = frame.mapInArrow(_in_any_order, frame.schema).withColumn("chance", F.rand())
    return _sourced(mixed.repartition(TASKS, "chance").drop("chance"))


def _chance_in_python(frame: DataFrame) -> DataFrame:
    mixed = frame.mapInArrow(_with_chance, "id long, ts long, text string, chance long")
    return _sourced(mixed.repartition(TASKS, "chance").drop("chance"))


HOW: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda frame: frame,
    "source": _sourced,
    "shuffled": lambda frame: _sourced(frame.repartition(TASKS, "id")),
    "many": lambda frame: _sourced(frame.repartition(MANY, "id")),
    "chance": _chance_of_sparks,
    "python chance": _chance_in_python,
}


def load(spark: SparkSession, subject: str, path: str, how: str) -> None:
    """The write that is hit."""
    chosen = BY_NAME[subject]
    write(chosen, rows(spark, *(MERGED if chosen.merges else INSERTED), 2, how), path)


def seed(spark: SparkSession, subject: str, path: str) -> None:
    """A table with some rows."""
    chosen = BY_NAME[subject]
    frame = rows(spark, *FIRST, 1)
    if chosen.family == "iceberg":
        frame.writeTo(_identifier(path)).using("iceberg").create()
    elif chosen.family == "delta":
        frame.write.format("delta").save(path)
    else:
        write(chosen, frame, path)


def look(spark: SparkSession, subject: str, path: str) -> dict[str, Any]:
    """What a new driver reads, and whether it can write."""
    chosen = BY_NAME[subject]
    found: dict[str, Any] = {"at once": read_all(spark, chosen, path), "next": ""}
    try:
        write(chosen, rows(spark, *NEXT, 3), path)
    except Exception as error:
        found["next"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return {**found, "afterwards": read_all(spark, chosen, path)}


def write(subject: Subject, frame: DataFrame, path: str) -> None:
    """One write, as its engine does it."""
    if subject.family == "sparkrobust":
        sr.write(frame).options(**subject.options).mode("append").save(path)
    elif subject.merges and subject.family in ("delta", "iceberg"):
        frame.createOrReplaceTempView("source")
        target = _identifier(path) if subject.family == "iceberg" else f"delta.`{path}`"
        frame.sparkSession.sql(
            f"MERGE INTO {target} target USING source ON target.id = source.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    elif subject.family == "iceberg":
        frame.writeTo(_identifier(path)).append()
    else:
        kind = "parquet" if subject.family == "plain" else subject.family
        frame.write.format(kind).options(**subject.options).mode("append").save(path)


def _identifier(path: str) -> str:
    table = Path(path)
    return f"{CATALOG}.{table.parent.name}.`{table.name}`"


def read_all(spark: SparkSession, subject: Subject, path: str) -> dict[str, Any]:
    """What each way to read finds."""
    found: dict[str, Any] = {}
    for way, read in _ways(spark, subject, path).items():
        try:
            found[way] = _counted(read())
        except Exception as error:
            found[way] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return found


def _ways(spark: SparkSession, subject: Subject, path: str) -> dict[str, Callable[[], DataFrame]]:
    if subject.family == "sparkrobust":
        return {
            "sparkrobust's reader": lambda: sr.read(spark).load(path),
            "by the timeline alone": lambda: spark.read.parquet(*map(str, snapshot_files(Path(path)))),
        }
    if subject.family == "iceberg":

        def refreshed() -> DataFrame:
            spark.sql(f"REFRESH TABLE {_identifier(path)}")
            return spark.table(_identifier(path))

        return {"": refreshed}
    if subject.family == "hudi":
        hudi = spark.read.format("hudi")
        return {
            f"metadata table {way}": partial(hudi.option("hoodie.metadata.enable", on).load, path)
            for way, on in (("on", "true"), ("off", "false"))
        }
    kind = "parquet" if subject.family == "plain" else subject.family
    return {"": lambda: spark.read.format(kind).load(path)}


def _counted(frame: DataFrame) -> dict[str, Any]:
    """For each version its rows, keys and wrong rows; and the keys of all."""
    wrong = F.coalesce(F.sum((F.col("text") != text()).cast("int")), F.lit(0))
    counted = frame.rollup("ts").agg(F.count("*"), F.countDistinct("id"), wrong).collect()
    versions = {str(row[0]): [int(number) for number in row[1:]] for row in counted}
    return {"keys": versions.pop("None")[1], "versions": versions}
