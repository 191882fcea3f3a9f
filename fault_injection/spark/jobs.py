"""Jobs of sparkrobust's own to have faults happen to, and what a table must hold after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkrobust as sr
from fault_injection.spark.inside import here

OPERATION = "hoodie.datasource.write.operation"
OPTIONS = {
    "hoodie.table.name": "chaos",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "false",
    # Small as the tables are, tasks write them.
    "hoodie.write.robust.driver.max.bytes": "0",
}
PARTS = 2
TASKS = 4


def text(number: int, version: int) -> str:
    """A column's value, by which a row of another version, or half a row, is told from the right one."""
    return f"{number:08d}-{version}-" + "x" * 40


@dataclass(frozen=True)
class Source:
    """Passes rows on, and says where it is."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here("source begins")
        for batch in batches:
            yield batch
            here("source goes on")
        here("source ends")


def rows(spark: SparkSession, first: int, end: int, version: int, how: str = "plain") -> DataFrame:
    """Rows whose contents follow from their number and version; ``how`` they come is one of :data:`HOW`."""
    plain = spark.range(first, end, 1, TASKS).select(
        F.col("id").cast("int").alias("id"),
        F.lit(version).cast("long").alias("ts"),
        F.format_string(f"%08d-{version}-" + "x" * 40, "id").alias("text"),
        F.format_string("part-%d", F.col("id") % PARTS).alias("part"),
    )
    return HOW[how](plain)


def _shuffled(frame: DataFrame) -> DataFrame:
    return frame.repartition(TASKS, "id")


def _cached(frame: DataFrame) -> DataFrame:
    kept = frame.persist(StorageLevel.MEMORY_ONLY)
    kept.count()
    return kept


def _by_chance(frame: DataFrame) -> DataFrame:
    """Rows that another reading gives to other tasks, with other values."""
    chance = F.concat("text", F.lit("?"), F.rand().cast("string"))
    return frame.withColumn("text", chance).repartition(TASKS)


HOW: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda frame: frame,
    "source": lambda frame: frame.mapInArrow(Source(), frame.schema),
    "shuffled": _shuffled,
    "cached": _cached,
    "chance": _by_chance,
    "chance, then source": lambda frame: HOW["source"](_by_chance(frame)),
    "cached chance": lambda frame: _cached(_by_chance(frame)),
}


def store_options(spark: SparkSession) -> dict[str, str]:
    """How the session's store is reached, where its settings say so."""
    prefix = "spark.hadoop."
    settings = spark.sparkContext.getConf().getAll()
    return {name.removeprefix(prefix): value for name, value in settings if name.startswith(f"{prefix}fs.")}


def write(
    spark: SparkSession,
    path: str,
    operation: str,
    first: int,
    end: int,
    version: int,
    *,
    how: str = "plain",
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One write; its result."""
    chosen = {**OPTIONS, OPERATION: operation, **store_options(spark), **(options or {})}
    result = sr.write(rows(spark, first, end, version, how)).options(**chosen).mode("append").save(path)
    assert result is not None  # it is what mode "ignore" may give
    return asdict(result)


def recover(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    """What a new driver does for one that was killed just now."""
    return [asdict(one) for one in sr.Table(path, store_options(spark)).recover(even_alive=True)]


@dataclass
class Expected:
    """The rows that a table must hold: the version of each number."""

    versions: dict[int, list[int]] = field(default_factory=dict)

    def write(self, operation: str, first: int, end: int, version: int) -> None:
        """A write that has become part of the table."""
        for number in range(first, end):
            if operation == "delete":
                self.versions.pop(number, None)
            elif operation in ("bulk_insert", "insert"):
                self.versions.setdefault(number, []).append(version)
            else:
                held = self.versions.get(number)
                self.versions[number] = [max([*held, version])] * len(held) if held else [version]

    def rows(self) -> list[tuple[int, int, str, str]]:
        """In order."""
        return sorted(
            (number, version, text(number, version), f"part-{number % PARTS}")
            for number, found in self.versions.items()
            for version in found
        )
